//! How long a relay's claims on a batch hold.

use std::time::Duration;

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{
    super::{ErasedOutboxStore, RecordClaim},
    notes::in_time,
};

/// As far as the relay can know: from before it asked the store, the store's clock counts later.
pub(super) struct Hold {
    lease: Duration,
    until: watch::Sender<Instant>,
}

impl Hold {
    pub(super) fn new(claimed: Instant, lease: Duration) -> Self {
        Self { lease, until: watch::Sender::new(claimed + lease) }
    }

    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= *self.until.borrow()
    }

    /// Waits until the claims have run out, however often they are renewed.
    pub(super) async fn over(&self) {
        while !self.is_over() {
            let until = *self.until.borrow();
            sleep_until(until).await;
        }
    }

    /// Does the work while the claims are renewed at a third of their lease.
    pub(super) async fn while_renewing<T>(
        &self,
        store: &dyn ErasedOutboxStore,
        claims: &[RecordClaim],
        work: impl Future<Output = T>,
    ) -> T {
        tokio::select! {
            biased;
            done = work => done,
            never = self.renew(store, claims) => match never {},
        }
    }

    async fn renew(
        &self,
        store: &dyn ErasedOutboxStore,
        claims: &[RecordClaim],
    ) -> std::convert::Infallible {
        let mut every = tokio::time::interval((self.lease / 3).max(Duration::from_millis(1)));
        every.tick().await;
        loop {
            every.tick().await;
            let asked = Instant::now();
            match in_time(self.lease, store.renew(claims, self.lease)).await {
                Ok(()) => {
                    self.until.send_replace(asked + self.lease);
                }
                Err(error) => {
                    tracing::warn!(%error, "the claims on outbox records were not renewed");
                }
            }
        }
    }
}
