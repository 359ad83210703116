//! Relays written by hand on lapin and sqlx, for the very same rows.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use futures_util::{TryStreamExt as _, stream::FuturesUnordered};
use lapin::{
    BasicProperties, Channel, Confirmation,
    options::BasicPublishOptions,
    types::{AMQPValue, FieldTable},
};
use serde_json::Value;
use sqlx::{AssertSqlSafe, Executor as _, FromRow as _, MySql, PgPool, Pool, Postgres, Sqlite};

use super::BATCH;
use crate::raw::PERSISTENT;

/// The columns that a message is made of.
const COLUMNS: &str = "id, routing_key, body, content_type, headers";

/// As many ids as go to the server in one record of TLS. sqlx leaves Nagle's algorithm on, and so
/// the second of two records waits 40 ms.
const MARKED_TOGETHER: usize = 350;

/// A row, in the order of [`COLUMNS`].
type Record = (String, String, String, String, String);

/// Publishes one record, mandatory, and checks its confirm.
async fn publish(
    channel: &Channel,
    (id, queue, body, content_type, headers): Record,
) -> Result<String> {
    let mut table = FieldTable::default();
    for (name, value) in serde_json::from_str::<BTreeMap<String, Value>>(&headers)? {
        let value = match value {
            Value::String(text) => AMQPValue::LongString(text.into()),
            Value::Number(number) => AMQPValue::LongLongInt(number.as_i64().context("a number")?),
            other => anyhow::bail!("a header {other}"),
        };
        table.insert(name.into(), value);
    }
    let properties = BasicProperties::default()
        .with_delivery_mode(PERSISTENT)
        .with_content_type(content_type.into())
        .with_headers(table)
        .with_message_id(id.as_str().into());
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let confirm = channel
        .basic_publish("".into(), queue.into(), options, body.as_bytes(), properties)
        .await?
        .await?;
    ensure!(confirm == Confirmation::Ack(None), "not confirmed: {confirm:?}");
    Ok(id)
}

/// One record after the other: claim it, publish it, wait for its confirm, mark it.
pub(super) trait OneByOne: sqlx::Database {
    fn one_by_one(
        channel: Arc<Channel>,
        pool: Pool<Self>,
        table: String,
        records: usize,
    ) -> impl Future<Output = Result<()>> + Send;
}

/// Where a claim is one statement that returns the row.
macro_rules! claim_in_one_statement {
    ($database:ty, $now:literal, $later:literal, $skip:literal) => {
        impl OneByOne for $database {
            async fn one_by_one(
                channel: Arc<Channel>,
                pool: Pool<Self>,
                table: String,
                records: usize,
            ) -> Result<()> {
                let claim = format!(
                    concat!(
                        "UPDATE {table} SET locked_by = 'by hand', locked_until = ",
                        $later,
                        " WHERE id = (SELECT id FROM {table} \
                         WHERE published_at IS NULL AND attempts < 10 \
                         AND (locked_until IS NULL OR locked_until <= ",
                        $now,
                        ") \
                         ORDER BY published_at, created_at, id LIMIT 1 ",
                        $skip,
                        ") \
                         RETURNING {columns}"
                    ),
                    table = table,
                    columns = COLUMNS,
                );
                let mark = format!(
                    concat!(
                        "UPDATE {table} SET published_at = ",
                        $now,
                        ", locked_by = NULL, locked_until = NULL WHERE id = $1"
                    ),
                    table = table,
                );
                let mut connection = pool.acquire().await?;
                for _ in 0..records {
                    let claimed: Record = sqlx::query_as(AssertSqlSafe(claim.as_str()))
                        .fetch_one(&mut *connection)
                        .await?;
                    let id = publish(&channel, claimed).await?;
                    sqlx::query(AssertSqlSafe(mark.as_str()))
                        .bind(id)
                        .execute(&mut *connection)
                        .await?;
                }
                Ok(())
            }
        }
    };
}

claim_in_one_statement!(
    Postgres,
    "clock_timestamp()",
    "clock_timestamp() + INTERVAL '1 minute'",
    "FOR UPDATE SKIP LOCKED"
);
claim_in_one_statement!(
    Sqlite,
    "strftime('%Y-%m-%d %H:%M:%f000', 'now')",
    "strftime('%Y-%m-%d %H:%M:%f000', 'now', '+60 seconds')",
    ""
);

impl OneByOne for MySql {
    async fn one_by_one(
        channel: Arc<Channel>,
        pool: Pool<Self>,
        table: String,
        records: usize,
    ) -> Result<()> {
        let free = "published_at IS NULL AND attempts < 10 \
            AND (locked_until IS NULL OR locked_until <= UTC_TIMESTAMP(6))";
        let pick =
            format!("SELECT {COLUMNS} FROM {table} WHERE {free} ORDER BY created_at, id LIMIT 1");
        let claim = format!(
            "UPDATE {table} SET locked_by = 'by hand', \
             locked_until = UTC_TIMESTAMP(6) + INTERVAL 1 MINUTE WHERE id = ? AND {free}"
        );
        let mark = format!(
            "UPDATE {table} SET published_at = UTC_TIMESTAMP(6), locked_by = NULL, \
             locked_until = NULL WHERE id = ?"
        );
        let mut connection = pool.acquire().await?;
        for _ in 0..records {
            let picked: Record =
                sqlx::query_as(AssertSqlSafe(pick.as_str())).fetch_one(&mut *connection).await?;
            let claimed = sqlx::query(AssertSqlSafe(claim.as_str()))
                .bind(&picked.0)
                .execute(&mut *connection)
                .await?;
            ensure!(claimed.rows_affected() == 1, "the record is somebody else's");
            let id = publish(&channel, picked).await?;
            sqlx::query(AssertSqlSafe(mark.as_str())).bind(id).execute(&mut *connection).await?;
        }
        Ok(())
    }
}

/// The best that we found for PostgreSQL: batches, many confirms in flight, and the next claim and
/// the last mark while a batch is published.
pub(super) async fn in_batches(
    channel: Arc<Channel>,
    pool: PgPool,
    table: String,
    records: usize,
) -> Result<()> {
    // Left alone, PostgreSQL takes a bitmap of all that was ever published after a while.
    let by_index = "SET LOCAL enable_bitmapscan = off; SET LOCAL enable_seqscan = off; \
        SET LOCAL enable_sort = off; SET LOCAL jit = off; ";
    let claim = format!(
        "{by_index}WITH due AS MATERIALIZED (SELECT id FROM {table} \
         WHERE published_at IS NULL AND attempts < 10 \
         AND (locked_until IS NULL OR locked_until <= statement_timestamp()) \
         ORDER BY published_at, created_at, id LIMIT {BATCH} FOR UPDATE SKIP LOCKED), \
         claimed AS (UPDATE {table} AS o SET locked_by = 'by hand', \
         locked_until = clock_timestamp() + INTERVAL '1 minute' \
         FROM due WHERE o.id = due.id RETURNING o.*) \
         SELECT {COLUMNS} FROM claimed ORDER BY created_at, id"
    );
    let claim_batch = async || -> Result<Vec<Record>> {
        let rows = pool.fetch_all(sqlx::raw_sql(AssertSqlSafe(claim.as_str()))).await?;
        Ok(rows.iter().map(Record::from_row).collect::<sqlx::Result<_>>()?)
    };
    let mark_batch = async |ids: Vec<String>| -> Result<usize> {
        if ids.is_empty() {
            return Ok(0);
        }
        for ids in ids.chunks(MARKED_TOGETHER) {
            // The ids are UUIDs.
            let mark = format!(
                "{by_index}UPDATE {table} SET published_at = clock_timestamp(), locked_by = NULL, \
                 locked_until = NULL WHERE id IN ('{}')",
                ids.join("', '")
            );
            pool.execute(sqlx::raw_sql(AssertSqlSafe(mark))).await?;
        }
        Ok(ids.len())
    };
    let publish_batch = async |batch: Vec<Record>| -> Result<Vec<String>> {
        let published = batch.into_iter().map(|record| publish(&channel, record));
        published.collect::<FuturesUnordered<_>>().try_collect().await
    };
    let (mut batch, mut published, mut marked) = (claim_batch().await?, Vec::new(), 0);
    while !batch.is_empty() || !published.is_empty() {
        let done;
        (published, batch, done) =
            tokio::try_join!(publish_batch(batch), claim_batch(), mark_batch(published),)?;
        marked += done;
    }
    ensure!(marked == records, "{marked} of {records} records were published");
    Ok(())
}
