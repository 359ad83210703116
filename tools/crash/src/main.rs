//! Kills processes and servers while messages flow, and checks that the books add up.
//!
//! The driver (`run`) starts worker processes of this same program (`role`), does to them what
//! the scenario says (`chaos`), lets what is left finish (`settle`) and compares what the workers
//! wrote down, what the database holds and what the broker got (`books`).

mod books;
mod chaos;
mod diary;
mod fleet;
mod ledger;
mod names;
mod observer;
mod report;
mod role;
mod run;
mod scenario;
mod servers;
mod settle;
mod tables;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

use self::{
    role::Task,
    run::{Outcome, Settings},
};

/// The code of a run that was left out, since a server that it needs is not installed.
const LEFT_OUT: u8 = 3;

/// Kills processes and servers while messages flow, and checks that the books add up.
///
/// Ends with 0 where they do, 1 where they do not or the run failed, 3 where a server that is to
/// be the run's own is not installed.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(flatten)]
    settings: Option<Settings>,
    #[command(subcommand)]
    work: Option<Work>,
}

#[derive(Debug, Subcommand)]
enum Work {
    /// What the driver starts: one worker process.
    #[command(hide = true)]
    Work(Task),
}

#[tokio::main]
async fn main() -> ExitCode {
    match dispatch(Arguments::parse()).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn dispatch(arguments: Arguments) -> Result<ExitCode> {
    if let Some(Work::Work(task)) = arguments.work {
        role::work(task).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let settings = arguments.settings.context("name a scenario; --help lists them")?;
    let as_json = settings.json;
    let report = match run::run(settings).await? {
        Outcome::LeftOut => return Ok(ExitCode::from(LEFT_OUT)),
        Outcome::Finished(report) => report,
    };
    if as_json {
        println!("{:#}", report.json());
    } else {
        print!("{report}");
    }
    Ok(if report.is_right() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
