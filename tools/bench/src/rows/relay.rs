//! Draining an outbox.

use std::time::Duration;

use acemq::{Client, OutboxRelay, OutboxStore};
use acemq_sql::{MySqlOutbox, PostgresOutbox, SqlDatabase, SqlOutbox, SqliteOutbox};
use anyhow::{Context as _, Result, ensure};
use sqlx::{
    MySqlPool, PgPool, Pool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqliteSynchronous},
};

use crate::{
    bench::{Bench, QueueKind::Classic, body, declare, holds, publisher},
    pairs::{Pair, Reading, alternate, timed},
};

pub(super) const ABOUT: &str = "a running relay with batches of 500, against the relay with \
    batches of one, which claims, publishes, waits for the confirm and marks; to a classic queue";

const BATCH: usize = 500;
/// How often the relay is asked whether it is done.
const LOOK: Duration = Duration::from_millis(1);

pub(super) async fn postgres(bench: &Bench) -> Result<Vec<Pair>> {
    let pool = PgPool::connect(&bench.postgres)
        .await
        .context("connect to PostgreSQL; name a database with --postgres")?;
    let name = table();
    let outbox = PostgresOutbox::new(pool.clone()).table(&name)?;
    let pairs = drain(bench, &pool, &outbox).await;
    sqlx::query(sqlx::AssertSqlSafe(format!("DROP TABLE IF EXISTS {name}"))).execute(&pool).await?;
    pool.close().await;
    pairs
}

pub(super) async fn mariadb(bench: &Bench) -> Result<Vec<Pair>> {
    let pool = MySqlPool::connect(&bench.mariadb)
        .await
        .context("connect to MariaDB; name a database with --mariadb")?;
    let name = table();
    let outbox = MySqlOutbox::new(pool.clone()).table(&name)?;
    let pairs = drain(bench, &pool, &outbox).await;
    sqlx::query(sqlx::AssertSqlSafe(format!("DROP TABLE IF EXISTS {name}"))).execute(&pool).await?;
    pool.close().await;
    pairs
}

pub(super) async fn sqlite(bench: &Bench) -> Result<Vec<Pair>> {
    let folder = tempfile::tempdir()?;
    let options = SqliteConnectOptions::new()
        .filename(folder.path().join("outbox.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full);
    let pool = SqlitePool::connect_with(options).await?;
    let pairs = drain(bench, &pool, &SqliteOutbox::new(pool.clone())).await;
    pool.close().await;
    pairs
}

/// A name for a table on a server that others use as well.
fn table() -> String {
    format!("acemq_bench_{}", &uuid::Uuid::new_v4().simple().to_string()[..12])
}

async fn drain<DB: SqlDatabase>(
    bench: &Bench,
    pool: &Pool<DB>,
    outbox: &SqlOutbox<DB>,
) -> Result<Vec<Pair>> {
    outbox.create_table_if_absent().await?;
    alternate(
        bench.rounds,
        async || reading(bench, pool, outbox, drain_one_by_one).await,
        async || reading(bench, pool, outbox, drain_in_batches).await,
    )
    .await
}

/// Times the draining of an outbox that holds all messages; afterwards the queue has to hold them.
async fn reading<DB: SqlDatabase, W>(
    bench: &Bench,
    pool: &Pool<DB>,
    outbox: &SqlOutbox<DB>,
    drain: impl Fn(Client, SqlOutbox<DB>, usize) -> W,
) -> Result<Reading>
where
    W: Future<Output = Result<()>> + Send + 'static,
{
    let (mq, messages) = (&bench.mq, bench.messages);
    let queue = declare(mq, Classic).await?;
    fill(mq, &queue, pool, outbox, messages).await?;
    let took = timed(drain(mq.clone(), outbox.clone(), messages)).await?;
    holds(mq, &queue, messages).await?;
    ensure!(outbox.pending_count().await? == 0, "the outbox is not empty");
    mq.delete_queue(&queue).await?;
    Ok(took)
}

async fn fill<DB: SqlDatabase>(
    mq: &Client,
    queue: &str,
    pool: &Pool<DB>,
    outbox: &SqlOutbox<DB>,
    messages: usize,
) -> Result<()> {
    let (publisher, body) = (publisher(mq, queue.to_owned()), body());
    let mut records = Vec::with_capacity(messages);
    for _ in 0..messages {
        records.push(publisher.record(&body).await?);
    }
    let mut transaction = pool.begin().await?;
    outbox.add_all(&mut transaction, &records).await?;
    Ok(transaction.commit().await?)
}

async fn drain_one_by_one<DB: SqlDatabase>(
    mq: Client,
    outbox: SqlOutbox<DB>,
    messages: usize,
) -> Result<()> {
    let relay = OutboxRelay::builder(&mq, outbox).batch(1).max_batches(messages).build();
    let published = relay.drain().await?;
    ensure!(published == messages, "{published} of {messages} records were published");
    Ok(())
}

async fn drain_in_batches<DB: SqlDatabase>(
    mq: Client,
    outbox: SqlOutbox<DB>,
    messages: usize,
) -> Result<()> {
    let relay = OutboxRelay::builder(&mq, outbox).batch(BATCH).poll(LOOK).start();
    while relay.published() < messages as u64 {
        ensure!(relay.failed() == 0, "{} records failed", relay.failed());
        tokio::time::sleep(LOOK).await;
    }
    Ok(relay.close().await?)
}
