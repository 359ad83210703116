//! What a claim costs beside rows that are not claimed.

use std::time::Duration;

use acemq::OutboxStore as _;
use acemq_sql::PostgresOutbox;
use anyhow::{Result, ensure};
use sqlx::Postgres;

use crate::{
    bench::Bench,
    outbox::{self, Outbox},
    pairs::{Pair, Reading, alternate, timed},
};

pub(super) const BACKLOG: &str =
    "claims of 500 records in a table where 1,000,000 wait, against a table where 20,000 do";
pub(super) const EXHAUSTED: &str = "claims of 500 records in a table where 20,000 wait behind \
    200,000 exhausted ones, against a table where only the 20,000 are";

const BATCH: usize = 500;
const FEW: usize = 20_000;
const MANY: usize = 1_000_000;
const EXHAUSTED_RECORDS: usize = 200_000;
const LEASE: Duration = Duration::from_secs(60);

pub(super) async fn backlog(bench: &Bench) -> Result<Vec<Pair>> {
    against_few(bench, async |outbox| outbox.fill_waiting(MANY).await).await
}

pub(super) async fn exhausted(bench: &Bench) -> Result<Vec<Pair>> {
    against_few(bench, async |outbox| {
        outbox.fill_exhausted(EXHAUSTED_RECORDS).await?;
        outbox.fill_waiting(FEW).await
    })
    .await
}

async fn against_few(
    bench: &Bench,
    fill: impl AsyncFnOnce(&Outbox<Postgres>) -> Result<()>,
) -> Result<Vec<Pair>> {
    outbox::in_postgres(bench, async |few| {
        few.fill_waiting(FEW).await?;
        outbox::in_postgres(bench, async |many| {
            fill(many).await?;
            alternate(
                bench.rounds,
                async || reading(few, bench.messages).await,
                async || reading(many, bench.messages).await,
            )
            .await
        })
        .await
    })
    .await
}

/// Times the claiming of records, and gives them back.
async fn reading(outbox: &Outbox<Postgres>, records: usize) -> Result<Reading> {
    let took = timed(claim(outbox.store.clone(), records)).await?;
    outbox.give_all_back().await?;
    Ok(took)
}

async fn claim(store: PostgresOutbox, records: usize) -> Result<()> {
    for _ in 0..records / BATCH {
        let claimed = store.claim_batch(BATCH, LEASE).await?.len();
        ensure!(claimed == BATCH, "{claimed} records were claimed, not {BATCH}");
    }
    Ok(())
}
