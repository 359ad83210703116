//! What an idempotency store does on every database: the same.

mod claiming;
mod clocks;
mod keys;
mod purging;
mod tables;
mod trouble;

use acemq::{Claim, IdempotencyStore, Lease};

use super::database::{self, Database, Idempotency, PAST};

pub(super) async fn own(store: &Idempotency, key: &str) -> Lease {
    match store.try_claim(key).await.unwrap() {
        Claim::Owned(lease) => lease,
        other => panic!("expected to own {key}, got {other:?}"),
    }
}

pub(super) async fn expire(database: &Database, key: &str) {
    let sql =
        format!("UPDATE acemq_idempotency SET expires_at = {PAST} WHERE message_id = '{key}'");
    assert_eq!(database.execute(&sql).await, 1);
}
