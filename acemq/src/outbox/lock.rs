//! Being the one active relay of an outbox.

use std::fmt;

use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::AbortOnDropHandle,
};

/// The lock of the one active relay, as a store hands it out from
/// [`OutboxStore::lead`](crate::OutboxStore::lead). Dropping it gives it up.
pub struct RelayLock {
    lost: CancellationToken,
    keeper: AbortOnDropHandle<()>,
}

impl RelayLock {
    /// A lock that a future holds: it owns whatever the lock is (a connection, a file), ends when
    /// the lock is lost, and is dropped when the lock is given up. Has to be called inside a tokio
    /// runtime.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> std::io::Result<()> {
    /// # let path = std::env::temp_dir().join(format!("acemq-example-{}", std::process::id()));
    /// let file = std::fs::File::create(&path)?;
    /// file.try_lock()?;
    /// let lock = acemq::RelayLock::new(async move {
    ///     let _locked = file;                     // as long as this process lives
    ///     std::future::pending::<()>().await
    /// });
    /// assert!(!lock.is_lost());
    /// lock.release().await;
    /// # std::fs::remove_file(path)
    /// # }
    /// ```
    #[must_use]
    pub fn new(held: impl Future<Output = ()> + Send + 'static) -> Self {
        let lost = CancellationToken::new();
        let at_the_end: DropGuard = lost.clone().drop_guard();
        let keeper = tokio::spawn(async move {
            // Also where it panics.
            let _at_the_end = at_the_end;
            held.await;
        });
        Self { lost, keeper: AbortOnDropHandle::new(keeper) }
    }

    /// Whether another relay may have it by now.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Gives it up and waits until that is done.
    ///
    /// # Cancel safety
    /// Dropped on the way, it is given up all the same, a little later.
    pub async fn release(self) {
        self.keeper.abort();
        // What is held is dropped with the task; that it was aborted is no error.
        let _ = self.keeper.await;
    }
}

impl fmt::Debug for RelayLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayLock").field("is_lost", &self.is_lost()).finish_non_exhaustive()
    }
}
