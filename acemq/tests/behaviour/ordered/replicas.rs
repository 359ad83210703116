//! Several processes on the same partitions: one at a time, and the next takes over.

use std::time::Duration;

use acemq::{HandlerError, Message, PartitionedConsumer, Partitions};
use testkit::eventually;

use super::{Log, partitions_of, payload};
use crate::{consumer::bench::SOON, on_every_broker};

async fn start(orders: &Partitions, log: &Log) -> PartitionedConsumer {
    let log = log.clone();
    let handler = move |message: Message<String>| {
        let log = log.clone();
        async move {
            log.begin(message.payload());
            tokio::time::sleep(Duration::from_millis(3)).await;
            log.end(message.payload());
            Ok::<_, HandlerError>(())
        }
    };
    orders.consumer::<String>().start(handler).await.unwrap()
}

on_every_broker! {
    // promise: OR-3
    async fn one_of_two_processes_has_a_partition_and_the_other_takes_over_in_order(broker: Broker) {
        let name = partitions_of(&broker, "orders", 2);
        let (first, second) = (broker.client().await, broker.client().await);
        let ours = first.partitions(&*name, 2).await.unwrap();
        let theirs = second.partitions(&*name, 2).await.unwrap();
        let log = Log::default();
        let leading = start(&ours, &log).await;
        let standing_by = start(&theirs, &log).await;
        let publisher = ours.publisher::<String>();
        for number in 0..60 {
            let payloads: Vec<_> = (0..4).map(|key| payload(&key.to_string(), number)).collect();
            let keys = ["0", "1", "2", "3"];
            publisher.send_all(keys.into_iter().zip(&payloads)).await.unwrap();
        }
        eventually("the first is at it", SOON, async || leading.counters().acknowledged > 20).await;
        assert_eq!(standing_by.counters().acknowledged, 0);
        // In order: what runs is done before the other one begins.
        leading.close().await.unwrap();
        eventually("the other does the rest", SOON, async || {
            leading.counters().acknowledged + standing_by.counters().acknowledged == 240
        })
        .await;
        assert!(standing_by.counters().acknowledged > 0);
        log.in_order(4, 60);
        first.delete_exchange(&name).await.unwrap();
        first.close().await.unwrap();
        second.close().await.unwrap();
    }
}
