//! Where a reader's place is kept.

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{
    consume::{CommitError, TransactionClaim},
    error::Result,
    transport::BoxFuture,
};

/// Keeps how far the readers of streams have come, by the name of the stream and of the reader.
///
/// `acemq_sql::SqlStreamCheckpoints` is one, on PostgreSQL, MariaDB and SQLite. Implementors may write
/// these as `async fn`. A failure must be an error, never an answer.
///
/// A checkpoint is the offset of the next message to handle: everything below it was handled, or did
/// not belong to the reader. 0 is a reader that begins with the first message that there ever was.
pub trait StreamCheckpointStore: Send + Sync + 'static {
    /// The offset that is next; `None` for a reader that has no checkpoint.
    ///
    /// # Errors
    /// A store that is away or refuses.
    fn load(&self, stream: &str, reader: &str) -> impl Future<Output = Result<Option<u64>>> + Send;

    /// The offset that is next. A reader that has no checkpoint is given this one first: of several
    /// processes that ask at once, all are answered the same. So a reader of what is yet to come has
    /// its place before it has handled anything.
    ///
    /// # Errors
    /// A store that is away or refuses.
    fn load_or_insert(
        &self,
        stream: &str,
        reader: &str,
        next: u64,
    ) -> impl Future<Output = Result<u64>> + Send;

    /// Saves the offset that is next. A checkpoint never goes back: a lower offset than the one that
    /// is there changes nothing, and is no error.
    ///
    /// # Errors
    /// A store that is away or refuses.
    fn save(
        &self,
        stream: &str,
        reader: &str,
        next: u64,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Removes a reader's checkpoint, so that it begins anew; `false` where there was none. For a
    /// stream that was deleted and made again, or a projection that is to be built again.
    ///
    /// # Errors
    /// A store that is away or refuses.
    fn forget(&self, stream: &str, reader: &str) -> impl Future<Output = Result<bool>> + Send;
}

/// A store of checkpoints in whose transactions handlers run, so that what they write and the
/// checkpoint commit together.
///
/// `acemq_sql::SqlStreamCheckpoints` is one. Each function may be dropped at any await; what it has
/// begun must then be rolled back.
pub trait TransactionalCheckpointStore: StreamCheckpointStore {
    /// An open transaction as a handler is given it, see
    /// [`TransactionalStore::Transaction`](crate::TransactionalStore::Transaction).
    type Transaction: Send + 'static;

    /// What the consumer keeps of a transaction while its handler has it. Dropping it rolls the
    /// transaction back.
    type Hold: Send + Sync + 'static;

    /// Begins a transaction, and moves the reader's checkpoint in it from the message at this offset,
    /// or from before it, to the next.
    ///
    /// [`TransactionClaim::AlreadyConfirmed`] where the checkpoint is beyond the message already: it
    /// has had its effect. Where another open transaction has the checkpoint, it is waited for,
    /// for about `wait` and no longer; then [`TransactionClaim::InProgress`].
    ///
    /// # Errors
    /// A database that is away or refuses. The consumer keeps the message and asks again.
    fn begin(
        &self,
        stream: &str,
        reader: &str,
        offset: u64,
        wait: Duration,
    ) -> impl Future<Output = Result<TransactionClaim<Self::Transaction, Self::Hold>>> + Send;

    /// Commits what a handler gave back, the checkpoint with it.
    ///
    /// # Errors
    /// [`CommitError`] says whether it is known that nothing was committed.
    fn commit(
        &self,
        hold: Self::Hold,
        transaction: Self::Transaction,
    ) -> impl Future<Output = Result<(), CommitError>> + Send;

    /// Rolls back what a handler did not give back, and returns when that is done.
    fn roll_back(&self, hold: Self::Hold) -> impl Future<Output = ()> + Send;

    /// Whether an error of a handler, or of a commit, is the database's having undone the transaction
    /// for the sake of another, or having lost it: then the handler runs again at once.
    fn is_conflict(&self, error: &(dyn std::error::Error + 'static)) -> bool;
}

/// [`StreamCheckpointStore`] with boxed futures, as far as a consumer uses it.
pub(super) trait ErasedCheckpoints: Send + Sync {
    fn load<'a>(&'a self, stream: &'a str, reader: &'a str) -> BoxFuture<'a, Result<Option<u64>>>;
    fn load_or_insert<'a>(
        &'a self,
        stream: &'a str,
        reader: &'a str,
        next: u64,
    ) -> BoxFuture<'a, Result<u64>>;
    fn save<'a>(&'a self, stream: &'a str, reader: &'a str, next: u64)
    -> BoxFuture<'a, Result<()>>;
}

impl<S: StreamCheckpointStore> ErasedCheckpoints for S {
    fn load<'a>(&'a self, stream: &'a str, reader: &'a str) -> BoxFuture<'a, Result<Option<u64>>> {
        Box::pin(StreamCheckpointStore::load(self, stream, reader))
    }

    fn load_or_insert<'a>(
        &'a self,
        stream: &'a str,
        reader: &'a str,
        next: u64,
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(StreamCheckpointStore::load_or_insert(self, stream, reader, next))
    }

    fn save<'a>(
        &'a self,
        stream: &'a str,
        reader: &'a str,
        next: u64,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(StreamCheckpointStore::save(self, stream, reader, next))
    }
}

/// Checkpoints in this process's memory, for tests: they go with the process, and so does the place
/// of every reader. Clones share them.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> acemq::Result<()> {
/// use acemq::{MemoryStreamCheckpoints, StreamCheckpointStore};
///
/// let checkpoints = MemoryStreamCheckpoints::new();
/// checkpoints.save("orders.log", "billing", 41).await?;
/// checkpoints.save("orders.log", "billing", 7).await?; // never back
/// assert_eq!(checkpoints.load("orders.log", "billing").await?, Some(41));
/// assert_eq!(checkpoints.load_or_insert("orders.log", "audit", 5).await?, 5);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemoryStreamCheckpoints(Arc<Mutex<HashMap<(String, String), u64>>>);

impl MemoryStreamCheckpoints {
    /// None yet. That it does not last is logged as a warning.
    #[must_use]
    pub fn new() -> Self {
        tracing::warn!(
            "checkpoints in memory are for tests: they end with this process, and every reader begins \
             anew after it"
        );
        Self(Arc::default())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(String, String), u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryStreamCheckpoints {
    fn default() -> Self {
        Self::new()
    }
}

impl StreamCheckpointStore for MemoryStreamCheckpoints {
    async fn load(&self, stream: &str, reader: &str) -> Result<Option<u64>> {
        Ok(self.lock().get(&(stream.to_owned(), reader.to_owned())).copied())
    }

    async fn load_or_insert(&self, stream: &str, reader: &str, next: u64) -> Result<u64> {
        Ok(*self.lock().entry((stream.to_owned(), reader.to_owned())).or_insert(next))
    }

    async fn save(&self, stream: &str, reader: &str, next: u64) -> Result<()> {
        let mut checkpoints = self.lock();
        let saved = checkpoints.entry((stream.to_owned(), reader.to_owned())).or_insert(next);
        *saved = next.max(*saved);
        Ok(())
    }

    async fn forget(&self, stream: &str, reader: &str) -> Result<bool> {
        Ok(self.lock().remove(&(stream.to_owned(), reader.to_owned())).is_some())
    }
}

impl fmt::Debug for MemoryStreamCheckpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStreamCheckpoints")
            .field("readers", &self.lock().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use testkit::logs;

    // Not its boxed twin.
    use super::{MemoryStreamCheckpoints, StreamCheckpointStore as _};

    #[tokio::test]
    async fn checkpoints_in_memory_say_so_and_go_forward_for_each_reader_by_itself() {
        let (log, _guard) = logs::of_this_thread();
        let checkpoints = MemoryStreamCheckpoints::new();
        assert_eq!(log.lines_with(&["WARN", "for tests"]).len(), 1);
        for (reader, saved, found) in [("a", 5, 5), ("a", 3, 5), ("b", 0, 0), ("a", 6, 6)] {
            checkpoints.save("s", reader, saved).await.unwrap();
            assert_eq!(checkpoints.load("s", reader).await.unwrap(), Some(found));
        }
        let same = checkpoints.clone();
        assert!(same.forget("s", "a").await.unwrap() && !same.forget("s", "a").await.unwrap());
        assert_eq!(checkpoints.load("s", "a").await.unwrap(), None);
        assert_eq!(checkpoints.load("s", "b").await.unwrap(), Some(0));
    }
}
