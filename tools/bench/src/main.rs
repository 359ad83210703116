//! Compares acemq with the raw client, pair by pair in one run.
//!
//! `docs/benchmarks/README.md` says how to run it and how to read what it says.

mod bench;
mod pairs;
mod raw;
mod report;
mod rows;
mod stats;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Parser;

use self::{bench::Bench, report::Report, rows::ROWS};

/// Compares acemq with the raw client, pair by pair in one run.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// The RabbitMQ broker.
    #[arg(long, default_value = "amqp://guest:guest@127.0.0.1:5672")]
    broker: String,
    /// The MariaDB database of the row `relay/mariadb`.
    #[arg(long, default_value = "mysql://root@127.0.0.1:3306/acemq_bench")]
    mariadb: String,
    /// The PostgreSQL database of the row `relay/postgres`.
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
}

impl Options {
    fn asks_for(&self, row: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|asked| row.starts_with(asked.as_str()))
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let asked: Vec<_> = ROWS.iter().filter(|row| options.asks_for(row.name)).collect();
    if asked.is_empty() {
        let names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
        bail!("no row begins with {:?}; there are: {}", options.only, names.join(", "));
    }
    let mut report = Report::new(&options);
    for row in asked {
        let messages = options.messages.map_or(row.messages, |messages| messages as usize);
        let bench = Bench::prepare(&options, messages).await?;
        let pairs = (row.run)(&bench).await?;
        bench.close().await?;
        println!("{}", report.add(row, messages, pairs)?);
    }
    if let Some(file) = &options.report {
        report.write(file)?;
    }
    Ok(())
}
