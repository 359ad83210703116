//! The application: an order and its record commit together, or neither does.

use std::time::Duration;

use acemq::{Envelope, OutboxRecord};
use anyhow::Result;

use super::{Order, Point, Worker};
use crate::{ledger::Deed, names::Names, tables::Intent};

/// The longest pause between two transactions, in milliseconds.
const LONGEST_PAUSE: u64 = 12;
/// How many orders a transaction has at most.
const MOST_ORDERS: usize = 4;
/// One of so many transactions rolls back.
const ONE_ROLLS_BACK_OF: u8 = 6;
/// How long to leave a database alone that has just failed.
const AFTER_FAILURE: Duration = Duration::from_millis(50);

pub(super) async fn run(mut worker: Worker) -> Result<()> {
    let mut made = 0;
    while !worker.stop.is_cancelled() {
        let count = worker.random.usize(1..=MOST_ORDERS);
        let records: Vec<OutboxRecord> = (0..count)
            .map(|_| {
                made += 1;
                record(&worker.names, &format!("{}-{made:05}", worker.life))
            })
            .collect::<Result<_>>()?;
        let intent = match worker.random.u8(..ONE_ROLLS_BACK_OF) {
            0 => Intent::RollBack,
            _ => Intent::Commit,
        };
        place(&worker, &records, intent).await;
        let pause = Duration::from_millis(worker.random.u64(..=LONGEST_PAUSE));
        tokio::time::sleep(pause).await;
    }
    Ok(())
}

async fn place(worker: &Worker, records: &[OutboxRecord], intent: Intent) {
    let ids = || records.iter().map(OutboxRecord::id);
    let meant = match intent {
        Intent::Commit => Deed::Began,
        Intent::RollBack => Deed::Doomed,
    };
    worker.ledger.note(meant, ids());
    match worker.tables.place(records, intent, &worker.fuse).await {
        Ok(()) if intent == Intent::Commit => {
            worker.fuse.reached(Point::AfterCommit, ids());
            worker.ledger.note(Deed::Committed, ids());
        }
        Ok(()) => {}
        Err(error) => {
            eprintln!("place {}: {error:#}", ids().collect::<Vec<_>>().join(" "));
            tokio::time::sleep(AFTER_FAILURE).await;
        }
    }
}

fn record(names: &Names, id: &str) -> Result<OutboxRecord> {
    let envelope = Envelope::new(Names::ROUTING_KEY).with_id(id);
    let (exchange, key) = (&*names.exchange, Names::ROUTING_KEY);
    Ok(OutboxRecord::new(exchange, key, "application/json", Order::body(id)?, &envelope)?)
}
