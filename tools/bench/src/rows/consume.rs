//! Consuming with an acknowledgement for every message.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use acemq::{Client, ConsumerBuilder, Message, RawBytes};
use anyhow::{Result, ensure};
use bytes::Bytes;
use tokio::sync::Notify;

use crate::{
    bench::{Bench, QueueKind, body},
    pairs::{Pair, alternate},
    raw,
};

pub(super) const ABOUT: &str = "a consumer of bytes with prefetch 200, 200 handlers at once and a \
    handler that counts, against lapin with prefetch 200 acknowledging each message by channel and \
    tag, no ack awaited on its own; from subscribing until the broker has every ack; both consume \
    what acemq published";
pub(super) const IN_ORDER: &str = "the same with one handler at a time, which keeps the order";

const PREFETCH: u16 = 200;
pub(super) const MANY_HANDLERS: usize = 200;
pub(super) const ONE_HANDLER: usize = 1;

pub(super) async fn run(bench: &Bench, kind: QueueKind, handlers: usize) -> Result<Vec<Pair>> {
    let (mq, messages) = (&bench.mq, bench.messages);
    alternate(
        bench.rounds,
        async || {
            let channel = bench.raw.consuming().await?;
            let work = |queue| raw::consume(channel, queue, messages, PREFETCH);
            bench.time_consuming(mq, kind, work).await
        },
        async || {
            let work = |queue| consume(mq.clone(), queue, messages, handlers);
            bench.time_consuming(mq, kind, work).await
        },
    )
    .await
}

pub(super) async fn consume(
    mq: Client,
    queue: String,
    messages: usize,
    handlers: usize,
) -> Result<()> {
    handle_all(consumer(&mq, &queue, handlers), messages).await
}

pub(super) fn consumer(
    mq: &Client,
    queue: &str,
    handlers: usize,
) -> ConsumerBuilder<Bytes, RawBytes> {
    mq.consumer::<Bytes>(queue)
        .codec(RawBytes::default())
        .prefetch(PREFETCH)
        .concurrency(handlers)
        .declare(false)
}

pub(super) async fn handle_all(
    consumer: ConsumerBuilder<Bytes, RawBytes>,
    messages: usize,
) -> Result<()> {
    let (handled, all) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let done = Arc::clone(&all);
    let consumer = consumer
        .start(move |message: Message<Bytes>| {
            let whole = message.payload().len() == body().len();
            if whole && handled.fetch_add(1, Ordering::Relaxed) + 1 == messages {
                all.notify_one();
            }
            async { Ok(()) }
        })
        .await?;
    done.notified().await;
    consumer.close().await?;
    let counters = consumer.counters();
    ensure!(
        counters.acknowledged == messages as u64 && counters.returned == 0,
        "{messages} messages were sent, and these consumed: {counters:?}"
    );
    Ok(())
}
