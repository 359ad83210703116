//! The end of a run: what is left is finished by workers that nobody disturbs.

use std::{collections::HashSet, time::Duration};

use anyhow::Result;
use tokio::time::{Instant, sleep};

use crate::{
    diary::Diary,
    fleet::Fleet,
    ledger::{self, Deed, Line},
    names::Names,
    observer::Observer,
    role::Role,
    scenario::Scenario,
    tables::{Table, Tables},
};

const LOOK: Duration = Duration::from_millis(100);
/// How long nothing may move before the rest counts as stuck; the books then say what it is.
const PATIENCE: Duration = Duration::from_secs(20);

/// Lets the writers stop, the relays publish what is there and the consumers handle it.
pub(crate) async fn settle(
    scenario: Scenario,
    fleet: &mut Fleet<'_>,
    tables: &dyn Tables,
    observer: &Observer,
    names: &Names,
    diary: &Diary,
) -> Result<()> {
    diary.note("settle")?;
    for role in Role::ALL {
        if scenario.victims().contains(&role) {
            fleet.kill_all(role).await?;
            if role != Role::Writer {
                fleet.start_undisturbed(role)?;
            }
        }
    }
    fleet.close(Role::Writer).await?;
    tables.decide(&undecided(fleet, diary)?).await?;

    if !until_zero(async || tables.backlog().await).await? {
        diary.note("the relays are stuck")?;
    }
    fleet.close(Role::Relay).await?;

    // What a consumer holds unacknowledged is not seen in the queue until it has closed.
    loop {
        let at_work = until_zero(async || at_work(tables, observer, names).await).await?;
        fleet.close(Role::Consumer).await?;
        if !at_work {
            return diary.note("the consumers are stuck");
        }
        if observer.waiting(&names.work).await? == 0 {
            return diary.note("settled");
        }
        fleet.start_undisturbed(Role::Consumer)?;
    }
}

/// Transactions whose commit the writer did not live to note, by their first orders: a server may
/// still be at work on the last word of a client that is dead.
fn undecided(fleet: &Fleet<'_>, diary: &Diary) -> Result<Vec<String>> {
    let mut undecided = Vec::new();
    for life in fleet.ended().iter().filter(|life| life.role == Role::Writer) {
        let lines = ledger::read(&diary.ledger_of(&life.name))?;
        let first = |line: &Line| line.ids.first().cloned();
        let of = |deed: Deed| lines.iter().filter(move |line| line.deed == deed).filter_map(first);
        let committed: HashSet<String> = of(Deed::Committed).collect();
        undecided.extend(of(Deed::Began).filter(|id| !committed.contains(id)));
    }
    Ok(undecided)
}

/// How many messages wait, and how many orders somebody has claimed or nobody has yet.
async fn at_work(tables: &dyn Tables, observer: &Observer, names: &Names) -> Result<usize> {
    let waiting = observer.waiting(&names.work).await? as usize;
    if waiting > 0 {
        return Ok(waiting);
    }
    let keys = tables.rows(Table::Idempotency).await?;
    let confirmed = keys.iter().filter(|row| row[1] == "CONFIRMED").count();
    Ok(tables.rows(Table::Orders).await?.len().saturating_sub(confirmed))
}

/// Waits until nothing is left: `false` where the rest has stopped moving.
async fn until_zero(mut left: impl AsyncFnMut() -> Result<usize>) -> Result<bool> {
    let (mut last, mut moved) = (usize::MAX, Instant::now());
    loop {
        let now = left().await?;
        if now == 0 {
            return Ok(true);
        }
        if now != last {
            (last, moved) = (now, Instant::now());
        } else if moved.elapsed() > PATIENCE {
            return Ok(false);
        }
        sleep(LOOK).await;
    }
}
