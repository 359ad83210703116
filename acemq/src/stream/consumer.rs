//! The handle of a running consumer of a stream.

use std::{fmt, sync::Arc};

use tokio::{sync::watch, time::Instant};
use tokio_util::task::AbortOnDropHandle;

use super::{StreamCounters, runtime::Core};
use crate::{connection::Stop, consume::ConsumerState, error::Result};

/// Why a consumer of a stream has stopped by itself, from [`StreamConsumer::stopped_by`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamStop {
    /// A message failed, and [`OnFailure`](crate::OnFailure) says to stop. It was left as it is: a
    /// consumer that begins at its offset has it first.
    #[non_exhaustive]
    Failed {
        /// Where it is.
        offset: u64,
        /// The message that failed.
        message_id: String,
        /// How many attempts it has had.
        attempts: u32,
        /// Why the last of them failed.
        reason: String,
    },
    /// The stream was deleted, so that the reader's checkpoint is a place in what is no more. For a
    /// new stream of the same name remove it: see
    /// [`StreamCheckpointStore::forget`](super::StreamCheckpointStore::forget).
    #[non_exhaustive]
    MadeAnew {
        /// Up to where the old stream was handled; `None` before its first message.
        last_handled: Option<u64>,
    },
}

impl StreamStop {
    pub(super) fn state(&self) -> ConsumerState {
        let (message_id, attempts) = match self {
            Self::Failed { message_id, attempts, .. } => (message_id.clone(), *attempts),
            Self::MadeAnew { .. } => (String::new(), 0),
        };
        ConsumerState::Halted { message_id, attempts, reason: self.to_string() }
    }
}

impl fmt::Display for StreamStop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { offset, reason, .. } => {
                write!(f, "the message at offset {offset} failed: {reason}")
            }
            Self::MadeAnew { last_handled } => {
                f.write_str("the stream was deleted; the reader's checkpoint ")?;
                if let Some(last) = last_handled {
                    write!(f, "behind {last} ")?;
                }
                f.write_str("is a place in what it was: remove it to read a new one")
            }
        }
    }
}

/// Messages that the stream had removed before their reader came to them, from
/// [`StreamConsumer::gap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamGap {
    /// The offset that would have been next.
    pub expected: u64,
    /// The oldest that there was; what is between the two is gone.
    pub oldest: u64,
}

/// A running consumer of a stream, from
/// [`StreamConsumerBuilder::start`](super::StreamConsumerBuilder::start).
///
/// Dropping it stops it at once: running handlers are dropped at their next await, and the place of
/// its reader is what was saved last. [`close`](Self::close) lets them finish and saves it.
#[must_use = "dropping a stream consumer stops it"]
pub struct StreamConsumer {
    core: Arc<Core>,
    _task: AbortOnDropHandle<()>,
}

impl StreamConsumer {
    pub(super) fn new(core: Arc<Core>, task: AbortOnDropHandle<()>) -> Self {
        Self { core, _task: task }
    }

    /// The stream it reads.
    #[must_use]
    pub fn stream(&self) -> &str {
        &self.core.stream
    }

    /// What it is doing now. One that has stopped by itself is
    /// [`Halted`](crate::ConsumerState::Halted) until it is closed.
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
    pub fn counters(&self) -> StreamCounters {
        self.core.counters.read()
    }

    /// The offset up to which everything that came is handled, or was passed over: a reader that
    /// begins at the next one misses nothing, and sees again what was handled beyond it by other
    /// handlers at the same time. Before the first message it is just before the reader's place, where
    /// a checkpoint or an end of the stream gave it one, and otherwise `None`.
    #[must_use]
    pub fn last_handled_offset(&self) -> Option<u64> {
        self.core.progress().handled()
    }

    /// Why it has stopped by itself, if it has.
    #[must_use]
    pub fn stopped_by(&self) -> Option<StreamStop> {
        self.core.stop.get().cloned()
    }

    /// The last time that messages were missing because the stream had removed them by its largest age
    /// or size. It is logged as well, and the reader goes on with what there is.
    #[must_use]
    pub fn gap(&self) -> Option<StreamGap> {
        *self.core.gap()
    }

    /// Stops reading, waits for running handlers within the client's drain timeout, and saves the
    /// reader's place. A second call waits for the first and has its answer.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) when handlers were still running at the bound:
    /// they were stopped, and their messages come again. The consumer is closed all the same.
    ///
    /// # Cancellation
    /// Dropping the future does not stop the closing.
    pub async fn close(&self) -> Result<()> {
        self.core.stop(Instant::now() + self.core.client.options().drain_timeout).await
    }
}

impl Drop for StreamConsumer {
    fn drop(&mut self) {
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

impl fmt::Debug for StreamConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamConsumer")
            .field("stream", &self.core.stream)
            .field("state", &self.state())
            .field("last_handled_offset", &self.last_handled_offset())
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}
