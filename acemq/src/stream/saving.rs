//! Saving a reader's place.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::sleep};

use super::{checkpoint::ErasedCheckpoints, runtime::Core};
use crate::{consume::answer, error::Result};

/// Where and how often a reader's place is saved.
pub(super) struct Checkpoints {
    pub(super) store: Arc<dyn ErasedCheckpoints>,
    pub(super) reader: Arc<str>,
    /// After so many messages.
    pub(super) every: u64,
    /// And this long after one at the latest.
    pub(super) within: Duration,
    /// Whether what a handler is done with is saved in its own transaction.
    pub(super) in_transactions: bool,
    /// Whether the place has changed since it was saved.
    changed: AtomicBool,
    /// How many messages were finished since.
    finished: AtomicU64,
    due: Notify,
}

impl Checkpoints {
    pub(super) fn new(
        store: Arc<dyn ErasedCheckpoints>,
        reader: Arc<str>,
        (every, within): (u64, Duration),
        in_transactions: bool,
    ) -> Self {
        Self {
            store,
            reader,
            every,
            within,
            in_transactions,
            changed: AtomicBool::new(false),
            finished: AtomicU64::new(0),
            due: Notify::new(),
        }
    }

    /// Notes that a message is finished; `committed` where its transaction has saved that.
    pub(super) fn finished(&self, committed: bool) {
        if committed && self.in_transactions {
            return;
        }
        self.changed.store(true, Ordering::Release);
        if self.finished.fetch_add(1, Ordering::Relaxed) + 1 >= self.every {
            self.due.notify_one();
        }
    }
}

impl Core {
    /// The place that the reader has saved.
    pub(super) async fn load_checkpoint(&self) -> Result<Option<u64>> {
        match &self.checkpoints {
            Some(it) => answer(|| it.store.load(&self.stream, &it.reader)).await,
            None => Ok(None),
        }
    }

    /// Saves the place whenever that is due, for as long as it is polled.
    pub(super) async fn keep_saving(&self) {
        let Some(it) = &self.checkpoints else { return std::future::pending().await };
        loop {
            tokio::select! {
                () = it.due.notified() => {}
                () = sleep(it.within) => {}
            }
            if let Err(error) = self.save_checkpoint().await {
                tracing::warn!(
                    stream = %self.stream, reader = %it.reader, %error,
                    "the place in a stream was not saved; it is tried again"
                );
                sleep(it.within).await;
            }
        }
    }

    /// Saves the place, if it has changed.
    pub(super) async fn save_checkpoint(&self) -> Result<()> {
        let Some(it) = &self.checkpoints else { return Ok(()) };
        if !it.changed.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        it.finished.store(0, Ordering::Relaxed);
        let Some(handled) = self.progress().handled() else { return Ok(()) };
        let saved = answer(|| it.store.save(&self.stream, &it.reader, handled)).await;
        if saved.is_err() {
            it.changed.store(true, Ordering::Release);
        }
        saved
    }
}
