//! The transport inside the process: what is left when the broker costs nothing.

use acemq::{Client, testing::MemoryBroker};
use anyhow::Result;

use super::consume::{MANY_HANDLERS, consume as consume_all};
use crate::{
    bench::{Bench, QueueKind::Classic, send_all},
    pairs::{Pair, alternate},
};

pub(super) const PUBLISH: &str =
    "`send_all` on `memory://`, against `send_all` to a classic queue of RabbitMQ";
pub(super) const CONSUME: &str = "a consumer with 200 handlers at once on `memory://`, against the \
    same on a classic queue of RabbitMQ";

pub(super) async fn publish(bench: &Bench) -> Result<Vec<Pair>> {
    in_memory(async |memory| {
        let reading = async |mq: &Client| {
            let work = |queue| send_all(mq.clone(), queue, bench.messages);
            bench.time_publishing(mq, Classic, work).await
        };
        alternate(bench.rounds, async || reading(&bench.mq).await, async || reading(memory).await)
            .await
    })
    .await
}

pub(super) async fn consume(bench: &Bench) -> Result<Vec<Pair>> {
    in_memory(async |memory| {
        let reading = async |mq: &Client| {
            let work = |queue| consume_all(mq.clone(), queue, bench.messages, MANY_HANDLERS);
            bench.time_consuming(mq, Classic, work).await
        };
        alternate(bench.rounds, async || reading(&bench.mq).await, async || reading(memory).await)
            .await
    })
    .await
}

async fn in_memory(measure: impl AsyncFnOnce(&Client) -> Result<Vec<Pair>>) -> Result<Vec<Pair>> {
    let broker = MemoryBroker::new();
    let memory = acemq::connect(broker.url()).await?;
    let pairs = measure(&memory).await;
    memory.close().await?;
    pairs
}
