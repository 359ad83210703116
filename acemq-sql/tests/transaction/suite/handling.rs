//! What happens to a message whose handler is in order.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use acemq::{ErrorKind, HandlerError, Message, OutboxRelay, OutboxStore, Queue};
use sqlx::Connection as _;
use testkit::{eventually, unique};

use super::{
    COMMITS, Handled, Idempotency, LOCK_WAIT, Outbox, SOON, Shop, Transaction, database, handle,
    settled, take_effect,
};

// promise: BX-8, ID-19
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_writes_the_outgoing_messages_and_the_confirmation_commit_together() {
    for broker in [Some(format!("memory://{}", unique("tx"))), testkit::amqp_url()] {
        let Some(broker) = broker else { continue };
        let Some(shop) = Shop::open_at(&broker).await else { return };
        let shipped = unique("shipped");
        shop.mq.declare_queue(&Queue::new(&*shipped)).await.unwrap();
        let runs = Arc::new(AtomicU32::new(0));
        let ship = shop.mq.publisher::<String>("", &*shipped);
        let (outbox, counted) = (shop.outbox.clone(), Arc::clone(&runs));
        let handler = move |message: Message<String>, mut transaction: Transaction| {
            counted.fetch_add(1, Ordering::SeqCst);
            let (outbox, ship) = (outbox.clone(), ship.clone());
            async move {
                let record = ship.record(message.payload()).await?;
                take_effect(&mut transaction, &message).await?;
                outbox.add(&mut transaction, &record).await?;
                Ok(transaction)
            }
        };
        let consumer =
            shop.consumer().start_in_transaction(shop.store.clone(), handler).await.unwrap();
        shop.send("o-1").await;
        settled(&consumer, 1).await;
        assert_eq!((shop.effects().await, shop.confirmed().await), (1, 1));
        assert_eq!(shop.outbox.pending_count().await.unwrap(), 1);

        // Once more: acknowledged, and nothing else.
        shop.send("o-1").await;
        settled(&consumer, 2).await;
        assert_eq!(consumer.counters().duplicates, 1);
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        assert_eq!((shop.effects().await, shop.confirmed().await), (1, 1));

        let relay = OutboxRelay::builder(&shop.mq, shop.outbox.clone()).start();
        eventually("it went out", SOON, async || relay.published() == 1).await;
        consumer.close().await.unwrap();
        // What was acknowledged does not come back.
        assert_eq!(shop.ready("").await, 0);
        assert_eq!(shop.mq.inspect_queue(&shipped).await.unwrap().unwrap().messages, 1);
        shop.mq.delete_queue(&shipped).await.unwrap();
        shop.remove_queues().await;
        shop.mq.close().await.unwrap();
    }
}

// promise: BX-8, ID-11
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_deliveries_that_race_one_takes_effect_whatever_the_isolation() {
    const ORDERS: usize = 40;
    let Some(shop) = Shop::open().await else { return };
    for isolation in ["SELECT 1", super::SERIALIZABLE] {
        shop.database.execute("DELETE FROM effects").await;
        shop.database.execute("DELETE FROM acemq_idempotency").await;
        let mut consumers = Vec::new();
        for _ in 0..2 {
            let pool = shop.database.pool_after(isolation).await;
            let builder = shop.consumer().concurrency(4);
            let started = builder.start_in_transaction(Idempotency::new(pool), handle).await;
            consumers.push(started.unwrap());
        }
        for n in 0..ORDERS {
            for _ in 0..3 {
                shop.send(&format!("o-{n}")).await;
            }
        }
        eventually("every delivery is acknowledged", SOON * 2, async || {
            let counters = consumers.iter().map(acemq::Consumer::counters);
            let (acknowledged, in_flight) =
                counters.fold((0, 0), |sum, c| (sum.0 + c.acknowledged, sum.1 + c.in_flight));
            (acknowledged, in_flight) == (3 * ORDERS as u64, 0)
        })
        .await;
        let counters: Vec<_> = consumers.iter().map(acemq::Consumer::counters).collect();
        let duplicates: u64 = counters.iter().map(|counters| counters.duplicates).sum();
        assert_eq!(duplicates, 2 * ORDERS as u64);
        assert!(counters.iter().all(|c| c.retried + c.dead_lettered + c.rejected == 0));
        let ids = "(SELECT DISTINCT id FROM effects) AS ids";
        assert_eq!(shop.database.count(ids).await, ORDERS as u64);
        assert_eq!(shop.effects().await, ORDERS as u64);
        for consumer in consumers {
            consumer.close().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_handlers_than_connections_wait_for_one_and_all_get_through() {
    let Some(shop) = Shop::open().await else { return };
    let unprepared = shop.database.pool_without_prepared_statements().await;
    for pool in [shop.database.pool_of_one().await, unprepared.clone()] {
        shop.database.execute("DELETE FROM acemq_idempotency").await;
        shop.database.execute("DELETE FROM effects").await;
        let (store, outbox) = (Idempotency::new(pool.clone()), Outbox::new(pool.clone()));
        let send_on = shop.mq.publisher::<String>("", "nowhere");
        let handler = move |message: Message<String>, mut transaction: Transaction| {
            let (outbox, send_on) = (outbox.clone(), send_on.clone());
            async move {
                let record = send_on.record(message.payload()).await?;
                take_effect(&mut transaction, &message).await?;
                outbox.add(&mut transaction, &record).await?;
                Ok(transaction)
            }
        };
        let builder = shop.consumer().concurrency(8);
        let consumer = builder.start_in_transaction(store, handler).await.unwrap();
        for n in 0..30 {
            shop.send(&format!("o-{n}")).await;
        }
        settled(&consumer, 30).await;
        assert_eq!((shop.effects().await, shop.confirmed().await), (30, 30));
        consumer.close().await.unwrap();
        shop.nothing_is_left_open(&pool).await;
    }
    assert_eq!(database::prepared_statements(&unprepared).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_made_of_the_payload_recognises_what_was_sent_under_two_ids() {
    let Some(shop) = Shop::open().await else { return };
    let builder = shop.consumer().idempotency_key(|message| message.payload().clone());
    let consumer = builder.start_in_transaction(shop.store.clone(), handle).await.unwrap();
    for id in ["id-1", "id-2"] {
        shop.mq.send_to_queue(&shop.queue, "o-1").id(id).await.unwrap();
    }
    settled(&consumer, 2).await;
    assert_eq!(consumer.counters().duplicates, 1);
    assert_eq!(shop.effects().await, 1);
    let key = "FROM acemq_idempotency";
    assert_eq!(shop.database.text("message_id", key).await, Some(shop.key("o-1")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handlers_statements_wait_for_locks_as_its_session_says_and_savepoints_work() {
    let Some(shop) = Shop::open().await else { return };
    let handler = async |message: Message<String>, mut transaction: Transaction| {
        if let Some((asked, usual)) = LOCK_WAIT {
            let wait: String = sqlx::query_scalar(asked).fetch_one(&mut *transaction).await?;
            if wait != usual {
                return Err(HandlerError::fatal(format!("a wait of {wait}")));
            }
        }
        // Dropped, a savepoint undoes what came after it.
        let mut undone = transaction.begin().await?;
        sqlx::raw_sql("INSERT INTO effects (id) VALUES ('undone')").execute(&mut *undone).await?;
        drop(undone);
        let mut kept = transaction.begin().await?;
        sqlx::raw_sql("INSERT INTO effects (id) VALUES ('kept')").execute(&mut *kept).await?;
        kept.commit().await?;
        handle(message, transaction).await
    };
    let consumer = shop.consumer().start_in_transaction(shop.store.clone(), handler).await.unwrap();
    shop.send("o-1").await;
    // A duplicate has looked for a lock, too.
    shop.send("o-1").await;
    shop.send("o-2").await;
    settled(&consumer, 3).await;
    assert_eq!(shop.database.count("effects WHERE id = 'kept'").await, 2);
    assert_eq!(shop.effects().await, 4);
}

// promise: BX-8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_ends_its_transaction_itself_is_found_out() {
    let Some(shop) = Shop::open().await else { return };
    let handler = async |message: Message<String>, mut transaction: Transaction| -> Handled {
        take_effect(&mut transaction, &message).await?;
        if message.payload() == "savepoint" {
            std::mem::forget(transaction.begin().await?);
        } else {
            sqlx::raw_sql(COMMITS).execute(&mut *transaction).await?;
        }
        Ok(transaction)
    };
    let consumer = shop.consumer().start_in_transaction(shop.store.clone(), handler).await.unwrap();
    for (id, fault) in [("o-1", "has ended the transaction"), ("savepoint", "a savepoint open")] {
        shop.send(id).await;
        let reason = shop.reason_of_the_dead().await;
        assert!(reason.contains(fault), "{reason}");
    }
    assert_eq!(consumer.counters().rejected, 2);
    shop.nothing_is_left_open(&shop.database.pool).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_could_never_work_fails_and_says_why() {
    let Some(shop) = Shop::open().await else { return };
    let missing = Idempotency::new(shop.database.pool.clone()).table("no_such_table").unwrap();
    let error = shop.consumer().start_in_transaction(missing.clone(), handle).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("CREATE TABLE"), "{error}");
    // An idempotent consumer's store is looked at just as well.
    let accept = async |_: Message<String>| Ok::<_, HandlerError>(());
    let error = shop.consumer().idempotent(missing).start(accept).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let both = shop.consumer().idempotent(shop.store.clone());
    let error = both.start_in_transaction(shop.store.clone(), handle).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_waits_for_a_running_handler_and_its_commit() {
    let Some(shop) = Shop::open().await else { return };
    let (begun, go) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let (began, goes) = (Arc::clone(&begun), Arc::clone(&go));
    let handler = move |message, transaction| {
        let (began, goes) = (Arc::clone(&began), Arc::clone(&goes));
        async move {
            began.notify_one();
            goes.notified().await;
            handle(message, transaction).await
        }
    };
    let consumer = shop.consumer().start_in_transaction(shop.store.clone(), handler).await.unwrap();
    shop.send("o-1").await;
    tokio::time::timeout(SOON, begun.notified()).await.unwrap();
    let (closed, ()) = tokio::join!(consumer.close(), async { go.notify_one() });
    closed.unwrap();
    assert_eq!((shop.effects().await, shop.confirmed().await), (1, 1));
    assert_eq!(shop.ready("").await, 0);
}
