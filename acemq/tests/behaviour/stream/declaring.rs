//! Declaring streams, and telling them from queues.

use std::time::Duration;

use acemq::{ErrorKind, Exchange, Message, Queue, Stream, StreamOffset, Topology};

use super::{Log, done, take};
use crate::{consumer::bench::recorder, on_every_rabbitmq};

const DAY: Duration = Duration::from_secs(86_400);

on_every_rabbitmq! {
    async fn a_stream_is_declared_again_as_it_is_and_in_no_other_form(broker: Broker) {
        let (mq, stream) = (broker.client().await, broker.name("log"));
        let declared = Stream::new(&*stream).max_age(7 * DAY).max_length_bytes(1_000_000);
        // Without a segment size, which the broker would compare.
        for _ in 0..2 {
            mq.declare_stream(&declared).await.unwrap();
        }
        for (other, argument) in [
            (declared.clone().max_age(DAY), "x-max-age"),
            (declared.clone().max_length_bytes(2_000_000), "x-max-length-bytes"),
            (declared.clone().segment_bytes(500_000), "x-stream-max-segment-size-bytes"),
        ] {
            let error = mq.declare_stream(&other).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            assert_eq!(error.conflict().unwrap().argument, argument, "{error}");
        }
        let error = mq.declare_queue(&Queue::new(&*stream)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        mq.close().await.unwrap();
    }

    async fn a_stream_is_bound_and_published_to_with_confirms_like_a_queue(broker: Broker) {
        let (mq, stream) = (broker.client().await, broker.name("log"));
        let exchange = broker.exchange("events");
        let topology = Topology::new()
            .exchange(Exchange::topic(&*exchange))
            .stream(Stream::new(&*stream).max_age(DAY))
            .bind(&*stream, &*exchange, "order.*");
        mq.declare(&topology).await.unwrap();
        let placed = mq.publisher::<u64>(&*exchange, "order.placed");
        placed.send(&0).await.unwrap();
        let receipts = placed.send_all(&[1, 2]).await.unwrap();
        assert_eq!(receipts.len(), 2);
        let elsewhere = mq.publisher::<u64>(&*exchange, "invoice.sent");
        assert_eq!(elsewhere.send(&3).await.unwrap_err().kind(), ErrorKind::Unroutable);

        // What is confirmed is there for whoever comes, as often as it is read.
        for _ in 0..2 {
            let (record, mut seen) = recorder::<u64>();
            let reader = mq.stream_consumer::<u64>(&*stream).from(StreamOffset::First);
            let consumer = reader.start(record).await.unwrap();
            assert_eq!(take(&mut seen, 3).await, [(0, 0), (1, 1), (2, 2)]);
            consumer.close().await.unwrap();
        }
        mq.close().await.unwrap();
    }

    async fn a_queue_is_not_read_as_a_stream_nor_a_stream_consumed_as_a_queue(broker: Broker) {
        let log = Log::new(&broker).await;
        let mq = &log.mq;
        let consumer = mq.consumer::<u64>(&*log.stream).declare(false);
        let error = consumer.start(|_: Message<u64>| done()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains("it is a stream"), "{error}");
        assert_eq!(error.queue(), Some(&*log.stream));

        for kind in [Queue::new as fn(String) -> Queue, |name| Queue::new(name).classic()] {
            let queue = broker.name("orders");
            mq.declare_queue(&kind(queue.clone())).await.unwrap();
            let reader = mq.stream_consumer::<u64>(&*queue).from(StreamOffset::First);
            let error = reader.start(|_: Message<u64>| done()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            assert!(error.to_string().contains("it is no stream"), "{error}");
            assert_eq!(error.queue(), Some(&*queue));
        }
        // The connection has taken no harm.
        log.write(0..1).await;
        assert_eq!(log.everything(1).await, [(0, 0)]);
        mq.close().await.unwrap();
    }

    async fn a_stream_that_does_not_exist_is_not_found(broker: Broker) {
        let (mq, stream) = (broker.client().await, broker.name("log"));
        for from in [StreamOffset::First, StreamOffset::Next] {
            let reader = mq.stream_consumer::<u64>(&*stream).from(from);
            let error = reader.start(|_: Message<u64>| done()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        }
        mq.close().await.unwrap();
    }
}
