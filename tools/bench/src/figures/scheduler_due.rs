//! How long a scheduler takes over messages that are all due at once.

use std::time::Duration;

use acemq::Client;
use anyhow::{Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::time::sleep;

use super::{Figure, Rounds, figure};
use crate::{
    bench::{Bench, QueueKind, body, declare, holds, publisher},
    pairs::timed,
};

pub(super) const ABOUT: &str = "a message's share of the time in which a scheduler with its usual \
    prefetch moves messages that are all due, from its start until the last of them is confirmed \
    in the queue that it is for and acknowledged";

/// At 200 µs it is 5,000 messages a second.
pub(super) const FIGURES: &[Figure] = &[
    figure("to a classic queue", "µs", Some(200.0)),
    figure("to a quorum queue", "µs", Some(200.0)),
];

const DUE: &str = "acemq.schedule.due";
/// How many are put there at once.
const IN_FLIGHT: usize = 1_000;
/// How often the scheduler is asked how far it is.
const LOOK: Duration = Duration::from_millis(1);

pub(super) async fn run(bench: &Bench) -> Result<Rounds> {
    let mut rounds = Vec::with_capacity(bench.rounds);
    // The first round warms up.
    for _ in 0..=bench.rounds {
        let classic = reading(bench, QueueKind::Classic).await?;
        rounds.push(vec![classic, reading(bench, QueueKind::Quorum).await?]);
    }
    rounds.remove(0);
    Ok(rounds)
}

async fn reading(bench: &Bench, kind: QueueKind) -> Result<f64> {
    let queue = declare(&bench.mq, kind).await?;
    fill(&bench.mq, &queue, bench.messages).await?;
    let (mq, messages) = (bench.mq.clone(), bench.messages as u64);
    let reading = timed(async move {
        let scheduler = mq.scheduler().await?;
        while scheduler.counters().delivered < messages {
            sleep(LOOK).await;
        }
        let counters = scheduler.counters();
        ensure!(counters.undelivered + counters.hops + counters.rejected == 0, "{counters:?}");
        Ok(scheduler.close().await?)
    })
    .await?;
    holds(&bench.mq, &queue, bench.messages).await?;
    bench.mq.delete_queue(&queue).await?;
    Ok(reading.seconds * 1e6 / bench.messages as f64)
}

/// Puts messages where a scheduler finds them, as they come out of the queues in which they waited.
async fn fill(mq: &Client, queue: &str, messages: usize) -> Result<()> {
    mq.scheduler().moves(false).await?.close().await?;
    let (due, body) = (publisher(mq, DUE.to_owned()), body());
    let sends = stream::iter(0..messages).map(|_| async {
        due.send(&body)
            .message_type("ScheduledMessage")
            .header("x-schedule-exchange", "")
            .header("x-schedule-routing-key", queue)
            .header("x-schedule-due-at", 1_767_323_045_678_i64)
            .header("x-schedule-content-type", "application/octet-stream")
            .header("x-schedule-type", queue)
            .await
    });
    sends.buffer_unordered(IN_FLIGHT).try_for_each(async |_| Ok(())).await?;
    holds(mq, DUE, messages).await
}
