//! Pausing, another prefetch, and groups, where order matters.

use std::{pin::pin, time::Duration};

use acemq::{ConsumerState, ErrorKind, OnFailure};
use testkit::eventually;
use tokio::time::timeout;

use super::{Log, partitions_of, payload, send_all};
use crate::{
    consumer::{
        bench::{Bench, SOON, settled},
        gate::Gate,
    },
    on_every_broker,
};

const MOMENT: Duration = Duration::from_millis(50);

on_every_broker! {
    // promise: OR-4
    async fn an_ordered_consumer_pauses_once_its_handlers_are_done_and_goes_on_in_order(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let gate = Gate::closed();
        let builder = bench.mq.consumer::<String>(&*bench.queue).prefetch(10).concurrency(2);
        let consumer = builder.ordered_by_header("x-key").start(gate.handler()).await.unwrap();
        send_all(&bench.mq.publisher("", &*bench.queue), 2, 3).await;
        eventually("one of each key runs", SOON, async || gate.begun().len() == 2).await;
        bench.eventually_ready(&bench.queue, 0).await;

        let mut pausing = pin!(consumer.pause());
        assert!(timeout(MOMENT, &mut pausing).await.is_err(), "it did not wait for its handlers");
        assert_eq!(bench.ready(&bench.queue).await, 0, "somebody may begin with what is behind");
        gate.let_go(6);
        pausing.await.unwrap();
        assert_eq!(consumer.state(), ConsumerState::Paused);
        let begun = gate.begun().len() as u64;
        assert_eq!(consumer.counters().acknowledged, begun);
        bench.eventually_ready(&bench.queue, 6 - begun).await;

        consumer.resume().await.unwrap();
        settled(&consumer, 6).await;
        for key in ["0", "1"] {
            let of_key: Vec<_> = (0..3).map(|number| payload(key, number)).collect();
            let begun = gate.begun().into_iter().filter(|begun| begun.starts_with(key));
            assert_eq!(Vec::from_iter(begun), of_key);
        }
        bench.mq.close().await.unwrap();
    }

    // promise: OR-4
    async fn a_message_that_waits_for_its_next_attempt_in_place_does_not_hold_up_a_pause(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let builder = bench.mq.consumer::<String>(&*bench.queue).ordered_by_header("x-key");
        let consumer = builder
            .on_failure(OnFailure::retry_in_place(2, SOON * 10))
            .start(async |_: acemq::Message<String>| {
                Err::<(), _>(acemq::HandlerError::transient("not yet"))
            })
            .await
            .unwrap();
        send_all(&bench.mq.publisher("", &*bench.queue), 1, 2).await;
        eventually("it has failed", SOON, async || consumer.counters().retried == 1).await;
        timeout(SOON, consumer.pause()).await.expect("it waited").unwrap();
        bench.eventually_ready(&bench.queue, 2).await;
        bench.mq.close().await.unwrap();
    }

    async fn a_larger_prefetch_keeps_the_order(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let log = Log::default();
        let handler = { let log = log.clone(); move |message| log.clone().handle(message) };
        let builder = bench.mq.consumer::<String>(&*bench.queue).prefetch(2).concurrency(4);
        let consumer = builder.ordered_by_header("x-key").start(handler).await.unwrap();
        let publisher = bench.mq.publisher("", &*bench.queue);
        let changing = async {
            for prefetch in [3, 5, 20, 50] {
                consumer.set_prefetch(prefetch).await.unwrap();
            }
        };
        tokio::join!(send_all(&publisher, 4, 40), changing);
        settled(&consumer, 160).await;
        log.in_order(4, 40);
        bench.mq.close().await.unwrap();
    }

    async fn what_would_break_the_order_is_refused(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let gate = Gate::open();
        let ordered = || bench.mq.consumer::<String>(&*bench.queue).ordered_by_header("x-key");
        let error = ordered().start(gate.handler()).group(2).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("`Client::partitions`"), "{error}");
        let answers = ordered().respond(async |_: acemq::Message<String>| Ok(7));
        assert_eq!(answers.await.unwrap_err().kind(), ErrorKind::Config);
        let group = ordered().start(gate.handler()).group(1).await.unwrap();
        assert_eq!(group.scale_to(2).await.unwrap_err().kind(), ErrorKind::Config);
        group.close().await.unwrap();

        let consumer = ordered().prefetch(5).start(gate.handler()).await.unwrap();
        let error = consumer.set_prefetch(4).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        consumer.pause().await.unwrap();
        assert_eq!(consumer.set_prefetch(4).await.unwrap_err().kind(), ErrorKind::Unsupported);
        consumer.set_prefetch(5).await.unwrap();
        bench.mq.close().await.unwrap();
    }

    // promise: OR-4
    async fn a_partition_pauses_and_goes_on_in_order(broker: Broker) {
        let mq = broker.client().await;
        let name = partitions_of(&broker, "orders", 1);
        let orders = mq.partitions(&*name, 1).await.unwrap();
        let log = Log::default();
        let handler = { let log = log.clone(); move |message| log.clone().handle(message) };
        let consumer = orders.consumer::<String>().prefetch(5).start(handler).await.unwrap();
        let publisher = orders.publisher::<String>();
        let sending = async {
            for number in 0..60 {
                publisher.send("0", &payload("0", number)).await.unwrap();
            }
        };
        let changing = async {
            let partition = consumer.partition(0).unwrap();
            assert_eq!(partition.set_prefetch(7).await.unwrap_err().kind(), ErrorKind::Unsupported);
            for _ in 0..3 {
                partition.pause().await.unwrap();
                assert_eq!(partition.state(), ConsumerState::Paused);
                partition.resume().await.unwrap();
            }
        };
        tokio::join!(sending, changing);
        eventually("all are handled", SOON, async || consumer.counters().acknowledged == 60).await;
        log.in_order(1, 60);
        consumer.close().await.unwrap();
        mq.delete_exchange(&name).await.unwrap();
        mq.close().await.unwrap();
    }
}
