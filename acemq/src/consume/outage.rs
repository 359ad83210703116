//! While the store does not answer: the deliveries in hand wait, and the consumer's state says so.

use std::{sync::atomic::Ordering, time::Duration};

use super::{ConsumerState, runtime::Core};
use crate::{
    backoff::Backoff,
    error::{Error, Result},
    transport::Settler,
};

/// The pauses between questions to a store that is down: doubling between these, with jitter.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl Core {
    /// Asks the store until it answers; `None` once the consumer closes or the delivery's channel
    /// has ended.
    pub(super) async fn wait_for_store<T, F>(
        &self,
        settler: Option<&dyn Settler>,
        ask: impl Fn() -> F,
    ) -> Option<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut outage = Outage::of(self);
        loop {
            let error = match ask().await {
                Ok(answer) => return Some(answer),
                Err(error) => error,
            };
            tokio::select! {
                () = self.left() => return None,
                () = outage.pause(&error) => {}
            }
            if settler.is_some_and(|settler| !settler.is_open()) {
                return None;
            }
        }
    }
}

/// One delivery's waiting for the store, from the first failure on until this is dropped.
pub(super) struct Outage<'a> {
    core: &'a Core,
    backoff: Backoff,
    begun: bool,
}

impl<'a> Outage<'a> {
    pub(super) fn of(core: &'a Core) -> Self {
        Self { core, backoff: Backoff::new(FIRST_PAUSE, LONGEST_PAUSE), begun: false }
    }

    /// Says that the store failed, and waits a while, longer each time.
    pub(super) async fn pause(&mut self, error: &Error) {
        let first = !std::mem::replace(&mut self.begun, true);
        if first {
            self.core.meter.waits_for_store();
        }
        let began = self.core.state.send_if_modified(|state| {
            // Counted under the lock of the state, so that the last one sees that it is the last.
            if first {
                self.core.counters.waits_for_store();
                self.core.outages.fetch_add(1, Ordering::Relaxed);
            }
            let calm = *state == ConsumerState::Receiving;
            if calm {
                *state = ConsumerState::Waiting { reason: error.to_string() };
            }
            calm
        });
        if began {
            tracing::warn!(
                queue = %self.core.queue, %error,
                "the idempotency store fails; messages wait, and it is asked again and again"
            );
        } else {
            tracing::debug!(queue = %self.core.queue, %error, "the idempotency store fails");
        }
        self.backoff.pause().await;
    }
}

impl Drop for Outage<'_> {
    fn drop(&mut self) {
        if !self.begun {
            return;
        }
        self.core.meter.waits_no_more();
        let over = self.core.state.send_if_modified(|state| {
            self.core.counters.waits_no_more();
            let last = self.core.outages.fetch_sub(1, Ordering::Relaxed) == 1;
            let over = last && matches!(state, ConsumerState::Waiting { .. });
            if over {
                *state = ConsumerState::Receiving;
            }
            over
        });
        if over {
            tracing::info!(queue = %self.core.queue, "no message waits for the store any more");
        }
    }
}
