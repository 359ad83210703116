//! Adding a record in the transaction of an order.

use std::collections::VecDeque;

use acemq::OutboxRecord;
use acemq_sql::RecordStatement;
use anyhow::Result;
use sqlx::{AssertSqlSafe, PgPool, Postgres, Transaction};

use crate::{
    bench::{Bench, body, publisher},
    outbox::{self, Outbox},
    pairs::{Pair, Reading, alternate, timed},
};

pub(super) const ABOUT: &str = "a transaction of an order and `add`, against the same transaction \
    with the same insert by hand; one connection, records made beforehand";

pub(super) async fn run(bench: &Bench) -> Result<Vec<Pair>> {
    outbox::in_postgres(bench, async |outbox| {
        let orders = format!("{}_orders", outbox.table);
        let create = format!("CREATE TABLE {orders} (id TEXT PRIMARY KEY, item TEXT NOT NULL)");
        sqlx::query(AssertSqlSafe(create)).execute(&outbox.pool).await?;
        let pairs = alternate(
            bench.rounds,
            async || by_hand(bench, outbox, &orders).await,
            async || add(bench, outbox, &orders).await,
        )
        .await;
        let drop = format!("DROP TABLE {orders}");
        sqlx::query(AssertSqlSafe(drop)).execute(&outbox.pool).await?;
        pairs
    })
    .await
}

async fn add(bench: &Bench, outbox: &Outbox<Postgres>, orders: &str) -> Result<Reading> {
    let (store, pool) = (outbox.store.clone(), outbox.pool.clone());
    let (records, orders) = (records(bench).await?, orders.to_owned());
    empty(outbox, &orders).await?;
    timed(async move {
        for record in &records {
            let mut transaction = order(&pool, &orders, record.id()).await?;
            store.add(&mut transaction, record).await?;
            transaction.commit().await?;
        }
        Ok(())
    })
    .await
}

async fn by_hand(bench: &Bench, outbox: &Outbox<Postgres>, orders: &str) -> Result<Reading> {
    let (pool, orders) = (outbox.pool.clone(), orders.to_owned());
    let mut statements = VecDeque::new();
    for record in records(bench).await? {
        statements.push_back((record.id().to_owned(), outbox.store.statement(&record).await?));
    }
    empty(outbox, &orders).await?;
    timed(async move {
        for (id, RecordStatement { sql, values, .. }) in statements {
            let mut transaction = order(&pool, &orders, &id).await?;
            let insert = sqlx::query(AssertSqlSafe(sql));
            let insert = values.into_iter().fold(insert, sqlx::query::Query::bind);
            insert.execute(&mut *transaction).await?;
            transaction.commit().await?;
        }
        Ok(())
    })
    .await
}

/// Opens a transaction and places an order in it.
async fn order(pool: &PgPool, orders: &str, id: &str) -> Result<Transaction<'static, Postgres>> {
    let mut transaction = pool.begin().await?;
    let insert = format!("INSERT INTO {orders} (id, item) VALUES ($1, $2)");
    sqlx::query(AssertSqlSafe(insert)).bind(id).bind("a book").execute(&mut *transaction).await?;
    Ok(transaction)
}

async fn records(bench: &Bench) -> Result<Vec<OutboxRecord>> {
    let (publisher, body) = (publisher(&bench.mq, "orders".to_owned()), body());
    let mut records = Vec::with_capacity(bench.messages);
    for _ in 0..bench.messages {
        records.push(publisher.record(&body).await?);
    }
    Ok(records)
}

async fn empty(outbox: &Outbox<Postgres>, orders: &str) -> Result<()> {
    let truncate = format!("TRUNCATE {}, {orders}", outbox.table);
    sqlx::query(AssertSqlSafe(truncate)).execute(&outbox.pool).await?;
    Ok(())
}
