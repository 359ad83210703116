//! Claiming a key and confirming it.

use std::sync::Arc;

use acemq::{Claim, IdempotencyStore as _};
use acemq_sql::PostgresIdempotency;
use anyhow::{Context as _, Result, bail, ensure};
use sqlx::{AssertSqlSafe, PgPool, postgres::PgPoolOptions};
use tokio::task::JoinSet;

use crate::{
    bench::Bench,
    pairs::{Pair, Reading, alternate, timed},
};

pub(super) const ABOUT: &str = "8 tasks that claim a key and confirm it, against 8 tasks that run \
    the same two statements by hand; PostgreSQL, a pool of 8 connections";
pub(super) const ALONE: &str = "one task that claims a key and confirms it, against one that runs \
    the same two statements by hand; PostgreSQL";

pub(super) const MANY_TASKS: usize = 8;
pub(super) const ONE_TASK: usize = 1;

pub(super) async fn run(bench: &Bench, tasks: usize) -> Result<Vec<Pair>> {
    let pool = PgPoolOptions::new()
        .max_connections(8)
        .connect(&bench.postgres)
        .await
        .context("connect to PostgreSQL; name a database with --postgres")?;
    let id = uuid::Uuid::new_v4().simple().to_string();
    let table = format!("acemq_bench_{}", &id[..12]);
    let store = PostgresIdempotency::new(pool.clone()).table(&table)?;
    store.create_table_if_absent().await?;
    let by_hand = Arc::new(ByHand::new(pool.clone(), &table));
    let pairs = alternate(
        bench.rounds,
        async || {
            let by_hand = Arc::clone(&by_hand);
            let handle = move |key| Arc::clone(&by_hand).run(key);
            reading(bench, &pool, &table, tasks, handle).await
        },
        async || {
            let store = store.clone();
            let handle = move |key| ours(store.clone(), key);
            reading(bench, &pool, &table, tasks, handle).await
        },
    )
    .await;
    sqlx::query(AssertSqlSafe(format!("DROP TABLE {table}"))).execute(&pool).await?;
    pool.close().await;
    pairs
}

/// Times tasks that share the messages between them; afterwards the table has to hold all keys,
/// confirmed.
async fn reading<W>(
    bench: &Bench,
    pool: &PgPool,
    table: &str,
    tasks: usize,
    handle: impl Fn(String) -> W + Clone + Send + 'static,
) -> Result<Reading>
where
    W: Future<Output = Result<()>> + Send + 'static,
{
    sqlx::query(AssertSqlSafe(format!("TRUNCATE {table}"))).execute(pool).await?;
    let messages = bench.messages;
    let took = timed(async move {
        let mut running = JoinSet::new();
        for task in 0..tasks {
            let handle = handle.clone();
            running.spawn(async move {
                for message in (task..messages).step_by(tasks) {
                    handle(format!("orders/message-{message}")).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(done) = running.join_next().await {
            done??;
        }
        Ok(())
    })
    .await?;
    let count = format!("SELECT count(*) FROM {table} WHERE state = 'CONFIRMED'");
    let confirmed: i64 = sqlx::query_scalar(AssertSqlSafe(count)).fetch_one(pool).await?;
    ensure!(usize::try_from(confirmed) == Ok(messages), "{confirmed} of {messages} are confirmed");
    Ok(took)
}

async fn ours(store: PostgresIdempotency, key: String) -> Result<()> {
    let Claim::Owned(lease) = store.try_claim(&key).await? else {
        bail!("{key} is somebody else's");
    };
    Ok(store.confirm(&lease).await?)
}

/// The same two statements, as an application would write them.
struct ByHand {
    pool: PgPool,
    claim: String,
    confirm: String,
}

impl ByHand {
    fn new(pool: PgPool, table: &str) -> Self {
        Self {
            pool,
            claim: format!(
                "INSERT INTO {table} (message_id, state, claimed_by, recorded_at, expires_at) \
                 VALUES ($1, 'CLAIMED', $2, clock_timestamp(), \
                 clock_timestamp() + INTERVAL '5 minutes') \
                 ON CONFLICT (message_id) DO NOTHING RETURNING 1"
            ),
            confirm: format!(
                "INSERT INTO {table} (message_id, state, claimed_by, recorded_at, expires_at) \
                 VALUES ($1, 'CONFIRMED', NULL, clock_timestamp(), \
                 clock_timestamp() + INTERVAL '24 hours') \
                 ON CONFLICT (message_id) DO UPDATE SET state = EXCLUDED.state, \
                 claimed_by = NULL, recorded_at = EXCLUDED.recorded_at, \
                 expires_at = EXCLUDED.expires_at"
            ),
        }
    }

    async fn run(self: Arc<Self>, key: String) -> Result<()> {
        let token = uuid::Uuid::new_v4().to_string();
        let claimed = sqlx::query(AssertSqlSafe(self.claim.as_str()))
            .bind(&key)
            .bind(token)
            .fetch_all(&self.pool)
            .await?;
        ensure!(claimed.len() == 1, "{key} is somebody else's");
        sqlx::query(AssertSqlSafe(self.confirm.as_str())).bind(key).execute(&self.pool).await?;
        Ok(())
    }
}
