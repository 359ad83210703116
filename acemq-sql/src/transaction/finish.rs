//! How a handler's transaction ends.

use std::error::Error as StdError;

use acemq::{CommitError, Error, ErrorKind};

use super::{HandlerTransaction, TransactionHold, dialect::Fault};
use crate::{
    database::{Dialect, DialectOf, SqlDatabase},
    failure::failed,
    table::Table,
};

/// Commits what a handler gave back.
pub(crate) async fn commit<DB: SqlDatabase>(
    hold: TransactionHold<DB>,
    transaction: HandlerTransaction<DB>,
    doing: impl Fn() -> String,
) -> Result<(), CommitError> {
    let misused = |how: &str| {
        CommitError::RolledBack(Error::new(ErrorKind::Config, format!("{}: {how}", doing())))
    };
    let Some(mut connection) = hold.given_back(transaction) else {
        return Err(misused("its handler gave back the transaction of another message"));
    };
    if connection.depth() > 1 {
        return Err(misused(
            "its handler left a savepoint open; commit or drop what `begin` returns",
        ));
    }
    // The question fails where a statement has failed and PostgreSQL has given the transaction up:
    // it would answer the COMMIT by rolling back, and call that a success.
    match DialectOf::<DB>::in_transaction(&mut connection).await {
        Ok(true) => {}
        Ok(false) => {
            return Err(misused(
                "its handler has ended the transaction, by a COMMIT or ROLLBACK or by a \
                 statement that commits by itself; what it had done may be committed without \
                 the rest",
            ));
        }
        Err(cause) => return Err(CommitError::RolledBack(failed(&doing)(cause))),
    }
    connection.commit().await.map_err(|cause| match Fault::of::<DB>(&cause) {
        Fault::Lost => CommitError::Unknown(failed(&doing)(cause)),
        Fault::Conflict | Fault::LockTimeout | Fault::Other => {
            CommitError::RolledBack(failed(&doing)(cause))
        }
    })
}

/// Rolls back what a handler did not give back.
pub(crate) async fn roll_back<DB: SqlDatabase>(hold: TransactionHold<DB>, table: &Table) {
    match hold.dropped() {
        Some(connection) => connection.roll_back().await,
        None => tracing::error!(
            %table,
            "a handler failed and has kept its transaction: until that is dropped, its message \
             goes round, and the pool is a connection short"
        ),
    }
}

/// Whether the database has undone or lost a transaction, rather than refused what was done in it.
pub(crate) fn is_conflict<DB: SqlDatabase>(error: &(dyn StdError + 'static)) -> bool {
    match Fault::behind::<DB>(error) {
        Fault::Conflict | Fault::LockTimeout | Fault::Lost => true,
        Fault::Other => false,
    }
}
