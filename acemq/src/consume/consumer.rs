//! The handle of a running consumer.

use std::{fmt, sync::Arc};

use tokio::{sync::watch, time::Instant};
use tokio_util::task::AbortOnDropHandle;

use super::{ConsumerCounters, HaltedKey, runtime::Core, start::NO_PREFETCH};
use crate::{
    connection::Stop,
    error::{Error, ErrorKind, Result},
};

/// What a consumer is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConsumerState {
    /// Subscribed: messages come in.
    Receiving,
    /// Subscribed, and held up: the idempotency store fails, or a stream's checkpoint store. No
    /// handler begins with a message that it was not asked about; it is asked again and again.
    Waiting {
        /// What the store failed with.
        reason: String,
    },
    /// Not subscribed, because that was asked for: see [`Consumer::pause`].
    Paused,
    /// Not subscribed, and trying again: the connection or channel was lost, or the queue is gone.
    Recovering {
        /// Which attempt is next, counted from 1.
        attempt: u32,
        /// Why it was lost, or why the last attempt failed.
        reason: String,
    },
    /// Not subscribed: a message failed, and nothing behind it may be handled before somebody resumes
    /// it. Only a partition's consumer does this, and a stream's, which is not resumed: see
    /// [`StreamConsumer::stopped_by`](crate::StreamConsumer::stopped_by).
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

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
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

    /// Handles the messages of a key again that has halted, beginning with the one that failed;
    /// `false` if it has not.
    pub fn resume_key(&self, key: &str) -> bool {
        let resumed = self.core.work.resume(key);
        if let Some(another) = resumed {
            self.core.start(another);
        }
        resumed.is_some()
    }

    /// Closes it by that time.
    pub(crate) async fn close_by(&self, deadline: Instant) -> Result<()> {
        self.core.stop(deadline).await
    }

    /// Stops taking messages until [`resume`](Self::resume), and hands back what no handler has
    /// begun. Awaiting it means that no handler begins any more; those that run go on, and
    /// [`counters`](Self::counters) tells how many there are. A consumer that is paused is no
    /// consumer to the broker: an auto-delete queue goes with its last one, another takes over where
    /// only one may be active, and to a quorum queue what is handed back was delivered once.
    ///
    /// Where order matters it waits for the handlers that run before it hands anything back: do not
    /// await it in one of them. A key that had halted is tried again when it is resumed.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] once the consumer is closed or closes. That it lost its channel
    /// meanwhile is no error: it is paused.
    ///
    /// # Cancellation
    /// Dropping the future does not stop the pausing.
    pub async fn pause(&self) -> Result<()> {
        self.core.control.want(|wish| wish.paused = true).await;
        self.unless_closed("pause")
    }

    /// Takes messages again, after a pause or a halt. Awaiting it means that the broker has accepted
    /// the subscription. On any other consumer it does nothing.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] once the consumer is closed or closes. [`ErrorKind::Lost`] where it
    /// could not consume again at once, for want of a connection or of its queue: it goes on
    /// trying.
    ///
    /// # Cancellation
    /// Dropping the future does not stop the resuming.
    pub async fn resume(&self) -> Result<()> {
        self.core.control.want(|wish| (wish.paused, wish.halted) = (false, None)).await;
        if self.core.is_one_lane() {
            // Where it was resumed before it could leave. The lane has no name.
            self.resume_key("");
        }
        self.unless_closed("resume")?;
        match self.state() {
            ConsumerState::Recovering { reason, .. } => {
                Err(self.error(ErrorKind::Lost, "resume", &format!("{reason}; it goes on trying")))
            }
            _ => Ok(()),
        }
    }

    /// Changes how many messages the broker hands over before the first of them is settled, for as
    /// long as the consumer lives; at least 1. Nothing that is in flight notices. On RabbitMQ a
    /// prefetch is a subscription's, so the broker gets a new one and then ends the old one, on the
    /// same channel: what was out at that moment comes on top until it is settled.
    ///
    /// Where order matters that would not do. Such a consumer waits for the handlers that run, gives
    /// everything back, and begins anew, which is the end of an auto-delete queue. Its prefetch can
    /// grow only: a quorum queue puts what comes back behind what came back before, and with a smaller
    /// one some of that would still be there. That of a partition stays as it is.
    ///
    /// A consumer that is paused or recovering consumes by it from the next time on.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for 0. [`ErrorKind::Unsupported`] for an exclusive consumer, whose
    /// second subscription the broker would refuse, unless it is paused; where order matters, for less
    /// than it is; and for a partition's. [`ErrorKind::Closed`] once it is closed or closes.
    ///
    /// # Cancellation
    /// Dropping the future does not stop the change.
    pub async fn set_prefetch(&self, count: u16) -> Result<()> {
        const WHAT: &str = "change the prefetch of";
        if count == 0 {
            return Err(self.error(ErrorKind::Config, WHAT, NO_PREFETCH));
        }
        if self.core.exclusive && self.state() != ConsumerState::Paused {
            let why = "it is exclusive, and the broker allows it no second subscription beside the \
                       first; pause it before";
            return Err(self.error(ErrorKind::Unsupported, WHAT, why));
        }
        if self.core.is_one_lane() {
            let why = "it is a partition's, of which every process has to have the same prefetch";
            return Err(self.error(ErrorKind::Unsupported, WHAT, why));
        }
        if self.core.order.is_some() && count < self.core.control.wish().prefetch {
            let why = "it keeps an order, which a smaller prefetch could break; take it when the queue \
                       is empty, with a new consumer";
            return Err(self.error(ErrorKind::Unsupported, WHAT, why));
        }
        self.core.control.want(|wish| wish.prefetch = count).await;
        self.unless_closed(WHAT)
    }

    fn unless_closed(&self, what: &str) -> Result<()> {
        if self.core.closing.is_cancelled() || self.state() == ConsumerState::Closed {
            return Err(self.error(ErrorKind::Closed, what, "it is closed"));
        }
        Ok(())
    }

    fn error(&self, kind: ErrorKind, what: &str, why: &str) -> Error {
        Error::new(kind, format!("{what} the consumer of \"{}\": {why}", self.core.queue))
            .with_queue(&*self.core.queue)
    }

    /// Stops taking messages, hands back what no handler has begun, and waits for running handlers
    /// within the client's drain timeout. Messages that wait here for their next attempt go to the
    /// back of the queue at once, as that attempt. A second call waits for the first and has its answer.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`] when handlers were still running at the bound: they were stopped, and
    /// their messages go back. The consumer is closed all the same.
    ///
    /// # Cancellation
    /// Dropping the future does not stop the closing.
    pub async fn close(&self) -> Result<()> {
        self.close_by(Instant::now() + self.core.client.options().drain_timeout).await
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
