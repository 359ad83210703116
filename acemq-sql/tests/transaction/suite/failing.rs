//! What happens to a message whose handler fails.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use acemq::{HandlerError, Message, OutboxStore, RetryPolicy};
use testkit::eventually;
use tokio::sync::{Barrier, Notify};

use super::{Handled, SOON, Shop, Transaction, handle, settled, take_effect};
use crate::support::record;

// promise: BX-8, ID-3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_fails_or_panics_or_is_too_slow_has_done_nothing() {
    let Some(shop) = Shop::open().await else { return };
    let outbox = shop.outbox.clone();
    let handler = move |message: Message<String>, mut transaction: Transaction| {
        let outbox = outbox.clone();
        async move {
            let order = format!("{}-{}", message.payload(), message.attempt());
            outbox.add(&mut transaction, &record(&order)).await?;
            take_effect(&mut transaction, &message).await?;
            match (message.attempt(), message.payload().as_str()) {
                (1, "fails") => Err(HandlerError::transient("on purpose")),
                (1, "panics") => panic!("on purpose"),
                (1, "hangs") => std::future::pending().await,
                (_, "fatal") => Err(HandlerError::fatal("on purpose")),
                _ => Ok(transaction),
            }
        }
    };
    let builder = shop
        .consumer()
        .retry(RetryPolicy::fixed(2, Duration::from_millis(1)))
        .handler_timeout(Duration::from_secs(2));
    let consumer = builder.start_in_transaction(shop.store.clone(), handler).await.unwrap();
    for id in ["fails", "panics", "hangs"] {
        shop.send(id).await;
    }
    settled(&consumer, 3).await;
    let counters = consumer.counters();
    assert_eq!((counters.retried, counters.duplicates), (3, 0));
    assert_eq!((shop.effects().await, shop.confirmed().await), (3, 3));
    assert_eq!(shop.outbox.pending_count().await.unwrap(), 3);

    shop.send("fatal").await;
    let reason = shop.reason_of_the_dead().await;
    assert!(reason.contains("on purpose"), "{reason}");
    assert_eq!((shop.effects().await, shop.confirmed().await), (3, 3));
    consumer.close().await.unwrap();
    shop.nothing_is_left_open(&shop.database.pool).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_attempt_does_not_meet_the_last_one() {
    let Some(shop) = Shop::open().await else { return };
    let handler = async |message: Message<String>, mut transaction: Transaction| -> Handled {
        take_effect(&mut transaction, &message).await?;
        if message.attempt() < 5 {
            return Err(HandlerError::transient("on purpose"));
        }
        Ok(transaction)
    };
    let builder = shop.consumer().retry(RetryPolicy::fixed(5, Duration::ZERO));
    let consumer = builder.start_in_transaction(shop.store.clone(), handler).await.unwrap();
    shop.send("o-1").await;
    settled(&consumer, 1).await;
    // It was rolled back before it was sent on.
    assert_eq!((consumer.counters().retried, consumer.counters().in_progress), (4, 0));
    assert_eq!(shop.effects().await, 1);
}

// promise: BX-8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_dropped_in_its_handler_rolls_back_and_the_message_is_handled_by_the_next() {
    let Some(shop) = Shop::open().await else { return };
    let pool = shop.database.another_pool().await;
    let begun = Arc::new(Notify::new());
    let began = Arc::clone(&begun);
    let handler = move |message: Message<String>, mut transaction: Transaction| {
        let began = Arc::clone(&began);
        async move {
            take_effect(&mut transaction, &message).await?;
            began.notify_one();
            std::future::pending::<Handled>().await
        }
    };
    let store = super::Idempotency::new(pool.clone());
    let consumer = shop.consumer().start_in_transaction(store, handler).await.unwrap();
    shop.send("o-1").await;
    tokio::time::timeout(SOON, begun.notified()).await.unwrap();
    drop(consumer);

    let consumer = shop.consumer().start_in_transaction(shop.store.clone(), handle).await.unwrap();
    settled(&consumer, 1).await;
    assert_eq!((shop.effects().await, shop.confirmed().await), (1, 1));
    shop.nothing_is_left_open(&pool).await;
}

#[tokio::test]
async fn a_transaction_kept_beyond_its_handler_is_reported_and_rolled_back_when_it_is_dropped() {
    let Some(shop) = Shop::open().await else { return };
    let (log, _guard) = testkit::logs::of_this_thread();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&kept);
    let handler = move |message: Message<String>, mut transaction: Transaction| {
        let keep = Arc::clone(&keep);
        async move {
            take_effect(&mut transaction, &message).await?;
            if message.attempt() > 1 {
                return Ok(transaction);
            }
            keep.lock().unwrap().push(transaction);
            Err(HandlerError::transient("on purpose"))
        }
    };
    let pool = shop.database.another_pool().await;
    let store = super::Idempotency::new(pool.clone());
    let builder = shop.consumer().retry(RetryPolicy::fixed(2, Duration::from_millis(1)));
    let consumer = builder.start_in_transaction(store, handler).await.unwrap();
    shop.send("o-1").await;
    eventually("it is reported", SOON, async || {
        !log.lines_with(&["has kept its transaction"]).is_empty()
    })
    .await;
    assert_eq!(shop.effects().await, 0);
    kept.lock().unwrap().clear();
    settled(&consumer, 1).await;
    assert_eq!((shop.effects().await, shop.confirmed().await), (1, 1));
    shop.nothing_is_left_open(&pool).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_give_back_each_others_transactions_have_both_failed() {
    let Some(shop) = Shop::open().await else { return };
    if !shop.database.takes_two_writers() {
        return;
    }
    let (places, both) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Barrier::new(2)));
    let handler = move |message: Message<String>, mut transaction: Transaction| {
        let (places, both) = (Arc::clone(&places), Arc::clone(&both));
        async move {
            take_effect(&mut transaction, &message).await?;
            places.lock().unwrap().push((message.id().to_owned(), transaction));
            both.wait().await;
            let mut places = places.lock().unwrap();
            let others = places.iter().position(|(id, _)| id != message.id()).unwrap();
            Ok(places.swap_remove(others).1)
        }
    };
    let builder = shop.consumer().concurrency(2);
    let consumer = builder.start_in_transaction(shop.store.clone(), handler).await.unwrap();
    shop.send("o-1").await;
    shop.send("o-2").await;
    eventually("both are set aside", SOON, async || consumer.counters().rejected == 2).await;
    assert_eq!((shop.effects().await, shop.confirmed().await), (0, 0));
    consumer.close().await.unwrap();
    shop.nothing_is_left_open(&shop.database.pool).await;
}
