//! Confirmed publishing with 1,000 confirms in flight.

use std::sync::Arc;

use acemq::Client;
use anyhow::{Result, ensure};
use tokio::task::JoinSet;

use crate::{
    bench::{self, Bench, QueueKind, body, publisher},
    pairs::{Pair, Reading, alternate},
    raw::{self, Content},
};

pub(super) const SEND_ALL: &str = "`send_all` with its 1,000 confirms in flight, against lapin \
    with as many of the same messages and no write awaited on its own; persistent and mandatory";
pub(super) const TASKS: &str = "1,000 tasks that `send().await` one message after the other, \
    against lapin with 1,000 confirms of the same messages in flight from one task and no write \
    awaited on its own; persistent and mandatory";
pub(super) const ENVELOPE: &str = "lapin publishing messages with the headers, id and content type \
    that the family's wire format asks for, against lapin publishing bare bodies, both with 1,000 \
    confirms in flight: what the format costs, whoever writes it";

/// What `send_all` has in flight unless told otherwise.
const IN_FLIGHT: usize = 1_000;

pub(super) async fn send_all(bench: &Bench, kind: QueueKind) -> Result<Vec<Pair>> {
    against_raw(bench, kind, bench::send_all).await
}

pub(super) async fn tasks(bench: &Bench, kind: QueueKind) -> Result<Vec<Pair>> {
    against_raw(bench, kind, send_from_tasks).await
}

pub(super) async fn envelope(bench: &Bench, kind: QueueKind) -> Result<Vec<Pair>> {
    alternate(
        bench.rounds,
        async || publish_raw(bench, kind, Content::Bare).await,
        async || publish_raw(bench, kind, Content::SameAsAcemq).await,
    )
    .await
}

async fn against_raw<W>(
    bench: &Bench,
    kind: QueueKind,
    send: impl Fn(Client, String, usize) -> W,
) -> Result<Vec<Pair>>
where
    W: Future<Output = Result<()>> + Send + 'static,
{
    let (mq, messages) = (&bench.mq, bench.messages);
    alternate(
        bench.rounds,
        async || publish_raw(bench, kind, Content::SameAsAcemq).await,
        async || bench.time_publishing(mq, kind, |queue| send(mq.clone(), queue, messages)).await,
    )
    .await
}

async fn publish_raw(bench: &Bench, kind: QueueKind, content: Content) -> Result<Reading> {
    let work = |queue| {
        let channel = Arc::clone(&bench.raw.publishing);
        raw::publish_many(channel, queue, content, bench.messages, IN_FLIGHT)
    };
    bench.time_publishing(&bench.mq, kind, work).await
}

async fn send_from_tasks(mq: Client, queue: String, messages: usize) -> Result<()> {
    let publisher = publisher(&mq, queue);
    let mut tasks = JoinSet::new();
    for task in 0..IN_FLIGHT {
        let publisher = publisher.clone();
        let share = messages / IN_FLIGHT + usize::from(task < messages % IN_FLIGHT);
        tasks.spawn(async move {
            let body = body();
            for _ in 0..share {
                ensure!(publisher.send(&body).await?.confirmed, "a message was not confirmed");
            }
            Ok(share)
        });
    }
    let mut confirmed = 0;
    while let Some(done) = tasks.join_next().await {
        confirmed += done??;
    }
    ensure!(confirmed == messages, "{confirmed} of {messages} messages were confirmed");
    Ok(())
}
