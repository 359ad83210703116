//! Confirmed publishing, one at a time.

use std::sync::Arc;

use acemq::Client;
use anyhow::{Result, ensure};
use lapin::Channel;

use crate::{
    bench::{Bench, QueueKind, body, publisher},
    pairs::{Pair, alternate},
    raw::{self, Content},
};

pub(super) const ABOUT: &str = "`send().await` one after the other, against lapin's publish and \
    its confirm, both awaited, of the same message; persistent and mandatory";

pub(super) async fn run(bench: &Bench, kind: QueueKind) -> Result<Vec<Pair>> {
    let (mq, channel, messages) = (&bench.mq, &bench.raw.publishing, bench.messages);
    alternate(
        bench.rounds,
        async || {
            let work = |queue| publish_each(Arc::clone(channel), queue, messages);
            bench.time_publishing(mq, kind, work).await
        },
        async || {
            let work = |queue| send_each(mq.clone(), queue, messages);
            bench.time_publishing(mq, kind, work).await
        },
    )
    .await
}

async fn publish_each(channel: Arc<Channel>, queue: String, messages: usize) -> Result<()> {
    for _ in 0..messages {
        raw::publish(&channel, &queue, Content::SameAsAcemq).await?;
    }
    Ok(())
}

async fn send_each(mq: Client, queue: String, messages: usize) -> Result<()> {
    let (publisher, body) = (publisher(&mq, queue), body());
    for _ in 0..messages {
        ensure!(publisher.send(&body).await?.confirmed, "a message was not confirmed");
    }
    Ok(())
}
