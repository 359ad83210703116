//! What only PostgreSQL does, or only there has to be looked after.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use acemq::{Message, RetryPolicy};

use super::suite::{Handled, Shop, Transaction, execute, handle, settled, take_effect};

// promise: BX-8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_swallows_a_failed_statement_is_not_taken_for_committed() {
    let Some(shop) = Shop::open().await else { return };
    let handler = async |message: Message<String>, mut transaction: Transaction| -> Handled {
        take_effect(&mut transaction, &message).await?;
        if message.attempt() == 1 {
            // From here on the server answers a COMMIT by rolling back, without an error.
            let _ = execute(&mut transaction, "SELECT 1 / 0").await;
        }
        Ok(transaction)
    };
    let builder = shop.consumer().retry(RetryPolicy::fixed(2, Duration::from_millis(1)));
    let consumer = builder.start_in_transaction(shop.store.clone(), handler).await.unwrap();
    shop.send("o-1").await;
    settled(&consumer, 1).await;
    assert_eq!((consumer.counters().retried, consumer.counters().duplicates), (1, 0));
    assert_eq!((shop.effects().await, shop.confirmed().await), (1, 1));
}

// promise: BX-8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_commit_itself_meets_is_told_apart() {
    let Some(shop) = Shop::open().await else { return };
    let runs = Arc::new(AtomicU32::new(0));
    // Runs at the commit: refuses, ends the session, or reports a conflict, once for each order.
    shop.database
        .execute(
            "CREATE SEQUENCE seen_dead; CREATE SEQUENCE seen_conflict; \
             CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             IF NEW.id = 'refused' THEN RAISE EXCEPTION 'no' USING ERRCODE = '23514'; END IF; \
             IF NEW.id = 'killed' AND nextval('seen_dead') = 1 \
             THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; \
             IF NEW.id = 'conflict' AND nextval('seen_conflict') = 1 \
             THEN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END IF; \
             RETURN NULL; END $$; \
             CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON effects \
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION at_commit()",
        )
        .await;
    let counted = Arc::clone(&runs);
    let handler = move |message, transaction| {
        counted.fetch_add(1, Ordering::SeqCst);
        handle(message, transaction)
    };
    let consumer = shop.consumer().start_in_transaction(shop.store.clone(), handler).await.unwrap();

    shop.send("refused").await;
    let reason = shop.reason_of_the_dead().await;
    assert!(reason.contains("was not committed"), "{reason}");
    assert_eq!((runs.load(Ordering::SeqCst), consumer.counters().dead_lettered), (1, 1));

    shop.send("conflict").await;
    settled(&consumer, 1).await;
    assert_eq!((runs.load(Ordering::SeqCst), consumer.counters().returned), (3, 0));

    // The server did not say whether it had committed.
    shop.send("killed").await;
    settled(&consumer, 2).await;
    assert_eq!((runs.load(Ordering::SeqCst), consumer.counters().returned), (5, 1));
    assert_eq!((shop.effects().await, shop.confirmed().await), (2, 2));
    assert_eq!((consumer.counters().duplicates, consumer.counters().retried), (0, 0));
}
