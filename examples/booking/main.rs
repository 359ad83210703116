//! Trips of a flight, a hotel and a payment, of which nothing is left behind, whatever is killed.
//!
//! ```text
//! cargo run --example booking
//! kill -9 … and run it again: it goes on from where it stood
//! ```
//!
//! Each trip is a durable saga, begun in the transaction that writes the trip down. The airline and
//! the hotel are asked under the step's key, so that a second attempt books nothing twice; the payment
//! is written in the saga's own transaction, exactly once. Every third card is declined: then the
//! hotel and the flight are cancelled. At the end it says what became of the trips, and looks into the
//! books of all three.

mod world;

use std::time::Duration;

use acemq::{DurableSaga, HandlerError, RetryPolicy, Saga, SagaFilter, SagaStatus, StepContext};
use acemq_sql::{HandlerTransaction, SqliteSagaStore};
use anyhow::{Result, ensure};
use clap::Parser;
use serde::{Deserialize, Serialize};
use sqlx::Sqlite;

use self::world::World;

/// Books trips, and finishes what an earlier run of it has begun.
#[derive(Parser)]
struct Arguments {
    /// sqlite://FILE, which is made if it is not there.
    #[arg(long, default_value = "sqlite://booking.sqlite")]
    database: String,
    /// How many trips there are.
    #[arg(long, default_value_t = 6)]
    trips: u32,
    /// A point at which to wait, so that it can be killed there: "flight", "flight is booked", …
    #[arg(long)]
    linger: Option<String>,
    /// The hotel cancels nothing.
    #[arg(long)]
    stubborn_hotel: bool,
}

#[derive(Clone, Serialize, Deserialize)]
struct Trip {
    number: u32,
}

type Booking = DurableSaga<Trip, Trip, SqliteSagaStore>;

fn booking(world: &World, store: SqliteSagaStore) -> acemq::Result<Booking> {
    let book = |what: &'static str| {
        let world = world.clone();
        move |trip: Trip, step: StepContext| {
            let world = world.clone();
            async move { world.book(what, &step.key()).await.map(|()| trip) }
        }
    };
    let cancel = |what: &'static str| {
        let world = world.clone();
        move |_: Trip, step: StepContext| {
            let world = world.clone();
            async move { world.cancel(what, &step.key()).await }
        }
    };
    let paying = world.clone();
    let pay = move |trip: Trip, step: StepContext, mut transaction: HandlerTransaction<Sqlite>| {
        let world = paying.clone();
        async move {
            if trip.number.is_multiple_of(3) {
                return Err(HandlerError::fatal("the card was declined"));
            }
            world.pay(&mut transaction, &step.key()).await?;
            Ok((trip, transaction)) // the payment and the note of it commit together
        }
    };
    let patiently = RetryPolicy::fixed(3, Duration::from_millis(50));
    Saga::durable("booking", store)
        .lease(Duration::from_secs(1)) // how long a crash holds its trips up
        .step("flight", book("flight"))
        .compensate_with(cancel("flight"))
        .compensation_retry(patiently.clone())
        .when_in_doubt(cancel("flight"))
        .step("hotel", book("hotel"))
        .compensate_with(cancel("hotel"))
        .compensation_retry(patiently)
        .when_in_doubt(cancel("hotel"))
        .step_in_transaction("payment", pay)
        .build()
}

#[tokio::main]
async fn main() -> Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter("acemq=warn").init();
    let Arguments { database, trips, linger, stubborn_hotel } = Arguments::parse();
    let world = World::open(&database, linger, stubborn_hotel).await?;
    let store = SqliteSagaStore::new(world.pool().clone());
    store.create_table_if_absent().await?;
    let booking = booking(&world, store)?;

    for number in 1..=trips {
        let mut transaction = world.pool().begin().await?;
        world::write_down(&mut transaction, number).await?;
        let _ = booking.begin(&mut transaction, &number.to_string(), &Trip { number }).await?;
        transaction.commit().await?;
    }
    let worker = booking.worker().poll(Duration::from_millis(50)).start();
    while !booking.instances().list(&SagaFilter::new().going_on()).await?.is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    worker.close().await?;
    report(&booking, &world).await
}

/// Says what became of the trips, and compares that with everybody's books.
async fn report(booking: &Booking, world: &World) -> Result<()> {
    let mut counts = [0; 3];
    for trip in booking.instances().list(&SagaFilter::new().limit(usize::MAX)).await? {
        let place = match trip.status {
            SagaStatus::Completed => 0,
            SagaStatus::Compensated => 1,
            _ => 2,
        };
        counts[place] += 1;
        for step in trip.unresolved() {
            let reason = step.compensation.failure.as_deref().unwrap_or("it is in doubt");
            println!("trip {} needs attention: {}: {reason}", trip.id, step.name);
        }
        let [flight, hotel, payment] = world.books(&trip.id).await?;
        let is_right = match trip.status {
            SagaStatus::Completed => flight && hotel && payment,
            SagaStatus::Compensated => !flight && !hotel && !payment,
            _ => !payment,
        };
        ensure!(
            is_right,
            "the books of trip {} are wrong: {:?}",
            trip.id,
            [flight, hotel, payment]
        );
    }
    let [completed, compensated, unresolved] = counts;
    println!("{completed} booked, {compensated} undone, {unresolved} unresolved");
    Ok(())
}
