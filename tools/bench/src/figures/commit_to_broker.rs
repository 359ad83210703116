//! How long a committed record takes until a consumer has it.

use std::time::{Duration, Instant};

use acemq::OutboxRelay;
use acemq_sql::PostgresOutbox;
use anyhow::{Context as _, Result};
use futures_util::StreamExt as _;
use lapin::{options::BasicConsumeOptions, types::FieldTable};
use tokio::time::{MissedTickBehavior, interval};

use super::{Figure, Rounds, figure};
use crate::{
    bench::{Bench, QueueKind::Classic, body, declare, publisher},
    outbox::{self, Outbox},
};

pub(super) const NOTIFY: &str = "from the commit of a record until a consumer has its message, \
    200 records a second, where the record is added by an outbox that the relay does not share \
    and `NOTIFY` is on; polling every second";
pub(super) const WAKE: &str = "the same where the relay shares the outbox that the records are \
    added to, and `wake` is called after the commit";

pub(super) const FIGURES: &[Figure] =
    &[figure("p50", "ms", Some(5.0)), figure("p99", "ms", Some(20.0))];

const EVERY: Duration = Duration::from_millis(5);

pub(super) async fn by_notify(bench: &Bench) -> Result<Rounds> {
    outbox::in_postgres(bench, async |outbox| {
        let store = || anyhow::Ok(outbox.apart()?.notify(true));
        readings(bench, outbox, store()?, &store()?).await
    })
    .await
}

pub(super) async fn by_wake(bench: &Bench) -> Result<Rounds> {
    outbox::in_postgres(bench, async |outbox| {
        readings(bench, outbox, outbox.store.clone(), &outbox.store).await
    })
    .await
}

async fn readings(
    bench: &Bench,
    outbox: &Outbox<sqlx::Postgres>,
    relayed: PostgresOutbox,
    added: &PostgresOutbox,
) -> Result<Rounds> {
    let relay = OutboxRelay::builder(&bench.mq, relayed).start();
    let mut rounds = Vec::with_capacity(bench.rounds);
    for _ in 0..bench.rounds {
        let mut spans = reading(bench, outbox, added).await?;
        spans.sort_unstable();
        let quantile = |q: f64| spans[((spans.len() - 1) as f64 * q) as usize].as_secs_f64() * 1e3;
        rounds.push(vec![quantile(0.50), quantile(0.99)]);
    }
    relay.close().await?;
    Ok(rounds)
}

async fn reading(
    bench: &Bench,
    outbox: &Outbox<sqlx::Postgres>,
    added: &PostgresOutbox,
) -> Result<Vec<Duration>> {
    let queue = declare(&bench.mq, Classic).await?;
    let channel = bench.raw.consuming().await?;
    let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
    let mut consumer = channel
        .basic_consume(queue.as_str().into(), "".into(), options, FieldTable::default())
        .await?;
    let messages = bench.messages;
    let arrived = tokio::spawn(async move {
        let mut arrived = Vec::with_capacity(messages);
        for _ in 0..messages {
            consumer.next().await.context("the consumer ended")??;
            arrived.push(Instant::now());
        }
        anyhow::Ok(arrived)
    });
    let publisher = publisher(&bench.mq, queue.clone());
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut committed = Vec::with_capacity(messages);
    for _ in 0..messages {
        ticks.tick().await;
        let record = publisher.record(&body()).await?;
        let mut transaction = outbox.pool.begin().await?;
        added.add(&mut transaction, &record).await?;
        transaction.commit().await?;
        committed.push(Instant::now());
        added.wake();
    }
    // Both in the order of the records.
    let arrived = arrived.await??;
    channel.close(200, "OK".into()).await?;
    bench.mq.delete_queue(&queue).await?;
    Ok(arrived.iter().zip(committed).map(|(a, c)| a.saturating_duration_since(c)).collect())
}
