//! One active relay on a table.

use std::time::Duration;

use acemq::{ErrorKind, OutboxStore};
use testkit::eventually;

use super::database::{Database, Outbox};

const SOON: Duration = Duration::from_secs(20);
const NOW: Duration = Duration::ZERO;

// promise: BX-5
#[tokio::test]
async fn one_relay_leads_and_another_takes_over_when_it_ends() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    // Another process would have a pool of its own.
    let other = Outbox::new(database.another_pool().await);

    let lock = outbox.lead(NOW).await.unwrap().unwrap();
    assert!(!lock.is_lost());
    assert!(other.lead(NOW).await.unwrap().is_none());
    assert!(outbox.clone().lead(NOW).await.unwrap().is_none());

    // Another table has a lock of its own.
    let second = Outbox::new(database.pool.clone()).table("second_outbox").unwrap();
    second.create_table_if_absent().await.unwrap();
    assert!(second.lead(NOW).await.unwrap().is_some());

    let (taken, ()) = tokio::join!(other.lead(SOON), async {
        lock.release().await;
    });
    let taken = taken.unwrap().unwrap();
    assert!(outbox.lead(NOW).await.unwrap().is_none());
    // Dropped, not released.
    drop(taken);
    assert!(outbox.lead(SOON).await.unwrap().is_some());
}

// promise: BX-5
#[tokio::test]
async fn the_lock_of_a_holder_that_is_cut_off_is_lost_to_it_first_and_free_then() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let (Some(proxy), pool) = database.distant_pool().await else { return };
    let lock = Outbox::new(pool).lead(NOW).await.unwrap().unwrap();
    // Neither side hears that the connection is gone.
    proxy.stall();
    assert!(outbox.lead(SOON).await.unwrap().is_some());
    assert!(lock.is_lost());
}

#[tokio::test]
async fn a_lock_needs_no_connection_of_the_pool() {
    let Some(database) = Database::create().await else { return };
    database.outbox().await;
    let outbox = Outbox::new(database.pool_of_one().await);
    let lock = outbox.lead(NOW).await.unwrap().unwrap();
    assert!(outbox.claim_batch(1, SOON).await.unwrap().is_empty());
    lock.release().await;
}

#[tokio::test]
async fn a_table_that_is_missing_is_said_before_anybody_leads() {
    let Some(database) = Database::create().await else { return };
    let outbox = Outbox::new(database.pool.clone()).table("nowhere").unwrap();
    assert_eq!(outbox.lead(NOW).await.unwrap_err().kind(), ErrorKind::NotFound);
}

// promise: BX-5
#[tokio::test]
async fn a_lock_whose_session_ends_is_lost_and_free() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let lock = outbox.lead(NOW).await.unwrap().unwrap();
    if !database.end_other_sessions().await {
        // A file is locked for as long as its process lives.
        return;
    }
    eventually("the lock is lost", SOON, async || lock.is_lost()).await;
    assert!(outbox.lead(SOON).await.unwrap().is_some());
}
