//! What came of it, and whether the numbers add up.

use std::time::{Duration, Instant};

use acemq::{Consumer, ConsumerCounters, OutboxRelay, OutboxStore};
use anyhow::{Result, bail, ensure};
use serde::Serialize;

use crate::{
    database::{Books, Database},
    on_the_way::PATIENCE,
    orders::{Order, Trouble},
    payments,
    shop::{Outcome, Shop},
};

/// What this run did with the orders of the file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub read: u64,
    pub placed: u64,
    /// Placed by an earlier run.
    pub known_already: u64,
    pub rolled_back: u64,
    /// Duplicates sent on purpose.
    pub sent_twice: u64,
    /// Attempts made to fail, without the last ones.
    pub to_retry: u64,
}

impl Tally {
    pub fn note(&mut self, order: &Order, outcome: Outcome) {
        self.read += 1;
        match outcome {
            Outcome::KnownAlready => self.known_already += 1,
            Outcome::RolledBack => self.rolled_back += 1,
            Outcome::Placed => {
                self.placed += 1;
                match order.trouble {
                    Some(Trouble::SentTwice) => self.sent_twice += 1,
                    Some(Trouble::FailsTwice) => self.to_retry += 2,
                    Some(Trouble::AlwaysFails) => {
                        self.to_retry += u64::from(payments::ATTEMPTS) - 1;
                    }
                    Some(Trouble::Undecodable) | None => {}
                }
            }
        }
    }
}

/// A run that has placed its orders.
pub struct Run {
    pub before: Books,
    pub tally: Tally,
    pub in_memory: bool,
    pub started: Instant,
}

/// The result. Retries and duplicates are this run's, as are the last four numbers; the others
/// are those of all runs on the database.
#[derive(Debug, Serialize)]
pub struct Report {
    placed: u64,
    rolled_back: u64,
    published: u64,
    handled: u64,
    duplicates_suppressed: u64,
    retried: u64,
    dead_lettered: u64,
    parked: u64,
    seconds: f64,
    handled_per_second: f64,
    p50_milliseconds: f64,
    p99_milliseconds: f64,
    /// The sums that do not add up.
    wrong: Vec<String>,
}

/// One look at all that still moves.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Look {
    books: Books,
    unpublished: u64,
    counters: ConsumerCounters,
}

impl Run {
    /// Waits until every placed order is published and has come to its end.
    pub async fn finish<DB: Database>(
        &self,
        shop: &Shop<DB>,
        relay: &OutboxRelay,
        charging: &Consumer,
    ) -> Result<Report> {
        let duplicates = if self.is_first() { self.tally.sent_twice } else { 0 };
        let mut last = None;
        let mut moved = Instant::now();
        loop {
            let look = Look {
                books: Books::read(&shop.pool).await?,
                unpublished: shop.outbox.pending_count().await?,
                counters: charging.counters(),
            };
            if look.books.unsettled() == 0
                && look.unpublished == 0
                && look.counters.in_flight == 0
                && look.counters.duplicates >= duplicates
            {
                return Ok(self.report(shop, &look, relay.published()));
            }
            if last.replace(look) != Some(look) {
                moved = Instant::now();
            } else if moved.elapsed() > PATIENCE {
                bail!("nothing has moved for {PATIENCE:?}, and this is not the end: {look:?}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Whether no earlier run was on this database.
    fn is_first(&self) -> bool {
        self.before.orders == 0
    }

    fn report<DB: Database>(&self, shop: &Shop<DB>, look: &Look, published: u64) -> Report {
        let Look { books, unpublished, counters } = look;
        let seconds = self.started.elapsed().as_secs_f64();
        let milliseconds = |percent| shop.on_the_way.latency(percent).as_secs_f64() * 1_000.0;
        Report {
            placed: books.orders,
            rolled_back: self.tally.rolled_back,
            published: books.orders - unpublished,
            handled: books.payments,
            duplicates_suppressed: counters.duplicates,
            retried: counters.retried,
            dead_lettered: books.dead_lettered,
            parked: books.parked,
            seconds,
            handled_per_second: (books.payments - self.before.payments) as f64 / seconds,
            p50_milliseconds: milliseconds(50.0),
            p99_milliseconds: milliseconds(99.0),
            wrong: self.wrong(books, counters, published),
        }
    }

    fn wrong(&self, books: &Books, counters: &ConsumerCounters, published: u64) -> Vec<String> {
        let Self { before, tally, .. } = self;
        let mut wrong = Vec::new();
        let mut sum = |what: &str, left: u64, right: u64| {
            if left != right {
                wrong.push(format!("{what}: {left} is not {right}"));
            }
        };
        sum(
            "orders read = placed now + placed before + rolled back",
            tally.read,
            tally.placed + tally.known_already + tally.rolled_back,
        );
        sum(
            "orders in the database = those before + placed now",
            books.orders,
            before.orders + tally.placed,
        );
        sum(
            "placed = handled + dead-lettered + parked",
            books.orders,
            books.payments + books.dead_lettered + books.parked,
        );
        sum("cents charged = cents due", books.charged_cents, books.due_cents);
        if self.is_first() {
            // A real broker promises at least once: after a lost connection there may be more.
            let counted =
                |actual: u64, due: u64| if self.in_memory { actual } else { actual.min(due) };
            sum("published = placed", counted(published, tally.placed), tally.placed);
            sum(
                "duplicates suppressed = duplicates sent",
                counted(counters.duplicates, tally.sent_twice),
                tally.sent_twice,
            );
            sum(
                "retried = attempts made to fail",
                counted(counters.retried, tally.to_retry),
                tally.to_retry,
            );
            let done = books.payments + tally.sent_twice;
            sum("acknowledged = handled + duplicates", counted(counters.acknowledged, done), done);
        }
        wrong
    }
}

impl Report {
    pub fn print_json(&self) -> Result<()> {
        println!("{}", serde_json::to_string(self)?);
        Ok(())
    }

    pub fn print_table(&self) {
        for (what, number) in [
            ("placed", self.placed),
            ("rolled back", self.rolled_back),
            ("published", self.published),
            ("handled", self.handled),
            ("duplicates suppressed", self.duplicates_suppressed),
            ("retried", self.retried),
            ("dead-lettered", self.dead_lettered),
            ("parked", self.parked),
        ] {
            println!("{what:<26}{number:>10}");
        }
        println!("{:<26}{:>10.0}", "handled a second", self.handled_per_second);
        println!("{:<26}{:>10.1} ms", "commit to handled, p50", self.p50_milliseconds);
        println!("{:<26}{:>10.1} ms", "commit to handled, p99", self.p99_milliseconds);
    }

    /// An error when the numbers do not add up.
    pub fn check(&self) -> Result<()> {
        ensure!(self.wrong.is_empty(), "the numbers do not add up:\n  {}", self.wrong.join("\n  "));
        Ok(())
    }
}
