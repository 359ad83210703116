//! Saving a reader's place.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{StreamStop, checkpoint::ErasedCheckpoints, runtime::Core};
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
    /// The next offset as it is known to be saved.
    saved: AtomicU64,
    /// How many messages were finished since.
    finished: AtomicU64,
    due: Notify,
    /// Nothing more is finished.
    ended: CancellationToken,
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
            saved: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            due: Notify::new(),
            ended: CancellationToken::new(),
        }
    }

    /// Notes that a message is finished; `committed` where its transaction has saved that.
    pub(super) fn finished(&self, offset: u64, committed: bool) {
        if committed && self.in_transactions {
            return self.is_saved(offset.saturating_add(1));
        }
        if self.finished.fetch_add(1, Ordering::Relaxed) + 1 >= self.every {
            self.due.notify_one();
        }
    }

    fn is_saved(&self, next: u64) {
        self.saved.fetch_max(next, Ordering::AcqRel);
    }
}

impl Core {
    /// The offset that comes next by the reader's checkpoint, if it has one.
    pub(super) async fn load_checkpoint(&self) -> Result<Option<u64>> {
        let Some(it) = &self.checkpoints else { return Ok(None) };
        let next = answer(|| it.store.load(&self.stream, &it.reader)).await?;
        next.inspect(|next| it.is_saved(*next));
        Ok(next)
    }

    /// Makes a place the reader's checkpoint, unless another process was first: then its is answered.
    pub(super) async fn checkpoint_or(&self, next: u64) -> Result<u64> {
        let Some(it) = &self.checkpoints else { return Ok(next) };
        let next = answer(|| it.store.load_or_insert(&self.stream, &it.reader, next)).await?;
        it.is_saved(next);
        Ok(next)
    }

    /// Saves the place whenever that is due, until the last time.
    pub(super) async fn keep_saving(&self) {
        let Some(it) = &self.checkpoints else { return };
        loop {
            tokio::select! {
                biased;
                () = it.ended.cancelled() => return,
                () = it.due.notified() => {}
                () = sleep(it.within) => {}
            }
            if let Err(error) = self.save_checkpoint().await {
                tracing::warn!(
                    stream = %self.stream, reader = %it.reader, %error,
                    "the place in a stream was not saved; it is tried again"
                );
                tokio::select! {
                    biased;
                    () = it.ended.cancelled() => return,
                    () = sleep(it.within) => {}
                }
            }
        }
    }

    /// Saves the place once more, behind what is being saved.
    pub(super) async fn save_last(&self, saving: AbortOnDropHandle<()>, bound: Instant) {
        let Some(it) = &self.checkpoints else { return };
        it.ended.cancel();
        let last = async {
            let _ = saving.await;
            self.save_checkpoint().await
        };
        match timeout_at(bound, last).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(
                stream = %self.stream, %error,
                "the last place in a stream was not saved; what was handled since comes again"
            ),
            Err(_) => tracing::warn!(
                stream = %self.stream,
                "the last place in a stream was not saved in time; what was handled since comes again"
            ),
        }
    }

    /// Saves the place, if it is beyond the one that is saved.
    async fn save_checkpoint(&self) -> Result<()> {
        let Some(it) = &self.checkpoints else { return Ok(()) };
        it.finished.store(0, Ordering::Relaxed);
        if matches!(self.stop.get(), Some(StreamStop::MadeAnew { .. })) {
            // It may have been forgotten already, for the new stream.
            return Ok(());
        }
        let next = self.progress().next();
        let Some(next) = next.filter(|next| *next > it.saved.load(Ordering::Acquire)) else {
            return Ok(());
        };
        answer(|| it.store.save(&self.stream, &it.reader, next)).await?;
        it.is_saved(next);
        Ok(())
    }
}
