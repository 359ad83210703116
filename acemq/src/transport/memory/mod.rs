//! The memory transport: a broker inside the process, for tests and for trying things out.
//!
//! It does what RabbitMQ 4 does with classic queues, and refuses what it does not do (headers
//! exchanges, streams, priorities, length limits, …) instead of ignoring it: one conformance suite
//! runs here and on RabbitMQ. What differs on purpose: a queue declared with
//! `x-queue-type=quorum` is a classic queue with a delivery limit; nothing is written to disk, so
//! what [`MemoryBroker::restart`] keeps lives only as long as the broker.
//!
//! One lock guards a broker's [`State`](state::State). Whatever runs code of somebody else's (a
//! waker, an answer) is collected in [`Effects`](broker::Effects) and done after the lock is free.

mod broker;
mod consumer;
mod death;
mod declare;
mod exchange;
mod link;
mod message;
mod publish;
mod queue;
mod state;
mod testing;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
};

use self::{broker::Broker, link::MemoryLink};
pub use self::{message::MemoryMessage, testing::MemoryBroker};
use super::{BoxFuture, DialOptions, Link, Transport};
use crate::error::{Error, ErrorKind, Result};

/// The brokers of this process by name, for as long as somebody uses them.
static BROKERS: OnceLock<Mutex<HashMap<String, Weak<Broker>>>> = OnceLock::new();

/// The broker of this name: the one there is, or a new one.
fn broker(name: &str) -> Arc<Broker> {
    let mut brokers =
        BROKERS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(broker) = brokers.get(name).and_then(Weak::upgrade) {
        return broker;
    }
    brokers.retain(|_, broker| broker.strong_count() > 0);
    let broker = Broker::start(name);
    brokers.insert(name.to_owned(), Arc::downgrade(&broker));
    broker
}

/// Dials the broker of one name. The broker lives as long as a transport, a link or a
/// [`MemoryBroker`] does, so a client that lost its connection finds its messages again.
#[derive(Debug)]
pub(crate) struct MemoryTransport {
    broker: Arc<Broker>,
}

impl MemoryTransport {
    /// The transport for `memory://NAME`.
    ///
    /// # Errors
    /// `Config` for a name that is empty or is more than a name.
    pub(crate) fn new(name: &str) -> Result<Self> {
        if name.is_empty() || name.contains(['/', '?', '#', '@']) {
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "connect to memory broker {name:?}: not a name; the address is memory://NAME"
                ),
            ));
        }
        Ok(Self { broker: broker(name) })
    }
}

impl Transport for MemoryTransport {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn dial(&self, options: DialOptions) -> BoxFuture<'_, Result<Arc<dyn Link>>> {
        Box::pin(async move {
            let link: Arc<dyn Link> = Arc::new(MemoryLink::open(&self.broker, &options));
            Ok(link)
        })
    }
}

#[cfg(test)]
mod tests;
