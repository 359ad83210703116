//! The checkpoint and the handler's writes in one transaction.

use std::{error::Error as StdError, sync::Arc, time::Duration};

use acemq::{CommitError, Result, TransactionClaim, TransactionalCheckpointStore};

use super::{SqlStreamCheckpoints, check_names, whole};
use crate::{
    database::{CheckpointsSql, DialectOf, SqlDatabase},
    failure::failed,
    statement::{Planned, Statement},
    transaction::{
        Guarded, HandlerTransaction, TransactionHold,
        dialect::{Fault, TransactionDialect},
        finish,
    },
};

/// How often it is tried where the database undoes it for the sake of another.
const TRIES: usize = 3;

impl<DB: SqlDatabase> TransactionalCheckpointStore for SqlStreamCheckpoints<DB> {
    type Transaction = HandlerTransaction<DB>;
    type Hold = TransactionHold<DB>;

    async fn begin(
        &self,
        stream: &str,
        reader: &str,
        offset: u64,
        wait: Duration,
    ) -> Result<TransactionClaim<HandlerTransaction<DB>, TransactionHold<DB>>> {
        check_names(stream, reader)?;
        let offset = whole(offset)?;
        let doing = || {
            self.doing(&format!(
                "move reader {reader:?} of {stream:?} to {offset} in a transaction"
            ))
        };
        let turn = match &self.turn {
            // The semaphore is never closed.
            Some(turn) => Arc::clone(turn).acquire_owned().await.ok(),
            None => None,
        };
        let mut tries = 1..=TRIES;
        loop {
            let mut connection = Guarded::open(&self.pool).await.map_err(failed(doing))?;
            let sql = self.sql_from(&mut connection).await?;
            match self.advance(&mut connection, &sql, (stream, reader), offset, wait).await {
                Ok(true) => {
                    let (transaction, hold) = HandlerTransaction::new(connection, turn);
                    return Ok(TransactionClaim::Owned { transaction, hold });
                }
                Ok(false) => {
                    connection.roll_back().await;
                    return Ok(TransactionClaim::AlreadyConfirmed);
                }
                Err(error) => match Fault::of::<DB>(&error) {
                    // Another transaction has the row, or is about to.
                    Fault::LockTimeout => {
                        connection.roll_back().await;
                        return Ok(TransactionClaim::InProgress);
                    }
                    Fault::Conflict if tries.next().is_some() => connection.roll_back().await,
                    _ => return Err(failed(doing)(error)),
                },
            }
        }
    }

    async fn commit(
        &self,
        hold: TransactionHold<DB>,
        transaction: HandlerTransaction<DB>,
    ) -> Result<(), CommitError> {
        let doing = || self.doing("commit the work on a message and its place");
        finish::commit(hold, transaction, doing).await
    }

    async fn roll_back(&self, hold: TransactionHold<DB>) {
        finish::roll_back(hold, &self.table).await;
    }

    fn is_conflict(&self, error: &(dyn StdError + 'static)) -> bool {
        finish::is_conflict::<DB>(error)
    }
}

impl<DB: SqlDatabase> SqlStreamCheckpoints<DB> {
    /// Begins a transaction and moves the reader on in it; `false` where it is there or beyond.
    async fn advance(
        &self,
        connection: &mut Guarded<DB>,
        sql: &CheckpointsSql,
        reader: (&str, &str),
        offset: i64,
        wait: Duration,
    ) -> sqlx::Result<bool> {
        let planned = |it: Statement| it.kept_where(self.keeps, Planned::InOnePiece);
        let advance = || planned(DialectOf::<DB>::advance_row(sql, reader, offset, wait));
        connection.begin().await?;
        if DialectOf::<DB>::changes_one(connection, advance()).await? {
            return Ok(true);
        }
        // It is there or beyond, or has no row yet.
        let make = planned(DialectOf::<DB>::make_row(sql, reader, wait));
        DialectOf::<DB>::changes_one(connection, make).await?;
        DialectOf::<DB>::changes_one(connection, advance()).await
    }
}
