//! A database of each kind for a test, empty and its own.

#![allow(dead_code, reason = "each test program uses a part of it")]

use acemq::{ClaimedRecord, Envelope, OutboxRecord, OutboxStore, StoredRecord};

/// What one kind of database is called and how a test writes to it by hand.
macro_rules! database {
    (
        $name:ident, $outbox:ident, $idempotency:ident, $schemas:ident, $checkpoints:ident, $sagas:ident,
        text: $text:literal
    ) => {
        pub(crate) type Db = sqlx::$name;
        pub(crate) type Pool = sqlx::Pool<Db>;
        pub(crate) type Outbox = acemq_sql::$outbox;
        pub(crate) type Idempotency = acemq_sql::$idempotency;
        pub(crate) type Schemas = acemq_sql::$schemas;
        pub(crate) type Checkpoints = acemq_sql::$checkpoints;
        pub(crate) type Sagas = acemq_sql::$sagas;

        impl Database {
            pub(crate) async fn execute(&self, sql: &str) -> u64 {
                let sql = sqlx::AssertSqlSafe(sql.to_owned());
                sqlx::raw_sql(sql).execute(&self.pool).await.unwrap().rows_affected()
            }

            /// The first column of the first row, as text.
            pub(crate) async fn text(&self, expression: &str, rest: &str) -> Option<String> {
                let text = format!("SELECT CAST({expression} AS {}) {rest}", $text);
                sqlx::query_scalar(sqlx::AssertSqlSafe(text)).fetch_one(&self.pool).await.unwrap()
            }

            /// How many rows a session of a pool counts.
            pub(crate) async fn count_in(pool: &Pool, rows: &str) -> i64 {
                let count = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {rows}"));
                sqlx::query_scalar(count).fetch_one(pool).await.unwrap()
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

            /// A schema registry whose tables exist.
            pub(crate) async fn schemas(&self) -> Schemas {
                let registry = Schemas::new(self.pool.clone());
                registry.create_table_if_absent().await.unwrap();
                registry
            }

            /// A store of checkpoints whose table exists.
            pub(crate) async fn checkpoints(&self) -> Checkpoints {
                let store = Checkpoints::new(self.pool.clone());
                store.create_table_if_absent().await.unwrap();
                store
            }

            /// A saga store whose table exists.
            pub(crate) async fn sagas(&self) -> Sagas {
                let store = Sagas::new(self.pool.clone());
                store.create_table_if_absent().await.unwrap();
                store
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

pub(crate) mod mariadb;
pub(crate) mod postgres;
pub(crate) mod sqlite;

pub(crate) fn record(id: &str) -> OutboxRecord {
    record_with_body(id, id.as_bytes())
}

/// A record that goes where the test wants.
pub(crate) fn record_to(id: &str, routing_key: &str) -> OutboxRecord {
    stored(id, routing_key, id.as_bytes())
}

/// A record with an id of the test's choice.
pub(crate) fn record_with_body(id: &str, body: &[u8]) -> OutboxRecord {
    stored(id, "order.placed", body)
}

fn stored(id: &str, routing_key: &str, body: &[u8]) -> OutboxRecord {
    let envelope = Envelope::new("order.placed");
    let made = OutboxRecord::new("orders", routing_key, "text/plain", "", &envelope).unwrap();
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
