//! What is measured by itself, since there is nothing to set it against.

mod commit_to_broker;
mod relay_memory;
mod scheduler_due;
mod scheduler_memory;

use std::fs;

use anyhow::{Context as _, Result};
use futures_util::future::LocalBoxFuture;
use serde::Serialize;

use crate::bench::Bench;

pub(crate) use self::{
    relay_memory::drain as drain_and_report_memory,
    scheduler_memory::schedule as schedule_and_report_memory,
};

/// Each round's figures, in their order.
pub(crate) type Rounds = Vec<Vec<f64>>;

/// Figures that are measured together.
pub(crate) struct Measurement {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// How many messages a reading has unless the caller says otherwise.
    pub(crate) messages: usize,
    /// How many readings there are at most: some take long.
    pub(crate) most_rounds: u16,
    pub(crate) figures: &'static [Figure],
    pub(crate) run: for<'a> fn(&'a Bench) -> LocalBoxFuture<'a, Result<Rounds>>,
}

/// One number, and what it may be at most.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) at_most: Option<f64>,
}

const fn figure(name: &'static str, unit: &'static str, at_most: Option<f64>) -> Figure {
    Figure { name, unit, at_most }
}

pub(crate) const MEASUREMENTS: &[Measurement] = &[
    Measurement {
        name: "relay/notify",
        about: commit_to_broker::NOTIFY,
        messages: 2_000,
        most_rounds: 5,
        figures: commit_to_broker::FIGURES,
        run: |bench| Box::pin(commit_to_broker::by_notify(bench)),
    },
    Measurement {
        name: "relay/wake",
        about: commit_to_broker::WAKE,
        messages: 2_000,
        most_rounds: 5,
        figures: commit_to_broker::FIGURES,
        run: |bench| Box::pin(commit_to_broker::by_wake(bench)),
    },
    Measurement {
        name: "relay/memory",
        about: relay_memory::ABOUT,
        messages: 1_000_000,
        most_rounds: 1,
        figures: relay_memory::FIGURES,
        run: |bench| Box::pin(relay_memory::run(bench)),
    },
    Measurement {
        name: "scheduler/due",
        about: scheduler_due::ABOUT,
        messages: 20_000,
        most_rounds: 15,
        figures: scheduler_due::FIGURES,
        run: |bench| Box::pin(scheduler_due::run(bench)),
    },
    Measurement {
        name: "scheduler/memory",
        about: scheduler_memory::ABOUT,
        messages: 100_000,
        most_rounds: 3,
        figures: scheduler_memory::FIGURES,
        run: |bench| Box::pin(scheduler_memory::run(bench)),
    },
];

/// What Linux says under that name about this process's memory, in megabytes.
fn memory(name: &str) -> Result<f64> {
    let status = fs::read_to_string("/proc/self/status").context("this needs Linux")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let line = line.with_context(|| format!("no {name}"))?;
    let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes / 1e3)
}
