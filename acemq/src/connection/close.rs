//! Closing in order: relays, then consumers, then requesters, then the connections.

use std::sync::{Arc, PoisonError, Weak};

use tokio::time::{Instant, timeout_at};

use super::Client;
use crate::{error::Result, transport::BoxFuture};

/// Something a client has started and has to stop before its connections go.
pub(crate) trait Stop: Send + Sync {
    /// Stops it by `deadline`. Stopping twice is no error.
    fn stop(&self, deadline: Instant) -> BoxFuture<'_, Result<()>>;
}

/// What a client has started and not yet seen the end of.
#[derive(Default)]
pub(crate) struct Owned {
    relays: Vec<Weak<dyn Stop>>,
    consumers: Vec<Weak<dyn Stop>>,
    requesters: Vec<Weak<dyn Stop>>,
    closed: bool,
}

fn add(list: &mut Vec<Weak<dyn Stop>>, entry: Weak<dyn Stop>) {
    list.retain(|known| known.strong_count() > 0);
    list.push(entry);
}

impl Client {
    /// Closes everything in order: relays finish the batch in hand; consumers stop taking
    /// messages, hand back what no handler has begun, and wait for running handlers; requesters
    /// fail what still waits for a reply; publishes that the broker has not answered yet get their answer; then the connections close. All of
    /// it shares the drain timeout. Closing twice is no error.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) when handlers were still running at the
    /// bound; their messages go back to the broker. Everything is closed all the same.
    ///
    /// # Cancellation
    /// Dropping the future leaves the rest open; call it again to go on.
    pub async fn close(&self) -> Result<()> {
        let parts = {
            let mut owned = self.0.owned.lock().unwrap_or_else(PoisonError::into_inner);
            owned.closed = true;
            // A handler that is running out may be waiting for a reply.
            [live(&owned.relays), live(&owned.consumers), live(&owned.requesters)]
        };
        let deadline = Instant::now() + self.options().drain_timeout;
        let mut first_error = None;
        for part in parts {
            let stops = part.iter().map(|one| one.stop(deadline));
            for stopped in futures_util::future::join_all(stops).await {
                if let Err(error) = stopped {
                    first_error.get_or_insert(error);
                }
            }
        }
        self.answer_publishes(deadline).await;
        self.0.permits.close();
        tokio::join!(self.0.publishing.close(), self.0.consuming.close());
        first_error.map_or(Ok(()), Err)
    }

    /// Waits for the answers to what is at the broker. New publishes queue behind this and then
    /// find the client closed.
    async fn answer_publishes(&self, deadline: Instant) {
        let connected = self.0.publishing.current().is_some();
        let all = u32::try_from(self.options().max_outstanding_publishes).unwrap_or(u32::MAX);
        if connected {
            // Past the deadline their callers hear that the connection was lost.
            let _ = timeout_at(deadline, self.0.permits.acquire_many(all)).await;
        }
    }

    /// Whether [`close`](Self::close) has been called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.owned.lock().unwrap_or_else(PoisonError::into_inner).closed
    }

    /// Has a relay stopped by [`close`](Self::close); `false` if that has begun already.
    pub(crate) fn owns_relay(&self, relay: Weak<dyn Stop>) -> bool {
        let mut owned = self.0.owned.lock().unwrap_or_else(PoisonError::into_inner);
        add(&mut owned.relays, relay);
        !owned.closed
    }

    /// Has a consumer stopped by [`close`](Self::close); `false` if that has begun already.
    pub(crate) fn owns_consumer(&self, consumer: Weak<dyn Stop>) -> bool {
        let mut owned = self.0.owned.lock().unwrap_or_else(PoisonError::into_inner);
        add(&mut owned.consumers, consumer);
        !owned.closed
    }

    /// Has a requester stopped by [`close`](Self::close); `false` if that has begun already.
    pub(crate) fn owns_requester(&self, requester: Weak<dyn Stop>) -> bool {
        let mut owned = self.0.owned.lock().unwrap_or_else(PoisonError::into_inner);
        add(&mut owned.requesters, requester);
        !owned.closed
    }
}

fn live(list: &[Weak<dyn Stop>]) -> Vec<Arc<dyn Stop>> {
    list.iter().filter_map(Weak::upgrade).collect()
}
