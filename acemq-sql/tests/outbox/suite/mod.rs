//! What an outbox does on every database: the same.

mod adding;
mod bodies;
mod claiming;
mod clocks;
mod marking;
mod purging;
mod rows;
mod tables;
mod trouble;

use std::time::Duration;

use acemq::{FailedRecord, OutboxRecord, RecordClaim};

use super::database::{self, Database, Outbox};

const LEASE: Duration = Duration::from_secs(60);

/// Adds records in a transaction of their own.
async fn add(database: &Database, outbox: &Outbox, records: &[OutboxRecord]) {
    let mut transaction = database.pool.begin().await.unwrap();
    outbox.add_all(&mut transaction, records).await.unwrap();
    transaction.commit().await.unwrap();
}

fn failure(claim: &RecordClaim, reason: &str, retry_after: Duration) -> FailedRecord {
    FailedRecord::new(claim.clone(), reason.to_owned(), retry_after)
}
