use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use testkit::Proxy;

database!(
    Sqlite,
    SqliteOutbox,
    SqliteIdempotency,
    SqliteSchemaRegistry,
    SqliteStreamCheckpoints,
    SqliteSagaStore,
    text: "TEXT"
);

/// What ends the session that asks for it.
pub(crate) const KILL: Option<&str> = None;

pub(crate) const PAST: &str = "strftime('%Y-%m-%d %H:%M:%f000', 'now', '-1 hour')";
pub(crate) const FUTURE: &str = "strftime('%Y-%m-%d %H:%M:%f000', 'now', '+1 hour')";
pub(crate) const RAILS_PAST: &str = PAST;
pub(crate) const RAILS_FUTURE: &str = FUTURE;

/// What Rails 7.1 makes of the family's migration.
pub(crate) const RAILS: [&str; 2] = [
    "CREATE TABLE \"acemq_outbox\" (\
     \"id\" varchar(64) NOT NULL PRIMARY KEY, \
     \"exchange_name\" varchar(255) NOT NULL, \
     \"routing_key\" varchar(255) NOT NULL, \
     \"body\" text NOT NULL, \
     \"body_encoding\" varchar(16) NOT NULL, \
     \"content_type\" varchar(255) NOT NULL, \
     \"headers\" text NOT NULL, \
     \"created_at\" datetime(6) NOT NULL, \
     \"published_at\" datetime(6), \
     \"attempts\" integer DEFAULT 0 NOT NULL, \
     \"last_error\" varchar(1000), \
     \"locked_by\" varchar(64), \
     \"locked_until\" datetime(6))",
    "CREATE INDEX \"acemq_outbox_pending\" ON \"acemq_outbox\" (\"published_at\", \"created_at\")",
];

/// A column's name that is a word of SQL's own.
pub(crate) const KEY: &str = "\"key\"";

/// Whether the database keeps to the lengths of columns.
pub(crate) const LENGTHS_COUNT: bool = false;

pub(crate) struct Database {
    pub(crate) pool: Pool,
    options: SqliteConnectOptions,
    folder: tempfile::TempDir,
}

impl Database {
    pub(crate) async fn create() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteConnectOptions::new()
            .filename(folder.path().join("test.sqlite"))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(Duration::from_secs(30));
        let pool = pool(8, options.clone()).await;
        Some(Self { pool, options, folder })
    }

    /// A file beside the database.
    pub(crate) fn file(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Where it is, for another process.
    pub(crate) fn url(&self) -> String {
        format!("sqlite://{}", self.folder.path().join("test.sqlite").display())
    }

    pub(crate) fn takes_two_writers(&self) -> bool {
        false
    }

    pub(crate) async fn pool_of_one(&self) -> Pool {
        pool(1, self.options.clone()).await
    }

    /// Ends every session but one, where there are any.
    pub(crate) async fn end_other_sessions(&self) -> bool {
        false
    }

    /// Another process's pool.
    pub(crate) async fn another_pool(&self) -> Pool {
        pool(4, self.options.clone()).await
    }

    /// Another process's pool, whose sessions begin with a statement. Every isolation is the same
    /// here.
    pub(crate) async fn pool_after(&self, _: &str) -> Pool {
        self.another_pool().await
    }

    /// Whose sessions do not wait for a lock for long.
    pub(crate) async fn impatient_pool(&self) -> Pool {
        pool(2, self.options.clone().busy_timeout(Duration::from_millis(200))).await
    }

    /// Whose connections keep no statement prepared.
    pub(crate) async fn pool_without_prepared_statements(&self) -> Pool {
        pool(2, self.options.clone().statement_cache_capacity(0)).await
    }

    /// The database's clock is this host's.
    pub(crate) async fn pool_with_a_clock_ahead_by(&self, _: i64) -> Option<Pool> {
        None
    }

    /// What the database says about a table: its columns and its indexes.
    pub(crate) async fn describe(&self, table: &str) -> String {
        let rows = format!(
            "FROM (SELECT sql FROM sqlite_master WHERE tbl_name = '{table}' ORDER BY name)"
        );
        self.text("group_concat(sql, '; ')", &rows).await.unwrap().replace(table, "TABLE")
    }

    /// There is no network here: one connection.
    pub(crate) async fn distant_pool(&self) -> (Option<Proxy>, Pool) {
        (None, self.pool_of_one().await)
    }

    /// A second database, and a pool that has it attached.
    pub(crate) async fn another_schema(&self) -> (String, Pool) {
        let file = self.folder.path().join("shop.sqlite");
        let attach = format!("ATTACH DATABASE '{}' AS shop", file.display());
        let pool = SqlitePoolOptions::new()
            .max_connections(2)
            .after_connect(move |connection, _| {
                let attach = sqlx::AssertSqlSafe(attach.clone());
                Box::pin(async move { sqlx::raw_sql(attach).execute(connection).await.map(drop) })
            })
            .connect_with(self.options.clone())
            .await
            .unwrap();
        ("shop".to_owned(), pool)
    }
}

async fn pool(size: u32, options: SqliteConnectOptions) -> Pool {
    SqlitePoolOptions::new().max_connections(size).connect_with(options).await.unwrap()
}

/// The question makes no sense here.
pub(crate) async fn prepared_statements(_: &Pool) -> i64 {
    0
}

/// A pool for what needs no connection.
pub(crate) fn nowhere() -> Pool {
    SqlitePoolOptions::new().connect_lazy("sqlite://nowhere").unwrap()
}
