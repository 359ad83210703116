//! What one database does differently from another.
//!
//! The stores are written once, over [`Dialect`]: it hands out SQL, binds values, runs statements
//! and reads rows. Each database has one file with its SQL.

use std::{future::Future, sync::Arc, time::SystemTime};

use acemq::{Error, ErrorKind};

use crate::table::{Column, Table, Times};

/// A database that the stores work on: PostgreSQL (feature `postgres`) or SQLite (feature
/// `sqlite`).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a database that acemq-sql has a store for",
    note = "use `sqlx::Postgres` (feature `postgres`) or `sqlx::Sqlite` (feature `sqlite`)"
)]
pub trait SqlDatabase: Dialect {}

/// The part of a database that only this crate uses.
pub trait Dialect: sqlx::Database + Sized {
    /// Whether a transaction that reads and then writes may fail for that alone, so that the
    /// caller's must not be read in before it is written in.
    const WRITES_BEFORE_READING: bool;

    fn outbox_sql(table: &Table, times: Times, max_attempts: u32) -> OutboxSql;
    fn outbox_schema(table: &Table, max_attempts: u32) -> Vec<String>;
    fn idempotency_sql(table: &Table, times: Times) -> IdempotencySql;
    fn idempotency_schema(table: &Table) -> Vec<String>;

    /// A table's columns; none for a table that does not exist.
    fn columns(
        connection: &mut Self::Connection,
        table: &Table,
    ) -> impl Future<Output = sqlx::Result<Vec<Column>>> + Send;

    /// Asks the database whether a transaction is open.
    fn in_transaction(
        connection: &mut Self::Connection,
    ) -> impl Future<Output = sqlx::Result<bool>> + Send;

    /// A time as a value of the statements.
    fn time(time: SystemTime) -> String;

    /// Runs a statement and says how many rows it changed.
    fn run(
        connection: &mut Self::Connection,
        statement: Statement,
    ) -> impl Future<Output = sqlx::Result<u64>> + Send;

    /// Runs a statement and reads its rows.
    fn fetch(
        connection: &mut Self::Connection,
        statement: Statement,
    ) -> impl Future<Output = sqlx::Result<Vec<Self::Row>>> + Send;

    /// A column's bytes, whatever its type says.
    fn bytes(row: &Self::Row, column: usize) -> Option<Vec<u8>>;
    fn integer(row: &Self::Row, column: usize) -> Option<i64>;
    fn read_time(row: &Self::Row, column: usize) -> Option<SystemTime>;

    fn text(row: &Self::Row, column: usize) -> Option<String> {
        String::from_utf8(Self::bytes(row, column)?).ok()
    }
}

/// A value of a statement.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    List(Vec<String>),
}

/// SQL and its values.
#[derive(Clone, Debug)]
pub struct Statement {
    pub(crate) sql: Arc<str>,
    pub(crate) values: Vec<Value>,
    /// Whether the connection keeps it prepared. Not where the best plan depends on the values or
    /// on how full the table is: a plan made while it was empty would be kept.
    pub(crate) kept: bool,
}

impl Statement {
    pub(crate) fn new(sql: &Arc<str>) -> Self {
        Self { sql: Arc::clone(sql), values: Vec::new(), kept: true }
    }

    pub(crate) fn planned_each_time(mut self) -> Self {
        self.kept = false;
        self
    }

    pub(crate) fn text(mut self, value: impl Into<String>) -> Self {
        self.values.push(Value::Text(value.into()));
        self
    }

    pub(crate) fn integer(mut self, value: i64) -> Self {
        self.values.push(Value::Integer(value));
        self
    }

    pub(crate) fn list(mut self, values: Vec<String>) -> Self {
        self.values.push(Value::List(values));
        self
    }
}

/// The outbox's statements. Spans are microseconds.
#[derive(Debug)]
pub struct OutboxSql {
    /// The insert up to `VALUES`, what one row is with its first placeholder's number, and the
    /// end. The values: id, exchange, routing key, body, its encoding, content type, headers,
    /// time of making.
    pub(crate) insert: Insert,
    /// Whether there is anything to claim, on databases where an empty claim would lock.
    pub(crate) peek: Option<Arc<str>>,
    /// Most rows, token, lease. Returns the rows, in no order.
    pub(crate) claim: Arc<str>,
    /// Ids.
    pub(crate) publish: Arc<str>,
    /// A JSON array of objects with id, token, reason and wait.
    pub(crate) fail: Arc<str>,
    /// Ids, token.
    pub(crate) give_back: Arc<str>,
    /// Ids, token, lease.
    pub(crate) renew: Arc<str>,
    pub(crate) pending: Arc<str>,
    /// Most rows.
    pub(crate) stuck: Arc<str>,
    /// Age, most rows.
    pub(crate) purge: Arc<str>,
    pub(crate) holders: Arc<str>,
}

/// The parts of an insert of any number of rows.
#[derive(Debug)]
pub(crate) struct Insert {
    pub(crate) head: String,
    pub(crate) row: fn(first: usize, times: Times) -> String,
    pub(crate) times: Times,
    pub(crate) tail: &'static str,
    /// The same for one row.
    pub(crate) one: Arc<str>,
}

impl Insert {
    pub(crate) const VALUES: usize = 8;

    pub(crate) fn new(
        head: String,
        row: fn(first: usize, times: Times) -> String,
        times: Times,
        tail: &'static str,
    ) -> Self {
        let mut insert = Self { head, row, times, tail, one: Arc::from("") };
        insert.one = insert.rows(1);
        insert
    }

    pub(crate) fn rows(&self, count: usize) -> Arc<str> {
        let rows: Vec<String> =
            (0..count).map(|row| (self.row)(row * Self::VALUES + 1, self.times)).collect();
        format!("{}{}{}", self.head, rows.join(", "), self.tail).into()
    }
}

/// The idempotency store's statements. Spans are microseconds.
#[derive(Debug)]
pub struct IdempotencySql {
    /// Key, token, lease. Changes no row where the key exists.
    pub(crate) insert: Arc<str>,
    /// Key. Returns the state, and 1 where it has expired.
    pub(crate) look: Arc<str>,
    /// Key, token, lease. Changes a row only where it has expired.
    pub(crate) take_over: Arc<str>,
    /// Key, retention.
    pub(crate) confirm: Arc<str>,
    /// Key, token.
    pub(crate) release: Arc<str>,
    /// Key, token, lease.
    pub(crate) renew: Arc<str>,
    /// Most rows.
    pub(crate) purge: Arc<str>,
    pub(crate) size: Arc<str>,
}

/// What a database's failure is to the library.
pub(crate) fn failed(doing: impl FnOnce() -> String) -> impl FnOnce(sqlx::Error) -> Error {
    move |cause| {
        let what = match &cause {
            sqlx::Error::PoolTimedOut => {
                "no connection of the pool came free in time; is the database there, and the pool \
                 large enough?"
            }
            sqlx::Error::PoolClosed => "the pool is closed",
            sqlx::Error::Io(_) => "the connection to the database was lost",
            _ => "the database refused or failed",
        };
        Error::new(ErrorKind::Store, format!("{}: {what}", doing())).with_source(cause)
    }
}

/// How a statement is run and its rows are read: the same words for every database, but sqlx's
/// bounds on them can only be met one database at a time.
macro_rules! run_statements {
    ($database:ty, $list:expr) => {
        async fn run(
            connection: &mut <$database as sqlx::Database>::Connection,
            statement: $crate::database::Statement,
        ) -> sqlx::Result<u64> {
            let query = $crate::database::bound!($database, statement, $list);
            Ok(query.execute(connection).await?.rows_affected())
        }

        async fn fetch(
            connection: &mut <$database as sqlx::Database>::Connection,
            statement: $crate::database::Statement,
        ) -> sqlx::Result<Vec<<$database as sqlx::Database>::Row>> {
            let query = $crate::database::bound!($database, statement, $list);
            query.fetch_all(connection).await
        }

        fn bytes(row: &<$database as sqlx::Database>::Row, column: usize) -> Option<Vec<u8>> {
            sqlx::Row::try_get_unchecked::<Option<Vec<u8>>, _>(row, column).ok().flatten()
        }

        fn integer(row: &<$database as sqlx::Database>::Row, column: usize) -> Option<i64> {
            sqlx::Row::try_get_unchecked::<Option<i64>, _>(row, column).ok().flatten()
        }
    };
}

macro_rules! bound {
    ($database:ty, $statement:expr, $list:expr) => {{
        // The SQL is this crate's own, around names that were checked to be plain identifiers.
        let mut query = sqlx::query::<$database>(sqlx::AssertSqlSafe($statement.sql))
            .persistent($statement.kept);
        for value in $statement.values {
            query = match value {
                $crate::database::Value::Text(text) => query.bind(text),
                $crate::database::Value::Integer(integer) => query.bind(integer),
                $crate::database::Value::List(list) => query.bind($list(list)),
            };
        }
        query
    }};
}

pub(crate) use {bound, run_statements};
