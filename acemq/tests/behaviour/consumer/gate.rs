//! Handlers that wait to be let go.

use std::sync::{Arc, Mutex};

use acemq::{HandlerError, Message};
use tokio::sync::Semaphore;

/// A handler that writes down what it has begun, and finishes with a permit.
#[derive(Clone)]
pub(crate) struct Gate {
    permits: Arc<Semaphore>,
    begun: Arc<Mutex<Vec<String>>>,
}

impl Gate {
    pub(crate) fn closed() -> Self {
        Self { permits: Arc::new(Semaphore::new(0)), begun: Arc::default() }
    }

    pub(crate) fn open() -> Self {
        let gate = Self::closed();
        gate.let_go(Semaphore::MAX_PERMITS);
        gate
    }

    /// Lets that many handlers finish, those that wait first.
    pub(crate) fn let_go(&self, handlers: usize) {
        self.permits.add_permits(handlers);
    }

    /// The payloads of all messages that a handler has begun with, in that order.
    pub(crate) fn begun(&self) -> Vec<String> {
        self.begun.lock().unwrap().clone()
    }

    /// As [`begun`](Self::begun), in the order of the payloads.
    pub(crate) fn begun_sorted(&self) -> Vec<String> {
        let mut begun = self.begun();
        begun.sort();
        begun
    }

    pub(crate) fn handler(
        &self,
    ) -> impl Fn(
        Message<String>,
    ) -> futures_util::future::BoxFuture<'static, Result<(), HandlerError>>
    + Send
    + Sync
    + 'static {
        let gate = self.clone();
        move |message| {
            let gate = gate.clone();
            Box::pin(async move {
                gate.begun.lock().unwrap().push(message.into_payload());
                gate.permits.acquire().await?.forget();
                Ok(())
            })
        }
    }
}

/// That many payloads, in order.
pub(crate) fn payloads(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("o-{number:05}")).collect()
}
