//! An open transaction: sqlx's own, or the one that a handler is given.
//!
//! A handler's transaction belongs to its consumer. The handler gives it back to have it
//! committed; dropped anywhere, it finds its way back to be rolled back; and where there is nobody
//! left to take it, its connection is closed, which rolls it back as well. Its connection never
//! goes back to the pool in between.

pub(crate) mod dialect;
pub(crate) mod finish;
mod guarded;

use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sqlx::Transaction;
use tokio::sync::OwnedSemaphorePermit;

pub(crate) use self::guarded::Guarded;
use crate::database::SqlDatabase;

/// A transaction that is open: sqlx's own [`Transaction`], or a [`HandlerTransaction`].
///
/// It cannot be implemented outside of this crate.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an open transaction, so that what is added would not commit with \
               your own writes",
    note = "begin one with `pool.begin().await?` and hand that over as `&mut transaction`; in a \
            transactional handler, hand over the one that it was given"
)]
pub trait OpenTransaction<DB: SqlDatabase>: sealed::Sealed {
    #[doc(hidden)]
    fn connection(&mut self) -> &mut DB::Connection;
}

mod sealed {
    pub trait Sealed {}
}

impl<DB: SqlDatabase> sealed::Sealed for Transaction<'_, DB> {}

impl<DB: SqlDatabase> OpenTransaction<DB> for Transaction<'_, DB> {
    fn connection(&mut self) -> &mut DB::Connection {
        self
    }
}

impl<DB: SqlDatabase> sealed::Sealed for HandlerTransaction<DB> {}

impl<DB: SqlDatabase> OpenTransaction<DB> for HandlerTransaction<DB> {
    fn connection(&mut self) -> &mut DB::Connection {
        self
    }
}

/// The transaction that a handler is given by
/// [`start_in_transaction`](acemq::ConsumerBuilder::start_in_transaction).
///
/// It is the connection: `sqlx::query(…).execute(&mut *transaction)`, and
/// [`SqlOutbox::add`](crate::SqlOutbox::add) takes it as `&mut transaction`. It has no `commit`
/// and no `rollback`: give it back as `Ok(transaction)` to have it committed, and return an error
/// to have it undone. Savepoints are sqlx's `transaction.begin()`, from its trait `Connection`.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # mod example {
/// use acemq::{HandlerError, Message};
/// use acemq_sql::HandlerTransaction;
///
/// async fn book(
///     message: Message<i64>,
///     mut transaction: HandlerTransaction<sqlx::Sqlite>,
/// ) -> Result<HandlerTransaction<sqlx::Sqlite>, HandlerError> {
///     sqlx::query("INSERT INTO bookings (cents) VALUES ($1)")
///         .bind(*message.payload())
///         .execute(&mut *transaction)
///         .await?;
///     Ok(transaction)
/// }
/// # }
/// ```
///
/// Forgetting to give it back does not compile, and neither does committing it:
///
/// ```compile_fail,E0308
/// # use acemq::{HandlerError, Message};
/// # use acemq_sql::HandlerTransaction;
/// // promise: BX-8
/// async fn forgets(
///     _message: Message<i64>,
///     _transaction: HandlerTransaction<sqlx::Sqlite>,
/// ) -> Result<HandlerTransaction<sqlx::Sqlite>, HandlerError> {
///     Ok(())
/// }
/// ```
///
/// ```compile_fail,E0599
/// # use acemq::HandlerError;
/// # use acemq_sql::HandlerTransaction;
/// // promise: BX-8
/// async fn commits(transaction: HandlerTransaction<sqlx::Sqlite>) -> Result<(), HandlerError> {
///     transaction.commit().await?;
///     Ok(())
/// }
/// ```
///
/// A handler that ends it by a `COMMIT` of its own, or by a statement that commits by itself (as
/// the definition of a table does on MariaDB), is found out when it gives it back: its message goes
/// to the dead-letter queue with that reason, and one of a stream stops its reader or is skipped.
pub struct HandlerTransaction<DB: SqlDatabase> {
    /// Taken out only by what takes the whole of it, or drops it.
    connection: Option<Guarded<DB>>,
    place: Arc<Place<DB>>,
}

impl<DB: SqlDatabase> HandlerTransaction<DB> {
    /// A transaction that has begun, for a handler, and what its consumer keeps of it.
    pub(crate) fn new(
        connection: Guarded<DB>,
        turn: Option<OwnedSemaphorePermit>,
    ) -> (Self, TransactionHold<DB>) {
        let place = Arc::new(Place(Mutex::new(State::Lent)));
        let transaction = Self { connection: Some(connection), place: Arc::clone(&place) };
        (transaction, TransactionHold { place, _turn: turn })
    }
}

const TAKEN: &str = "a transaction is not used once it was given back or dropped";

impl<DB: SqlDatabase> Deref for HandlerTransaction<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        match &self.connection {
            Some(connection) => connection,
            None => unreachable!("{TAKEN}"),
        }
    }
}

impl<DB: SqlDatabase> DerefMut for HandlerTransaction<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        match &mut self.connection {
            Some(connection) => connection,
            None => unreachable!("{TAKEN}"),
        }
    }
}

impl<DB: SqlDatabase> Drop for HandlerTransaction<DB> {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        let mut state = self.place.lock();
        if matches!(*state, State::Lent) {
            *state = State::Dropped(connection);
        }
        // Otherwise it closes here: the consumer has ended, or given up waiting.
    }
}

impl<DB: SqlDatabase> fmt::Debug for HandlerTransaction<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerTransaction").field("database", &DB::NAME).finish_non_exhaustive()
    }
}

/// Where a transaction that its handler has dropped is found.
struct Place<DB: SqlDatabase>(Mutex<State<DB>>);

enum State<DB: SqlDatabase> {
    /// The handler has it.
    Lent,
    Dropped(Guarded<DB>),
    /// Nobody takes it back any more.
    Over,
}

impl<DB: SqlDatabase> Place<DB> {
    fn lock(&self) -> MutexGuard<'_, State<DB>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a consumer keeps of a transaction while a handler has it. Dropping it ends the
/// transaction, at the latest when the handler lets go of it.
pub struct TransactionHold<DB: SqlDatabase> {
    place: Arc<Place<DB>>,
    /// Where only one transaction at a time can write, its turn.
    _turn: Option<OwnedSemaphorePermit>,
}

impl<DB: SqlDatabase> TransactionHold<DB> {
    /// The connection of a transaction that was given back, if it is this one's.
    pub(crate) fn given_back(
        &self,
        mut transaction: HandlerTransaction<DB>,
    ) -> Option<Guarded<DB>> {
        if !Arc::ptr_eq(&self.place, &transaction.place) {
            return None;
        }
        transaction.connection.take()
    }

    /// The connection of a transaction that was dropped; none where somebody still has it.
    pub(crate) fn dropped(&self) -> Option<Guarded<DB>> {
        match std::mem::replace(&mut *self.place.lock(), State::Over) {
            State::Dropped(connection) => Some(connection),
            State::Lent | State::Over => None,
        }
    }
}

impl<DB: SqlDatabase> Drop for TransactionHold<DB> {
    fn drop(&mut self) {
        // A connection in there closes with its transaction.
        drop(self.dropped());
    }
}

impl<DB: SqlDatabase> fmt::Debug for TransactionHold<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionHold").field("database", &DB::NAME).finish_non_exhaustive()
    }
}
