//! A connection of the pool, for the statements of one call.

use std::ops::{Deref, DerefMut};

use sqlx::{Pool, pool::PoolConnection};

use crate::{
    database::{Dialect, DialectOf, SqlDatabase},
    statement::{Statement, Value},
};

/// Goes back to the pool when it is dropped, as it came.
pub(crate) struct Session<DB: SqlDatabase> {
    connection: PoolConnection<DB>,
    /// Whether the last statement has come to its end and succeeded.
    clean: bool,
}

impl<DB: SqlDatabase> Session<DB> {
    pub(crate) async fn open(pool: &Pool<DB>) -> sqlx::Result<Self> {
        Ok(Self { connection: pool.acquire().await?, clean: true })
    }

    /// Runs a statement and says how many rows it changed.
    pub(crate) async fn run(&mut self, statement: Statement) -> sqlx::Result<u64> {
        self.clean = false;
        let changed = DialectOf::<DB>::run(&mut self.connection, statement).await?;
        self.clean = true;
        Ok(changed)
    }

    /// Runs a statement and reads its rows.
    pub(crate) async fn fetch(&mut self, statement: Statement) -> sqlx::Result<Vec<DB::Row>> {
        self.clean = false;
        let rows = DialectOf::<DB>::fetch(&mut self.connection, statement).await?;
        self.clean = true;
        Ok(rows)
    }

    /// Makes what is not there.
    pub(crate) async fn create(&mut self, statements: Vec<String>) -> sqlx::Result<()> {
        for statement in statements {
            self.run(Statement::new(&statement.into()).in_one_piece()).await?;
        }
        Ok(())
    }

    /// What a change is to work on, as its first value: at most so many rows, or the very rows
    /// that `pick` chooses; nothing where it finds none.
    pub(crate) async fn target(
        &mut self,
        pick: Option<Statement>,
        most: i64,
    ) -> sqlx::Result<Option<Value>> {
        let Some(pick) = pick else { return Ok(Some(Value::Integer(most))) };
        let rows = self.fetch(pick).await?;
        let ids: Vec<String> =
            rows.iter().filter_map(|row| DialectOf::<DB>::text(row, 0)).collect();
        Ok((!ids.is_empty()).then_some(Value::List(ids)))
    }
}

impl<DB: SqlDatabase> Deref for Session<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        &self.connection
    }
}

impl<DB: SqlDatabase> DerefMut for Session<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        &mut self.connection
    }
}

impl<DB: SqlDatabase> Drop for Session<DB> {
    fn drop(&mut self) {
        if !self.clean && DialectOf::<DB>::SETS_THE_SESSION {
            self.connection.close_on_drop();
        }
    }
}
