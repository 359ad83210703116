//! What only SQLite does: the lock of the active relay is a file.

use std::{process::Command, time::Duration};

use acemq::OutboxStore;
use sqlx::sqlite::SqlitePoolOptions;

use super::database::{Database, Outbox};

const NOW: Duration = Duration::ZERO;
const SOON: Duration = Duration::from_secs(20);

// promise: BX-5
#[tokio::test]
async fn a_relay_of_another_process_leads_until_that_process_ends() {
    let database = Database::create().await.unwrap();
    let outbox = database.outbox().await;
    outbox.lead(NOW).await.unwrap().unwrap().release().await;
    // A program that locks the same file, as a relay of another process does.
    let file = database.file("test.sqlite-acemq_outbox.relay");
    let mut other =
        Command::new("flock").arg("--no-fork").arg(&file).args(["sleep", "600"]).spawn().unwrap();
    testkit::eventually("the other one leads", SOON, async || {
        // Given up at once, so that it is not this one that is met next time.
        match outbox.lead(NOW).await.unwrap() {
            Some(lock) => lock.release().await,
            None => return true,
        }
        false
    })
    .await;
    assert!(other.try_wait().unwrap().is_none(), "the other one has ended");
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(outbox.lead(SOON).await.unwrap().is_some());
}

#[tokio::test]
async fn a_lock_file_that_cannot_be_made_is_named() {
    let database = Database::create().await.unwrap();
    let outbox = database.outbox().await;
    std::fs::create_dir(database.file("test.sqlite-acemq_outbox.relay")).unwrap();
    let error = outbox.lead(NOW).await.unwrap_err();
    assert_eq!(error.kind(), acemq::ErrorKind::Store);
    assert!(testkit::said_once(&error).contains("acemq_outbox.relay"), "{error}");
}

#[tokio::test]
async fn a_database_in_memory_has_one_active_relay_as_well() {
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await;
    let outbox = Outbox::new(pool.unwrap());
    outbox.create_table_if_absent().await.unwrap();
    let lock = outbox.lead(NOW).await.unwrap().unwrap();
    assert!(outbox.clone().lead(NOW).await.unwrap().is_none());
    lock.release().await;
    assert!(outbox.lead(NOW).await.unwrap().is_some());
}
