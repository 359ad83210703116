//! What messages that wait cost the process that has scheduled them.

use std::{process::Stdio, time::Duration};

use anyhow::{Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::{process::Command, time::sleep};

use super::{Figure, Rounds, figure, memory};
use crate::{
    Options,
    bench::{Bench, QueueKind::Classic, body, declare, holds},
};

pub(super) const ABOUT: &str = "how much more memory a process has that runs a scheduler once it \
    has scheduled so many messages, and all of them wait, than after a first thousand";

pub(super) const FIGURES: &[Figure] = &[figure("growth", "MB", Some(5.0))];

const WARM_UP: usize = 1_000;
/// How many are scheduled at once.
const IN_FLIGHT: usize = 1_000;
/// One stay in one queue, so that nothing moves while they are being scheduled.
const DELAY: Duration = Duration::from_millis(60_500);
/// How often the scheduler is asked how far it is.
const LOOK: Duration = Duration::from_millis(10);

pub(super) async fn run(bench: &Bench) -> Result<Rounds> {
    let mut rounds = Vec::with_capacity(bench.rounds);
    for _ in 0..bench.rounds {
        let queue = declare(&bench.mq, Classic).await?;
        let output = Command::new(std::env::current_exe()?)
            .args(["--broker", &bench.broker, "--schedule", &queue])
            .args(["--messages", &bench.messages.to_string()])
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .output()
            .await?;
        ensure!(output.status.success(), "the scheduling process failed: {}", output.status);
        holds(&bench.mq, &queue, WARM_UP + bench.messages).await?;
        bench.mq.delete_queue(&queue).await?;
        rounds.push(serde_json::from_slice(&output.stdout)?);
    }
    Ok(rounds)
}

/// Schedules messages and prints what that took, for the process that measures; then waits until
/// they are delivered.
pub(crate) async fn schedule(options: &Options, queue: &str) -> Result<()> {
    let mq = acemq::connect(&options.broker).client_name("bench").await?;
    let scheduler = mq.scheduler().await?;
    let to = scheduler.to("", queue).codec(acemq::RawBytes::default());
    let body = body();
    let schedule = async |messages| {
        let sends = stream::iter(0..messages).map(|_| async { to.after(DELAY, &body).await });
        sends.buffer_unordered(IN_FLIGHT).try_for_each(async |_| Ok(())).await
    };
    schedule(WARM_UP).await?;
    let before = memory("VmRSS")?;
    let messages = options.messages_of(0);
    schedule(messages).await?;
    let growth = memory("VmRSS")? - before;
    let all = (WARM_UP + messages) as u64;
    let counters = scheduler.counters();
    ensure!(
        (counters.scheduled, counters.delivered) == (all, 0),
        "not all of them wait, take fewer messages: {counters:?}"
    );
    while scheduler.counters().delivered < all {
        sleep(LOOK).await;
    }
    mq.close().await?;
    println!("{}", serde_json::to_string(&[growth.max(0.0)])?);
    Ok(())
}
