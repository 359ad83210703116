//! What an idempotent consumer promises, on every broker.

mod support;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use acemq::{HandlerError, MemoryIdempotencyStore, Message, Queue};
use testkit::{eventually, unique};

const SOON: Duration = Duration::from_secs(20);

on_every_broker! {
    // promise: ID-1
    async fn a_second_delivery_of_a_confirmed_message_does_not_run_the_handler(broker: Broker) {
        let mq = acemq::connect(&*broker.url).await.unwrap();
        let queue = unique("orders");
        mq.declare_queue(&Queue::new(&*queue)).await.unwrap();
        let runs = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&runs);
        let consumer = mq
            .consumer::<String>(&*queue)
            .idempotent(MemoryIdempotencyStore::new())
            .start(move |_message: Message<String>| {
                seen.fetch_add(1, Ordering::SeqCst);
                async { Ok::<_, HandlerError>(()) }
            })
            .await
            .unwrap();

        for _ in 0..2 {
            mq.send_to_queue(&queue, "o-1").id("the-same-id").await.unwrap();
        }

        eventually("both deliveries are settled", SOON, async || {
            consumer.counters().acknowledged == 2
        })
        .await;
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        assert_eq!(consumer.counters().duplicates, 1);
        mq.close().await.unwrap();
        acemq::connect(&*broker.url).await.unwrap().delete_queue(&queue).await.unwrap();
    }
}
