//! What one database does differently from another in transactions.

use std::{error::Error as StdError, future::Future, sync::Arc, time::Duration};

use sqlx::error::DatabaseError;

use crate::{
    database::{CheckpointsSql, SqlDatabase},
    statement::Statement,
};

/// What is different from one database to another in a transaction.
pub trait TransactionDialect<DB: sqlx::Database> {
    /// How a transaction begins, where not by `BEGIN`.
    const BEGIN: Option<&'static str> = None;

    /// Whether a second transaction that writes waits for the first to end, whatever they write.
    const ONE_AT_A_TIME: bool = false;

    /// Confirms a key that is new, and returns 1 then. The retention is in microseconds.
    fn claim_row(
        sql: &ClaimSql,
        key: &str,
        token: String,
        retention: i64,
        wait: Duration,
    ) -> Statement;

    /// Locks the row of a key and returns its state, and 1 where it has expired.
    fn lock_row(sql: &ClaimSql, key: &str, wait: Duration) -> Statement;

    /// Moves a reader, of a stream and by its name, on to an offset that is beyond the one that is
    /// there.
    fn advance_row(
        sql: &CheckpointsSql,
        reader: (&str, &str),
        offset: i64,
        wait: Duration,
    ) -> Statement;

    /// Makes the row of a reader that has handled nothing, if there is none.
    fn make_row(sql: &CheckpointsSql, reader: (&str, &str), wait: Duration) -> Statement;

    /// Whether one of these changed a row.
    fn changes_one(
        connection: &mut DB::Connection,
        statement: Statement,
    ) -> impl Future<Output = sqlx::Result<bool>> + Send;

    /// What a refusal of the database means.
    fn refusal(error: &dyn DatabaseError) -> Fault;
}

/// The statements of a claim in a transaction.
#[derive(Debug)]
pub struct ClaimSql {
    /// For [`TransactionDialect::claim_row`].
    pub(crate) insert: Arc<str>,
    /// For [`TransactionDialect::lock_row`].
    pub(crate) look: Arc<str>,
    /// Key, retention in microseconds. Confirms a row that is there, and locked.
    pub(crate) confirm: Arc<str>,
}

/// What a failure means for a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Undone for the sake of another, or for a lock of its.
    Conflict,
    /// A lock did not come free in time.
    LockTimeout,
    /// The connection is gone, and with it the transaction, unless it was about to be committed.
    Lost,
    Other,
}

impl Fault {
    pub(crate) fn of<DB: SqlDatabase>(error: &sqlx::Error) -> Self {
        match error {
            sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => {
                Self::Lost
            }
            sqlx::Error::Database(refusal) => DB::Dialect::refusal(&**refusal),
            _ => Self::Other,
        }
    }

    /// What an error of anybody's means: the first of its causes that is sqlx's tells.
    pub(crate) fn behind<DB: SqlDatabase>(error: &(dyn StdError + 'static)) -> Self {
        let causes = std::iter::successors(Some(error), |&error| {
            match error.downcast_ref::<acemq::Error>() {
                Some(ours) => ours.get_ref().map(|cause| cause as &(dyn StdError + 'static)),
                None => error.source(),
            }
        });
        let mut ours = causes.filter_map(|error| error.downcast_ref::<sqlx::Error>());
        ours.next().map_or(Self::Other, Self::of::<DB>)
    }
}
