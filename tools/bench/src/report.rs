//! What the readings say, for people and for programs.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::{Context as _, Result};
use serde::Serialize;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::{
    Options,
    figures::{Figure, Measurement},
    pairs::Pair,
    rows::{Measure, Row},
    stats::Estimate,
};

/// Everything that was measured in one run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    at: String,
    command: String,
    machine: String,
    rounds: u16,
    rows: Vec<Entry>,
    figures: Vec<FigureEntry>,
}

/// What one row came to.
#[derive(Debug, Serialize)]
struct Entry {
    row: &'static str,
    about: &'static str,
    messages: usize,
    ratio_of: &'static str,
    /// acemq over the reference, pair by pair.
    ratio: Estimate,
    limit: Option<f64>,
    verdict: Verdict,
    /// The client's processor time, acemq over the reference.
    cpu_ratio: Option<Estimate>,
    /// Messages a second, medians.
    reference: f64,
    acemq: f64,
    pairs: Vec<Pair>,
}

/// What one figure came to.
#[derive(Debug, Serialize)]
struct FigureEntry {
    row: &'static str,
    about: &'static str,
    messages: usize,
    figure: Figure,
    value: Estimate,
    verdict: Verdict,
    readings: Vec<f64>,
}

/// Whether a limit is kept.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// The whole interval is within the limit.
    Kept,
    /// The limit lies inside the interval: the readings do not say.
    Unclear,
    /// The whole interval is beyond the limit.
    Broken,
    /// There is no limit.
    None,
}

impl Report {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            at: OffsetDateTime::now_utc().format(&Rfc3339).unwrap_or_default(),
            command: command(std::env::args().skip(1)),
            machine: machine(),
            rounds: options.rounds,
            rows: Vec::new(),
            figures: Vec::new(),
        }
    }

    /// Adds a row and says in one line what it came to.
    pub(crate) fn add(&mut self, row: &Row, messages: usize, pairs: Vec<Pair>) -> Result<String> {
        let entry = Entry::new(row, messages, pairs).context("the row has no pairs")?;
        let line = format!(
            "{:24} {} {}, limit {}: {}; processor time {}; {:.0} to {:.0} messages/s",
            entry.row,
            entry.ratio_of,
            estimate(&entry.ratio),
            limit(&entry),
            verdict(entry.verdict),
            cpu(&entry),
            entry.acemq,
            entry.reference
        );
        self.rows.push(entry);
        Ok(line)
    }

    /// Adds what was measured by itself, and says in a line each what it came to.
    pub(crate) fn add_figures(
        &mut self,
        measured: &Measurement,
        messages: usize,
        rounds: &[Vec<f64>],
    ) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        for (place, &figure) in measured.figures.iter().enumerate() {
            let readings: Vec<f64> =
                rounds.iter().filter_map(|round| round.get(place)).copied().collect();
            let value = Estimate::of(readings.clone()).context("the figure has no readings")?;
            let entry = FigureEntry {
                row: measured.name,
                about: measured.about,
                messages,
                figure,
                value,
                verdict: Verdict::at_most(&value, figure.at_most),
                readings,
            };
            lines.push(format!(
                "{:24} {} {}, limit {}: {}",
                entry.row,
                figure.name,
                entry.value(),
                entry.limit(),
                verdict(entry.verdict),
            ));
            self.figures.push(entry);
        }
        Ok(lines)
    }

    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        let put = |file: &Path, text: String| {
            fs::write(file, text).with_context(|| format!("write {}", file.display()))
        };
        put(file, self.markdown()?)?;
        put(&file.with_extension("json"), format!("{}\n", serde_json::to_string_pretty(self)?))
    }

    fn markdown(&self) -> Result<String> {
        let mut text = String::new();
        writeln!(text, "# Benchmark report\n")?;
        writeln!(text, "Made by `{}` at {} on {}.", self.command, self.at, self.machine)?;
        writeln!(
            text,
            "{} pairs a row after one that warms up. [README.md](README.md) says how to read this.\n",
            self.rounds
        )?;
        writeln!(
            text,
            "| row | ratio | limit | | client's processor time | messages/s: acemq | reference |"
        )?;
        writeln!(text, "|---|---|---|---|---|---|---|")?;
        for entry in &self.rows {
            writeln!(
                text,
                "| {} | {} {} | {} | {} | {} | {:.0} | {:.0} |",
                entry.row,
                entry.ratio_of,
                estimate(&entry.ratio),
                limit(entry),
                verdict(entry.verdict),
                cpu(entry),
                entry.acemq,
                entry.reference
            )?;
        }
        self.figures_markdown(&mut text)?;
        writeln!(text, "\n## What the rows compare\n")?;
        let rows = self.rows.iter().map(|entry| (entry.row, entry.about, entry.messages));
        let figures = self.figures.iter().map(|entry| (entry.row, entry.about, entry.messages));
        let mut said = None;
        for (row, about, messages) in rows.chain(figures) {
            if said.replace(row) != Some(row) {
                writeln!(text, "- **{row}**: {about}. {messages} messages a reading.")?;
            }
        }
        Ok(text)
    }

    fn figures_markdown(&self, text: &mut String) -> Result<()> {
        if self.figures.is_empty() {
            return Ok(());
        }
        writeln!(text, "\n| row | figure | value | limit | | readings |")?;
        writeln!(text, "|---|---|---|---|---|---|")?;
        for entry in &self.figures {
            writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} |",
                entry.row,
                entry.figure.name,
                entry.value(),
                entry.limit(),
                verdict(entry.verdict),
                entry.readings.len()
            )?;
        }
        Ok(())
    }
}

impl Entry {
    fn new(row: &Row, messages: usize, pairs: Vec<Pair>) -> Option<Self> {
        let of = |of: fn(&Pair) -> f64| Estimate::of(pairs.iter().map(of).collect());
        let cpu = |pair: &Pair| Some(pair.acemq.cpu_seconds? / pair.reference.cpu_seconds?);
        let rate = |of: Option<Estimate>| Some(messages as f64 / of?.median);
        let (ratio_of, ratio, limit, verdict);
        match row.measure {
            Measure::Time { at_most } => {
                ratio_of = "time";
                ratio = of(|pair| pair.acemq.seconds / pair.reference.seconds)?;
                limit = at_most;
                verdict = Verdict::at_most(&ratio, at_most);
            }
            Measure::Throughput { at_least } => {
                ratio_of = "throughput";
                ratio = of(|pair| pair.reference.seconds / pair.acemq.seconds)?;
                limit = at_least;
                verdict = Verdict::at_least(ratio.low, ratio.high, at_least);
            }
        }
        Some(Self {
            row: row.name,
            about: row.about,
            messages,
            ratio_of,
            ratio,
            limit,
            verdict,
            cpu_ratio: pairs.iter().map(cpu).collect::<Option<_>>().and_then(Estimate::of),
            reference: rate(of(|pair| pair.reference.seconds))?,
            acemq: rate(of(|pair| pair.acemq.seconds))?,
            pairs,
        })
    }
}

impl FigureEntry {
    fn value(&self) -> String {
        let Estimate { median, low, high, .. } = self.value;
        let unit = self.figure.unit;
        match self.readings.len() {
            1 => format!("**{median:.1} {unit}**"),
            _ => format!("**{median:.1} {unit}** ({low:.1} to {high:.1})"),
        }
    }

    fn limit(&self) -> String {
        let Figure { unit, at_most, .. } = self.figure;
        at_most.map_or_else(|| "none".to_owned(), |limit| format!("≤ {limit:.0} {unit}"))
    }
}

impl Verdict {
    /// The same question as [`at_least`](Self::at_least), with the signs turned round.
    fn at_most(value: &Estimate, limit: Option<f64>) -> Self {
        Self::at_least(-value.high, -value.low, limit.map(|limit| -limit))
    }

    fn at_least(low: f64, high: f64, limit: Option<f64>) -> Self {
        match limit {
            None => Self::None,
            Some(limit) if low >= limit => Self::Kept,
            Some(limit) if high < limit => Self::Broken,
            Some(_) => Self::Unclear,
        }
    }
}

fn estimate(ratio: &Estimate) -> String {
    format!(
        "**{:.3}** ({:.3} to {:.3} at {:.0} %)",
        ratio.median,
        ratio.low,
        ratio.high,
        // Down, since a confidence must not be claimed by rounding.
        (ratio.confidence * 100.0).floor()
    )
}

fn cpu(entry: &Entry) -> String {
    entry.cpu_ratio.map_or_else(|| "unknown".to_owned(), |ratio| format!("{:.2}", ratio.median))
}

fn limit(entry: &Entry) -> String {
    match (entry.ratio_of, entry.limit) {
        (_, None) => "none".to_owned(),
        ("time", Some(limit)) => format!("≤ {limit:.2}"),
        (_, Some(limit)) => format!("≥ {limit:.2}"),
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Kept => "kept",
        Verdict::Unclear => "unclear",
        Verdict::Broken => "broken",
        Verdict::None => "for information",
    }
}

/// The command to run again. Addresses may hold passwords and stay out.
fn command(arguments: impl Iterator<Item = String>) -> String {
    let mut command = "cargo run --release -p bench --".to_owned();
    let mut secret = false;
    for argument in arguments {
        let (option, _) = argument.split_once('=').unwrap_or((&argument, ""));
        let address = matches!(option, "--broker" | "--mariadb" | "--postgres");
        command.push(' ');
        command.push_str(match (secret, address) {
            (true, _) => "…",
            (false, true) => option,
            (false, false) => &argument,
        });
        secret = address && option == argument;
    }
    command
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or(std::env::consts::ARCH, |(_, model)| model);
    format!("{cores} cores of {model}, {}", std::env::consts::OS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairs::Reading;

    fn reading(seconds: f64) -> Reading {
        Reading { seconds, cpu_seconds: Some(seconds / 2.0) }
    }

    fn entry(measure: Measure, pairs: &[(f64, f64)]) -> Entry {
        let row = Row { name: "a/row", about: "", messages: 0, measure, run: |_| unreachable!() };
        let pair = |&(theirs, ours)| Pair { reference: reading(theirs), acemq: reading(ours) };
        let pairs = pairs.iter().map(pair).collect();
        Entry::new(&row, 100, pairs).unwrap()
    }

    #[test]
    fn a_time_ratio_is_ours_over_theirs_and_has_a_ceiling() {
        let measure = Measure::Time { at_most: Some(1.05) };
        let slow = entry(measure, &[(1.0, 1.2); 6]);
        assert_eq!((slow.ratio.median, slow.verdict), (1.2, Verdict::Broken));
        assert_eq!(entry(measure, &[(1.0, 1.04); 6]).verdict, Verdict::Kept);
    }

    #[test]
    fn a_throughput_ratio_is_theirs_over_ours_in_time_and_has_a_floor() {
        let measure = Measure::Throughput { at_least: Some(0.9) };
        let slow = entry(measure, &[(1.0, 2.0); 6]);
        assert_eq!((slow.ratio.median, slow.verdict), (0.5, Verdict::Broken));
        assert_eq!((slow.reference, slow.acemq), (100.0, 50.0));
        assert_eq!(entry(measure, &[(1.0, 0.5); 6]).verdict, Verdict::Kept);
    }

    #[test]
    fn a_limit_inside_the_interval_leaves_it_unclear() {
        let measure = Measure::Throughput { at_least: Some(0.9) };
        let mixed = [(1.0, 1.0), (1.0, 1.25), (1.0, 1.0), (1.0, 1.25), (1.0, 1.0), (1.0, 1.25)];
        assert_eq!(entry(measure, &mixed).verdict, Verdict::Unclear);
    }

    #[test]
    fn the_command_shows_no_address() {
        let arguments = [
            "--broker",
            "amqp://u:p@h",
            "--postgres=postgres://u:p@h",
            "--mariadb",
            "mysql://u:p@h",
            "--rounds",
            "9",
        ];
        assert_eq!(
            command(arguments.into_iter().map(str::to_owned)),
            "cargo run --release -p bench -- --broker … --postgres --mariadb … --rounds 9"
        );
    }
}
