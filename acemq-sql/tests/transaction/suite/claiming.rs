//! What a transactional consumer makes of a key that somebody has, or had.

use acemq::{ErrorKind, IdempotencyStore as _, TransactionClaim, TransactionalStore as _};
use testkit::eventually;

use super::{
    Idempotency, MOMENT, SOON, Shop,
    database::{FUTURE, PAST},
    handle, settled,
};

// promise: ID-6, ID-15, ID-17, ID-18
#[tokio::test]
async fn what_has_expired_is_handled_again_and_a_dead_holders_claim_is_taken_over_with_a_warning() {
    let Some(shop) = Shop::open().await else { return };
    let (log, _guard) = testkit::logs::of_this_thread();
    shop.write_row("dead", "CLAIMED", PAST).await;
    shop.write_row("old", "CONFIRMED", PAST).await;
    shop.write_row("done", "CONFIRMED", FUTURE).await;
    let consumer = shop.consumer().start_in_transaction(shop.store.clone(), handle).await.unwrap();
    for id in ["dead", "old", "done"] {
        shop.send(id).await;
    }
    settled(&consumer, 3).await;
    assert_eq!(consumer.counters().duplicates, 1);
    // The third is remembered for another hour only.
    assert_eq!((shop.effects().await, shop.confirmed().await), (2, 2));
    let taken = log.lines_with(&["WARN", "took over"]);
    assert_eq!(taken.len(), 1, "{taken:?}");
    assert!(taken[0].contains(&shop.key("dead")), "{taken:?}");
}

// promise: ID-5, ID-6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_under_a_live_lease_is_gone_round_until_it_is_given_up() {
    let Some(shop) = Shop::open().await else { return };
    let acemq::Claim::Owned(lease) = shop.store.try_claim(&shop.key("o-1")).await.unwrap() else {
        panic!("a new key")
    };
    let consumer = shop.consumer().start_in_transaction(shop.store.clone(), handle).await.unwrap();
    shop.send("o-1").await;
    eventually("it goes round", SOON, async || consumer.counters().in_progress >= 3).await;
    assert_eq!(shop.effects().await, 0);
    shop.store.release(&lease).await.unwrap();
    settled(&consumer, 1).await;
    let counters = consumer.counters();
    assert_eq!((counters.duplicates, counters.retried), (0, 0));
    assert_eq!((shop.effects().await, shop.confirmed().await), (1, 1));
}

// promise: ID-5, BX-8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_in_another_open_transaction_is_waited_for_then_gone_round_and_its_end_decides() {
    let Some(shop) = Shop::open().await else { return };
    if !shop.database.takes_two_writers() {
        return;
    }
    // Another process.
    let other = Idempotency::new(shop.database.another_pool().await);
    let consumer = shop.consumer().start_in_transaction(shop.store.clone(), handle).await.unwrap();
    for (id, commits) in [("undone", false), ("done", true)] {
        let before = consumer.counters();
        let begun = other.begin(&shop.key(id), MOMENT).await.unwrap();
        let TransactionClaim::Owned { transaction, hold } = begun else { panic!("a new key") };
        shop.send(id).await;
        eventually("it goes round", SOON, async || {
            consumer.counters().in_progress > before.in_progress
        })
        .await;
        if commits {
            other.commit(hold, transaction).await.unwrap();
        } else {
            drop(transaction);
            other.roll_back(hold).await;
        }
        settled(&consumer, before.acknowledged + 1).await;
        let duplicates = consumer.counters().duplicates - before.duplicates;
        assert_eq!(duplicates, u64::from(commits));
    }
    assert_eq!(shop.effects().await, 1);
    assert_eq!(consumer.counters().retried, 0);
}

// promise: ID-10
#[tokio::test]
async fn a_failure_to_claim_in_a_transaction_is_raised_and_is_never_an_answer() {
    let Some(shop) = Shop::open().await else { return };
    let begin = async |store: &Idempotency| store.begin(&shop.key("o-1"), MOMENT).await.map(drop);
    begin(&shop.store).await.unwrap();
    shop.database.execute("DROP TABLE acemq_idempotency").await;
    let error = begin(&shop.store).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let unseen = Idempotency::new(shop.database.pool.clone());
    assert!(!begin(&unseen).await.unwrap_err().is_transient());
    shop.nothing_is_left_open(&shop.database.pool).await;
    shop.database.pool.close().await;
    assert!(begin(&shop.store).await.unwrap_err().is_transient());
}
