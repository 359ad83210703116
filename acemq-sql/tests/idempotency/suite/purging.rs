use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use acemq::{Claim, IdempotencyStore};

use super::{
    database::{Database, PAST},
    expire, own,
};

// promise: ID-12, ID-13
#[tokio::test]
async fn a_purge_removes_what_has_expired_and_size_counts_it_until_then() {
    let Some(database) = Database::create().await else { return };
    let store = database.idempotency().await;
    let done = own(&store, "done").await;
    store.confirm(&done).await.unwrap();
    let old = own(&store, "old").await;
    store.confirm(&old).await.unwrap();
    own(&store, "alive").await;
    own(&store, "dead").await;
    expire(&database, "old").await;
    expire(&database, "dead").await;
    assert_eq!(store.size().await.unwrap(), 4);
    // The way of a message deletes nothing.
    assert_eq!(store.try_claim("done").await.unwrap(), Claim::AlreadyConfirmed);
    assert_eq!(store.size().await.unwrap(), 4);
    assert_eq!(store.purge_expired().await.unwrap(), 2);
    assert_eq!(store.size().await.unwrap(), 2);
    assert!(store.is_confirmed("done").await.unwrap());
    assert_eq!(store.try_claim("alive").await.unwrap(), Claim::InProgress);
}

#[tokio::test]
async fn a_purge_of_more_keys_than_one_statement_removes_takes_them_all() {
    let Some(database) = Database::create().await else { return };
    let store = database.idempotency().await;
    let keys: Vec<_> =
        (0..2_100).map(|n| format!("('k{n}', 'CONFIRMED', {PAST}, {PAST})")).collect();
    let insert =
        "INSERT INTO acemq_idempotency (message_id, state, recorded_at, expires_at) VALUES";
    database.execute(&format!("{insert} {}", keys.join(", "))).await;
    own(&store, "alive").await;
    assert_eq!(store.purge_expired().await.unwrap(), 2_100);
    assert_eq!(store.purge_expired().await.unwrap(), 0);
    assert_eq!(store.size().await.unwrap(), 1);
}

// promise: ID-12
#[tokio::test]
async fn a_purge_holds_up_no_message() {
    let Some(database) = Database::create().await else { return };
    let store = database.idempotency().await;
    let insert =
        "INSERT INTO acemq_idempotency (message_id, state, recorded_at, expires_at) VALUES";
    for part in 0..10 {
        let keys: Vec<_> =
            (0..2_000).map(|n| format!("('k{part}-{n}', 'CONFIRMED', {PAST}, {PAST})")).collect();
        database.execute(&format!("{insert} {}", keys.join(", "))).await;
    }

    let stop = Cell::new(false);
    let handle = async {
        let (mut longest, mut handled) = (Duration::ZERO, 0);
        while !stop.get() {
            let started = Instant::now();
            let lease = own(&store, &format!("new{handled}")).await;
            store.confirm(&lease).await.unwrap();
            longest = longest.max(started.elapsed());
            handled += 1;
        }
        (longest, handled)
    };
    let purge = async {
        let purged = store.purge_expired().await.unwrap();
        stop.set(true);
        purged
    };
    let ((longest, handled), purged) = tokio::join!(handle, purge);
    assert_eq!(purged, 20_000);
    assert!(handled > 1, "nothing was handled meanwhile");
    assert!(longest < Duration::from_secs(3), "{longest:?}");
}
