//! The input: orders in a file, one JSON object a line, read as they are needed.

use std::{
    fs::File,
    io::{BufRead, BufReader, Lines},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// An order as the file has it, and as the message carries it.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    pub id: String,
    pub customer: String,
    pub date: String,
    pub currency: String,
    pub items: Vec<Item>,
    /// What is to go wrong with this order; nothing, for nearly all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Trouble>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    pub name: String,
    pub quantity: u16,
    /// The price of one, in the currency's smallest unit.
    pub cents: u32,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// The first two attempts to charge it fail.
    FailsTwice,
    /// Every attempt fails.
    AlwaysFails,
    /// Its message cannot be decoded.
    Undecodable,
    /// Its message is sent twice.
    SentTwice,
}

impl Order {
    /// The sum of its items.
    pub fn cents(&self) -> i64 {
        self.items.iter().map(|item| i64::from(item.quantity) * i64::from(item.cents)).sum()
    }
}

/// The orders of a file. With a count it ends there, and begins again where the file ends.
pub struct Orders {
    path: PathBuf,
    lines: Lines<BufReader<File>>,
    line: u64,
    round: u64,
    read: u64,
    empty: bool,
    count: Option<u64>,
}

impl Orders {
    pub fn open(path: &Path, count: Option<u64>) -> Result<Self> {
        let lines = open(path)?;
        Ok(Self { path: path.to_owned(), lines, line: 0, round: 1, read: 0, empty: true, count })
    }

    fn read_next(&mut self) -> Result<Option<Order>> {
        if self.count == Some(self.read) {
            return Ok(None);
        }
        let mut order = loop {
            self.line += 1;
            let Some(line) = self.lines.next() else {
                if self.empty {
                    bail!("{} holds no order", self.path.display());
                }
                if self.count.is_none() {
                    return Ok(None);
                }
                self.lines = open(&self.path)?;
                self.line = 0;
                self.round += 1;
                continue;
            };
            let place = || format!("read line {} of {}", self.line, self.path.display());
            let line = line.with_context(place)?;
            if !line.trim().is_empty() {
                self.empty = false;
                break serde_json::from_str::<Order>(&line).with_context(place)?;
            }
        };
        if self.round > 1 {
            order.id = format!("{}-{}", order.id, self.round);
        }
        self.read += 1;
        Ok(Some(order))
    }
}

impl Iterator for Orders {
    type Item = Result<Order>;

    fn next(&mut self) -> Option<Result<Order>> {
        self.read_next().transpose()
    }
}

fn open(path: &Path) -> Result<Lines<BufReader<File>>> {
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    Ok(BufReader::new(file).lines())
}
