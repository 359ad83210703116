//! The handle of a running consumer.

use std::{
    fmt,
    sync::{Arc, PoisonError},
};

use tokio::{sync::watch, time::Instant};
use tokio_util::task::AbortOnDropHandle;

use super::{ConsumerCounters, HaltedKey, runtime::Core};
use crate::{connection::Stop, error::Result};

/// What a consumer is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConsumerState {
    /// Subscribed: messages come in.
    Receiving,
    /// Subscribed, and held up: the idempotency store fails. No handler begins with a
    /// message that it was not asked about; it is asked again and again.
    Waiting {
        /// What the store failed with.
        reason: String,
    },
    /// Not subscribed, and trying again: the connection or channel was lost, or the queue is gone.
    Recovering {
        /// Which attempt is next, counted from 1.
        attempt: u32,
        /// Why it was lost, or why the last attempt failed.
        reason: String,
    },
    /// Not subscribed: a message failed, and nothing behind it may be handled before somebody resumes
    /// it. Only a partition's consumer does this.
    Halted {
        /// The message that failed.
        message_id: String,
        /// How many attempts it has had.
        attempts: u32,
        /// Why the last of them failed.
        reason: String,
    },
    /// Closed.
    Closed,
}

/// A running consumer, from [`ConsumerBuilder::start`](super::ConsumerBuilder::start).
///
/// Dropping it stops it at once: running handlers are dropped at their next await, and what was
/// not settled goes back to the broker. [`close`](Self::close) lets them finish.
#[must_use = "dropping a consumer stops it"]
pub struct Consumer {
    core: Arc<Core>,
    _task: AbortOnDropHandle<()>,
}

impl Consumer {
    pub(super) fn new(core: Arc<Core>, task: AbortOnDropHandle<()>) -> Self {
        Self { core, _task: task }
    }

    /// The queue it consumes.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.core.queue
    }

    /// What it is doing now.
    #[must_use]
    pub fn state(&self) -> ConsumerState {
        self.core.state.borrow().clone()
    }

    /// Follows what it is doing.
    #[must_use]
    pub fn states(&self) -> watch::Receiver<ConsumerState> {
        self.core.state.subscribe()
    }

    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> ConsumerCounters {
        self.core.counters.read()
    }

    /// The keys of an ordered consumer of which nothing is handled any more, because a message failed
    /// and [`OnFailure`](crate::OnFailure) says to stop.
    #[must_use]
    pub fn halted(&self) -> Vec<HaltedKey> {
        self.core.work.halted()
    }

    /// Handles the messages of a key again, beginning with the one that failed; `false` if the key has
    /// not halted.
    pub fn resume(&self, key: &str) -> bool {
        let resumed = self.core.work.resume(key);
        if let Some(another) = resumed {
            self.core.start(another);
        }
        resumed.is_some()
    }

    /// Lets a consumer go on that has halted as a whole.
    pub(crate) fn resume_whole(&self) -> bool {
        let resume = self.core.resume.lock().unwrap_or_else(PoisonError::into_inner).take();
        resume.is_some_and(|resume| resume.send(()).is_ok())
    }

    /// Closes it by that time.
    pub(crate) async fn close_by(&self, deadline: Instant) -> Result<()> {
        self.core.stop(deadline).await
    }

    /// Stops taking messages, hands back what no handler has begun, and waits for running handlers
    /// within the client's drain timeout. Messages that wait here for their next attempt go to the
    /// back of the queue at once, as that attempt. A second call waits for the first and has its answer.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) when handlers were still running at the
    /// bound: they were stopped, and their messages go back. The consumer is closed all the same.
    ///
    /// # Cancellation
    /// Dropping the future does not stop the closing.
    pub async fn close(&self) -> Result<()> {
        self.core.stop(Instant::now() + self.core.client.options().drain_timeout).await
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // What no handler has begun goes back with its channel.
        drop(self.core.work.close());
        // In this order: what stops waiting because of the closing must not publish a copy of a
        // message that goes back with its channel.
        self.core.abort.cancel();
        self.core.closing.cancel();
        // Whoever waits for the end, such as the client's close, need not wait for this task.
        self.core.stranded.send_if_modified(|stranded| {
            let first = stranded.is_none();
            if first {
                *stranded = Some(0);
            }
            first
        });
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("queue", &self.core.queue)
            .field("state", &self.state())
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}
