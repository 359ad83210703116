//! The shop's tables, on PostgreSQL, SQLite or MariaDB. What SQL they do not share is in the
//! constants of [`Database`].

use std::{str::FromStr, time::Duration};

use acemq_sql::SqlDatabase;
use anyhow::Result;
use sqlx::{
    AssertSqlSafe, MySql, MySqlConnection, PgConnection, Pool, Postgres, Row, Sqlite,
    SqliteConnection,
    mysql::MySqlPoolOptions,
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
    "CREATE TABLE IF NOT EXISTS shop_accounts (customer VARCHAR(200) NOT NULL, \
     currency VARCHAR(3) NOT NULL, charged BIGINT NOT NULL, PRIMARY KEY (customer, currency))",
    "CREATE TABLE IF NOT EXISTS shop_failures (order_id VARCHAR(64) PRIMARY KEY, \
     parked BIGINT NOT NULL, reason TEXT NOT NULL)",
];

/// How long to wait for a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// A database that the shop runs on.
pub trait Database: SqlDatabase {
    /// How many orders are placed, and how many charged, at once.
    const AT_ONCE: usize;

    /// What a table ends with, so that text is compared byte for byte.
    const TABLE: &str = "";

    /// What an insert ends with, so that it adds to the sum of an account that is there.
    const ADD: &str = " ON CONFLICT (customer, currency) \
                       DO UPDATE SET charged = shop_accounts.charged + excluded.charged";

    /// The type that sums are cast to.
    const INTEGER: &str = "BIGINT";

    /// Runs a statement.
    fn run(
        connection: &mut Self::Connection,
        sql: String,
        values: &[Value<'_>],
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Runs an insert without an end; `false` when the row is there already, which stays as it is.
    fn insert(
        connection: &mut Self::Connection,
        sql: &str,
        values: &[Value<'_>],
    ) -> impl Future<Output = sqlx::Result<bool>> + Send;

    /// The one row of a query, all numbers.
    fn numbers<const N: usize>(
        connection: &mut Self::Connection,
        sql: String,
    ) -> impl Future<Output = sqlx::Result<[i64; N]>> + Send;
}

/// A value of a statement.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    Text(&'a str),
    Number(i64),
}

/// A statement with its values: the same words for each database, but of other types.
macro_rules! query {
    ($sql:expr, $values:expr) => {
        $values.iter().fold(sqlx::query(AssertSqlSafe($sql)), |query, value| match *value {
            Value::Text(text) => query.bind(text),
            Value::Number(number) => query.bind(number),
        })
    };
}

impl Database for Postgres {
    const AT_ONCE: usize = 16;

    async fn run(
        connection: &mut PgConnection,
        sql: String,
        values: &[Value<'_>],
    ) -> sqlx::Result<()> {
        query!(sql, values).execute(connection).await.map(drop)
    }

    async fn insert(
        connection: &mut PgConnection,
        sql: &str,
        values: &[Value<'_>],
    ) -> sqlx::Result<bool> {
        let sql = format!("{sql} ON CONFLICT DO NOTHING");
        Ok(query!(sql, values).execute(connection).await?.rows_affected() > 0)
    }

    async fn numbers<const N: usize>(
        connection: &mut PgConnection,
        sql: String,
    ) -> sqlx::Result<[i64; N]> {
        let row = query!(sql, []).fetch_one(connection).await?;
        Ok(std::array::from_fn(|column| row.get(column)))
    }
}

impl Database for Sqlite {
    const AT_ONCE: usize = 4;

    async fn run(
        connection: &mut SqliteConnection,
        sql: String,
        values: &[Value<'_>],
    ) -> sqlx::Result<()> {
        query!(sql, values).execute(connection).await.map(drop)
    }

    async fn insert(
        connection: &mut SqliteConnection,
        sql: &str,
        values: &[Value<'_>],
    ) -> sqlx::Result<bool> {
        let sql = format!("{sql} ON CONFLICT DO NOTHING");
        Ok(query!(sql, values).execute(connection).await?.rows_affected() > 0)
    }

    async fn numbers<const N: usize>(
        connection: &mut SqliteConnection,
        sql: String,
    ) -> sqlx::Result<[i64; N]> {
        let row = query!(sql, []).fetch_one(connection).await?;
        Ok(std::array::from_fn(|column| row.get(column)))
    }
}

impl Database for MySql {
    const AT_ONCE: usize = 16;
    const TABLE: &str = " CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin";
    const ADD: &str = " ON DUPLICATE KEY UPDATE charged = charged + VALUES(charged)";
    const INTEGER: &str = "SIGNED";

    async fn run(
        connection: &mut MySqlConnection,
        sql: String,
        values: &[Value<'_>],
    ) -> sqlx::Result<()> {
        query!(question_marks(&sql), values).execute(connection).await.map(drop)
    }

    async fn insert(
        connection: &mut MySqlConnection,
        sql: &str,
        values: &[Value<'_>],
    ) -> sqlx::Result<bool> {
        // MariaDB's transactions go on after an error, and only an error tells the two apart.
        match query!(question_marks(sql), values).execute(connection).await {
            Ok(_) => Ok(true),
            Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn numbers<const N: usize>(
        connection: &mut MySqlConnection,
        sql: String,
    ) -> sqlx::Result<[i64; N]> {
        let row = query!(sql, []).fetch_one(connection).await?;
        Ok(std::array::from_fn(|column| row.get(column)))
    }
}

/// SQL with `?` for `$1`, `$2`, …
fn question_marks(sql: &str) -> String {
    let mut marked = String::with_capacity(sql.len());
    for part in sql.split_inclusive('$') {
        let part = part.trim_start_matches(|c: char| c.is_ascii_digit());
        marked.push_str(&part.replace('$', "?"));
    }
    marked
}

pub async fn open_postgres(url: &str) -> sqlx::Result<Pool<Postgres>> {
    PgPoolOptions::new().max_connections(40).acquire_timeout(PATIENCE).connect(url).await
}

pub async fn open_mariadb(url: &str) -> sqlx::Result<Pool<MySql>> {
    // At its default level MariaDB locks the gaps between rows, too, and charges of different
    // customers would meet there.
    let level = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
    MySqlPoolOptions::new()
        .max_connections(40)
        .acquire_timeout(PATIENCE)
        .after_connect(move |connection, _| {
            Box::pin(async move { sqlx::raw_sql(level).execute(connection).await.map(drop) })
        })
        .connect(url)
        .await
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
        DB::run(&mut connection, format!("{table}{}", DB::TABLE), &[]).await?;
    }
    let now = i64::try_from(std::time::UNIX_EPOCH.elapsed()?.as_micros())?;
    let sql = "INSERT INTO shop (one, opened) VALUES (1, $1)";
    DB::insert(&mut connection, sql, &[Value::Number(now)]).await?;
    let [opened] = DB::numbers(&mut connection, "SELECT opened FROM shop".to_owned()).await?;
    Ok(opened)
}

/// Saves an order; `false` when it is there already.
pub async fn insert_order<DB: Database>(
    connection: &mut DB::Connection,
    order: &Order,
) -> sqlx::Result<bool> {
    let sql = "INSERT INTO shop_orders (id, customer, placed_on, currency, cents) \
               VALUES ($1, $2, $3, $4, $5)";
    let values = [
        Value::Text(&order.id),
        Value::Text(&order.customer),
        Value::Text(&order.date),
        Value::Text(&order.currency),
        Value::Number(order.cents()),
    ];
    DB::insert(connection, sql, &values).await
}

/// Saves a payment; `false` when it is there already.
pub async fn insert_payment<DB: Database>(
    connection: &mut DB::Connection,
    order: &Order,
) -> sqlx::Result<bool> {
    let sql = "INSERT INTO shop_payments (order_id, cents) VALUES ($1, $2)";
    let values = [Value::Text(&order.id), Value::Number(order.cents())];
    DB::insert(connection, sql, &values).await
}

/// Adds the order's sum to what its customer has been charged.
pub async fn charge_account<DB: Database>(
    connection: &mut DB::Connection,
    order: &Order,
) -> sqlx::Result<()> {
    let sql = "INSERT INTO shop_accounts (customer, currency, charged) VALUES ($1, $2, $3)";
    let values =
        [Value::Text(&order.customer), Value::Text(&order.currency), Value::Number(order.cents())];
    DB::run(connection, format!("{sql}{}", DB::ADD), &values).await
}

/// Notes that an order could not be charged.
pub async fn insert_failure<DB: Database>(
    connection: &mut DB::Connection,
    order_id: &str,
    parked: bool,
    reason: &str,
) -> sqlx::Result<()> {
    let sql = "INSERT INTO shop_failures (order_id, parked, reason) VALUES ($1, $2, $3)";
    let values = [Value::Text(order_id), Value::Number(parked.into()), Value::Text(reason)];
    DB::insert(connection, sql, &values).await.map(drop)
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
        let sql = format!(
            "SELECT (SELECT count(*) FROM shop_orders), \
             (SELECT count(*) FROM shop_payments), \
             (SELECT count(*) FROM shop_failures WHERE parked = 0), \
             (SELECT count(*) FROM shop_failures WHERE parked = 1), \
             (SELECT CAST(coalesce(sum(o.cents), 0) AS {integer}) \
             FROM shop_orders o JOIN shop_payments p ON p.order_id = o.id), \
             (SELECT CAST(coalesce(sum(charged), 0) AS {integer}) FROM shop_accounts)",
            integer = DB::INTEGER
        );
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
