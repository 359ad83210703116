//! Handling in order by key, against handling without an order.

use acemq::Client;
use anyhow::Result;

use super::consume::{MANY_HANDLERS, consumer, handle_all};
use crate::{
    bench::{Bench, QueueKind, body, declare, holds, publisher},
    pairs::{Pair, Reading, alternate, timed},
};

pub(super) const ABOUT: &str = "a consumer that is ordered by a header with 1,000 values which take \
    turns, against the same one without an order; both of bytes, with prefetch 200, 200 handlers at \
    once and a handler that counts; from subscribing until the broker has every ack";

const KEYS: usize = 1_000;
const KEY: &str = "x-key";
/// How many messages are sent at once.
const AT_ONCE: usize = 500;

pub(super) async fn run(bench: &Bench, kind: QueueKind) -> Result<Vec<Pair>> {
    alternate(
        bench.rounds,
        async || reading(bench, kind, false).await,
        async || reading(bench, kind, true).await,
    )
    .await
}

async fn reading(bench: &Bench, kind: QueueKind, ordered: bool) -> Result<Reading> {
    let (mq, messages) = (&bench.mq, bench.messages);
    let queue = declare(mq, kind).await?;
    send_keyed(mq, &queue, messages).await?;
    let consumer = consumer(mq, &queue, MANY_HANDLERS);
    let consumer = if ordered { consumer.ordered_by_header(KEY) } else { consumer };
    let took = timed(handle_all(consumer, messages)).await?;
    holds(mq, &queue, 0).await?;
    mq.delete_queue(&queue).await?;
    Ok(took)
}

async fn send_keyed(mq: &Client, queue: &str, messages: usize) -> Result<()> {
    let (publisher, body) = (publisher(mq, queue.to_owned()), body());
    for first in (0..messages).step_by(AT_ONCE) {
        let numbers = first..messages.min(first + AT_ONCE);
        let sends = numbers.map(|number| {
            publisher.send(&body).header(KEY, (number % KEYS).to_string()).into_future()
        });
        futures_util::future::try_join_all(sends).await?;
    }
    Ok(())
}
