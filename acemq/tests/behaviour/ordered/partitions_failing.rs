//! A failure in a partition: it halts, and the others go on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use acemq::{ConsumerState, HandlerError, Message, OnFailure, PartitionedConsumer, Partitions};
use testkit::eventually;
use tokio::time::timeout;

use super::{Log, partitions_of, payload};
use crate::{consumer::bench::SOON, on_every_broker, support::Broker};

/// Two partitions with five messages each, and a handler that fails at the third of the first one.
struct Two {
    mq: acemq::Client,
    orders: Partitions,
    log: Log,
    mended: Arc<AtomicBool>,
}

impl Two {
    async fn new(broker: &Broker) -> Self {
        let mq = broker.client().await;
        let orders = mq.partitions(partitions_of(broker, "orders", 2), 2).await.unwrap();
        assert_eq!((orders.of("a"), orders.of("order-1")), (0, 1));
        let publisher = orders.publisher::<String>();
        for number in 0..5 {
            for key in ["a", "order-1"] {
                publisher.send(key, &payload(key, number)).await.unwrap();
            }
        }
        Self { mq, orders, log: Log::default(), mended: Arc::default() }
    }

    async fn start(&self, on_failure: OnFailure) -> PartitionedConsumer {
        let (log, mended) = (self.log.clone(), Arc::clone(&self.mended));
        let handler = move |message: Message<String>| {
            let (log, mended) = (log.clone(), Arc::clone(&mended));
            async move {
                let fails = message.payload() == "a:2" && !mended.load(Ordering::SeqCst);
                log.handle(message).await?;
                if fails { Err(HandlerError::transient("out of stock")) } else { Ok(()) }
            }
        };
        self.orders.consumer::<String>().on_failure(on_failure).start(handler).await.unwrap()
    }

    fn mend(&self) {
        self.mended.store(true, Ordering::SeqCst);
    }

    async fn ready(&self, queue: &str) -> u64 {
        self.mq.inspect_queue(queue).await.unwrap().unwrap().messages
    }

    async fn done(self) {
        self.mq.delete_exchange(self.orders.name()).await.unwrap();
        self.mq.close().await.unwrap();
    }
}

async fn until(consumer: &PartitionedConsumer, acknowledged: u64) {
    let what = format!("{acknowledged} are handled");
    eventually(&what, SOON, async || {
        let counters = consumer.counters();
        (counters.acknowledged, counters.in_flight) == (acknowledged, 0)
    })
    .await;
}

on_every_broker! {
    // promise: OR-2
    async fn a_partition_halts_and_its_messages_go_back_until_it_is_resumed(broker: Broker) {
        let two = Two::new(&broker).await;
        let consumer = two.start(OnFailure::stop()).await;
        until(&consumer, 7).await;
        eventually("it has halted", SOON, async || !consumer.halted().is_empty()).await;
        let halted = consumer.halted();
        assert_eq!((halted.len(), halted[0].partition, halted[0].attempts), (1, 0, 1));
        assert_eq!((&*halted[0].reason, &*halted[0].queue), ("out of stock", &*two.orders.queue(0)));
        let state = consumer.partition(0).unwrap().state();
        assert!(matches!(state, ConsumerState::Halted { .. }), "{state:?}");
        let queue = two.orders.queue(0);
        eventually("its messages are back", SOON, async || two.ready(&queue).await == 3).await;
        assert_eq!(two.log.numbers("a"), [0, 1, 2]);
        assert_eq!(two.log.numbers("order-1"), [0, 1, 2, 3, 4]);

        assert!(!consumer.resume(1).await.unwrap() && !consumer.resume(7).await.unwrap());
        assert!(consumer.resume(0).await.unwrap());
        eventually("it halts again", SOON, async || two.log.numbers("a").len() == 4).await;
        eventually("it is listed", SOON, async || !consumer.halted().is_empty()).await;
        two.mend();
        assert!(consumer.resume(0).await.unwrap());
        until(&consumer, 10).await;
        assert_eq!(two.log.numbers("a"), [0, 1, 2, 2, 2, 3, 4]);
        assert!(consumer.halted().is_empty() && !consumer.resume(0).await.unwrap());
        consumer.close().await.unwrap();
        two.done().await;
    }

    // promise: OR-2
    async fn a_partition_that_is_resumed_while_it_halts_is_not_stuck(broker: Broker) {
        let two = Two::new(&broker).await;
        let consumer = two.start(OnFailure::stop()).await;
        let partition = consumer.partition(0).unwrap();
        let resuming = async {
            while consumer.counters().acknowledged < 10 {
                partition.resume().await.unwrap();
                if two.log.numbers("a").len() > 9 {
                    two.mend();
                }
                tokio::task::yield_now().await;
            }
        };
        timeout(SOON, resuming).await.expect("it is stuck");
        let handled = two.log.numbers("a");
        assert!(handled.is_sorted(), "{handled:?}");
        consumer.close().await.unwrap();
        two.done().await;
    }

    // promise: OR-2
    async fn a_partition_tries_in_place_and_then_skips_where_that_is_asked_for(broker: Broker) {
        let two = Two::new(&broker).await;
        let on_failure = OnFailure::retry_in_place(3, Duration::from_millis(10)).then_skip();
        let consumer = two.start(on_failure).await;
        until(&consumer, 9).await;
        assert_eq!(two.log.numbers("a"), [0, 1, 2, 2, 2, 3, 4]);
        let counters = consumer.counters();
        assert_eq!((counters.dead_lettered, counters.retried), (1, 2));
        let dead_letters = format!("{}.dlq", two.orders.queue(0));
        let dead = two.mq.peek(dead_letters).messages().await.unwrap();
        assert_eq!(dead[0].reason(), Some("exhausted 3 attempts: out of stock"));
        consumer.close().await.unwrap();
        two.done().await;
    }

    // promise: OR-4
    async fn a_halted_partition_is_closed_as_any_other_and_found_as_it_was(broker: Broker) {
        let two = Two::new(&broker).await;
        let consumer = two.start(OnFailure::retry_in_place(2, Duration::from_millis(10))).await;
        eventually("it has halted", SOON, async || !consumer.halted().is_empty()).await;
        assert_eq!(consumer.halted()[0].attempts, 2);
        until(&consumer, 7).await;
        consumer.close().await.unwrap();
        assert!(consumer.halted().is_empty() && !consumer.resume(0).await.unwrap());
        two.mend();
        let again = two.start(OnFailure::stop()).await;
        until(&again, 3).await;
        assert_eq!(two.log.numbers("a"), [0, 1, 2, 2, 2, 3, 4]);
        drop(again);
        two.done().await;
    }
}
