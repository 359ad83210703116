use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use acemq::{Claim, IdempotencyStore};

use super::{
    database::{Database, FUTURE, Idempotency},
    expire, own,
};

// promise: ID-4, ID-9
#[tokio::test]
async fn a_claim_is_owned_then_in_progress_then_confirmed() {
    let Some(database) = Database::create().await else { return };
    let store = database.idempotency().await;
    let other = Idempotency::new(database.another_pool().await);
    assert!(!store.is_confirmed("k").await.unwrap());
    let lease = own(&store, "k").await;
    assert!(lease.token().len() <= 64);
    assert_eq!(store.try_claim("k").await.unwrap(), Claim::InProgress);
    assert_eq!(other.try_claim("k").await.unwrap(), Claim::InProgress);
    assert!(!other.is_confirmed("k").await.unwrap());
    store.confirm(&lease).await.unwrap();
    store.confirm(&lease).await.unwrap();
    assert_eq!(other.try_claim("k").await.unwrap(), Claim::AlreadyConfirmed);
    assert!(other.is_confirmed("k").await.unwrap());
    assert!(!store.claim("k").await.unwrap());
}

// promise: ID-11
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_replicas_that_race_for_a_key_exactly_one_owns_it() {
    let Some(database) = Database::create().await else { return };
    let store = database.idempotency().await;
    let other = Idempotency::new(database.another_pool().await);
    let wins = Arc::new(AtomicUsize::new(0));
    let mut racers = tokio::task::JoinSet::new();
    for racer in 0..8 {
        let store = if racer % 2 == 0 { store.clone() } else { other.clone() };
        let wins = Arc::clone(&wins);
        racers.spawn(async move {
            for key in 0..40 {
                match store.try_claim(&format!("k{key}")).await.unwrap() {
                    Claim::Owned(_) => {
                        wins.fetch_add(1, Ordering::Relaxed);
                    }
                    Claim::InProgress => {}
                    Claim::AlreadyConfirmed => panic!("nobody confirmed"),
                }
            }
        });
    }
    while let Some(racer) = racers.join_next().await {
        racer.unwrap();
    }
    assert_eq!(wins.load(Ordering::Relaxed), 40);
}

// promise: ID-11, ID-15
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_replicas_that_race_for_an_expired_claim_exactly_one_takes_it_over() {
    let Some(database) = Database::create().await else { return };
    let store = database.idempotency().await;
    let other = Idempotency::new(database.another_pool().await);
    for _ in 0..10 {
        own(&store, "k").await;
        expire(&database, "k").await;
        let mut racers = tokio::task::JoinSet::new();
        for racer in 0..8 {
            let store = if racer % 2 == 0 { store.clone() } else { other.clone() };
            racers.spawn(async move { store.claim("k").await.unwrap() });
        }
        assert_eq!(racers.join_all().await.into_iter().filter(|won| *won).count(), 1);
        database.execute("DELETE FROM acemq_idempotency").await;
    }
}

// promise: ID-15, ID-18
#[tokio::test]
async fn an_expired_claim_is_taken_over_with_a_warning_and_an_expired_confirmation_without() {
    let Some(database) = Database::create().await else { return };
    let store = database.idempotency().await;
    let (log, _guard) = testkit::logs::of_this_thread();
    own(&store, "dead").await;
    expire(&database, "dead").await;
    assert_eq!(log.lines_with(&["WARN acemq"]).len(), 0);
    own(&store, "dead").await;
    assert_eq!(log.lines_with(&["WARN acemq"]).len(), 1);
    let lease = own(&store, "done").await;
    store.confirm(&lease).await.unwrap();
    expire(&database, "done").await;
    own(&store, "done").await;
    assert_eq!(log.lines_with(&["WARN acemq"]).len(), 1);
}

// promise: ID-16, BX-3
#[tokio::test]
async fn a_lost_lease_releases_and_renews_nothing_and_still_confirms() {
    let Some(database) = Database::create().await else { return };
    let store = database.idempotency().await;
    let lost = own(&store, "k").await;
    expire(&database, "k").await;
    // Another handler of the very same store.
    let held = own(&store, "k").await;
    store.release(&lost).await.unwrap();
    assert!(!store.renew(&lost).await.unwrap());
    assert_eq!(store.try_claim("k").await.unwrap(), Claim::InProgress);

    store.confirm(&lost).await.unwrap();
    store.release(&held).await.unwrap();
    assert!(!store.renew(&held).await.unwrap());
    assert_eq!(store.try_claim("k").await.unwrap(), Claim::AlreadyConfirmed);
}

#[tokio::test]
async fn a_release_frees_the_key_and_a_confirmation_holds_though_the_row_was_purged() {
    let Some(database) = Database::create().await else { return };
    let store = database.idempotency().await;
    let lease = own(&store, "k").await;
    store.release(&lease).await.unwrap();
    assert_eq!(store.size().await.unwrap(), 0);
    let lease = own(&store, "k").await;
    database.execute("DELETE FROM acemq_idempotency").await;
    store.confirm(&lease).await.unwrap();
    assert!(store.is_confirmed("k").await.unwrap());
    assert_eq!(database.text("claimed_by", "FROM acemq_idempotency").await, None);
}

// promise: BX-2
#[tokio::test]
async fn leases_and_retention_are_written_by_the_databases_clock() {
    let Some(database) = Database::create().await else { return };
    let hours = |n: u64| Duration::from_secs(n * 3_600);
    let store = database.idempotency().await.lease(hours(2)).retention(hours(3));
    let lease = own(&store, "k").await;
    let beyond = format!("FROM acemq_idempotency WHERE expires_at > {FUTURE}");
    assert_eq!(database.text("count(*)", &beyond).await.unwrap(), "1");
    expire(&database, "k").await;
    assert!(store.renew(&lease).await.unwrap(), "nobody took it over");
    assert_eq!(database.text("count(*)", &beyond).await.unwrap(), "1");
    store.confirm(&lease).await.unwrap();
    assert_eq!(database.text("count(*)", &beyond).await.unwrap(), "1");
    let short = store.clone().retention(Duration::from_secs(60));
    assert_eq!(IdempotencyStore::lease(&short), Some(Duration::from_secs(60)));
}

// promise: ID-17
#[tokio::test]
async fn a_duplicate_after_the_retention_is_handled_again() {
    let Some(database) = Database::create().await else { return };
    let store = database.idempotency().await;
    let lease = own(&store, "k").await;
    store.confirm(&lease).await.unwrap();
    expire(&database, "k").await;
    assert!(!store.is_confirmed("k").await.unwrap());
    own(&store, "k").await;
}

#[tokio::test]
async fn keys_are_confirmed_together_also_those_whose_rows_were_purged_or_taken_over() {
    let Some(database) = Database::create().await else { return };
    let store = database.idempotency().await;
    let keys = ["it's", "\\", "b", "taken over", "purged"];
    let mut leases = Vec::new();
    for key in keys {
        leases.push(own(&store, key).await);
    }
    own(&store, "other").await;
    expire(&database, "taken over").await;
    own(&store, "taken over").await;
    store.confirm_batch(&leases[..4]).await.unwrap();
    for key in &keys[..4] {
        assert!(store.is_confirmed(key).await.unwrap(), "{key}");
    }
    assert!(!store.is_confirmed("purged").await.unwrap());
    assert_eq!(store.try_claim("other").await.unwrap(), Claim::InProgress);

    database.execute("DELETE FROM acemq_idempotency WHERE message_id = 'purged'").await;
    // Twice, and one of them twice in a row: harmless.
    for _ in 0..2 {
        store.confirm_batch(&[leases.clone(), leases.clone()].concat()).await.unwrap();
    }
    for key in keys {
        assert!(store.is_confirmed(key).await.unwrap(), "{key}");
    }
    store.confirm_batch(&[]).await.unwrap();
    let held = "acemq_idempotency WHERE claimed_by IS NOT NULL";
    assert_eq!(database.count(held).await, 1);
}
