use std::sync::OnceLock;

use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use testkit::{MariaDbDatabase, Proxy};

database!(
    MySql,
    MySqlOutbox,
    MySqlIdempotency,
    MySqlSchemaRegistry,
    MySqlStreamCheckpoints,
    MySqlSagaStore,
    text: "CHAR"
);

/// What ends the session that asks for it.
pub(crate) const KILL: Option<&str> = Some("KILL CONNECTION_ID()");

/// An hour ago and an hour ahead, in a column's type.
pub(crate) const PAST: &str = "UTC_TIMESTAMP(6) - INTERVAL 1 HOUR";
pub(crate) const FUTURE: &str = "UTC_TIMESTAMP(6) + INTERVAL 1 HOUR";
pub(crate) const RAILS_PAST: &str = PAST;
pub(crate) const RAILS_FUTURE: &str = FUTURE;

/// What Rails 7.1 makes of the family's migration.
pub(crate) const RAILS: [&str; 2] = [
    "CREATE TABLE `acemq_outbox` (\
     `id` varchar(64) NOT NULL PRIMARY KEY, \
     `exchange_name` varchar(255) NOT NULL, \
     `routing_key` varchar(255) NOT NULL, \
     `body` text NOT NULL, \
     `body_encoding` varchar(16) NOT NULL, \
     `content_type` varchar(255) NOT NULL, \
     `headers` text NOT NULL, \
     `created_at` datetime(6) NOT NULL, \
     `published_at` datetime(6), \
     `attempts` int DEFAULT 0 NOT NULL, \
     `last_error` varchar(1000), \
     `locked_by` varchar(64), \
     `locked_until` datetime(6)) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci",
    "CREATE INDEX `acemq_outbox_pending` ON `acemq_outbox` (`published_at`, `created_at`)",
];

/// A column's name that is a word of SQL's own.
pub(crate) const KEY: &str = "`key`";

/// Whether the database keeps to the lengths of columns.
pub(crate) const LENGTHS_COUNT: bool = true;

pub(crate) struct Database {
    pub(crate) pool: Pool,
    options: MySqlConnectOptions,
    database: MariaDbDatabase,
    /// Another one on the same server, once it is asked for.
    other: OnceLock<MariaDbDatabase>,
}

impl Database {
    pub(crate) async fn create() -> Option<Self> {
        let database = MariaDbDatabase::create().await?;
        let options: MySqlConnectOptions = database.url().parse().unwrap();
        // No test may depend on the session's zone being UTC.
        let options = options.timezone(Some("+13:00".to_owned()));
        let pool = pool(8, 10, options.clone()).await;
        Some(Self { pool, options, database, other: OnceLock::new() })
    }

    pub(crate) fn options(&self) -> MySqlConnectOptions {
        self.options.clone()
    }

    /// Where it is, for another process.
    pub(crate) fn url(&self) -> String {
        self.database.url().to_owned()
    }

    pub(crate) fn takes_two_writers(&self) -> bool {
        true
    }

    pub(crate) async fn pool_of_one(&self) -> Pool {
        pool(1, 10, self.options.clone()).await
    }

    /// Ends every session but one, where there are any.
    pub(crate) async fn end_other_sessions(&self) -> bool {
        let others = "SELECT group_concat(concat('KILL ', id) SEPARATOR '; ') \
                      FROM information_schema.processlist \
                      WHERE db = DATABASE() AND id <> CONNECTION_ID()";
        let kill: String = sqlx::query_scalar(others).fetch_one(&self.pool).await.unwrap();
        for kill in kill.split("; ") {
            // One of them may have ended by itself.
            let kill = sqlx::AssertSqlSafe(kill.to_owned());
            let _ = sqlx::raw_sql(kill).execute(&self.pool).await;
        }
        true
    }

    /// Another process's pool.
    pub(crate) async fn another_pool(&self) -> Pool {
        pool(4, 10, self.options.clone()).await
    }

    /// Another process's pool, whose sessions begin with a statement.
    pub(crate) async fn pool_after(&self, statement: &'static str) -> Pool {
        MySqlPoolOptions::new()
            .max_connections(4)
            .after_connect(move |connection, _| {
                Box::pin(
                    async move { sqlx::raw_sql(statement).execute(connection).await.map(drop) },
                )
            })
            .connect_with(self.options.clone())
            .await
            .unwrap()
    }

    /// Whose sessions do not wait for a lock for long.
    pub(crate) async fn impatient_pool(&self) -> Pool {
        pool(2, 1, self.options.clone()).await
    }

    /// Whose connections keep no statement prepared.
    pub(crate) async fn pool_without_prepared_statements(&self) -> Pool {
        pool(2, 10, self.options.clone().statement_cache_capacity(0)).await
    }

    /// Whose session sees the database's clock so many seconds ahead of this host's. It stands
    /// still there, and so there is only one.
    pub(crate) async fn pool_with_a_clock_ahead_by(&self, seconds: i64) -> Option<Pool> {
        let set = format!("SET timestamp = UNIX_TIMESTAMP(SYSDATE(6)) + {seconds}");
        let pool = MySqlPoolOptions::new()
            .max_connections(1)
            .after_connect(move |connection, _| {
                let set = sqlx::AssertSqlSafe(set.clone());
                Box::pin(async move { sqlx::raw_sql(set).execute(connection).await.map(drop) })
            })
            .connect_with(self.options.clone())
            .await
            .unwrap();
        Some(pool)
    }

    /// What the database says about a table: its columns and its indexes.
    pub(crate) async fn describe(&self, table: &str) -> String {
        let show = sqlx::AssertSqlSafe(format!("SHOW CREATE TABLE {table}"));
        let (_, create): (String, String) =
            sqlx::query_as(show).fetch_one(&self.pool).await.unwrap();
        create.replace(table, "TABLE")
    }

    /// One connection over a slow network.
    pub(crate) async fn distant_pool(&self) -> (Option<Proxy>, Pool) {
        let proxy = Proxy::in_front_of(self.database.url()).await;
        let options: MySqlConnectOptions = proxy.url_for(self.database.url()).parse().unwrap();
        let pool = pool(1, 10, options).await;
        (Some(proxy), pool)
    }

    /// A second database, and a pool that reaches it from the first.
    pub(crate) async fn another_schema(&self) -> (String, Pool) {
        let other = MariaDbDatabase::create().await.unwrap();
        let name = other.url().rsplit('/').next().unwrap_or_default().to_owned();
        self.other.set(other).unwrap();
        (name, self.another_pool().await)
    }
}

/// A pool whose sessions wait for a lock for so many seconds, no test being held up for long.
async fn pool(size: u32, lock_wait: u8, options: MySqlConnectOptions) -> Pool {
    MySqlPoolOptions::new()
        .max_connections(size)
        .after_connect(move |connection, _| {
            let set = sqlx::AssertSqlSafe(format!("SET innodb_lock_wait_timeout = {lock_wait}"));
            Box::pin(async move { sqlx::raw_sql(set).execute(connection).await.map(drop) })
        })
        .connect_with(options)
        .await
        .unwrap()
}

/// The question makes no sense here.
pub(crate) async fn prepared_statements(_: &Pool) -> i64 {
    0
}

/// A pool for what needs no connection.
pub(crate) fn nowhere() -> Pool {
    MySqlPoolOptions::new().connect_lazy("mysql://nowhere").unwrap()
}
