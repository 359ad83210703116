//! A step's writes and the note that it is done, in one transaction.

use std::{error::Error as StdError, sync::Arc};

use acemq::{CommitError, Error, ErrorKind, Result, SagaClaim, SagaWrite, TransactionalSagaStore};

use super::{SqlSagaStore, store::write_statement};
use crate::{
    database::{Dialect, DialectOf, SqlDatabase},
    failure::failed,
    statement::Planned,
    transaction::{Guarded, HandlerTransaction, TransactionHold, dialect::Fault},
};

impl<DB: SqlDatabase> TransactionalSagaStore for SqlSagaStore<DB> {
    type Transaction = HandlerTransaction<DB>;
    type Hold = TransactionHold<DB>;

    async fn open(&self) -> Result<(HandlerTransaction<DB>, TransactionHold<DB>)> {
        let doing = || self.doing("begin a step's transaction");
        let turn = match &self.turn {
            // The semaphore is never closed.
            Some(turn) => Arc::clone(turn).acquire_owned().await.ok(),
            None => None,
        };
        let mut connection = Guarded::open(&self.pool).await.map_err(failed(doing))?;
        self.sql_from(&mut connection).await?;
        connection.begin().await.map_err(failed(doing))?;
        Ok(HandlerTransaction::new(connection, turn))
    }

    async fn commit(
        &self,
        hold: TransactionHold<DB>,
        transaction: HandlerTransaction<DB>,
        claim: &SagaClaim,
        write: &SagaWrite,
    ) -> Result<bool, CommitError> {
        let doing = || self.doing(&format!("commit a step of saga {}", claim.key()));
        let rolled_back = CommitError::RolledBack;
        let misused =
            |how: &str| rolled_back(Error::new(ErrorKind::Config, format!("{}: {how}", doing())));
        let Some(mut connection) = hold.given_back(transaction) else {
            return Err(misused("it gave back the transaction of another step"));
        };
        if connection.depth() > 1 {
            return Err(misused("it left a savepoint open; commit or drop what `begin` returns"));
        }
        // The question fails where a statement has failed and PostgreSQL has given the transaction up.
        match DialectOf::<DB>::in_transaction(&mut connection).await {
            Ok(true) => {}
            Ok(false) => {
                let text = format!(
                    "{}: it has ended the transaction, by a COMMIT or ROLLBACK or by a statement \
                     that commits by itself; what it had done may be committed without the rest",
                    doing()
                );
                return Err(CommitError::Unknown(Error::new(ErrorKind::Config, text)));
            }
            Err(cause) => return Err(rolled_back(failed(doing)(cause))),
        }
        let prepared = self.sql_from(&mut connection).await.map_err(rolled_back)?;
        prepared.check::<DB>(claim.key(), &write.state).map_err(rolled_back)?;
        let statement = write_statement(&prepared, claim, write);
        let statement = statement.kept_where(self.keeps, Planned::EachTime);
        let written = DialectOf::<DB>::run(&mut connection, statement).await;
        if written.map_err(|cause| rolled_back(failed(doing)(cause)))? != 1 {
            connection.roll_back().await;
            return Ok(false);
        }
        match connection.commit().await {
            Ok(()) => Ok(true),
            Err(cause) => Err(match Fault::of::<DB>(&cause) {
                Fault::Lost => CommitError::Unknown(failed(doing)(cause)),
                Fault::Conflict | Fault::LockTimeout | Fault::Other => {
                    rolled_back(failed(doing)(cause))
                }
            }),
        }
    }

    async fn roll_back(&self, hold: TransactionHold<DB>) {
        match hold.dropped() {
            Some(connection) => connection.roll_back().await,
            None => tracing::error!(
                table = %self.table,
                "a step failed and has kept its transaction: until that is dropped, the pool is a \
                 connection short"
            ),
        }
    }

    fn is_conflict(&self, error: &(dyn StdError + 'static)) -> bool {
        match Fault::behind::<DB>(error) {
            Fault::Conflict | Fault::LockTimeout | Fault::Lost => true,
            Fault::Other => false,
        }
    }
}
