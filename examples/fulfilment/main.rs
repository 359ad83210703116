//! A pipeline of four steps, one of which only large orders pass.
//!
//! ```text
//! cargo run --example fulfilment
//! cargo run --example fulfilment -- --broker amqp://guest:guest@localhost
//! ```
//!
//! Ten orders go in. One is of nothing and ends at once; large ones are looked at by somebody, who
//! turns one of them down; the stock fails now and then and is asked again. At the end it says what
//! each step has done.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use acemq::{HandlerError, Message, Pipeline, RetryPolicy};
use anyhow::Result;
use clap::Parser;
use serde::{Deserialize, Serialize};

/// Orders from this sum on are looked at by somebody.
const LARGE: u64 = 100_000;

/// Sends ten orders through a pipeline.
#[derive(Parser)]
struct Arguments {
    /// amqp://user:password@host:port/vhost, or memory://NAME for a broker inside this process.
    #[arg(long, default_value = "memory://fulfilment")]
    broker: String,
    /// The pipeline's name, which is its exchange's and the beginning of its queues' names.
    #[arg(long, default_value = "fulfilment")]
    name: String,
}

#[derive(Serialize, Deserialize)]
struct Order {
    id: u32,
    quantity: u32,
    cents: u64,
}

#[derive(Serialize, Deserialize)]
struct Reservation {
    order: u32,
    boxes: u32,
}

/// `false` ends the run, which is a decision and no failure.
async fn validate(order: Message<Order>) -> Result<bool, HandlerError> {
    Ok(order.payload().quantity > 0)
}

async fn approve(order: Message<Order>) -> Result<bool, HandlerError> {
    let approved = order.payload().cents < 10 * LARGE;
    println!("order {}: {}", order.payload().id, if approved { "approved" } else { "turned down" });
    Ok(approved)
}

/// What it returns is what the next step receives.
async fn reserve(order: Message<Order>) -> Result<Option<Reservation>, HandlerError> {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    if ASKED.fetch_add(1, Ordering::Relaxed).is_multiple_of(4) {
        return Err(HandlerError::transient("the stock does not answer")); // it is asked again
    }
    let Order { id, quantity, .. } = order.into_payload();
    Ok(Some(Reservation { order: id, boxes: quantity.div_ceil(12) }))
}

async fn dispatch(reservation: Message<Reservation>) -> Result<(), HandlerError> {
    let Reservation { order, boxes } = reservation.payload();
    println!("order {order}: dispatched in {boxes} boxes");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter("acemq=info").init();
    let Arguments { broker, name } = Arguments::parse();
    let mq = acemq::connect(broker).await?;
    let fulfilment = mq
        .pipeline(name)
        .filter("validate", validate)
        .filter("approve", approve)
        .described_as("somebody looks at large orders")
        .step("reserve", reserve)
        .described_as("hold stock for 15 minutes so payment cannot oversell")
        .retry(RetryPolicy::fixed(5, Duration::from_millis(20)))
        .concurrency(4)
        .last("dispatch", dispatch)
        .start()
        .await?;

    for id in 1..=10 {
        let order = Order { id, quantity: 13 * (id - 1), cents: u64::from(id).pow(6) };
        if order.cents >= LARGE {
            fulfilment.send(&order).await?;
        } else {
            fulfilment.send(&order).through(["validate", "reserve", "dispatch"]).await?;
        }
    }
    report(&fulfilment).await?;

    // Nothing is left behind on the broker.
    fulfilment.close().await?;
    for step in fulfilment.steps() {
        for suffix in ["", ".dlq", ".parked"] {
            mq.delete_queue(&format!("{}{suffix}", step.queue())).await?;
        }
    }
    mq.delete_exchange(fulfilment.name()).await?;
    Ok(mq.close().await?)
}

/// Waits until every run is over, and says what each step has done.
async fn report(fulfilment: &Pipeline<Order>) -> acemq::Result<()> {
    let unfinished = || {
        let runs = fulfilment.counters();
        runs.completed + runs.ended_early < runs.entered || runs.in_flight > 0
    };
    while unfinished() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for step in fulfilment.steps() {
        let stats = step.stats().await?;
        println!(
            "{}: {} completed, {} ended here, {} failed and were tried again",
            step.name(),
            stats.completed,
            stats.ended_early,
            stats.failed
        );
    }
    Ok(())
}
