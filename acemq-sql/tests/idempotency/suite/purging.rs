use std::time::Duration;

use acemq::{Claim, IdempotencyStore};
use testkit::eventually;

use super::{
    database::{Database, Idempotency, PAST},
    expire, own,
};

const SOON: Duration = Duration::from_secs(20);

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
async fn a_long_purge_leaves_the_only_connection_to_others_in_between() {
    let Some(database) = Database::create().await else { return };
    let store = database.idempotency().await;
    for thousand in 0..30 {
        let keys: Vec<_> = (0..1_000)
            .map(|n| format!("('k{thousand}-{n}', 'CONFIRMED', {PAST}, {PAST})"))
            .collect();
        let insert =
            "INSERT INTO acemq_idempotency (message_id, state, recorded_at, expires_at) VALUES";
        database.execute(&format!("{insert} {}", keys.join(", "))).await;
    }
    let cramped = Idempotency::new(database.pool_of_one().await);
    let purging = tokio::spawn({
        let cramped = cramped.clone();
        async move { cramped.purge_expired().await.unwrap() }
    });
    eventually("the purge has begun", SOON, async || store.size().await.unwrap() < 30_000).await;
    own(&cramped, "new").await;
    assert!(!purging.is_finished(), "the claim waited for the whole purge");
    assert_eq!(purging.await.unwrap(), 30_000);
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
