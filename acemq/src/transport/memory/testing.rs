//! The handle on a memory broker that users' tests hold.

use std::sync::Arc;

use super::{broker, broker::Broker, message::MemoryMessage};
use crate::transport::QueueInfo;

/// A broker inside the process, from the operator's side: what was published, what the queues
/// hold, and the faults that a test wants to see survived.
///
/// Connect to it by its [`url`](Self::url). It lives as long as this handle or anybody who
/// connected to it.
///
/// It routes, delivers, expires and dead-letters as RabbitMQ does, on tokio's clock: with
/// `tokio::time::pause` an hour passes in no time. What it does not do (headers exchanges,
/// streams, priorities, length limits, unknown arguments) it refuses with
/// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported). A queue declared as a quorum queue
/// behaves as a classic one with RabbitMQ 4's delivery limit. Its one user is `guest`.
///
/// ```
/// use acemq::testing::MemoryBroker;
///
/// let broker = MemoryBroker::new();
/// assert!(broker.queues().is_empty());
/// assert!(broker.url().starts_with("memory://"));
/// ```
#[derive(Clone, Debug)]
pub struct MemoryBroker {
    broker: Arc<Broker>,
}

impl MemoryBroker {
    /// A broker of its own, under a name that no other has: tests that run side by side do not
    /// meet.
    #[must_use]
    pub fn new() -> Self {
        Self::named(&uuid::Uuid::new_v4().to_string())
    }

    /// The broker that `memory://NAME` connects to in this process.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self { broker: broker(name) }
    }

    /// The address to connect to.
    #[must_use]
    pub fn url(&self) -> String {
        format!("memory://{}", self.broker.name())
    }

    /// Pauses publishing, as RabbitMQ does when it runs low on memory or disk (its reasons are
    /// `low on memory` and `low on disk`).
    ///
    /// A connection hears of it once it publishes. What it publishes is neither taken nor refused:
    /// the answer comes after [`unblock`](Self::unblock), or never if the connection ends first.
    pub fn block(&self, reason: impl Into<String>) {
        self.broker.act(|state| state.block(reason.into()));
    }

    /// Ends the pause and takes what was published meanwhile, in order.
    pub fn unblock(&self) {
        self.broker.act(super::state::State::unblock);
    }

    /// The messages published so far, oldest first, also those that no queue was bound for; dead
    /// letters are not published and not among them. The last 10,000 are kept.
    #[must_use]
    pub fn published(&self) -> Vec<MemoryMessage> {
        self.broker.act(|state| state.published.iter().cloned().collect())
    }

    /// The messages that are ready in a queue, first in line first; they stay there. `None` where
    /// there is no such queue. What a consumer holds unsettled is not ready.
    #[must_use]
    pub fn queue(&self, name: &str) -> Option<Vec<MemoryMessage>> {
        self.broker.act(|state| {
            let queue = state.queues.get(name)?;
            Some(queue.ready.iter().map(MemoryMessage::ready).collect())
        })
    }

    /// All queues, by name.
    #[must_use]
    pub fn queues(&self) -> Vec<QueueInfo> {
        let mut queues: Vec<QueueInfo> =
            self.broker.act(|state| state.queues.values().map(|queue| queue.info()).collect());
        queues.sort_by(|a, b| a.name.cmp(&b.name));
        queues
    }

    /// Ends every connection, as when the network is cut. Exclusive queues go with theirs, and
    /// auto-delete queues with their last consumer; all else stays, and what was not settled is
    /// ready again.
    pub fn drop_connections(&self) {
        self.broker
            .act(|state| state.drop_connections("the memory broker dropped its connections"));
    }

    /// Restarts the broker: every connection ends, and what is not durable is gone, queues,
    /// exchanges and transient messages. A block ends.
    pub fn restart(&self) {
        self.broker.act(super::state::State::restart);
    }
}

impl Default for MemoryBroker {
    fn default() -> Self {
        Self::new()
    }
}
