//! What a relay's process takes while it drains a large outbox.

use std::{process::Stdio, time::Duration};

use acemq::{Client, ErrorKind, OutboxRelay, OutboxStore as _};
use acemq_sql::PostgresOutbox;
use anyhow::{Result, ensure};
use tokio::{process::Command, time::sleep};

use super::{Figure, Rounds, figure, memory};
use crate::{
    Options,
    bench::{Bench, QueueKind::Classic, declare, holds},
    outbox,
};

pub(super) const ABOUT: &str = "the most memory that a process has taken which does nothing but \
    relay records with batches of 500, and how much of that came after the first fifth of them";

pub(super) const FIGURES: &[Figure] =
    &[figure("peak", "MB", Some(100.0)), figure("growth", "MB", Some(10.0))];

const BATCH: usize = 500;
/// The most memory that a process has had at once.
const PEAK: &str = "VmHWM";
/// How often the relay is asked how far it is.
const LOOK: Duration = Duration::from_millis(10);

pub(super) async fn run(bench: &Bench) -> Result<Rounds> {
    outbox::in_postgres(bench, async |outbox| {
        let mut rounds = Vec::with_capacity(bench.rounds);
        for _ in 0..bench.rounds {
            let queue = declare(&bench.mq, Classic).await?;
            outbox.fill(&bench.mq, &queue, bench.messages).await?;
            let output = Command::new(std::env::current_exe()?)
                .args(["--broker", &bench.broker, "--postgres", &bench.postgres])
                .args(["--drain", &outbox.table])
                .stderr(Stdio::inherit())
                .kill_on_drop(true)
                .output()
                .await?;
            ensure!(output.status.success(), "the draining process failed: {}", output.status);
            holds(&bench.mq, &queue, bench.messages).await?;
            ensure!(outbox.store.pending_count().await? == 0, "the outbox is not empty");
            delete(&bench.mq, &queue).await?;
            rounds.push(serde_json::from_slice(&output.stdout)?);
        }
        Ok(rounds)
    })
    .await
}

/// A broker may take longer over as many messages than a question to it may, and it goes on.
async fn delete(mq: &Client, queue: &str) -> Result<()> {
    let mut asked = 0;
    loop {
        asked += 1;
        match mq.delete_queue(queue).await {
            Err(error) if error.kind() == ErrorKind::Timeout && asked < 12 => {}
            deleted => return deleted.map_err(Into::into),
        }
    }
}

/// Drains a table and prints what that took, for the process that measures.
pub(crate) async fn drain(options: &Options, table: &str) -> Result<()> {
    let mq = acemq::connect(&options.broker).client_name("bench").await?;
    let pool = sqlx::PgPool::connect(&options.postgres).await?;
    let store = PostgresOutbox::new(pool.clone()).table(table)?;
    let records = store.pending_count().await?;
    let relay = OutboxRelay::builder(&mq, store).batch(BATCH).start();
    let mut early = None;
    while relay.published() < records {
        ensure!(relay.failed() == 0, "{} records failed", relay.failed());
        if early.is_none() && relay.published() >= records / 5 {
            early = Some(memory(PEAK)?);
        }
        sleep(LOOK).await;
    }
    mq.close().await?;
    pool.close().await;
    let peak = memory(PEAK)?;
    println!("{}", serde_json::to_string(&[peak, peak - early.unwrap_or(peak)])?);
    Ok(())
}
