//! The handle of a running responder.

use std::{fmt, future::IntoFuture, sync::Arc};

use super::{Consumer, answer::Counters, start::Recipe};
#[cfg(doc)]
use crate::{ConsumerBuilder, ErrorKind, HandlerError, RetryPolicy};
use crate::{error::Result, transport::BoxFuture};

/// A consumer that answers requests, from [`ConsumerBuilder::respond`].
///
/// **A reply** is confirmed by the broker and in the reply queue before its request is acknowledged.
/// While the broker cannot be reached it is sent again and again, with the request held and its
/// handler not run again; a responder that closes meanwhile gives the request back. A reply whose queue does not exist has nobody who waits for it: its
/// request goes to the dead-letter queue with that reason, where it can be replayed, and the
/// handler is not run a second time for it.
///
/// **A request that fails** for good is told to whoever asked at once, with the reason, and goes
/// where every such message goes: the dead-letter queue, or the parking queue if it could not be
/// read. It fails for good by a [`HandlerError::fatal`], and by any other error or panic where the
/// [`retry`](ConsumerBuilder::retry) policy has no attempt left, which without one is at the first.
/// With one, whoever asks waits for the attempts.
///
/// **A request without a reply address** is not handled: it goes to the dead-letter queue.
///
/// A responder that is [`idempotent`](ConsumerBuilder::idempotent) answers a request once: another
/// with its id is acknowledged, and gets no reply.
///
/// Dropping it stops it at once, as dropping a [`Consumer`] does; [`close`](Self::close) lets
/// handlers finish and answer.
#[must_use = "dropping a responder stops it"]
pub struct Responder {
    consumer: Consumer,
    counters: Arc<Counters>,
}

/// A responder's counters at one moment, from [`Responder::counters`]. What became of the requests as
/// messages is among those of its [`consumer`](Responder::consumer).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResponderCounters {
    /// Replies that reached their queue.
    pub answered: u64,
    /// Requests that failed for good.
    pub failed: u64,
    /// Requests without a reply address.
    pub unanswerable: u64,
    /// Replies whose queue did not exist.
    pub undelivered: u64,
}

/// A responder that starts when it is awaited, from [`ConsumerBuilder::respond`].
#[must_use = "a responder starts by awaiting it"]
pub struct StartResponder {
    recipe: Recipe,
    counters: Arc<Counters>,
}

impl StartResponder {
    pub(super) fn new(recipe: Recipe, counters: Arc<Counters>) -> Self {
        Self { recipe, counters }
    }

    async fn run(self) -> Result<Responder> {
        let Self { recipe, counters } = self;
        Ok(Responder { consumer: recipe.start_one().await?, counters })
    }
}

impl Responder {
    /// The queue that requests come from.
    #[must_use]
    pub fn queue(&self) -> &str {
        self.consumer.queue()
    }

    /// The consumer of the requests, which can be looked at, paused and changed as any other.
    #[must_use = "nothing is changed by this alone"]
    pub fn consumer(&self) -> &Consumer {
        &self.consumer
    }

    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> ResponderCounters {
        self.counters.read()
    }

    /// Stops taking requests, hands back what no handler has begun, and waits for handlers that run
    /// and for their replies, within the client's drain timeout.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`] when handlers were still running at the bound: they were stopped, and
    /// their requests go back. The responder is closed all the same.
    ///
    /// # Cancellation
    /// Dropping the future does not stop the closing.
    pub async fn close(&self) -> Result<()> {
        self.consumer.close().await
    }
}

impl IntoFuture for StartResponder {
    type Output = Result<Responder>;
    type IntoFuture = BoxFuture<'static, Result<Responder>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl fmt::Debug for StartResponder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartResponder")
            .field("queue", &self.recipe.settings.queue)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder")
            .field("queue", &self.queue())
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}
