//! What going back out of a dead-letter queue promises, and looking into it, on every broker.

mod foreign;
mod looking;
mod moving;
mod trouble;

use acemq::{Client, HandlerError, Message};

use crate::{
    consumer::bench::Bench,
    support::{Broker, wire},
};

async fn always_fails(_: Message<String>) -> Result<(), HandlerError> {
    Err(HandlerError::transient("out of stock"))
}

/// Puts messages into a queue whose payloads are these numbers.
async fn fill(mq: &Client, queue: &str, numbers: std::ops::Range<u32>) {
    let payloads: Vec<String> = numbers.map(|number| number.to_string()).collect();
    mq.publisher::<String>("", queue).send_all(&payloads).await.unwrap();
}

/// The payloads that are in a queue, as numbers; on RabbitMQ they are taken out.
async fn numbers(broker: &Broker, queue: &str) -> Vec<u32> {
    let messages = wire::take(broker, queue).await;
    messages.iter().map(|message| number(&message.body)).collect()
}

fn number(body: &[u8]) -> u32 {
    std::str::from_utf8(body).unwrap().trim_matches('"').parse().unwrap()
}

/// A bench with that many dead letters.
async fn with_dead_letters(broker: &Broker, count: u32) -> Bench {
    let bench = Bench::new(broker).await;
    fill(&bench.mq, &bench.dead_letters(), 0..count).await;
    bench.eventually_ready(&bench.dead_letters(), count.into()).await;
    bench
}
