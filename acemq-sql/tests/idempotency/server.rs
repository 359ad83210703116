//! What needs a server, with a clock and a network of its own.

use std::time::Duration;

use acemq::{Claim, IdempotencyStore, TransactionClaim, TransactionalStore};

use super::{
    database::{Database, Idempotency},
    suite::{expire, own},
};

// promise: BX-2
#[tokio::test]
async fn only_the_databases_clock_counts_however_far_it_is_from_the_hosts() {
    let Some(database) = Database::create().await else { return };
    database.idempotency().await;
    for years in [-5, 5] {
        let ahead = years * 365 * 24 * 3_600;
        // A time of this host's, written or compared anywhere, would end at once what is to last an
        // hour, or have what is over last for years.
        let hour = Duration::from_secs(3_600);
        let pool = database.pool_with_a_clock_ahead_by(ahead).await.unwrap();
        let store = Idempotency::new(pool).lease(hour).retention(hour);
        let held = own(&store, "held").await;
        for _ in 0..2 {
            assert_eq!(store.try_claim("held").await.unwrap(), Claim::InProgress);
            let begun = store.begin("held", hour).await.unwrap();
            assert!(matches!(begun, TransactionClaim::InProgress));
            assert!(store.renew(&held).await.unwrap());
        }
        let done = own(&store, "done").await;
        store.confirm(&done).await.unwrap();
        let together = own(&store, "together").await;
        store.confirm_batch(std::slice::from_ref(&together)).await.unwrap();
        let begun = store.begin("committed", hour).await.unwrap();
        let TransactionClaim::Owned { transaction, hold } = begun else { panic!("a new key") };
        store.commit(hold, transaction).await.unwrap();
        for key in ["done", "together", "committed"] {
            assert!(store.is_confirmed(key).await.unwrap(), "{key}");
            assert_eq!(store.try_claim(key).await.unwrap(), Claim::AlreadyConfirmed);
            let begun = store.begin(key, hour).await.unwrap();
            assert!(matches!(begun, TransactionClaim::AlreadyConfirmed), "{key}");
        }
        assert_eq!(store.purge_expired().await.unwrap(), 0);

        // Two hours later on that clock all of it is over.
        let later = database.pool_with_a_clock_ahead_by(ahead + 2 * 3_600).await;
        let later = Idempotency::new(later.unwrap());
        own(&later, "held").await;
        assert!(!later.is_confirmed("done").await.unwrap());
        let begun = later.begin("committed", hour).await.unwrap();
        let TransactionClaim::Owned { transaction, hold } = begun else { panic!("it is over") };
        drop(transaction);
        later.roll_back(hold).await;
        assert_eq!(later.purge_expired().await.unwrap(), 3);
        database.execute("DELETE FROM acemq_idempotency").await;
    }
}

// promise: ID-10
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_lost_at_any_step_of_a_claim_is_an_error_and_never_an_answer() {
    let Some(database) = Database::create().await else { return };
    let near = database.idempotency().await;
    let (proxy, pool) = database.distant_pool().await;
    let mut proxy = proxy.unwrap();
    proxy.delay(Duration::from_millis(8));
    let store = Idempotency::new(pool);
    let mut lost = 0;
    // Each way to the database and back takes two steps, and a claim has up to six of them.
    for step in 0..14 {
        let (done, dead) = (format!("done{step}"), format!("dead{step}"));
        let lease = own(&near, &done).await;
        near.confirm(&lease).await.unwrap();
        own(&near, &dead).await;
        expire(&database, &dead).await;
        for key in [&done, &dead] {
            // A connection is there.
            assert!(!store.is_confirmed("never").await.unwrap());
            let claiming = tokio::spawn({
                let (store, key) = (store.clone(), key.clone());
                async move { store.try_claim(&key).await }
            });
            tokio::time::sleep(Duration::from_millis(step * 8 + 4)).await;
            proxy.cut().await;
            proxy.restore().await;
            match claiming.await.unwrap() {
                Err(error) => {
                    assert!(error.is_transient(), "{error}");
                    lost += 1;
                }
                Ok(Claim::AlreadyConfirmed) if key == &done => {}
                Ok(Claim::Owned(lease)) if key == &dead => {
                    assert!(near.renew(&lease).await.unwrap(), "it is not its row");
                }
                Ok(wrong) => panic!("{key}, cut after {step} steps: {wrong:?}"),
            }
        }
    }
    assert!(lost >= 6, "the connection was lost {lost} times only");
}
