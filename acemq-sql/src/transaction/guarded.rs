//! A connection of the pool with a transaction of ours on it.

use std::ops::{Deref, DerefMut};

use sqlx::{Pool, SqlSafeStr, pool::PoolConnection};
use sqlx_core::transaction::TransactionManager;

use super::dialect::TransactionDialect;
use crate::database::{DialectOf, SqlDatabase};

/// Goes back to the pool only once its transaction has ended. Dropped before, it is closed, and
/// the database rolls back: sqlx's own `begin`, cut short, could leave a transaction open on a
/// connection that goes back, and a statement cut short could leave it out of step.
pub(crate) struct Guarded<DB: SqlDatabase> {
    connection: PoolConnection<DB>,
    ended: bool,
}

impl<DB: SqlDatabase> Guarded<DB> {
    pub(crate) async fn open(pool: &Pool<DB>) -> sqlx::Result<Self> {
        Ok(Self { connection: pool.acquire().await?, ended: false })
    }

    pub(crate) async fn begin(&mut self) -> sqlx::Result<()> {
        let begin = DialectOf::<DB>::BEGIN.map(SqlSafeStr::into_sql_str);
        DB::TransactionManager::begin(&mut self.connection, begin).await
    }

    /// How many transactions are open on it, savepoints being transactions within.
    pub(crate) fn depth(&self) -> usize {
        DB::TransactionManager::get_transaction_depth(&self.connection)
    }

    /// Where it fails, the connection is closed.
    pub(crate) async fn commit(mut self) -> sqlx::Result<()> {
        DB::TransactionManager::commit(&mut self.connection).await?;
        self.ended = true;
        Ok(())
    }

    /// Where it fails, the connection is closed, and that is a rollback, too.
    pub(crate) async fn roll_back(mut self) {
        while self.depth() > 0 {
            if DB::TransactionManager::rollback(&mut self.connection).await.is_err() {
                return;
            }
        }
        self.ended = true;
    }
}

impl<DB: SqlDatabase> Deref for Guarded<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        &self.connection
    }
}

impl<DB: SqlDatabase> DerefMut for Guarded<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        &mut self.connection
    }
}

impl<DB: SqlDatabase> Drop for Guarded<DB> {
    fn drop(&mut self) {
        if !self.ended {
            self.connection.close_on_drop();
        }
    }
}
