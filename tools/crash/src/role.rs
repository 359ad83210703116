//! What a worker process does, and the points at which it may end itself.

mod consumer;
mod fuse;
mod relay;
mod transaction;
mod writer;

use std::{path::PathBuf, sync::Arc, time::Duration};

use acemq::Client;
use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

pub(crate) use self::{
    fuse::{Fuse, Point},
    relay::BATCH as RELAY_BATCH,
    transaction::Fused,
};
use crate::{
    ledger::Ledger,
    names::Names,
    tables::{self, Tables},
};

/// How long to wait before a broker is tried again.
const REDIAL: Duration = Duration::from_millis(100);

/// What a worker process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Role {
    /// Saves orders and adds their records to the outbox, several to a transaction.
    Writer,
    /// Publishes the outbox.
    Relay,
    /// Handles each message once in effect, with an idempotency store or in a transaction.
    Consumer,
}

impl Role {
    pub(crate) const ALL: [Self; 3] = [Self::Writer, Self::Relay, Self::Consumer];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Writer => "writer",
            Self::Relay => "relay",
            Self::Consumer => "consumer",
        }
    }

    /// How many processes of it run at once.
    pub(crate) fn crew(self) -> usize {
        match self {
            Self::Writer | Self::Consumer => 2,
            Self::Relay => 3,
        }
    }

    /// Where it may end itself.
    pub(crate) fn points(self) -> &'static [Point] {
        match self {
            Self::Writer => &[Point::BeforeCommit, Point::InCommit, Point::AfterCommit],
            Self::Relay => &[Point::AfterClaim, Point::BeforeMark, Point::InMark, Point::AfterMark],
            Self::Consumer => &[
                Point::AfterClaim,
                Point::InHandler,
                Point::BeforeConfirm,
                Point::InConfirm,
                Point::AfterConfirm,
            ],
        }
    }
}

/// What a worker process is told.
#[derive(Args, Clone, Debug)]
pub(crate) struct Task {
    #[arg(long)]
    pub(crate) role: Role,
    /// This process's own name: its role, its place in the crew and which life of that it is.
    #[arg(long)]
    pub(crate) life: String,
    /// The run's name, which is in those of its tables and queues.
    #[arg(long)]
    pub(crate) run: String,
    #[arg(long)]
    pub(crate) broker: String,
    #[arg(long)]
    pub(crate) database: String,
    /// The lease of claims, in milliseconds.
    #[arg(long)]
    pub(crate) lease: u64,
    /// Whether a consumer's effects are in the transaction of its claims.
    #[arg(long)]
    pub(crate) transactional: bool,
    #[arg(long)]
    pub(crate) seed: u64,
    /// The file to write down in what was done.
    #[arg(long)]
    pub(crate) ledger: PathBuf,
    /// Where to end itself.
    #[arg(long, requires = "nth")]
    pub(crate) point: Option<Point>,
    /// And at which time that it comes there.
    #[arg(long)]
    pub(crate) nth: Option<u32>,
}

/// What every worker has.
struct Worker {
    life: String,
    names: Names,
    broker: String,
    lease: Duration,
    transactional: bool,
    tables: Arc<dyn Tables>,
    ledger: Arc<Ledger>,
    fuse: Arc<Fuse>,
    random: fastrand::Rng,
    /// Cancelled when this process is asked to end in an orderly way.
    stop: CancellationToken,
}

/// Does a worker's work until standard input ends.
pub(crate) async fn work(task: Task) -> Result<()> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| "acemq=info".into());
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_env_filter(filter)
        .init();
    let lease = Duration::from_millis(task.lease);
    let ledger = Arc::new(Ledger::create(&task.ledger)?);
    let mut random = fastrand::Rng::with_seed(task.seed);
    let worker = Worker {
        tables: tables::open(&task.database, &task.run, lease)?,
        names: Names::of(&task.run),
        fuse: Arc::new(Fuse::new(task.point.zip(task.nth), Arc::clone(&ledger), random.fork())),
        life: task.life,
        broker: task.broker,
        lease,
        transactional: task.transactional,
        ledger,
        random,
        stop: stop_with_input(),
    };
    match task.role {
        Role::Writer => writer::run(worker).await,
        Role::Relay => relay::run(worker).await,
        Role::Consumer => consumer::run(worker).await,
    }
}

/// Cancelled when standard input ends: the driver has closed it, or is gone itself.
fn stop_with_input() -> CancellationToken {
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        stopping.cancel();
    });
    stop
}

impl Worker {
    /// A connection to the broker, which may be down just now; none when asked to end meanwhile.
    async fn connect(&self) -> Option<Client> {
        loop {
            match acemq::connect(&*self.broker).client_name(&*self.life).await {
                Ok(client) => return Some(client),
                Err(error) => eprintln!("{error}"),
            }
            if !self.goes_on_after(REDIAL).await {
                return None;
            }
        }
    }

    /// Waits that long; `false` when asked to end meanwhile.
    async fn goes_on_after(&self, pause: Duration) -> bool {
        tokio::select! {
            () = self.stop.cancelled() => false,
            () = tokio::time::sleep(pause) => true,
        }
    }
}

/// The message of an order.
#[derive(Debug, serde::Deserialize, serde::Serialize)]
pub(crate) struct Order {
    pub(crate) order: String,
}

impl Order {
    fn body(id: &str) -> Result<String> {
        serde_json::to_string(&Self { order: id.to_owned() }).context("encode an order")
    }
}
