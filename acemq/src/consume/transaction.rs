//! The seam between a consumer and a database that its handler writes to.

use std::{future::Future, time::Duration};

use crate::error::{Error, Result};

/// A database in which a handler's writes, the claim on its message and the confirmation commit
/// together, so that each message takes effect exactly once.
///
/// `acemq_sql::SqlIdempotency` is one, for PostgreSQL, MariaDB and SQLite. Write one of your own
/// for another client of a database, and hand it to
/// [`ConsumerBuilder::start_in_transaction`](super::ConsumerBuilder::start_in_transaction).
/// Implementors may write its functions as `async fn`. Each may be dropped at any await; what it
/// has begun must then be rolled back.
pub trait TransactionalStore: Send + Sync + 'static {
    /// An open transaction as a handler is given it. It should offer no way to commit or roll
    /// back: a handler gives it back to have it committed, and drops it to have it undone.
    type Transaction: Send + 'static;

    /// What the consumer keeps of a transaction while its handler has it. Dropping it rolls the
    /// transaction back, wherever that is, as soon as that can be done.
    type Hold: Send + Sync + 'static;

    /// Begins a transaction and writes the confirmation of a key into it. Where another open
    /// transaction has the key, it is waited for, for about `wait` and no longer.
    ///
    /// # Errors
    /// A database that is away or refuses. The consumer keeps the message and asks again.
    fn begin(
        &self,
        key: &str,
        wait: Duration,
    ) -> impl Future<Output = Result<TransactionClaim<Self::Transaction, Self::Hold>>> + Send;

    /// Commits what a handler gave back, the confirmation with it.
    ///
    /// # Errors
    /// [`CommitError`] says whether it is known that nothing was committed.
    fn commit(
        &self,
        hold: Self::Hold,
        transaction: Self::Transaction,
    ) -> impl Future<Output = Result<(), CommitError>> + Send;

    /// Rolls back what a handler did not give back, and returns when that is done, so that the
    /// next attempt does not meet this one.
    fn roll_back(&self, hold: Self::Hold) -> impl Future<Output = ()> + Send;

    /// Whether an error of a handler, or of a commit, is the database's having undone the
    /// transaction for the sake of another (a deadlock, a serialization failure) or having lost
    /// it: then the handler may run again at once, and it costs no attempt.
    fn is_conflict(&self, error: &(dyn std::error::Error + 'static)) -> bool;

    /// Whether the store can be used, asked once when a consumer starts. The default says yes.
    ///
    /// # Errors
    /// What is wrong with it. The start fails where the error is not transient.
    fn check(&self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// How long a confirmation is remembered; `None` where the store does not say.
    fn retention(&self) -> Option<Duration> {
        None
    }
}

/// The answer to [`TransactionalStore::begin`].
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "these three are all there is to a claim")]
pub enum TransactionClaim<T, H> {
    /// The key is the caller's for as long as the transaction lasts, and confirmed if it commits.
    Owned {
        /// For the handler.
        transaction: T,
        /// For the consumer.
        hold: H,
    },
    /// The work was done before: this is a duplicate.
    AlreadyConfirmed,
    /// Somebody else is at it, in a transaction or under a lease.
    InProgress,
}

/// Why a transaction was not committed, or may not have been.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "either it is known or it is not")]
pub enum CommitError {
    /// Nothing was committed. The message has failed: for good where the error is not transient.
    RolledBack(Error),
    /// The answer was lost. The message goes back to the broker, or stays in hand where it is a
    /// stream's, and the row decides when it is taken up again.
    Unknown(Error),
}
