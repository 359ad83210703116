//! An order service from end to end: an order and its event commit in one transaction, a relay
//! publishes the event, and a consumer charges the order once in effect, through failures,
//! duplicates, broken messages and crashes.
//!
//! ```text
//! cargo run --release --example order_flow
//! ```
//!
//! Read `shop.rs` and `payments.rs` for the two services, and `run` below for how they are wired.

#![expect(unreachable_pub, reason = "nothing is outside of a program")]

mod database;
mod on_the_way;
mod orders;
mod payments;
mod report;
mod shop;

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, Instant},
};

use acemq::{Exchange, OutboxRelay, Queue, RawBytes, RetryPolicy, Topology};
use acemq_sql::SqlIdempotency;
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use sqlx::Pool;
use tracing_subscriber::EnvFilter;

use crate::{
    database::{Books, Database},
    on_the_way::OnTheWay,
    orders::{Order, Orders},
    payments::Payments,
    report::Run,
    shop::Shop,
};

/// How long a crash may delay what was in hand: another run takes it over after that.
const LEASE: Duration = Duration::from_secs(5);

/// Places orders, publishes their events and charges them, then checks that the numbers add up.
#[derive(Parser)]
struct Arguments {
    /// amqp://user:password@host:port/vhost, or memory://NAME for a broker inside this process.
    #[arg(long, default_value = "memory://order_flow")]
    broker: String,
    /// postgres://user:password@host:port/name, mysql://… for MariaDB, or sqlite://FILE. Default:
    /// a SQLite file that is thrown away.
    #[arg(long)]
    database: Option<String>,
    /// The orders, one JSON object a line.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/order_flow/orders.jsonl"))]
    orders: PathBuf,
    /// How many orders to place, beginning again at the end of the file. Default: each once.
    #[arg(long)]
    count: Option<u64>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// Crash in the middle, after charging that many orders. Running the same again finishes the
    /// work. Needs --database and a real --broker.
    #[arg(long, value_name = "ORDERS")]
    crash_after: Option<u64>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| "acemq=error".into());
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter).init();
    match open_database_and_run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn open_database_and_run(arguments: Arguments) -> Result<()> {
    if arguments.crash_after.is_some() {
        ensure!(
            !arguments.broker.starts_with("memory:"),
            "--crash-after needs a real --broker: the memory broker and its messages would end \
             with the process, and no second run could finish the work"
        );
        ensure!(
            arguments.database.is_some(),
            "--crash-after needs a --database: the default one is thrown away with the run"
        );
    }

    let folder = tempfile::tempdir().context("make a folder for the database")?;
    let throw_away = arguments.database.is_none();
    let url = arguments
        .database
        .clone()
        .unwrap_or_else(|| format!("sqlite://{}", folder.path().join("shop.db").display()));
    let opening = || format!("open the database {}", without_password(&url));
    match url.split_once(':') {
        Some(("postgres" | "postgresql", _)) => {
            run(arguments, database::open_postgres(&url).await.with_context(opening)?).await
        }
        Some(("mysql" | "mariadb", _)) => {
            run(arguments, database::open_mariadb(&url).await.with_context(opening)?).await
        }
        Some(("sqlite", _)) => {
            run(arguments, database::open_sqlite(&url, throw_away).await.with_context(opening)?)
                .await
        }
        _ => bail!("--database must begin with postgres://, mysql:// or sqlite://"),
    }
}

async fn run<DB: Database>(arguments: Arguments, pool: Pool<DB>) -> Result<()> {
    let orders = Orders::open(&arguments.orders, arguments.count)?;
    let opened = database::open_shop(&pool).await.context("make the shop's tables")?;
    let before = Books::read(&pool).await?;
    let in_memory = arguments.broker.starts_with("memory:");
    ensure!(
        !in_memory || before.unsettled() == 0,
        "the database holds {} orders whose messages were on a memory broker that is gone; \
         take another --database",
        before.unsettled()
    );

    // The exchange and the queue. They belong to this database's shop: a run that goes on after
    // a crash finds its own messages there, and nobody else's.
    let mq = acemq::connect(&arguments.broker).client_name("order_flow").await?;
    let exchange = format!("order_flow.{opened}");
    let queue = format!("order_flow.{opened}.payments");
    mq.declare(
        &Topology::new()
            .exchange(Exchange::topic(&exchange))
            .queue(Queue::new(&queue).dead_letters())
            .bind(&queue, &exchange, "order.*"),
    )
    .await?;

    // The order service, and the relay that publishes what it commits.
    let on_the_way = OnTheWay::new()?;
    let shop = Arc::new(Shop::new(&mq, &exchange, pool.clone(), on_the_way.clone()));
    shop.outbox.create_table_if_absent().await?;
    let relay = OutboxRelay::builder(&mq, shop.outbox.clone()).lease(LEASE).start();

    // The payment service: four attempts an order, duplicates kept away.
    let store = SqlIdempotency::new(pool.clone()).lease(LEASE);
    store.create_table_if_absent().await?;
    let payments = Arc::new(Payments {
        pool: pool.clone(),
        on_the_way: on_the_way.clone(),
        progress: progress(arguments.count),
        charged: AtomicU64::new(0),
        crash_after: arguments.crash_after,
    });
    let handler = Arc::clone(&payments);
    let charging = mq
        .consumer::<Order>(&queue)
        .prefetch(100)
        .concurrency(DB::AT_ONCE)
        .retry(RetryPolicy::exponential(
            payments::ATTEMPTS,
            Duration::from_millis(20),
            Duration::from_secs(1),
        ))
        .idempotent(store)
        .start(move |message| {
            let payments = Arc::clone(&handler);
            async move { payments.charge(message).await }
        })
        .await?;

    // Customer care, which looks at what could not be charged. Its queues are there already.
    let mut care = Vec::new();
    for set_aside in ["dlq", "parked"] {
        let payments = Arc::clone(&payments);
        let consumer = mq
            .consumer::<Bytes>(format!("{queue}.{set_aside}"))
            .codec(RawBytes::of_type("application/json"))
            .declare(false)
            .start(move |message| {
                let payments = Arc::clone(&payments);
                async move { payments.note_failure(message).await }
            })
            .await?;
        care.push(consumer);
    }

    let started = Instant::now();
    let tally = shop::place_all(&shop, orders).await?;
    let run = Run { before, tally, in_memory, started };
    let report = run.finish(&shop, &relay, &charging).await?;
    payments.progress.finish_and_clear();

    // Nothing is left behind on the broker. The relay stops before the consumers.
    relay.close().await?;
    charging.close().await?;
    for consumer in care {
        consumer.close().await?;
    }
    for suffix in ["", ".dlq", ".parked"] {
        mq.delete_queue(&format!("{queue}{suffix}")).await?;
    }
    mq.delete_exchange(&exchange).await?;
    mq.close().await?;

    if arguments.json {
        report.print_json()?;
    } else {
        report.print_table();
    }
    report.check()
}

fn progress(count: Option<u64>) -> ProgressBar {
    let bar = count.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    let look = if count.is_some() {
        "{bar:40} {pos}/{len} orders charged, {per_sec}"
    } else {
        "{spinner} {pos} orders charged, {per_sec}"
    };
    // indicatif draws on stderr, and only where that is a terminal.
    bar.with_style(
        ProgressStyle::with_template(look).unwrap_or_else(|_| ProgressStyle::default_bar()),
    )
}

fn without_password(url: &str) -> &str {
    let url = url.split('?').next().unwrap_or_default();
    url.rsplit_once('@').map_or(url, |(_, rest)| rest)
}
