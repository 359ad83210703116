//! Reading a part of a stream, where the broker can.

use acemq::{ErrorKind, Message, STREAM_FILTER_VALUE, StreamOffset};
use testkit::eventually;

use super::{Far, Log, done, handled_up_to, take};
use crate::{
    consumer::bench::{SOON, recorder},
    support::Broker,
};

const REGIONS: [Option<&str>; 4] = [Some("eu"), Some("us"), None, Some("uk")];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_a_filter_is_for_reaches_the_handler() {
    let Some(broker) = Broker::rabbitmq(testkit::amqp4_url()) else { return };
    broker.run(filters).await;
}

async fn filters(broker: Broker) {
    let log = Log::new(&broker).await;
    let numbers = log.mq.publisher::<u64>("", &*log.stream);
    for number in 0..40 {
        let sending = numbers.send(&number);
        match REGIONS[number as usize % REGIONS.len()] {
            Some(region) => sending.header(STREAM_FILTER_VALUE, region).await.unwrap(),
            None => sending.await.unwrap(),
        };
    }
    let every_fourth = |rests: &[u64]| -> Vec<(u64, u64)> {
        (0..40).filter(|n| rests.contains(&(n % 4))).map(|n| (n, n)).collect()
    };
    let first = || log.reader().from(StreamOffset::First);
    for (reader, expected) in [
        (first().filter("eu"), every_fourth(&[0])),
        (first().filter("eu").filter("uk"), every_fourth(&[0, 3])),
        (first().filter("us").match_unfiltered(), every_fourth(&[1, 2])),
    ] {
        let (record, mut seen) = recorder();
        let consumer = reader.start(record).await.unwrap();
        assert_eq!(take(&mut seen, expected.len() as u64).await, expected);
        // What the broker sent in vain counts as passed, and nothing as missing.
        let last = expected.last().unwrap().0;
        eventually("it has passed the last", SOON, async || {
            consumer.last_handled_offset().is_some_and(|offset| offset >= last)
        })
        .await;
        assert_eq!(consumer.gap(), None);
        consumer.close().await.unwrap();
        assert!(seen.try_recv().is_err());
    }
    let (record, mut seen) = recorder();
    let consumer = log.reader().from(StreamOffset::Offset(20)).filter("us");
    let consumer = consumer.start(record).await.unwrap();
    assert_eq!(take(&mut seen, 5).await, [(21, 21), (25, 25), (29, 29), (33, 33), (37, 37)]);
    numbers.send(&40).header(STREAM_FILTER_VALUE, "us").await.unwrap();
    assert_eq!(take(&mut seen, 1).await, [(40, 40)]);
    handled_up_to(&consumer, 40).await;
    assert_eq!((consumer.counters().handled, consumer.gap()), (6, None));
    log.mq.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filtered_reader_finds_out_that_its_stream_was_made_anew() {
    let Some(broker) = Broker::rabbitmq(testkit::amqp4_url()) else { return };
    broker.run(made_anew).await;
}

async fn write(log: &Log, regions: &[&str]) {
    let numbers = log.mq.publisher::<u64>("", &*log.stream);
    for (number, region) in (0..).zip(regions) {
        numbers.send(&number).header(STREAM_FILTER_VALUE, *region).await.unwrap();
    }
}

async fn made_anew(broker: Broker) {
    let mut far = Far::new(&broker).await;
    write(&far.log, &["eu", "us", "eu"]).await;
    let (record, mut seen) = recorder();
    let reader = far.reader().from(StreamOffset::First).filter("eu");
    let consumer = reader.start(record).await.unwrap();
    assert_eq!(take(&mut seen, 2).await, [(0, 0), (2, 2)]);
    handled_up_to(&consumer, 2).await;
    // The message at its place is not one that it is sent.
    far.cut(&consumer).await;
    far.log.mq.delete_queue(&far.log.stream).await.unwrap();
    far.log.declare().await;
    write(&far.log, &["eu", "us", "us", "us", "eu"]).await;
    far.proxy.restore().await;
    assert_eq!(take(&mut seen, 2).await, [(0, 0), (4, 4)]);
    far.mq.close().await.unwrap();
    far.log.mq.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_does_not_filter_is_not_asked_to() {
    let Some(broker) = Broker::rabbitmq(testkit::amqp_url()) else { return };
    broker.run(refuses_filters).await;
}

async fn refuses_filters(broker: Broker) {
    let log = Log::new(&broker).await;
    let error = log.reader().filter("eu").start(|_: Message<u64>| done()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("3.13"), "{error}");
    log.mq.close().await.unwrap();
}
