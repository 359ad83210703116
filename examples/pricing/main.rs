//! Request and reply: a shop asks what its articles cost, a pricing service answers.
//!
//! ```text
//! cargo run --example pricing
//! cargo run --example pricing -- --broker amqp://guest:guest@localhost book dragon
//! ```
//!
//! It prints a line for each article: its price, or why it has none.

use std::time::Duration;

use acemq::{Client, ErrorKind, HandlerError, Message, Queue, Responder};
use anyhow::Result;
use clap::Parser;
use serde::{Deserialize, Serialize};

const QUEUE: &str = "pricing.requests";

/// Asks a pricing service what articles cost.
#[derive(Parser)]
struct Arguments {
    /// amqp://user:password@host:port/vhost, or memory://NAME for a broker inside this process.
    #[arg(long, default_value = "memory://pricing")]
    broker: String,
    /// How long to wait for each price, in seconds.
    #[arg(long, default_value_t = 5.0)]
    timeout: f64,
    /// What to ask for.
    #[arg(default_values = ["book", "lamp", "dragon"])]
    articles: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct PriceWanted {
    article: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Price {
    cents: u32,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let timeout = Duration::try_from_secs_f64(arguments.timeout)?;

    // A service of its own, in life.
    let service = acemq::connect(&arguments.broker).client_name("pricing").await?;
    let responder = answer(&service).await?;

    let shop = acemq::connect(&arguments.broker).client_name("shop").await?;
    // One for all that the shop asks, of whomever.
    let requester = shop.requester().timeout(timeout).await?;
    let prices = requester.to::<PriceWanted, Price>("", QUEUE);
    for article in arguments.articles {
        let wanted = PriceWanted { article };
        let line = match prices.request(&wanted).await {
            Ok(Price { cents }) => format!("{}.{:02}", cents / 100, cents % 100),
            Err(error) if error.kind() == ErrorKind::Responder => {
                error.get_ref().map_or_else(|| error.to_string(), ToString::to_string)
            }
            // The service may have done its work, and nobody knows.
            Err(error) if error.kind() == ErrorKind::Timeout => "no answer in time".to_owned(),
            Err(error) => return Err(error.into()),
        };
        println!("{}: {line}", wanted.article);
    }

    shop.close().await?;
    responder.close().await?;
    Ok(service.close().await?)
}

/// Starts to answer.
async fn answer(service: &Client) -> Result<Responder> {
    service.declare_queue(&Queue::new(QUEUE).dead_letters()).await?;
    Ok(service.consumer::<PriceWanted>(QUEUE).concurrency(8).respond(price).await?)
}

async fn price(message: Message<PriceWanted>) -> Result<Price, HandlerError> {
    match &*message.payload().article {
        "book" => Ok(Price { cents: 1_250 }),
        "lamp" => Ok(Price { cents: 4_999 }),
        // Told to the shop at once; the request is in `pricing.requests.dlq`.
        article => Err(HandlerError::fatal(format!("there is no {article} in the catalogue"))),
    }
}
