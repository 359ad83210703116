//! One run, from the servers to the verdict.

use std::{path::PathBuf, time::Duration};

use acemq::{Exchange, Queue, Topology};
use anyhow::{Context as _, Result};
use clap::Args;
use tokio::time::Instant;

use crate::{
    books::{self, Books},
    chaos::chaos,
    diary::Diary,
    fleet::{Common, Fleet},
    names::Names,
    observer::Observer,
    report::{Report, Run},
    role::Role,
    scenario::Scenario,
    servers::Servers,
    settle::settle,
    tables::{self, Tables},
};

/// Beyond what a run could reach.
const DELIVERY_LIMIT: i64 = 1_000_000;

/// What a run is to be.
#[derive(Args, Clone, Debug)]
pub(crate) struct Settings {
    scenario: Scenario,
    /// How long to go on killing.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// amqp://user:password@host:port/vhost, or `own` or `own4`: a RabbitMQ 3.x or 4.x that is
    /// started for this run.
    #[arg(long, default_value = "own")]
    broker: String,
    /// A URL, or `own`: a PostgreSQL that is started for this run, or `sqlite`: a file in the
    /// run's folder.
    #[arg(long, default_value = "own")]
    database: String,
    /// Drives the choices of what to kill and when, and of what the workers do. Unless set, a
    /// new one, which is printed.
    #[arg(long)]
    seed: Option<u64>,
    /// The mean time between two kills, in milliseconds.
    #[arg(long, default_value_t = 150)]
    every: u64,
    /// The lease of claims, in milliseconds.
    #[arg(long, default_value_t = 1_000)]
    lease: u64,
    /// Consumers have their effects in the transaction of their claims, and then each has exactly
    /// one.
    #[arg(long)]
    transactional: bool,
    /// Keep the run's evidence in this folder, which must be new. Unless set, a folder for
    /// temporary files has it, and it is removed when the books add up.
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) enum Outcome {
    /// A server that the run needs is not installed.
    LeftOut,
    Finished(Report),
}

pub(crate) async fn run(settings: Settings) -> Result<Outcome> {
    let run = testkit::unique("").trim_start_matches('_')[..12].to_owned();
    let folder = settings.keep.clone();
    let folder = folder.unwrap_or_else(|| std::env::temp_dir().join(format!("acemq-crash-{run}")));
    let diary = Diary::open(std::path::absolute(folder)?)?;
    let finished = run_in(&settings, &run, &diary).await;
    let is_right = matches!(&finished, Ok(Outcome::Finished(report)) if report.is_right());
    // Where no worker has begun there is nothing to read.
    if settings.keep.is_none() && (is_right || diary.ledgers()?.is_empty()) {
        std::fs::remove_dir_all(diary.folder()).context("remove the run's folder")?;
    } else {
        eprintln!("the run's books are in {}", diary.folder().display());
    }
    finished
}

async fn run_in(settings: &Settings, run: &str, diary: &Diary) -> Result<Outcome> {
    let scenario = settings.scenario;
    let seed = settings.seed.unwrap_or_else(|| fastrand::u64(..));
    eprintln!("{}, --seed {seed}", scenario.name());
    diary.note(format_args!("scenario {}, seed {seed}, run {run}", scenario.name()))?;
    let servers = Servers::start(scenario, &settings.broker, &settings.database, diary).await?;
    let Some(mut servers) = servers else { return Ok(Outcome::LeftOut) };
    let finished = run_on(&mut servers, settings, seed, run, diary).await;
    servers.keep_logs(diary)?;
    Ok(Outcome::Finished(finished?))
}

async fn run_on(
    servers: &mut Servers,
    settings: &Settings,
    seed: u64,
    run: &str,
    diary: &Diary,
) -> Result<Report> {
    let scenario = settings.scenario;
    let lease = Duration::from_millis(settings.lease);
    let names = Names::of(run);
    let tables = tables::open(&servers.database_url(), run, lease)?;
    prepare(servers, &*tables, &names).await?;

    let started = Instant::now();
    let mut random = fastrand::Rng::with_seed(seed);
    let common = Common {
        program: std::env::current_exe().context("find this program")?,
        run: run.to_owned(),
        broker: servers.broker_url(),
        database: servers.database_url(),
        lease,
        transactional: settings.transactional,
    };
    let mut fleet = Fleet::new(common, diary, random.fork());
    for role in Role::ALL {
        fleet.start_crew(role, scenario.victims())?;
    }
    let pause = Duration::from_millis(settings.every);
    let length = Duration::from_secs(settings.seconds);
    let done = chaos(scenario, &mut fleet, servers, diary, &mut random, pause, length).await?;
    eprintln!("settling");
    let observer = Observer::connect(&servers.broker_url()).await?;
    settle(scenario, &mut fleet, &*tables, &observer, &names, diary).await?;
    let took = started.elapsed();

    let mut books = Books::gather(fleet.into_lives(), &*tables, &observer, &names, diary).await?;
    books.transactional = settings.transactional;
    let wrong = books::check(&books, lease);
    let scenario = scenario.name();
    let report = Report::of(Run { scenario, seed, took, lease, done, books: &books, wrong });
    diary.keep("report.json", [report.json()])?;
    if report.is_right() {
        observer.remove(&names).await?;
        tables.remove().await?;
    }
    Ok(report)
}

/// Makes the tables, the exchange and the queues.
async fn prepare(servers: &Servers, tables: &dyn Tables, names: &Names) -> Result<()> {
    tables.create().await.context("make the run's tables")?;
    let mq = acemq::connect(servers.broker_url()).client_name("crash").await?;
    // RabbitMQ 4 dead-letters what has come back 20 times, and consumers here are killed far more
    // often while they hold the same messages.
    let work = Queue::new(&names.work).dead_letters().argument("x-delivery-limit", DELIVERY_LIMIT);
    let topology = Topology::new()
        .exchange(Exchange::topic(&names.exchange))
        .queue(work)
        .queue(Queue::new(&names.audit))
        .bind(&names.work, &names.exchange, Names::ROUTING_KEY)
        .bind(&names.audit, &names.exchange, Names::ROUTING_KEY);
    mq.declare(&topology).await?;
    Ok(mq.close().await?)
}
