//! The claim, the handler's writes and the confirmation in one transaction.

use std::{error::Error as StdError, sync::Arc, time::Duration};

use acemq::{CommitError, IdempotencyStore, Result, TransactionClaim, TransactionalStore};

use super::{CONFIRMED, SqlIdempotency, check_key};
use crate::{
    database::{Dialect, DialectOf, IdempotencySql, SqlDatabase},
    failure::failed,
    statement::{Planned, Statement},
    time::micros,
    transaction::{
        Guarded, HandlerTransaction, TransactionHold,
        dialect::{Fault, TransactionDialect},
        finish,
    },
};

/// How often a claim is tried where the database undoes it for the sake of another.
const TRIES: usize = 3;

/// What a transaction found under its key.
enum Found {
    Nothing,
    Confirmed,
    Claimed,
}

impl<DB: SqlDatabase> TransactionalStore for SqlIdempotency<DB> {
    type Transaction = HandlerTransaction<DB>;
    type Hold = TransactionHold<DB>;

    async fn begin(
        &self,
        key: &str,
        wait: Duration,
    ) -> Result<TransactionClaim<HandlerTransaction<DB>, TransactionHold<DB>>> {
        check_key(key)?;
        let doing = || self.doing(&format!("claim key {key:?} in a transaction"));
        let turn = match &self.turn {
            // The semaphore is never closed.
            Some(turn) => Arc::clone(turn).acquire_owned().await.ok(),
            None => None,
        };
        let mut tries = 1..=TRIES;
        loop {
            let mut connection = Guarded::open(&self.pool).await.map_err(failed(doing))?;
            let sql = self.sql_from(&mut connection).await?;
            let found = match self.claim_in(&mut connection, &sql, key, wait).await {
                Ok(found) => found,
                Err(error) => match Fault::of::<DB>(&error) {
                    // Another transaction has the row, or is about to.
                    Fault::LockTimeout => Found::Claimed,
                    Fault::Conflict if tries.next().is_some() => {
                        connection.roll_back().await;
                        continue;
                    }
                    _ => return Err(failed(doing)(error)),
                },
            };
            if matches!(found, Found::Nothing) {
                let (transaction, hold) = HandlerTransaction::new(connection, turn);
                return Ok(TransactionClaim::Owned { transaction, hold });
            }
            connection.roll_back().await;
            return Ok(match found {
                Found::Confirmed => TransactionClaim::AlreadyConfirmed,
                _ => TransactionClaim::InProgress,
            });
        }
    }

    async fn commit(
        &self,
        hold: TransactionHold<DB>,
        transaction: HandlerTransaction<DB>,
    ) -> Result<(), CommitError> {
        let doing = || self.doing("commit the work on a message and its key");
        finish::commit(hold, transaction, doing).await
    }

    async fn roll_back(&self, hold: TransactionHold<DB>) {
        finish::roll_back(hold, &self.table).await;
    }

    fn is_conflict(&self, error: &(dyn StdError + 'static)) -> bool {
        finish::is_conflict::<DB>(error)
    }

    async fn check(&self) -> Result<()> {
        IdempotencyStore::check(self).await
    }

    fn retention(&self) -> Option<Duration> {
        IdempotencyStore::retention(self)
    }
}

impl<DB: SqlDatabase> SqlIdempotency<DB> {
    /// Begins a transaction and confirms the key in it, unless somebody has it.
    async fn claim_in(
        &self,
        connection: &mut Guarded<DB>,
        sql: &IdempotencySql,
        key: &str,
        wait: Duration,
    ) -> sqlx::Result<Found> {
        let (sql, retention) = (&sql.in_transaction, micros(self.retention));
        let planned = |it: Statement| it.kept_where(self.keeps, Planned::InOnePiece);
        connection.begin().await?;
        let insert = DialectOf::<DB>::claim_row(sql, key, self.name.token(), retention, wait);
        let inserted = DialectOf::<DB>::fetch(connection, planned(insert)).await?;
        if inserted.first().and_then(|row| DialectOf::<DB>::integer(row, 0)) == Some(1) {
            return Ok(Found::Nothing);
        }
        let look = DialectOf::<DB>::lock_row(sql, key, wait);
        let rows = DialectOf::<DB>::fetch(connection, planned(look)).await?;
        let Some(row) = rows.first() else {
            // Purged or given up just now: whoever comes next finds nothing in the way.
            return Ok(Found::Claimed);
        };
        let confirmed = DialectOf::<DB>::text(row, 0).as_deref() == Some(CONFIRMED);
        if DialectOf::<DB>::integer(row, 1) != Some(1) {
            return Ok(if confirmed { Found::Confirmed } else { Found::Claimed });
        }
        let confirm = self.statement(&sql.confirm).text(key).integer(retention);
        DialectOf::<DB>::run(connection, confirm).await?;
        if !confirmed {
            self.warn_of_taking_over(key);
        }
        Ok(Found::Nothing)
    }
}
