//! What one database does differently from another.
//!
//! The stores are written once, over [`Dialect`]: it hands out SQL, binds values, runs statements
//! and reads rows. Each database has one file with its SQL.

use std::{
    borrow::Cow,
    future::Future,
    sync::Arc,
    time::{Duration, SystemTime},
};

use acemq::{OutboxSignal, RelayLock};
use serde_json::json;
use sqlx::Pool;
use tokio::sync::Mutex;

use crate::{
    insert::Insert,
    statement::{Statement, Value},
    table::{Layout, Look, Table},
    transaction::dialect::{ClaimSql, TransactionDialect},
};

/// A database that the stores work on: PostgreSQL (feature `postgres`), SQLite (feature
/// `sqlite`) or MariaDB (feature `mysql`, as sqlx calls its driver).
///
/// It cannot be implemented outside of this crate.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a database that acemq-sql has a store for",
    note = "use `sqlx::Postgres` (feature `postgres`), `sqlx::Sqlite` (feature `sqlite`) or \
            `sqlx::MySql` (feature `mysql`)"
)]
pub trait SqlDatabase: sqlx::Database {
    #[doc(hidden)]
    type Dialect: Dialect<Self> + TransactionDialect<Self>;
}

/// The dialect of a database.
pub(crate) type DialectOf<DB> = <DB as SqlDatabase>::Dialect;

/// What is different from one database to another.
pub trait Dialect<DB: sqlx::Database> {
    /// Whether a transaction that reads and then writes may fail for that alone, so that the
    /// caller's must not be read in before it is written in.
    const WRITES_BEFORE_READING: bool;

    /// Whether a statement that failed or was cut short may leave a setting of ours behind on its
    /// connection, which then must not go back to the caller's pool.
    const SETS_THE_SESSION: bool = false;

    fn outbox_sql(table: &Table, layout: &Layout, options: &OutboxOptions) -> OutboxSql;
    fn outbox_schema(table: &Table, options: &OutboxOptions) -> Vec<String>;
    fn idempotency_sql(table: &Table, layout: &Layout) -> IdempotencySql;
    fn idempotency_schema(table: &Table) -> Vec<String>;
    fn saga_sql(table: &Table, layout: &Layout) -> SagaSql;
    fn saga_schema(table: &Table) -> Vec<String>;
    fn schemas_sql(table: &Table, layout: &Layout) -> SchemasSql;
    fn schemas_schema(table: &Table) -> Vec<String>;
    fn checkpoints_sql(table: &Table, layout: &Layout) -> CheckpointsSql;
    fn checkpoints_schema(table: &Table) -> Vec<String>;

    /// Whether the connections of a pool keep statements prepared. sqlx would prepare them by name
    /// all the same, which a pooler between here and the database does not stand.
    fn keeps_statements(_: &Pool<DB>) -> bool {
        true
    }

    /// What the database says about a table.
    fn look(
        connection: &mut DB::Connection,
        table: &Table,
    ) -> impl Future<Output = sqlx::Result<Look>> + Send;

    /// Asks the database whether a transaction is open.
    fn in_transaction(
        connection: &mut DB::Connection,
    ) -> impl Future<Output = sqlx::Result<bool>> + Send;

    /// The lock of the one active relay of a table, or nothing when another has it for so long.
    /// `alone` is for a database that only this process can see.
    fn lead(
        pool: &Pool<DB>,
        table: &Table,
        alone: &Arc<Mutex<()>>,
        wait: Duration,
    ) -> impl Future<Output = sqlx::Result<Option<RelayLock>>> + Send;

    /// Wakes the relay when another process has added something, for as long as it is polled.
    fn listen(
        _pool: &Pool<DB>,
        _table: &Table,
        _signal: &OutboxSignal,
    ) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// A time as a value of the statements.
    fn time(time: SystemTime) -> String;

    /// How many bytes a value of a statement takes on its way.
    fn sent_bytes(value: &str) -> u64 {
        value.len() as u64
    }

    /// A list in parts, for a statement each, where one statement with all of it would be held up
    /// on its way.
    fn in_parts(list: Vec<String>) -> Vec<Vec<String>> {
        vec![list]
    }

    /// Failures as the values of the statement that writes them down.
    fn failures(failures: Vec<Failure>) -> Vec<Value> {
        let list = failures.into_iter().map(|failure| {
            let Failure { id, token, reason, wait } = failure;
            json!({ "id": id, "token": token, "reason": reason, "wait": wait })
        });
        vec![Value::Text(list.collect::<serde_json::Value>().to_string())]
    }

    /// SQL with its placeholders as other clients of the database know them.
    fn placeholders(sql: &str) -> Cow<'_, str> {
        Cow::Borrowed(sql)
    }

    /// Runs a statement and says how many rows it changed.
    fn run(
        connection: &mut DB::Connection,
        statement: Statement,
    ) -> impl Future<Output = sqlx::Result<u64>> + Send;

    /// Runs a statement and reads its rows.
    fn fetch(
        connection: &mut DB::Connection,
        statement: Statement,
    ) -> impl Future<Output = sqlx::Result<Vec<DB::Row>>> + Send;

    /// A column's bytes, whatever its type says.
    fn bytes(row: &DB::Row, column: usize) -> Option<Vec<u8>>;
    fn integer(row: &DB::Row, column: usize) -> Option<i64>;
    fn read_time(row: &DB::Row, column: usize) -> Option<SystemTime>;

    fn text(row: &DB::Row, column: usize) -> Option<String> {
        String::from_utf8(Self::bytes(row, column)?).ok()
    }
}

/// What a record failed for, and how long it waits until it is tried again, in microseconds.
#[derive(Debug)]
pub struct Failure {
    pub(crate) id: String,
    pub(crate) token: String,
    pub(crate) reason: String,
    pub(crate) wait: i64,
}

/// A change to a batch of rows.
#[derive(Debug)]
pub(crate) struct Batch {
    pick: Option<Arc<str>>,
    change: Arc<str>,
}

impl Batch {
    /// A change that chooses its rows. Its first value is how many at most.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn at_once(change: String) -> Self {
        Self { pick: None, change: change.into() }
    }

    /// For a database where a change that chooses would wait for others: the ids of at most so
    /// many rows, and the change that has them as its first value.
    #[cfg(feature = "mysql")]
    pub(crate) fn picked(pick: String, change: String) -> Self {
        Self { pick: Some(pick.into()), change: change.into() }
    }

    pub(crate) fn pick(&self, most: i64) -> Option<Statement> {
        let pick = self.pick.as_ref()?;
        Some(Statement::new(pick).in_one_piece().integer(most))
    }

    pub(crate) fn change(&self, target: Value) -> Statement {
        Statement::new(&self.change).in_one_piece().value(target)
    }
}

/// How records are claimed in no kept order.
#[derive(Debug)]
pub(crate) enum Claim {
    #[cfg(feature = "postgres")]
    AtOnce(Arc<str>),
    #[cfg(any(feature = "mysql", feature = "sqlite"))]
    Picked(Arc<str>),
}

/// What an application has chosen about its outbox, as far as the SQL goes.
#[derive(Clone, Debug)]
pub struct OutboxOptions {
    pub(crate) max_attempts: u32,
    /// Whether the table is made with an index by exchange and routing key.
    pub(crate) indexed_by_key: bool,
    /// Whether an insert tells the relays of other processes.
    pub(crate) notify: bool,
}

/// The outbox's statements. Spans are microseconds; a target is how many rows, or their ids.
#[derive(Debug)]
pub struct OutboxSql {
    pub(crate) insert: Insert,
    /// Claims records in no kept order. In one statement: most rows, token, lease, most bytes. Or
    /// the ids and sizes of at most so many rows, for [`take`](Self::take).
    pub(crate) claim: Claim,
    /// Ids, token, lease. Returns the rows that could be had, in no order.
    pub(crate) take: Arc<str>,
    /// Most rows. Returns id, exchange, routing key, whether it is free and its size of all that
    /// is unpublished, oldest first.
    pub(crate) by_age: Arc<str>,
    /// Most rows. Returns the same, those of each key together, oldest first.
    pub(crate) by_key: Arc<str>,
    /// Most rows, exchange, routing key. The same, from behind that key on.
    pub(crate) after_key: Arc<str>,
    /// Ids.
    pub(crate) publish: Arc<str>,
    /// What [`Dialect::failures`] makes.
    pub(crate) fail: Arc<str>,
    /// Ids, token.
    pub(crate) give_back: Arc<str>,
    /// Ids, token, lease.
    pub(crate) renew: Arc<str>,
    pub(crate) pending: Arc<str>,
    /// Returns how many wait, are claimed and are exhausted, and the age of the oldest.
    pub(crate) counts: Arc<str>,
    /// Most rows.
    pub(crate) stuck: Arc<str>,
    /// Returns the ids of all exhausted rows.
    pub(crate) exhausted: Arc<str>,
    /// Ids.
    pub(crate) retry: Arc<str>,
    /// Id. Removes the row where it is not published and nobody holds it.
    pub(crate) discard: Arc<str>,
    /// Id. Returns a row where it is there and not published.
    pub(crate) unpublished: Arc<str>,
    /// Target, age.
    pub(crate) purge: Batch,
    pub(crate) holders: Arc<str>,
}

/// The idempotency store's statements. Spans are microseconds.
#[derive(Debug)]
pub struct IdempotencySql {
    /// Key, token, lease. Returns a row where the key is this token's now, and changes none where
    /// it was there.
    pub(crate) insert: Arc<str>,
    /// Key. Returns the state, and 1 where it has expired.
    pub(crate) look: Arc<str>,
    /// Key, token, lease. Changes a row only where it has expired.
    pub(crate) take_over: Arc<str>,
    /// Key, retention.
    pub(crate) confirm: Arc<str>,
    /// Keys, retention. Leaves out those that have no row.
    pub(crate) confirm_batch: Arc<str>,
    /// Key, token.
    pub(crate) release: Arc<str>,
    /// Key, token, lease.
    pub(crate) renew: Arc<str>,
    /// Target.
    pub(crate) purge: Batch,
    pub(crate) size: Arc<str>,
    /// What the same comes to in a handler's transaction.
    pub(crate) in_transaction: ClaimSql,
}

/// The saga store's statements. Spans are microseconds. Instances come as key, saga, steps, status,
/// state, version, claims, 1 where it is held, due, deadline, created, updated, the time now, token.
#[derive(Debug)]
pub struct SagaSql {
    /// Key, saga, steps, state, token, lease, deadline or less than nothing. Returns the instance
    /// that is there then; where it was there before, with another token or not at all.
    pub(crate) insert: Arc<str>,
    /// The same in a transaction of the caller's.
    pub(crate) insert_in: Arc<str>,
    /// Saga, steps, most rows. In one statement: token, lease, and it returns what it took. Or it
    /// returns the keys of at most so many rows, for [`take`](Self::take).
    pub(crate) claim_due: Claim,
    /// Keys, token, lease, steps. Returns the rows that could be had.
    pub(crate) take: Arc<str>,
    /// Key, token, status, state, span, way: 0 keeps it, 1 leaves it, 2 ends it.
    pub(crate) write: Arc<str>,
    /// Key, token, lease.
    pub(crate) renew: Arc<str>,
    /// Key, version, status, state, span, way. Not where somebody holds it.
    pub(crate) change: Arc<str>,
    /// Key.
    pub(crate) find: Arc<str>,
    /// Saga, status, how long unchanged, most rows.
    pub(crate) list: Arc<str>,
    /// Saga, steps, most rows.
    pub(crate) with_other_steps: Arc<str>,
    /// Target, age.
    pub(crate) purge: Batch,
}

/// The schema registry's statements. Schemas come as id, subject, format, definition, version.
#[derive(Debug)]
pub struct SchemasSql {
    /// Fingerprint. Returns id and format.
    pub(crate) find: Arc<str>,
    /// Id. Returns the schema.
    pub(crate) by_id: Arc<str>,
    /// Subject. Returns its schemas in the order of their ids.
    pub(crate) versions: Arc<str>,
    /// Counts on, and locks the count until the transaction ends.
    pub(crate) count: Arc<str>,
    /// Makes the count where it is missing.
    pub(crate) begin_count: Arc<str>,
    /// Returns the last id that was counted.
    pub(crate) counted: Arc<str>,
    /// Id, fingerprint, format, subject, definition.
    pub(crate) insert: Arc<str>,
}

/// The statements of the places of streams' readers.
#[derive(Debug)]
pub struct CheckpointsSql {
    /// Stream, reader. Returns the last offset that is handled, which is -1 before the first.
    pub(crate) load: Arc<str>,
    /// Stream, reader, offset. Changes nothing where there is one.
    pub(crate) insert: Arc<str>,
    /// Stream, reader, offset. Changes nothing where the offset is not beyond the one that is there.
    pub(crate) save: Arc<str>,
    /// Stream, reader.
    pub(crate) forget: Arc<str>,
    /// For [`TransactionDialect::advance_row`].
    pub(crate) advance: Arc<str>,
    /// For [`TransactionDialect::make_row`].
    pub(crate) make: Arc<str>,
}

/// A statement with its values, for a database that takes them apart from the SQL: the same words
/// for each, but sqlx's bounds on them can only be met one database at a time.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
macro_rules! bound {
    ($database:ty, $statement:expr, $list:expr) => {{
        // The SQL is this crate's own, around names that were checked to be plain identifiers.
        let mut query = sqlx::query::<$database>(sqlx::AssertSqlSafe($statement.sql))
            .persistent($statement.planned == $crate::statement::Planned::Once);
        for value in $statement.values {
            query = match value {
                $crate::statement::Value::Text(text) => query.bind(text),
                $crate::statement::Value::Integer(integer) => query.bind(integer),
                $crate::statement::Value::List(list) => query.bind($list(list)),
            };
        }
        query
    }};
}

/// How a row is read, likewise.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
macro_rules! read_rows {
    ($database:ty) => {
        fn bytes(row: &<$database as sqlx::Database>::Row, column: usize) -> Option<Vec<u8>> {
            sqlx::Row::try_get_unchecked::<Option<Vec<u8>>, _>(row, column).ok().flatten()
        }

        fn integer(row: &<$database as sqlx::Database>::Row, column: usize) -> Option<i64> {
            sqlx::Row::try_get_unchecked::<Option<i64>, _>(row, column).ok().flatten()
        }
    };
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use bound;
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(crate) use read_rows;
