//! What only PostgreSQL does, or only there has to be looked after.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use acemq::{
    ConsumerState, IdempotencyStore, Message, Queue, RetryPolicy, TransactionClaim,
    TransactionalStore,
};
use sqlx::postgres::PgPoolOptions;
use testkit::{OwnPostgres, eventually, unique};

use super::{
    database::{Database, Idempotency, Outbox},
    suite::{Handled, MOMENT, SOON, Shop, Transaction, execute, handle, settled, take_effect},
};

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

// promise: BX-7, BX-8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_killed_under_its_handlers_costs_no_attempt_and_doubles_nothing() {
    const ORDERS: u64 = 300;
    let Some(mut server) = OwnPostgres::start().await else { return };
    let pool = PgPoolOptions::new()
        .max_connections(6)
        .acquire_timeout(Duration::from_secs(1))
        .connect(&server.url())
        .await
        .unwrap();
    let (store, outbox) = (Idempotency::new(pool.clone()), Outbox::new(pool.clone()));
    store.create_table_if_absent().await.unwrap();
    outbox.create_table_if_absent().await.unwrap();
    sqlx::query("CREATE TABLE effects (id TEXT NOT NULL)").execute(&pool).await.unwrap();
    let mq = acemq::connect(format!("memory://{}", unique("restart"))).await.unwrap();
    mq.declare_queue(&Queue::new("orders").dead_letters()).await.unwrap();
    let handler = async |message: Message<String>, mut transaction: Transaction| -> Handled {
        take_effect(&mut transaction, &message).await?;
        execute(&mut transaction, "SELECT pg_sleep(0.005)").await?;
        Ok(transaction)
    };
    let consumer = mq.consumer::<String>("orders").concurrency(4);
    let consumer = consumer.start_in_transaction(store, handler).await.unwrap();
    for n in 0..ORDERS {
        let id = format!("o-{n}");
        mq.send_to_queue("orders", &*id).id(&*id).await.unwrap();
    }
    for part in 1..=2 {
        let some = async || consumer.counters().acknowledged >= part * ORDERS / 4;
        eventually("some are handled", SOON, some).await;
        server.kill();
        let waits = async || matches!(consumer.state(), ConsumerState::Waiting { .. });
        eventually("it waits", SOON, waits).await;
        server.restart().await;
    }
    settled(&consumer, ORDERS).await;
    assert_eq!(consumer.state(), ConsumerState::Receiving);
    let counters = consumer.counters();
    assert_eq!((counters.retried, counters.dead_lettered, counters.rejected), (0, 0, 0));
    let count = async |what: &'static str| -> i64 {
        sqlx::query_scalar(what).fetch_one(&pool).await.unwrap()
    };
    assert_eq!(count("SELECT count(*) FROM effects").await, 300);
    assert_eq!(count("SELECT count(DISTINCT id) FROM effects").await, 300);
    assert_eq!(count("SELECT count(*) FROM acemq_idempotency").await, 300);
}

#[tokio::test]
async fn a_table_whose_times_have_no_zone_serves_a_session_in_any() {
    let Some(database) = Database::create().await else { return };
    let store = Idempotency::new(database.pool.clone());
    for statement in store.schema_statements() {
        database.execute(&statement.replace("TIMESTAMPTZ", "timestamp(6)")).await;
    }
    let begin = async |key| store.begin(key, MOMENT).await.unwrap();
    let TransactionClaim::Owned { transaction, hold } = begin("done").await else {
        panic!("a new key")
    };
    store.commit(hold, transaction).await.unwrap();
    assert!(matches!(begin("done").await, TransactionClaim::AlreadyConfirmed));
    assert!(store.is_confirmed("done").await.unwrap());
    store.try_claim("claimed").await.unwrap();
    assert!(matches!(begin("claimed").await, TransactionClaim::InProgress));
    database
        .execute(
            "UPDATE acemq_idempotency \
             SET expires_at = (clock_timestamp() AT TIME ZONE 'UTC') - INTERVAL '1 second'",
        )
        .await;
    for key in ["done", "claimed"] {
        let TransactionClaim::Owned { transaction, hold } = begin(key).await else {
            panic!("it is over")
        };
        store.commit(hold, transaction).await.unwrap();
        assert!(store.is_confirmed(key).await.unwrap());
    }
}
