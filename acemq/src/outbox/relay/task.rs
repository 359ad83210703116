//! The task of a relay: look, publish, mark, wait.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    super::{ErasedOutboxStore, OutboxSignal},
    OnError, Settings,
    pass::{Batch, Tally},
};
use crate::{
    connection::{Client, ConnectionState, Stop},
    error::{Error, ErrorKind, Result},
    telemetry::OutboxMeter,
    transport::BoxFuture,
};

/// The first look after a record was armed; each next one waits twice as long, up to the poll
/// interval.
pub(super) const FIRST_LOOK: Duration = Duration::from_millis(1);

/// The pauses after a pass that the broker or the store failed: doubling between the poll
/// interval and this, with jitter.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How often the relay looks for other relays on its table.
const LOOK_FOR_OTHERS: Duration = Duration::from_secs(60);

pub(super) struct Core {
    pub(super) client: Client,
    pub(super) store: Arc<dyn ErasedOutboxStore>,
    pub(super) signal: Option<OutboxSignal>,
    pub(super) settings: Settings,
    pub(super) on_error: Option<OnError>,
    pub(super) meter: OutboxMeter,
    pub(super) published: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) running: AtomicBool,
    pub(super) closing: CancellationToken,
    pub(super) ended: CancellationToken,
}

impl Core {
    pub(super) async fn run(&self) {
        let mut next: Option<Batch> = None;
        let mut look = self.settings.poll;
        let mut pause = self.settings.poll;
        let mut look_for_others = Instant::now();
        while !self.closing.is_cancelled() {
            if Instant::now() >= look_for_others {
                look_for_others = Instant::now() + LOOK_FOR_OTHERS;
                let _ = tokio::time::timeout(LOOK_FOR_OTHERS, self.look_for_others()).await;
            }
            // A store of the user's own that panics is a store that failed.
            let passed = AssertUnwindSafe(self.pass(&mut next)).catch_unwind().await;
            let passed = passed.unwrap_or_else(|_| {
                Err(Error::new(ErrorKind::Store, "relay outbox records: the pass panicked"))
            });
            let went_on = match passed {
                Ok(went_on) => {
                    pause = self.settings.poll;
                    went_on
                }
                Err(error) => {
                    tracing::warn!(%error, "a pass of the outbox relay failed; trying again in about {pause:?}");
                    self.report(&error);
                    self.recover(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
                    pause = (pause * 2).min(LONGEST_PAUSE.max(self.settings.poll));
                    continue;
                }
            };
            look = if went_on { FIRST_LOOK } else { self.wait(look).await };
        }
        if let Some(batch) = next {
            batch.give_back(&*self.store, self.settings.lease).await;
        }
    }

    /// Sends the batch in hand, or takes one; says whether to go on at once.
    async fn pass(&self, next: &mut Option<Batch>) -> Result<bool> {
        if let Some(batch) = next.take() {
            if !batch.is_stale(self.settings.lease) {
                return self.send_and_claim_next(batch, next).await;
            }
            // It waited too long for the one before it, and another relay may have it by now.
            batch.give_back(&*self.store, self.settings.lease).await;
        }
        let batch = self.claim().await?;
        *next = (!batch.is_empty()).then_some(batch);
        Ok(next.is_some())
    }

    /// Waits after a failed pass: this long, or until the connection is back if it is not there.
    async fn recover(&self, wait: Duration) {
        let mut connection = self.client.publishing();
        let connected = |state: &ConnectionState| *state == ConnectionState::Connected;
        if connected(&connection.current()) {
            return self.rest(wait).await;
        }
        tokio::select! {
            () = self.rest(wait) => {}
            () = connection.wait_for(connected) => {}
        }
    }

    /// Waits for something to do and says how long the next look may wait.
    async fn wait(&self, look: Duration) -> Duration {
        let Some(signal) = &self.signal else {
            self.rest(self.settings.poll).await;
            return self.settings.poll;
        };
        // Armed while the last pass was under way, which may have looked too early for it.
        if signal.changed().now_or_never().is_some() {
            return FIRST_LOOK;
        }
        if signal.is_armed() {
            if look >= self.settings.poll {
                // Rolled back, or another relay's by now: from here on polling will find it.
                signal.forget();
            } else {
                tokio::select! {
                    () = self.rest(look) => {}
                    () = signal.changed() => return FIRST_LOOK,
                }
                return (look * 2).min(self.settings.poll);
            }
        }
        tokio::select! {
            () = self.rest(self.settings.poll) => self.settings.poll,
            () = signal.changed() => FIRST_LOOK,
        }
    }

    async fn rest(&self, wait: Duration) {
        tokio::select! {
            () = self.closing.cancelled() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }

    /// Publishes a batch while the next one is being claimed; says whether to go on at once. A
    /// batch of which nothing went out is no reason to: the store may hand it out again.
    async fn send_and_claim_next(&self, batch: Batch, next: &mut Option<Batch>) -> Result<bool> {
        let full = batch.len() == self.settings.batch;
        if !full || self.closing.is_cancelled() {
            return Ok(self.send(batch).await?.published > 0);
        }
        let (sent, claimed) = tokio::join!(self.send(batch), self.claim());
        if let Ok(batch) = claimed {
            *next = (!batch.is_empty()).then_some(batch);
        }
        match sent {
            Ok(tally) => Ok(tally.published > 0 || next.is_some()),
            Err(error) => {
                if let Some(batch) = next.take() {
                    batch.give_back(&*self.store, self.settings.lease).await;
                }
                Err(error)
            }
        }
    }

    pub(super) async fn claim(&self) -> Result<Batch> {
        let batch = Batch::claim(&*self.store, self.settings.batch, self.settings.lease).await?;
        if let Some(signal) = &self.signal {
            batch.ids().for_each(|id| signal.seen(id));
        }
        Ok(batch)
    }

    pub(super) async fn send(&self, batch: Batch) -> Result<Tally> {
        let tally = batch
            .publish_and_mark(
                &self.client,
                &*self.store,
                self.settings.lease,
                &self.meter,
                |error| {
                    self.report(error);
                },
            )
            .await;
        self.published.fetch_add(tally.published as u64, Ordering::Relaxed);
        self.failed.fetch_add(tally.failed as u64, Ordering::Relaxed);
        tally.result()
    }

    fn report(&self, error: &Error) {
        let Some(callback) = &self.on_error else { return };
        if catch_unwind(AssertUnwindSafe(|| callback(error))).is_err() {
            tracing::error!("the error callback of an outbox relay panicked");
        }
    }

    /// Two relays on one table are safe, but then nothing keeps the order; that is said.
    async fn look_for_others(&self) {
        match self.store.other_relays().await {
            Ok(others) if !others.is_empty() => tracing::warn!(
                ?others,
                "another relay is active on this outbox; everything goes out, in no certain order"
            ),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "looking for other relays failed"),
        }
    }
}

/// Held by the task, also before its first poll: however that ends, nobody waits for it in vain.
pub(super) struct Running(pub(super) Arc<Core>);

impl Running {
    pub(super) fn new(core: &Arc<Core>) -> Self {
        core.running.store(true, Ordering::Release);
        Self(Arc::clone(core))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::Release);
        self.0.ended.cancel();
    }
}

impl Stop for Core {
    fn stop(&self, deadline: Instant) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.closing.cancel();
            if self.running.load(Ordering::Acquire) {
                // Past the deadline the batch in hand is left to its lease.
                let _ = tokio::time::timeout_at(deadline, self.ended.cancelled()).await;
            }
            Ok(())
        })
    }
}
