//! What cannot work is refused before anything is asked of a broker.

use acemq::{
    Client, ErrorKind, MemoryStreamCheckpoints, Message, OnFailure, Queue, Stream,
    StreamConsumerBuilder, StreamOffset,
};
use std::time::Duration;
use testkit::unique;

use super::done;
use crate::support::Broker;

type Reader = StreamConsumerBuilder<u64>;

#[tokio::test]
async fn the_memory_transport_refuses_streams_by_name() {
    let mq = Broker::memory().client().await;
    let error =
        mq.declare_stream(&Stream::new("orders.log").max_length_bytes(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        error.to_string().contains("\"orders.log\": the memory transport has no streams"),
        "{error}"
    );
    let as_queue = Queue::new("orders.log").argument("x-queue-type", "stream");
    let error = mq.declare_queue(&as_queue).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let reading = mq.stream_consumer::<u64>("orders.log").start(|_: Message<u64>| done()).await;
    let error = reading.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("no streams"), "{error}");
    mq.close().await.unwrap();
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused() {
    let mq: Client = acemq::connect(format!("memory://{}", unique("settings"))).await.unwrap();
    let wrong: [(fn(Reader) -> Reader, &str); 8] = [
        (|it| it.prefetch(0), "at least 1"),
        (|it| it.concurrency(0), "at least 1"),
        (|it| it.on_failure(OnFailure::retry_in_place(0, Duration::ZERO)), "no attempt"),
        (|it| it.from(StreamOffset::Offset(u64::MAX)), "signed 64-bit"),
        (|it| it.from(StreamOffset::Time(std::time::UNIX_EPOCH - Duration::from_secs(1))), "1970"),
        (|it| it.match_unfiltered(), "no filter"),
        (|it| it.checkpoint(MemoryStreamCheckpoints::new()), "no name"),
        (|it| it.reader("billing"), "no store"),
    ];
    for (set, fault) in wrong {
        let reader = set(mq.stream_consumer::<u64>("orders.log"));
        let error = reader.start(|_: Message<u64>| done()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains(fault), "{error}");
    }
    mq.close().await.unwrap();
}
