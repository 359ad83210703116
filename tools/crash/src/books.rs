//! All that is known of a run once it is over, from the workers' ledgers, the database and the
//! broker.

mod holds;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};

pub(crate) use self::{
    holds::{Hold, Holds},
    rules::{Wrong, check},
};
use crate::{
    diary::Diary,
    fleet::Life,
    ledger::{self, Line},
    names::Names,
    observer::Observer,
    tables::{Row, Table, Tables},
};

/// Everything about one run.
#[derive(Debug, Default)]
pub(crate) struct Books {
    pub(crate) lives: Vec<(Life, Vec<Line>)>,
    /// Whether effects were in the transactions of the claims.
    pub(crate) transactional: bool,
    /// The orders that have committed, as the database says.
    pub(crate) orders: BTreeSet<String>,
    pub(crate) outbox: BTreeMap<String, OutboxRow>,
    /// Order ids with their keys' states.
    pub(crate) keys: BTreeMap<String, String>,
    /// How many effects each order had.
    pub(crate) effects: BTreeMap<String, usize>,
    /// How many copies of each record the broker was given.
    pub(crate) copies: BTreeMap<String, usize>,
    /// Queues that should be empty by now, and how many messages they hold.
    pub(crate) left_over: BTreeMap<String, u32>,
}

#[derive(Debug)]
pub(crate) struct OutboxRow {
    pub(crate) is_published: bool,
    pub(crate) attempts: u64,
    pub(crate) last_error: String,
}

impl Books {
    /// Reads everything, and keeps what was read in the run's folder.
    pub(crate) async fn gather(
        lives: Vec<Life>,
        tables: &dyn Tables,
        observer: &Observer,
        names: &Names,
        diary: &Diary,
    ) -> Result<Self> {
        let mut books = Self::default();
        for life in lives {
            let lines = ledger::read(&diary.ledger_of(&life.name))?;
            books.lives.push((life, lines));
        }
        for table in Table::ALL {
            let rows =
                tables.rows(table).await.with_context(|| format!("read the {}", table.name()));
            let rows = rows?;
            diary.keep(&format!("{}.txt", table.name()), rows.iter().map(|row| row.join(" ")))?;
            books.read(table, rows)?;
        }
        let copies = observer.copies(names).await?;
        diary.keep("broker.txt", &copies)?;
        for id in copies {
            *books.copies.entry(id).or_default() += 1;
        }
        let set_aside = names.set_aside();
        for queue in std::iter::once(&names.work).chain(&set_aside) {
            books.left_over.insert(queue.clone(), observer.waiting(queue).await?);
        }
        Ok(books)
    }

    fn read(&mut self, table: Table, rows: Vec<Row>) -> Result<()> {
        for row in rows {
            let mut row = row.into_iter();
            let mut next = || row.next().context("a row has too few columns");
            let id = next()?;
            match table {
                Table::Orders => {
                    self.orders.insert(id);
                }
                Table::Outbox => {
                    let row = OutboxRow {
                        is_published: !next()?.is_empty(),
                        attempts: next()?.parse().context("read attempts")?,
                        last_error: next()?,
                    };
                    self.outbox.insert(id, row);
                }
                Table::Idempotency => {
                    // The key is the id behind the queue's name.
                    let id = id.rsplit('/').next().unwrap_or_default().to_owned();
                    self.keys.insert(id, next()?);
                }
                Table::Effects => *self.effects.entry(id).or_default() += 1,
            }
        }
        Ok(())
    }
}
