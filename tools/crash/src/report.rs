//! What a run came to, for people and for programs.

use std::{fmt, time::Duration};

use serde_json::{Value, json};

use crate::{
    books::{Books, Hold, Holds, Wrong},
    chaos::Done,
    fleet::Ending,
    ledger::Deed,
    role::{RELAY_BATCH, Role},
};

/// The most cases of a broken rule that are printed; the run's folder has all of them.
const PRINTED_CASES: usize = 10;

/// A run that did less shows less than it says.
const UNTRIED: &str = "everything that was to be done was done";

/// What the driver knows beside the books.
pub(crate) struct Run<'a> {
    pub(crate) scenario: String,
    pub(crate) seed: u64,
    pub(crate) took: Duration,
    pub(crate) lease: Duration,
    pub(crate) done: Done,
    pub(crate) books: &'a Books,
    pub(crate) wrong: Vec<Wrong>,
}

/// The numbers of a run, all of them counted from the books, and the rules it broke.
pub(crate) struct Report {
    scenario: String,
    seed: u64,
    numbers: Vec<(&'static str, Value)>,
    wrong: Vec<Wrong>,
}

impl Report {
    pub(crate) fn of(run: Run<'_>) -> Self {
        let books = run.books;
        let (relays, consumers) = (Holds::of(books, Role::Relay), Holds::of(books, Role::Consumer));
        let ids = |deed: Deed| -> usize {
            let lines = books.lives.iter().flat_map(|(_, lines)| lines);
            lines.filter(|line| line.deed == deed).map(|line| line.ids.len()).sum()
        };
        let copies: usize = books.copies.values().sum();
        let effects: usize = books.effects.values().sum();
        let numbers = vec![
            ("seconds", rounded(run.took)),
            ("writers killed", killed(books, Role::Writer).into()),
            ("relays killed", killed(books, Role::Relay).into()),
            ("consumers killed", killed(books, Role::Consumer).into()),
            ("of these at a named point", died_at_a_point(books).into()),
            ("broker interrupted", run.done.broker.into()),
            ("database interrupted", run.done.database.into()),
            ("orders", books.orders.len().into()),
            ("orders rolled back", ids(Deed::Doomed).into()),
            (
                "orders whose commit the table decided",
                (ids(Deed::Began) - ids(Deed::Committed)).into(),
            ),
            ("copies at the broker", copies.into()),
            ("duplicates at the broker", (copies - books.copies.len()).into()),
            ("explained by claims cut off", count(&relays, |hold| hold.was_cut_off()).into()),
            ("killed relays times their batch", (killed(books, Role::Relay) * RELAY_BATCH).into()),
            ("effects", effects.into()),
            ("effects doubled", (effects - books.effects.len()).into()),
            (
                "explained by handlers cut off",
                count(&consumers, |hold| hold.was_cut_off_in_handler()).into(),
            ),
            ("effect to confirmation, median", rounded(consumers.window())),
            ("longest wait for a killed relay's records", waited(&relays, run.lease)),
            ("longest wait for a killed consumer's orders", waited(&consumers, run.lease)),
            ("leases lapsed in living hands", (relays.lapses() + consumers.lapses()).into()),
        ];
        let mut wrong = run.wrong;
        if !run.done.untried.is_empty() {
            wrong.push(Wrong { rule: UNTRIED, cases: run.done.untried });
        }
        Self { scenario: run.scenario, seed: run.seed, numbers, wrong }
    }

    pub(crate) fn is_right(&self) -> bool {
        self.wrong.is_empty()
    }

    pub(crate) fn json(&self) -> Value {
        let numbers: serde_json::Map<String, Value> =
            self.numbers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        json!({
            "scenario": self.scenario,
            "seed": self.seed,
            "numbers": numbers,
            "wrong": self.wrong,
        })
    }
}

fn killed(books: &Books, role: Role) -> usize {
    let lives = books.lives.iter().map(|(life, _)| life);
    lives.filter(|life| life.role == role && life.ending != Ending::Closed).count()
}

fn died_at_a_point(books: &Books) -> usize {
    books.lives.iter().filter(|(life, _)| matches!(life.ending, Ending::Died(_))).count()
}

fn count(holds: &Holds<'_>, is_meant: impl Fn(&Hold<'_>) -> bool) -> usize {
    holds.0.values().flatten().filter(|hold| is_meant(hold)).count()
}

/// In seconds, beside the lease.
fn waited(holds: &Holds<'_>, lease: Duration) -> Value {
    rounded(holds.longest_wait_after_kill(lease))
}

fn rounded(time: Duration) -> Value {
    json!((time.as_secs_f64() * 1_000.0).round() / 1_000.0)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:45} {}", "scenario", self.scenario)?;
        writeln!(f, "{:45} {}", "seed", self.seed)?;
        for (name, value) in &self.numbers {
            writeln!(f, "{name:45} {value}")?;
        }
        for Wrong { rule, cases } in &self.wrong {
            writeln!(f, "WRONG: {rule}")?;
            for case in cases.iter().take(PRINTED_CASES) {
                writeln!(f, "  {case}")?;
            }
            if cases.len() > PRINTED_CASES {
                writeln!(f, "  and {} more", cases.len() - PRINTED_CASES)?;
            }
        }
        Ok(())
    }
}
