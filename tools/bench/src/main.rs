//! Compares acemq with the raw client, pair by pair in one run.
//!
//! `docs/benchmarks/README.md` says how to run it and how to read what it says.

mod bench;
mod figures;
mod outbox;
mod pairs;
mod raw;
mod report;
mod rows;
mod stats;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Parser;

use self::{bench::Bench, figures::MEASUREMENTS, report::Report, rows::ROWS};

/// Compares acemq with the raw client, pair by pair in one run.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// The RabbitMQ broker.
    #[arg(long, default_value = "amqp://guest:guest@127.0.0.1:5672")]
    broker: String,
    /// The MariaDB database of the rows that need one.
    #[arg(long, default_value = "mysql://root@127.0.0.1:3306/acemq_bench")]
    mariadb: String,
    /// The PostgreSQL database of the rows that need one.
    #[arg(long, default_value = "postgres://postgres@127.0.0.1:5432/postgres")]
    postgres: String,
    /// Only the rows whose name begins with this; may be given more than once.
    #[arg(long, value_name = "ROW")]
    only: Vec<String>,
    /// How many pairs a row has, after one that warms up.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// How many messages each reading has; every row has its own number unless set.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    messages: Option<u32>,
    /// Writes the report to this file, and its data beside it as `.json`.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Drains a table of PostgreSQL and prints what memory that took: the process that
    /// `relay/memory` measures.
    #[arg(long, value_name = "TABLE", hide = true)]
    drain: Option<String>,
    /// Schedules messages for a queue and prints what memory they take while they wait: the
    /// process that `scheduler/memory` measures.
    #[arg(long, value_name = "QUEUE", hide = true)]
    schedule: Option<String>,
}

impl Options {
    fn asks_for(&self, row: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|asked| row.starts_with(asked.as_str()))
    }

    fn messages_of(&self, usual: usize) -> usize {
        self.messages.map_or(usual, |messages| messages as usize)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    if let Some(table) = &options.drain {
        return figures::drain_and_report_memory(&options, table).await;
    }
    if let Some(queue) = &options.schedule {
        return figures::schedule_and_report_memory(&options, queue).await;
    }
    let rows: Vec<_> = ROWS.iter().filter(|row| options.asks_for(row.name)).collect();
    let measurements: Vec<_> =
        MEASUREMENTS.iter().filter(|measured| options.asks_for(measured.name)).collect();
    if rows.is_empty() && measurements.is_empty() {
        let names: Vec<_> =
            ROWS.iter().map(|row| row.name).chain(MEASUREMENTS.iter().map(|m| m.name)).collect();
        bail!("no row begins with {:?}; there are: {}", options.only, names.join(", "));
    }
    let mut report = Report::new(&options);
    for row in rows {
        let messages = options.messages_of(row.messages);
        let bench = Bench::prepare(&options, options.rounds, messages).await?;
        let pairs = (row.run)(&bench).await?;
        bench.close().await?;
        println!("{}", report.add(row, messages, pairs)?);
    }
    for measured in measurements {
        let messages = options.messages_of(measured.messages);
        let rounds = options.rounds.min(measured.most_rounds);
        let bench = Bench::prepare(&options, rounds, messages).await?;
        let readings = (measured.run)(&bench).await?;
        bench.close().await?;
        for line in report.add_figures(measured, messages, &readings)? {
            println!("{line}");
        }
    }
    if let Some(file) = &options.report {
        report.write(file)?;
    }
    Ok(())
}
