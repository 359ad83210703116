//! A web service on axum: `POST /orders` saves an order and the event that says so in the
//! transaction of the request. An answer other than 201 means that neither is there.
//!
//! ```text
//! cargo run --example web_shop
//! curl -i localhost:3000/orders -H 'content-type: application/json' -d '{"id": "o-1", "item": "a book"}'
//! ```

use std::{io, sync::Arc};

use acemq::{Exchange, HandlerError, Message, OutboxRelay, Publisher, Queue, Topology};
use acemq_sql::SqliteOutbox;
use anyhow::Result;
use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use clap::Parser;
use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use tokio::net::TcpListener;

/// Takes orders over HTTP and packs them.
#[derive(Parser)]
struct Arguments {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:3000")]
    listen: String,
    /// amqp://user:password@host:port/vhost, or memory://NAME for a broker inside this process.
    #[arg(long, default_value = "memory://web_shop")]
    broker: String,
    /// The SQLite file with the orders and the outbox.
    #[arg(long, default_value = ":memory:")]
    database: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    id: String,
    item: String,
}

/// What every request works with.
struct Shop {
    pool: SqlitePool,
    outbox: SqliteOutbox,
    placed: Publisher<Order>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let file = SqliteConnectOptions::new().filename(&arguments.database).create_if_missing(true);
    // One connection, since SQLite has one writer; one in memory has to stay for the same reason.
    let pool = SqlitePoolOptions::new()
        .max_connections(1)
        .idle_timeout(None)
        .max_lifetime(None)
        .connect_with(file)
        .await?;
    let create = "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, item TEXT NOT NULL)";
    sqlx::query(create).execute(&pool).await?;
    let outbox = SqliteOutbox::new(pool.clone());
    outbox.create_table_if_absent().await?; // in production, a migration does this

    let mq = acemq::connect(&arguments.broker).await?;
    let topology = Topology::new()
        .exchange(Exchange::topic("shop"))
        .queue(Queue::new("shop.packing"))
        .bind("shop.packing", "shop", "order.placed");
    mq.declare(&topology).await?;

    // A clone of the outbox that the requests use, so that they wake the relay.
    let relay = OutboxRelay::builder(&mq, outbox.clone()).start();
    let packing = mq.consumer::<Order>("shop.packing").start(pack).await?;

    let shop = Shop { pool, outbox, placed: mq.publisher("shop", "order.placed") };
    let service = Router::new().route("/orders", post(place)).with_state(Arc::new(shop));
    let listener = TcpListener::bind(&arguments.listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, service).with_graceful_shutdown(interrupted()).await?;

    // Requests have come to their end; what they committed and the relay did not publish any more
    // goes out at the next start.
    relay.close().await?;
    packing.close().await?;
    Ok(mq.close().await?)
}

/// `POST /orders`
async fn place(
    State(shop): State<Arc<Shop>>,
    Json(order): Json<Order>,
) -> Result<StatusCode, Failure> {
    // Before the transaction opens, since encoding may take its time. The order's id is the
    // message's, so that a consumer recognises what it has seen.
    let record = shop.placed.record(&order).id(&order.id).await?;

    // Dropped on any way out but the last, or when the client hangs up: it rolls back then, and
    // the record with it.
    let mut transaction = shop.pool.begin().await?;
    sqlx::query("INSERT INTO orders (id, item) VALUES ($1, $2)")
        .bind(&order.id)
        .bind(&order.item)
        .execute(&mut *transaction)
        .await?;
    shop.outbox.add(&mut transaction, &record).await?;
    transaction.commit().await?;
    shop.outbox.wake();
    Ok(StatusCode::CREATED)
}

async fn pack(message: Message<Order>) -> Result<(), HandlerError> {
    println!("packing {} for order {}", message.payload().item, message.id());
    Ok(())
}

/// What went wrong, as the answer to a request.
struct Failure(anyhow::Error);

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        match self.0.downcast_ref() {
            Some(sqlx::Error::Database(error)) if error.is_unique_violation() => {
                (StatusCode::CONFLICT, "there is an order with this id already\n").into_response()
            }
            _ => {
                eprintln!("a request failed: {:#}", self.0);
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}

/// Comes to its end when the program is asked to stop.
async fn interrupted() {
    let asked: io::Result<()> = tokio::signal::ctrl_c().await;
    if let Err(error) = asked {
        eprintln!("cannot wait for an interrupt: {error}");
    }
}
