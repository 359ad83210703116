//! What reading a stream promises, on RabbitMQ: memory has none.

mod checkpoints;
mod declaring;
mod failing;
mod filtering;
mod reading;
mod recovering;
mod refusing;

use std::time::Duration;

use acemq::{
    Client, ConsumerState, HandlerError, Message, Stream, StreamConsumer, StreamConsumerBuilder,
};
use testkit::{Proxy, eventually};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::{
    consumer::bench::{SOON, next, recorder},
    support::Broker,
};

/// A client, and a stream of the test's own.
pub(super) struct Log {
    pub(super) mq: Client,
    pub(super) stream: String,
}

impl Log {
    pub(super) async fn new(broker: &Broker) -> Self {
        let log = Self { mq: broker.client().await, stream: broker.name("log") };
        log.declare().await;
        log
    }

    pub(super) async fn declare(&self) {
        let stream = Stream::new(&*self.stream).max_length_bytes(100_000_000);
        self.mq.declare_stream(&stream).await.unwrap();
    }

    /// Publishes these numbers, many in flight, in this order.
    pub(super) async fn write(&self, numbers: std::ops::Range<u64>) {
        let numbers: Vec<u64> = numbers.collect();
        self.mq.publisher::<u64>("", &*self.stream).send_all(&numbers).await.unwrap();
    }

    pub(super) fn reader(&self) -> StreamConsumerBuilder<u64> {
        self.mq.stream_consumer::<u64>(&*self.stream)
    }

    /// All that is in the stream.
    pub(super) async fn everything(&self, count: u64) -> Vec<(u64, u64)> {
        let (record, mut seen) = recorder::<u64>();
        let consumer = self.reader().from(acemq::StreamOffset::First).start(record).await.unwrap();
        let all = take(&mut seen, count).await;
        quiet(&mut seen).await;
        consumer.close().await.unwrap();
        all
    }
}

/// A log that is read over a line that can be cut.
pub(super) struct Far {
    /// What writes, beside the line.
    pub(super) log: Log,
    pub(super) mq: Client,
    pub(super) proxy: Proxy,
}

impl Far {
    pub(super) async fn new(broker: &Broker) -> Self {
        let log = Log::new(broker).await;
        let proxy = Proxy::in_front_of(&broker.url).await;
        let mq = acemq::connect(proxy.url_for(&broker.url));
        let mq = mq.connect_timeout(Duration::from_secs(2)).await.unwrap();
        Self { log, mq, proxy }
    }

    pub(super) fn reader(&self) -> StreamConsumerBuilder<u64> {
        self.mq.stream_consumer::<u64>(&*self.log.stream)
    }

    /// Cuts the line and waits until the consumer has seen it.
    pub(super) async fn cut(&mut self, consumer: &StreamConsumer) {
        let mut states = consumer.states();
        self.proxy.cut().await;
        let lost = states.wait_for(|state| matches!(state, ConsumerState::Recovering { .. }));
        tokio::time::timeout(SOON, lost).await.unwrap().unwrap();
    }
}

/// The next messages: where each stands, and the number it carries.
pub(super) async fn take(
    seen: &mut UnboundedReceiver<Message<u64>>,
    count: u64,
) -> Vec<(u64, u64)> {
    let mut taken = Vec::new();
    for _ in 0..count {
        let message = next(seen).await;
        taken.push((message.stream_offset().unwrap(), *message.payload()));
    }
    taken
}

/// Numbers that stand at the offsets of the same value.
pub(super) fn same(numbers: std::ops::Range<u64>) -> Vec<(u64, u64)> {
    numbers.map(|number| (number, number)).collect()
}

/// Nothing more comes, as far as a moment tells.
pub(super) async fn quiet(seen: &mut UnboundedReceiver<Message<u64>>) {
    let more = tokio::time::timeout(Duration::from_millis(300), seen.recv()).await;
    assert!(more.is_err() || more.as_ref().unwrap().is_none(), "{more:?}");
}

pub(super) async fn handled_up_to(consumer: &StreamConsumer, offset: u64) {
    eventually(&format!("everything up to {offset} is handled"), SOON, async || {
        consumer.last_handled_offset() == Some(offset)
    })
    .await;
}

pub(super) fn done() -> std::future::Ready<Result<(), HandlerError>> {
    std::future::ready(Ok(()))
}
