//! The seam between a durable saga and transactions of the database that its store is in.

use std::future::Future;

use super::{NewSaga, SagaClaim, SagaStore, SagaWrite};
use crate::{
    consume::CommitError,
    error::{Error, Result},
};

/// A saga store that writes in an open transaction of the caller's, of type `T`, so that a saga
/// exists exactly if the caller's own writes do: see [`DurableSaga::begin`](super::DurableSaga::begin).
#[diagnostic::on_unimplemented(
    message = "`{Self}` begins no saga in a `{T}`",
    note = "hand over an open transaction of the store's own database, as `&mut transaction`"
)]
pub trait JoinsTransaction<T>: SagaStore {
    /// Writes an instance that is new and due at once, in that transaction. `false` where one of
    /// that key is there, which is left as it is, and the transaction stays usable.
    fn insert_in(
        &self,
        transaction: &mut T,
        new: &NewSaga,
    ) -> impl Future<Output = Result<bool>> + Send;
}

/// A saga store whose database steps can write to, so that a step's writes and the note that it is
/// done commit together.
///
/// `acemq_sql::SqlSagaStore` is one. Each function may be dropped at any await; what it has begun
/// must then be rolled back.
pub trait TransactionalSagaStore: SagaStore {
    /// An open transaction as a step is given it. It should offer no way to commit or roll back: a
    /// step gives it back to have it committed, and drops it to have it undone.
    type Transaction: Send + 'static;

    /// What the saga keeps of a transaction while its step has it. Dropping it rolls the
    /// transaction back, wherever that is, as soon as that can be done.
    type Hold: Send + Sync + 'static;

    /// Begins a transaction.
    fn open(&self) -> impl Future<Output = Result<(Self::Transaction, Self::Hold)>> + Send;

    /// Writes in the transaction as [`SagaStore::write`] does, and commits. `false` where the claim
    /// was lost: then all of it is rolled back.
    ///
    /// # Errors
    /// [`CommitError`] says whether it is known that nothing was committed. One that is not known,
    /// and not transient either, is a step that has ended the transaction itself: it has failed, and
    /// is in doubt.
    fn commit(
        &self,
        hold: Self::Hold,
        transaction: Self::Transaction,
        claim: &SagaClaim,
        write: &SagaWrite,
    ) -> impl Future<Output = Result<bool, CommitError>> + Send;

    /// Rolls back what a step did not give back, and returns when that is done.
    fn roll_back(&self, hold: Self::Hold) -> impl Future<Output = ()> + Send;

    /// Whether an error of a step, or of a commit, is the database's having undone the transaction
    /// for the sake of another (a deadlock, a serialization failure) or having lost it: then the
    /// step may run again at once, and it costs no attempt.
    fn is_conflict(&self, error: &(dyn std::error::Error + 'static)) -> bool;
}

/// What came of a commit that was not answered with a plain yes.
pub(super) fn why(error: &CommitError) -> &Error {
    match error {
        CommitError::RolledBack(error) | CommitError::Unknown(error) => error,
    }
}
