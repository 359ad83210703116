//! Draining an outbox.

mod by_hand;

use std::{sync::Arc, time::Duration};

use acemq::{Client, OutboxRelay, OutboxStore};
use acemq_sql::SqlDatabase;
use anyhow::{Result, ensure};
use lapin::Channel;
use sqlx::{MySql, Pool, Postgres, Sqlite};

use self::by_hand::OneByOne;
use crate::{
    bench::{Bench, QueueKind, declare, holds},
    outbox::{self, Outbox},
    pairs::{Pair, Reading, alternate, timed},
    raw::{self, Content},
};

pub(super) const ONE_BY_ONE: &str = "a running relay with batches of 1,000, against a relay written \
    by hand on lapin and sqlx that claims a record, publishes it, waits for its confirm and marks \
    it; with a tenth of the records, since each takes its time alone";
pub(super) const BY_HAND: &str = "a running relay with batches of 1,000, against the best relay that \
    we could write by hand on lapin and sqlx: as large batches, all their confirms in flight, the \
    next claim and the last mark meanwhile";
pub(super) const RAW: &str = "a running relay with batches of 1,000, against lapin publishing as \
    many of the same messages with 1,000 confirms in flight and no database at all";
pub(super) const PUBLISHED: &str = "a running relay with batches of 1,000 and 1,000,000 published \
    records in its table, against the same with none";

const BATCH: usize = 1_000;
/// What the raw client has in flight.
const IN_FLIGHT: usize = 1_000;
/// How often the relay is asked whether it is done.
const LOOK: Duration = Duration::from_millis(1);
/// How many records more the relay has than the one that takes one by one.
const MORE: usize = 10;
const MANY_PUBLISHED: usize = 1_000_000;

pub(super) async fn postgres_one_by_one(bench: &Bench, kind: QueueKind) -> Result<Vec<Pair>> {
    outbox::in_postgres(bench, async |outbox| one_by_one::<Postgres>(bench, kind, outbox).await)
        .await
}

pub(super) async fn mariadb_one_by_one(bench: &Bench, kind: QueueKind) -> Result<Vec<Pair>> {
    outbox::in_mariadb(bench, async |outbox| one_by_one::<MySql>(bench, kind, outbox).await).await
}

pub(super) async fn sqlite_one_by_one(bench: &Bench, kind: QueueKind) -> Result<Vec<Pair>> {
    outbox::in_sqlite(async |outbox| one_by_one::<Sqlite>(bench, kind, outbox).await).await
}

async fn one_by_one<DB: SqlDatabase + OneByOne>(
    bench: &Bench,
    kind: QueueKind,
    outbox: &Outbox<DB>,
) -> Result<Vec<Pair>> {
    let messages = bench.messages.div_ceil(MORE);
    alternate(
        bench.rounds,
        async || {
            let reading = drained_by_hand(bench, kind, outbox, messages, DB::one_by_one).await?;
            Ok(reading.times(bench.messages as f64 / messages as f64))
        },
        async || drained(bench, kind, outbox).await,
    )
    .await
}

pub(super) async fn by_hand(bench: &Bench, kind: QueueKind) -> Result<Vec<Pair>> {
    outbox::in_postgres(bench, async |outbox| {
        alternate(
            bench.rounds,
            async || {
                let by_hand = by_hand::in_batches;
                drained_by_hand(bench, kind, outbox, bench.messages, by_hand).await
            },
            async || drained(bench, kind, outbox).await,
        )
        .await
    })
    .await
}

pub(super) async fn against_raw(bench: &Bench, kind: QueueKind) -> Result<Vec<Pair>> {
    outbox::in_postgres(bench, async |outbox| {
        alternate(
            bench.rounds,
            async || {
                let work = |queue| {
                    let channel = Arc::clone(&bench.raw.publishing);
                    let content = Content::SameAsAcemq;
                    raw::publish_many(channel, queue, content, bench.messages, IN_FLIGHT)
                };
                bench.time_publishing(&bench.mq, kind, work).await
            },
            async || drained(bench, kind, outbox).await,
        )
        .await
    })
    .await
}

pub(super) async fn beside_published(bench: &Bench) -> Result<Vec<Pair>> {
    outbox::in_postgres(bench, async |empty| {
        outbox::in_postgres(bench, async |full| {
            full.fill_published(MANY_PUBLISHED).await?;
            alternate(
                bench.rounds,
                async || drained(bench, QueueKind::Classic, empty).await,
                async || drained(bench, QueueKind::Classic, full).await,
            )
            .await
        })
        .await
    })
    .await
}

/// Times our relay.
async fn drained<DB: SqlDatabase>(
    bench: &Bench,
    kind: QueueKind,
    outbox: &Outbox<DB>,
) -> Result<Reading> {
    reading(bench, kind, outbox, bench.messages, |mq| {
        drain(mq.clone(), outbox.store.clone(), bench.messages)
    })
    .await
}

/// Times a relay that was written by hand.
async fn drained_by_hand<DB: SqlDatabase, W>(
    bench: &Bench,
    kind: QueueKind,
    outbox: &Outbox<DB>,
    messages: usize,
    drain: impl Fn(Arc<Channel>, Pool<DB>, String, usize) -> W,
) -> Result<Reading>
where
    W: Future<Output = Result<()>> + Send + 'static,
{
    reading(bench, kind, outbox, messages, |_| {
        let channel = Arc::clone(&bench.raw.publishing);
        drain(channel, outbox.pool.clone(), outbox.table.clone(), messages)
    })
    .await
}

/// Times the draining of an outbox that holds all messages; afterwards the queue has to hold them.
async fn reading<DB: SqlDatabase, W>(
    bench: &Bench,
    kind: QueueKind,
    outbox: &Outbox<DB>,
    messages: usize,
    drain: impl FnOnce(&Client) -> W,
) -> Result<Reading>
where
    W: Future<Output = Result<()>> + Send + 'static,
{
    let queue = declare(&bench.mq, kind).await?;
    outbox.fill(&bench.mq, &queue, messages).await?;
    let took = timed(drain(&bench.mq)).await?;
    holds(&bench.mq, &queue, messages).await?;
    ensure!(outbox.store.pending_count().await? == 0, "the outbox is not empty");
    bench.mq.delete_queue(&queue).await?;
    Ok(took)
}

async fn drain(mq: Client, store: impl OutboxStore, messages: usize) -> Result<()> {
    let relay = OutboxRelay::builder(&mq, store).batch(BATCH).poll(LOOK).start();
    while relay.published() < messages as u64 {
        ensure!(relay.failed() == 0, "{} records failed", relay.failed());
        tokio::time::sleep(LOOK).await;
    }
    Ok(relay.close().await?)
}
