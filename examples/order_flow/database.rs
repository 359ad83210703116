//! The shop's tables, on PostgreSQL or SQLite. The SQL is the same on both.

use std::{str::FromStr, time::Duration};

use acemq_sql::SqlDatabase;
use anyhow::Result;
use sqlx::{
    PgConnection, Pool, Postgres, Row, Sqlite, SqliteConnection,
    postgres::PgPoolOptions,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use crate::orders::Order;

const TABLES: [&str; 5] = [
    "CREATE TABLE IF NOT EXISTS shop (one INTEGER PRIMARY KEY, opened BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS shop_orders (id VARCHAR(64) PRIMARY KEY, customer TEXT NOT NULL, \
     placed_on TEXT NOT NULL, currency TEXT NOT NULL, cents BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS shop_payments (order_id VARCHAR(64) PRIMARY KEY, \
     cents BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS shop_accounts (customer TEXT NOT NULL, currency TEXT NOT NULL, \
     charged BIGINT NOT NULL, PRIMARY KEY (customer, currency))",
    "CREATE TABLE IF NOT EXISTS shop_failures (order_id VARCHAR(64) PRIMARY KEY, \
     parked BIGINT NOT NULL, reason TEXT NOT NULL)",
];

/// How long to wait for a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// A database that the shop runs on.
pub trait Database: SqlDatabase {
    /// How many orders are placed, and how many charged, at once.
    const AT_ONCE: usize;

    /// Runs a statement and says how many rows it changed.
    fn change(
        connection: &mut Self::Connection,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> impl Future<Output = sqlx::Result<u64>> + Send;

    /// The one row of a query, all numbers.
    fn numbers<const N: usize>(
        connection: &mut Self::Connection,
        sql: &'static str,
    ) -> impl Future<Output = sqlx::Result<[i64; N]>> + Send;
}

/// A value of a statement.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    Text(&'a str),
    Number(i64),
}

impl Database for Postgres {
    const AT_ONCE: usize = 16;

    async fn change(
        connection: &mut PgConnection,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> sqlx::Result<u64> {
        let query = values.iter().fold(sqlx::query(sql), |query, value| match *value {
            Value::Text(text) => query.bind(text),
            Value::Number(number) => query.bind(number),
        });
        Ok(query.execute(connection).await?.rows_affected())
    }

    async fn numbers<const N: usize>(
        connection: &mut PgConnection,
        sql: &'static str,
    ) -> sqlx::Result<[i64; N]> {
        let row = sqlx::query(sql).fetch_one(connection).await?;
        Ok(std::array::from_fn(|column| row.get(column)))
    }
}

impl Database for Sqlite {
    const AT_ONCE: usize = 4;

    async fn change(
        connection: &mut SqliteConnection,
        sql: &'static str,
        values: &[Value<'_>],
    ) -> sqlx::Result<u64> {
        let query = values.iter().fold(sqlx::query(sql), |query, value| match *value {
            Value::Text(text) => query.bind(text),
            Value::Number(number) => query.bind(number),
        });
        Ok(query.execute(connection).await?.rows_affected())
    }

    async fn numbers<const N: usize>(
        connection: &mut SqliteConnection,
        sql: &'static str,
    ) -> sqlx::Result<[i64; N]> {
        let row = sqlx::query(sql).fetch_one(connection).await?;
        Ok(std::array::from_fn(|column| row.get(column)))
    }
}

pub async fn open_postgres(url: &str) -> sqlx::Result<Pool<Postgres>> {
    PgPoolOptions::new().max_connections(40).acquire_timeout(PATIENCE).connect(url).await
}

/// One connection, since SQLite has one writer: they queue for it in turn. A file that is to be
/// thrown away need not outlive a power cut.
pub async fn open_sqlite(url: &str, throw_away: bool) -> sqlx::Result<Pool<Sqlite>> {
    let safety = if throw_away { SqliteSynchronous::Off } else { SqliteSynchronous::Full };
    let options = SqliteConnectOptions::from_str(url)?
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(safety);
    SqlitePoolOptions::new()
        .max_connections(1)
        .acquire_timeout(PATIENCE)
        .connect_with(options)
        .await
}

/// Makes the tables that are not there, and says when the shop was opened: microseconds since
/// 1970, the same in every later run on this database.
pub async fn open_shop<DB: Database>(pool: &Pool<DB>) -> Result<i64> {
    let mut connection = pool.acquire().await?;
    for table in TABLES {
        DB::change(&mut connection, table, &[]).await?;
    }
    let now = i64::try_from(std::time::UNIX_EPOCH.elapsed()?.as_micros())?;
    let sql = "INSERT INTO shop (one, opened) VALUES (1, $1) ON CONFLICT DO NOTHING";
    DB::change(&mut connection, sql, &[Value::Number(now)]).await?;
    let [opened] = DB::numbers(&mut connection, "SELECT opened FROM shop").await?;
    Ok(opened)
}

/// Saves an order; `false` when it is there already.
pub async fn insert_order<DB: Database>(
    connection: &mut DB::Connection,
    order: &Order,
) -> sqlx::Result<bool> {
    let sql = "INSERT INTO shop_orders (id, customer, placed_on, currency, cents) \
               VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
    let values = [
        Value::Text(&order.id),
        Value::Text(&order.customer),
        Value::Text(&order.date),
        Value::Text(&order.currency),
        Value::Number(order.cents()),
    ];
    Ok(DB::change(connection, sql, &values).await? > 0)
}

/// Saves a payment; `false` when it is there already.
pub async fn insert_payment<DB: Database>(
    connection: &mut DB::Connection,
    order: &Order,
) -> sqlx::Result<bool> {
    let sql = "INSERT INTO shop_payments (order_id, cents) VALUES ($1, $2) ON CONFLICT DO NOTHING";
    let values = [Value::Text(&order.id), Value::Number(order.cents())];
    Ok(DB::change(connection, sql, &values).await? > 0)
}

/// Adds the order's sum to what its customer has been charged.
pub async fn charge_account<DB: Database>(
    connection: &mut DB::Connection,
    order: &Order,
) -> sqlx::Result<()> {
    let sql = "INSERT INTO shop_accounts (customer, currency, charged) VALUES ($1, $2, $3) \
               ON CONFLICT (customer, currency) \
               DO UPDATE SET charged = shop_accounts.charged + excluded.charged";
    let values =
        [Value::Text(&order.customer), Value::Text(&order.currency), Value::Number(order.cents())];
    DB::change(connection, sql, &values).await.map(drop)
}

/// Notes that an order could not be charged.
pub async fn insert_failure<DB: Database>(
    connection: &mut DB::Connection,
    order_id: &str,
    parked: bool,
    reason: &str,
) -> sqlx::Result<()> {
    let sql = "INSERT INTO shop_failures (order_id, parked, reason) VALUES ($1, $2, $3) \
               ON CONFLICT DO NOTHING";
    let values = [Value::Text(order_id), Value::Number(parked.into()), Value::Text(reason)];
    DB::change(connection, sql, &values).await.map(drop)
}

/// What the tables say, over all runs on this database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Books {
    pub orders: u64,
    pub payments: u64,
    pub dead_lettered: u64,
    pub parked: u64,
    /// What the charged orders cost.
    pub due_cents: u64,
    /// What their customers were charged.
    pub charged_cents: u64,
}

impl Books {
    pub async fn read<DB: Database>(pool: &Pool<DB>) -> Result<Self> {
        let sql = "SELECT (SELECT count(*) FROM shop_orders), \
                   (SELECT count(*) FROM shop_payments), \
                   (SELECT count(*) FROM shop_failures WHERE parked = 0), \
                   (SELECT count(*) FROM shop_failures WHERE parked = 1), \
                   (SELECT CAST(coalesce(sum(o.cents), 0) AS BIGINT) \
                    FROM shop_orders o JOIN shop_payments p ON p.order_id = o.id), \
                   (SELECT CAST(coalesce(sum(charged), 0) AS BIGINT) FROM shop_accounts)";
        let mut connection = pool.acquire().await?;
        let [orders, payments, dead_lettered, parked, due_cents, charged_cents] =
            DB::numbers(&mut connection, sql).await?.map(i64::unsigned_abs);
        Ok(Self { orders, payments, dead_lettered, parked, due_cents, charged_cents })
    }

    /// How many orders have not come to their end.
    pub fn unsettled(&self) -> u64 {
        self.orders.saturating_sub(self.payments + self.dead_lettered + self.parked)
    }
}
