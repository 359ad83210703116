//! A pipeline of three steps.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use acemq::{Client, HandlerError, Message, RawBytes};
use anyhow::{Result, ensure};
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::sync::Notify;

use crate::{
    bench::{Bench, body, holds},
    pairs::{Pair, Reading, alternate, timed},
    raw,
};

pub(super) const ABOUT: &str = "three steps that hand bytes on, one handler each and prefetch 200, \
    against three loops on lapin that consume with prefetch 200, publish what they consumed to the \
    next queue with the position in its route raised, and acknowledge it when that is confirmed, \
    the confirms of one loop side by side; quorum queues; from subscribing until the broker has \
    every ack; both move what acemq sent into the pipeline";

const STEPS: [&str; 3] = ["validate", "reserve", "dispatch"];
const PREFETCH: u16 = 200;
/// How many are sent in at once.
const IN_FLIGHT: usize = 1_000;

pub(super) async fn run(bench: &Bench) -> Result<Vec<Pair>> {
    let raw = async |pipeline: String| {
        let mut channels = Vec::new();
        for _ in STEPS {
            channels.push(bench.raw.consuming().await?);
        }
        let publishing = Arc::clone(&bench.raw.publishing);
        let queues = STEPS.map(|step| format!("{pipeline}.{step}"));
        timed(raw::move_on(channels, publishing, queues.to_vec(), bench.messages, PREFETCH)).await
    };
    alternate(
        bench.rounds,
        async || on_a_pipeline(bench, &raw).await,
        async || {
            let ours = async |pipeline| {
                timed(move_through(bench.mq.clone(), pipeline, bench.messages)).await
            };
            on_a_pipeline(bench, ours).await
        },
    )
    .await
}

/// Makes a pipeline that holds all messages at its first step, has them moved to the end, and checks
/// that none is left.
async fn on_a_pipeline(
    bench: &Bench,
    measure: impl AsyncFn(String) -> Result<Reading>,
) -> Result<Reading> {
    let mq = &bench.mq;
    let name = format!("acemq-bench-{}", uuid::Uuid::new_v4());
    // Started once, so that there are an exchange and queues.
    let entry = start(mq, &name, true, |_| std::future::ready(Ok(()))).await?;
    entry.close().await?;
    let body = body();
    let sent = stream::iter(0..bench.messages)
        .map(|_| async { entry.send(&body).await })
        .buffer_unordered(IN_FLIGHT)
        .try_fold(0, async |count, _| Ok(count + 1))
        .await?;
    ensure!(sent == bench.messages, "{sent} of {} messages were sent in", bench.messages);
    holds(mq, &format!("{name}.{}", STEPS[0]), bench.messages).await?;
    let reading = measure(name.clone()).await?;
    for step in STEPS {
        let queue = format!("{name}.{step}");
        holds(mq, &queue, 0).await?;
        for suffix in ["", ".dlq", ".parked"] {
            mq.delete_queue(&format!("{queue}{suffix}")).await?;
        }
    }
    mq.delete_exchange(&name).await?;
    Ok(reading)
}

async fn move_through(mq: Client, name: String, messages: usize) -> Result<()> {
    let (arrived, all) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let done = Arc::clone(&all);
    let pipeline = start(&mq, &name, false, move |message| {
        let whole = message.payload().len() == body().len();
        if whole && arrived.fetch_add(1, Ordering::Relaxed) + 1 == messages {
            all.notify_one();
        }
        std::future::ready(Ok(()))
    })
    .await?;
    done.notified().await;
    pipeline.close().await?;
    let counters = pipeline.counters();
    ensure!(
        counters.completed == messages as u64 && counters.ended_early == 0,
        "{messages} messages were sent in, and of these runs it knows: {counters:?}"
    );
    Ok(())
}

async fn start<Fut>(
    mq: &Client,
    name: &str,
    declare: bool,
    last: impl Fn(Message<Bytes>) -> Fut + Send + Sync + 'static,
) -> acemq::Result<acemq::Pipeline<Bytes>>
where
    Fut: Future<Output = Result<(), HandlerError>> + Send + 'static,
{
    let [first, second, third] = STEPS;
    mq.pipeline(name)
        .declare(declare)
        .codec(RawBytes::default())
        .step(first, hand_on)
        .prefetch(PREFETCH)
        .step(second, hand_on)
        .prefetch(PREFETCH)
        .last(third, last)
        .prefetch(PREFETCH)
        .start()
        .await
}

async fn hand_on(message: Message<Bytes>) -> Result<Option<Bytes>, HandlerError> {
    Ok(Some(message.into_payload()))
}
