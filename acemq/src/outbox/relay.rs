//! Moves what has committed out of the outbox and to the broker.
//!
//! Publish, then mark: a crash between the two publishes again under the same id, which an
//! idempotent consumer absorbs; the other order would lose the message for good.

mod pass;

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use self::pass::{Batch, Tally};
use super::{ErasedOutboxStore, OutboxSignal, OutboxStore, SharedOutboxStore};
use crate::{
    connection::{Client, Stop},
    error::{Error, Result},
    telemetry::OutboxMeter,
    transport::BoxFuture,
};

/// The first look after a record was armed; each next one waits twice as long, up to the poll
/// interval.
const FIRST_LOOK: Duration = Duration::from_millis(1);

/// The pauses after a pass that the broker or the store failed: doubling between the poll
/// interval and this, with jitter.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How often the relay looks for other relays on its table.
const LOOK_FOR_OTHERS: Duration = Duration::from_secs(60);

type OnError = Arc<dyn Fn(&Error) + Send + Sync>;

/// Publishes the records of an outbox, confirmed and routed, and marks them.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> acemq::Result<()> {
/// use acemq::{MemoryOutboxStore, OutboxRelay, Queue};
///
/// let mq = acemq::connect("memory://relay-example").await?;
/// mq.declare_queue(&Queue::new("orders.new")).await?;
/// let outbox = MemoryOutboxStore::new();
/// let relay = OutboxRelay::builder(&mq, outbox.clone()).start();
///
/// let placed = mq.publisher::<String>("", "orders.new");
/// outbox.add(&placed.record(&"o-1".to_owned()).await?);
/// // … the relay publishes it within milliseconds
/// relay.close().await?;
/// # mq.close().await
/// # }
/// ```
///
/// Dropping it stops it at once; records it holds are taken by another relay when their lease has
/// run out. [`close`](Self::close) finishes the batch in hand.
#[must_use = "dropping a relay stops it"]
pub struct OutboxRelay {
    core: Arc<Core>,
    task: Mutex<Option<AbortOnDropHandle<()>>>,
}

/// A relay about to be made, from [`OutboxRelay::builder`].
#[must_use = "a relay does nothing until it is started or asked to drain"]
pub struct OutboxRelayBuilder {
    client: Client,
    store: SharedOutboxStore,
    settings: Settings,
    on_error: Option<OnError>,
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    batch: usize,
    poll: Duration,
    lease: Duration,
    max_batches: usize,
}

struct Core {
    client: Client,
    store: Arc<dyn ErasedOutboxStore>,
    signal: Option<OutboxSignal>,
    settings: Settings,
    on_error: Option<OnError>,
    meter: OutboxMeter,
    published: AtomicU64,
    failed: AtomicU64,
    running: AtomicBool,
    closing: CancellationToken,
    ended: CancellationToken,
}

impl OutboxRelayBuilder {
    /// How many records are claimed, published and marked together. Default 100, at least 1.
    pub fn batch(mut self, records: usize) -> Self {
        self.settings.batch = records.clamp(1, 10_000);
        self
    }

    /// How long to wait between looks when nothing was announced. Default 1 second.
    pub fn poll(mut self, interval: Duration) -> Self {
        self.settings.poll = interval.max(FIRST_LOOK);
        self
    }

    /// How long a claim holds if this relay dies. Default 60 seconds; it is renewed while a batch
    /// takes longer.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How many batches one [`drain`](OutboxRelay::drain) publishes at most. Default 10.
    pub fn max_batches(mut self, batches: usize) -> Self {
        self.settings.max_batches = batches.max(1);
        self
    }

    /// Called with every record's failure and every failed pass. [`Error::exchange`] and
    /// [`Error::routing_key`] say where a record was to go.
    pub fn on_error(mut self, callback: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.on_error = Some(Arc::new(callback));
        self
    }

    /// Makes the relay without starting it, for draining on demand.
    pub fn build(self) -> OutboxRelay {
        let core = Arc::new(Core {
            signal: self.store.0.signal(),
            store: self.store.0,
            client: self.client,
            settings: self.settings,
            on_error: self.on_error,
            meter: OutboxMeter::new(),
            published: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            running: AtomicBool::new(false),
            closing: CancellationToken::new(),
            ended: CancellationToken::new(),
        });
        let weak: Weak<dyn Stop> = Arc::downgrade(&core) as Weak<dyn Stop>;
        if !core.client.owns_relay(weak) {
            core.closing.cancel();
        }
        OutboxRelay { core, task: Mutex::new(None) }
    }

    /// Makes the relay and starts it. Has to be called inside a tokio runtime.
    pub fn start(self) -> OutboxRelay {
        let relay = self.build();
        relay.start();
        relay
    }
}

impl OutboxRelay {
    /// Sets up a relay from that store to the broker of that client.
    pub fn builder(client: &Client, store: impl OutboxStore) -> OutboxRelayBuilder {
        OutboxRelayBuilder {
            client: client.clone(),
            store: SharedOutboxStore::new(store),
            settings: Settings {
                batch: 100,
                poll: Duration::from_secs(1),
                lease: Duration::from_secs(60),
                max_batches: 10,
            },
            on_error: None,
        }
    }

    /// Starts to publish in the background; a second call does nothing. Has to be called inside a
    /// tokio runtime.
    pub fn start(&self) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.is_some() || self.core.closing.is_cancelled() {
            return;
        }
        self.core.running.store(true, Ordering::Release);
        let core = Arc::clone(&self.core);
        *task = Some(AbortOnDropHandle::new(tokio::spawn(async move { core.run().await })));
    }

    /// Publishes one batch and says how many went out; zero when the outbox is empty. A record
    /// that the broker refuses is counted in [`failed`](Self::failed) and is no error.
    ///
    /// # Errors
    /// What the broker (connection lost, blocked) or the store raised: the records stay, and no
    /// attempt of theirs is spent.
    ///
    /// # Cancellation
    /// What was handed to the broker goes out; records that were not marked go out again under
    /// the same id once their lease has run out.
    pub async fn drain_once(&self) -> Result<usize> {
        let batch = self.core.claim().await?;
        Ok(self.core.send(batch).await?.published)
    }

    /// Publishes what is waiting, in batches, at most [`max_batches`](OutboxRelayBuilder::max_batches),
    /// and says how many went out.
    ///
    /// # Errors
    /// As [`drain_once`](Self::drain_once).
    ///
    /// # Cancellation
    /// As [`drain_once`](Self::drain_once).
    pub async fn drain(&self) -> Result<usize> {
        let mut published = 0;
        for _ in 0..self.core.settings.max_batches {
            let batch = self.core.claim().await?;
            let full = batch.len() == self.core.settings.batch;
            published += self.core.send(batch).await?.published;
            if !full {
                break;
            }
        }
        Ok(published)
    }

    /// How many records this relay has published.
    #[must_use]
    pub fn published(&self) -> u64 {
        self.core.published.load(Ordering::Relaxed)
    }

    /// How many attempts of this relay have failed by the record's own fault.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.core.failed.load(Ordering::Relaxed)
    }

    /// Whether it publishes in the background.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.core.running.load(Ordering::Acquire)
    }

    /// Finishes the batch in hand and stops, within the client's drain timeout. Closing twice is
    /// no error.
    ///
    /// # Errors
    /// None today; the result leaves room for them.
    ///
    /// # Cancellation
    /// Dropping the future does not stop the closing.
    pub async fn close(&self) -> Result<()> {
        let deadline = Instant::now() + self.core.client.options().drain_timeout;
        self.core.stop(deadline).await?;
        // A batch that outlasts the bound is cut off here; its lease brings it back.
        drop(self.task.lock().unwrap_or_else(PoisonError::into_inner).take());
        Ok(())
    }
}

impl Core {
    async fn run(&self) {
        let _ended = self.ended.clone().drop_guard();
        let mut next: Option<Batch> = None;
        let mut look = self.settings.poll;
        let mut pause = self.settings.poll;
        let mut look_for_others = Instant::now();
        while !self.closing.is_cancelled() {
            if Instant::now() >= look_for_others {
                look_for_others = Instant::now() + LOOK_FOR_OTHERS;
                self.look_for_others().await;
            }
            let passed = match next.take() {
                Some(batch) => self.send_and_claim_next(batch, &mut next).await,
                None => self.claim().await.map(|batch| {
                    next = (!batch.is_empty()).then_some(batch);
                    next.is_some()
                }),
            };
            let went_on = match passed {
                Ok(went_on) => {
                    pause = self.settings.poll;
                    went_on
                }
                Err(error) => {
                    tracing::warn!(%error, "a pass of the outbox relay failed; trying again in about {pause:?}");
                    self.report(&error);
                    self.rest(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
                    pause = (pause * 2).min(LONGEST_PAUSE.max(self.settings.poll));
                    continue;
                }
            };
            look = if went_on { FIRST_LOOK } else { self.wait(look).await };
        }
        if let Some(batch) = next {
            batch.give_back(&*self.store).await;
        }
        self.running.store(false, Ordering::Release);
    }

    /// Waits for something to do and says how long the next look may wait.
    async fn wait(&self, look: Duration) -> Duration {
        let Some(signal) = &self.signal else {
            self.rest(self.settings.poll).await;
            return self.settings.poll;
        };
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

    /// Publishes a batch while the next one is being claimed.
    async fn send_and_claim_next(&self, batch: Batch, next: &mut Option<Batch>) -> Result<bool> {
        let full = batch.len() == self.settings.batch;
        if !full || self.closing.is_cancelled() {
            self.send(batch).await?;
            return Ok(true);
        }
        let (sent, claimed) = tokio::join!(self.send(batch), self.claim());
        if let Ok(batch) = claimed {
            *next = (!batch.is_empty()).then_some(batch);
        }
        if let Err(error) = sent {
            if let Some(batch) = next.take() {
                batch.give_back(&*self.store).await;
            }
            return Err(error);
        }
        Ok(true)
    }

    async fn claim(&self) -> Result<Batch> {
        let batch = Batch::claim(&*self.store, self.settings.batch, self.settings.lease).await?;
        if let Some(signal) = &self.signal {
            batch.ids().for_each(|id| signal.seen(id));
        }
        Ok(batch)
    }

    async fn send(&self, batch: Batch) -> Result<Tally> {
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
        if let Some(callback) = &self.on_error {
            callback(error);
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

impl Stop for Core {
    fn stop(&self, deadline: Instant) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.closing.cancel();
            if self.running.load(Ordering::Acquire) {
                // Past the deadline the batch in hand is left to its lease.
                let _ = tokio::time::timeout_at(deadline, self.ended.cancelled()).await;
                self.running.store(false, Ordering::Release);
            }
            Ok(())
        })
    }
}

impl fmt::Debug for OutboxRelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboxRelay")
            .field("settings", &self.core.settings)
            .field("published", &self.published())
            .field("failed", &self.failed())
            .field("is_running", &self.is_running())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for OutboxRelayBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboxRelayBuilder")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
