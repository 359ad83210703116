//! A database of each kind for a test, empty and its own.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use acemq::{ClaimedRecord, Envelope, OutboxRecord, OutboxStore, StoredRecord};
use tracing::{Event, Level, Metadata, Subscriber, span};

/// What one kind of database is called and how a test writes to it by hand.
macro_rules! database {
    ($name:ident, $outbox:ident, $idempotency:ident) => {
        pub(crate) type Db = sqlx::$name;
        pub(crate) type Outbox = acemq_sql::$outbox;
        pub(crate) type Idempotency = acemq_sql::$idempotency;

        impl Database {
            pub(crate) async fn execute(&self, sql: &str) -> u64 {
                let sql = sqlx::AssertSqlSafe(sql.to_owned());
                sqlx::query(sql).execute(&self.pool).await.unwrap().rows_affected()
            }

            /// The first column of the first row, as text.
            pub(crate) async fn text(&self, expression: &str, rest: &str) -> Option<String> {
                let sql = sqlx::AssertSqlSafe(format!("SELECT CAST({expression} AS TEXT) {rest}"));
                sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
            }

            pub(crate) async fn count(&self, table: &str) -> u64 {
                let count = self.text("count(*)", &format!("FROM {table}")).await;
                count.unwrap().parse().unwrap()
            }

            /// An outbox whose table exists.
            pub(crate) async fn outbox(&self) -> Outbox {
                let outbox = Outbox::new(self.pool.clone());
                outbox.create_table_if_absent().await.unwrap();
                outbox
            }

            /// An idempotency store whose table exists.
            pub(crate) async fn idempotency(&self) -> Idempotency {
                let store = Idempotency::new(self.pool.clone());
                store.create_table_if_absent().await.unwrap();
                store
            }
        }
    };
}

pub(crate) mod postgres {
    use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};

    database!(Postgres, PostgresOutbox, PostgresIdempotency);

    pub(crate) struct Database {
        pub(crate) pool: PgPool,
        options: PgConnectOptions,
        _database: testkit::PostgresDatabase,
    }

    /// An hour ago and an hour ahead, in a column's type.
    pub(crate) const PAST: &str = "clock_timestamp() - INTERVAL '1 hour'";
    pub(crate) const FUTURE: &str = "clock_timestamp() + INTERVAL '1 hour'";
    /// The same where the column has no zone.
    pub(crate) const RAILS_PAST: &str =
        "(clock_timestamp() AT TIME ZONE 'UTC') - INTERVAL '1 hour'";
    pub(crate) const RAILS_FUTURE: &str =
        "(clock_timestamp() AT TIME ZONE 'UTC') + INTERVAL '1 hour'";

    /// What Rails 7.1 makes of seed 004's migration.
    pub(crate) const RAILS: &str = "CREATE TABLE \"acemq_outbox\" (\
        \"id\" character varying(64) NOT NULL PRIMARY KEY, \
        \"exchange_name\" character varying(255) NOT NULL, \
        \"routing_key\" character varying(255) NOT NULL, \
        \"body\" text NOT NULL, \
        \"body_encoding\" character varying(16) NOT NULL, \
        \"content_type\" character varying(255) NOT NULL, \
        \"headers\" text NOT NULL, \
        \"created_at\" timestamp(6) NOT NULL, \
        \"published_at\" timestamp(6), \
        \"attempts\" integer DEFAULT 0 NOT NULL, \
        \"last_error\" character varying(1000), \
        \"locked_by\" character varying(64), \
        \"locked_until\" timestamp(6))";

    impl Database {
        pub(crate) async fn create() -> Option<Self> {
            let database = testkit::PostgresDatabase::create().await?;
            let options: PgConnectOptions = database.url().parse().unwrap();
            // No test may depend on the session's zone being UTC.
            let options = options.options([("TimeZone", "Pacific/Auckland")]);
            let pool = PgPoolOptions::new().max_connections(8);
            let pool = pool.connect_with(options.clone()).await.unwrap();
            Some(Self { pool, options, _database: database })
        }

        pub(crate) fn takes_two_writers(&self) -> bool {
            true
        }

        pub(crate) async fn pool_of_one(&self) -> PgPool {
            let pool = PgPoolOptions::new().max_connections(1);
            pool.connect_with(self.options.clone()).await.unwrap()
        }

        /// Another process's pool.
        pub(crate) async fn another_pool(&self) -> PgPool {
            PgPoolOptions::new()
                .max_connections(4)
                .connect_with(self.options.clone())
                .await
                .unwrap()
        }
    }
}

pub(crate) mod sqlite {
    use std::time::Duration;

    use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions};

    database!(Sqlite, SqliteOutbox, SqliteIdempotency);

    pub(crate) struct Database {
        pub(crate) pool: SqlitePool,
        options: SqliteConnectOptions,
        _folder: tempfile::TempDir,
    }

    pub(crate) const PAST: &str = "strftime('%Y-%m-%d %H:%M:%f000', 'now', '-1 hour')";
    pub(crate) const FUTURE: &str = "strftime('%Y-%m-%d %H:%M:%f000', 'now', '+1 hour')";
    pub(crate) const RAILS_PAST: &str = PAST;
    pub(crate) const RAILS_FUTURE: &str = FUTURE;

    /// What Rails 7.1 makes of seed 004's migration.
    pub(crate) const RAILS: &str = "CREATE TABLE \"acemq_outbox\" (\
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
        \"locked_until\" datetime(6))";

    impl Database {
        pub(crate) async fn create() -> Option<Self> {
            let folder = tempfile::tempdir().unwrap();
            let options = SqliteConnectOptions::new()
                .filename(folder.path().join("test.sqlite"))
                .create_if_missing(true)
                .journal_mode(SqliteJournalMode::Wal)
                .busy_timeout(Duration::from_secs(30));
            let pool = SqlitePoolOptions::new().max_connections(8);
            let pool = pool.connect_with(options.clone()).await.unwrap();
            Some(Self { pool, options, _folder: folder })
        }

        pub(crate) fn takes_two_writers(&self) -> bool {
            false
        }

        pub(crate) async fn pool_of_one(&self) -> SqlitePool {
            let pool = SqlitePoolOptions::new().max_connections(1);
            pool.connect_with(self.options.clone()).await.unwrap()
        }

        /// Another process's pool.
        pub(crate) async fn another_pool(&self) -> SqlitePool {
            let pool = SqlitePoolOptions::new().max_connections(4);
            pool.connect_with(self.options.clone()).await.unwrap()
        }
    }
}

/// Counts warnings.
#[derive(Clone, Default)]
pub(crate) struct Warnings(Arc<AtomicUsize>);

impl Warnings {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("acemq")
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        if *event.metadata().level() == Level::WARN {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

pub(crate) fn record(id: &str) -> OutboxRecord {
    record_with_body(id, id.as_bytes())
}

/// A record with an id of the test's choice.
pub(crate) fn record_with_body(id: &str, body: &[u8]) -> OutboxRecord {
    let envelope = Envelope::new("order.placed");
    let made = OutboxRecord::new("orders", "order.placed", "text/plain", "", &envelope).unwrap();
    let stored = StoredRecord {
        id: id.to_owned(),
        exchange_name: made.exchange().to_owned(),
        routing_key: made.routing_key().to_owned(),
        body: body.to_vec(),
        content_type: made.content_type().to_owned(),
        headers: made.headers_json(),
        created_at: made.created_at(),
    };
    OutboxRecord::from_stored(stored).unwrap()
}

pub(crate) fn ids(records: &[ClaimedRecord]) -> Vec<&str> {
    records.iter().map(|record| record.claim().id()).collect()
}

pub(crate) async fn claim(store: &impl OutboxStore, size: usize) -> Vec<ClaimedRecord> {
    store.claim_batch(size, std::time::Duration::from_secs(60)).await.unwrap()
}
