//! Moves what has committed out of the outbox and to the broker.
//!
//! Publish, then mark: a crash between the two publishes again under the same id, which an
//! idempotent consumer absorbs; the other order would lose the message for good.

mod fate;
mod hold;
mod notes;
mod pass;
mod send;
mod state;
mod task;
mod troubles;
mod turns;

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::watch, time::Instant};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

pub use self::state::RelayState;
use self::{
    notes::Notes,
    task::{Core, FIRST_LOOK, Running},
};
use super::{ClaimRequest, OutboxStore, RelayOrder, SharedOutboxStore};
use crate::{
    connection::{Client, Stop},
    error::{Error, Result},
    telemetry::OutboxMeter,
};

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
    batch_bytes: u64,
    poll: Duration,
    lease: Duration,
    max_batches: usize,
    order: RelayOrder,
}

impl Settings {
    fn request(&self) -> ClaimRequest {
        ClaimRequest::new(self.batch, self.lease).bytes(self.batch_bytes).order(self.order)
    }
}

impl OutboxRelayBuilder {
    /// How many records are claimed, published and marked together. Default 100, at least 1.
    pub fn batch(mut self, records: usize) -> Self {
        self.settings.batch = records.clamp(1, 10_000);
        self
    }

    /// How many bytes of bodies are claimed together, as the store holds them; one record may have
    /// more by itself. Default 8 MiB. A relay holds up to two batches in memory, in the encoded
    /// form and in the store's, unless the store takes no notice of it, as one of your own may.
    pub fn batch_bytes(mut self, bytes: u64) -> Self {
        self.settings.batch_bytes = bytes;
        self
    }

    /// In which order records go out. Default [`RelayOrder::Relaxed`]. The others need a store
    /// that has a lock for the one active relay, as those of this family have; with another one
    /// every pass fails with [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported), and so do
    /// the drains.
    pub fn order(mut self, order: RelayOrder) -> Self {
        self.settings.order = order;
        self
    }

    /// How long to wait between looks when nothing was announced. Default 1 second.
    pub fn poll(mut self, interval: Duration) -> Self {
        self.settings.poll = interval.max(FIRST_LOOK);
        self
    }

    /// How long a claim holds if this relay dies. Default 60 seconds; it is renewed while a batch
    /// takes longer. At least 1 second.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease.max(Duration::from_secs(1));
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
            notes: Notes::new(self.settings.lease),
            published: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            state: watch::Sender::new(RelayState::Stopped),
            closing: CancellationToken::new(),
            cut_off: CancellationToken::new(),
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
                batch_bytes: 8 << 20,
                poll: Duration::from_secs(1),
                lease: Duration::from_secs(60),
                max_batches: 10,
                order: RelayOrder::Relaxed,
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
        let running = Running::new(&self.core);
        *task = Some(AbortOnDropHandle::new(tokio::spawn(async move { running.0.run().await })));
    }

    /// Publishes one batch and says how many went out; zero when the outbox is empty. A record
    /// that the broker refuses is counted in [`failed`](Self::failed) and is no error. In an
    /// ordered mode nothing goes out while another relay is the active one.
    ///
    /// # Errors
    /// What the broker (connection lost, blocked) or the store raised: the records stay, and no
    /// attempt of theirs is spent. What went out and could not be marked is marked first by the
    /// next call, or by [`close`](Self::close), and does not go out again.
    ///
    /// # Cancellation
    /// What was handed to the broker goes out; records whose confirm had not come go out again
    /// under the same id once their lease has run out.
    pub async fn drain_once(&self) -> Result<usize> {
        self.core.drain(1).await
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
        self.core.drain(self.core.settings.max_batches).await
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

    /// Whether it was started and has not ended, however it fares: see [`state`](Self::state).
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.core.is_running()
    }

    /// What it is doing now. A relay that waits for a record's next attempt is
    /// [`Active`](RelayState::Active): [`failed`](Self::failed) and the store's
    /// [`counts`](OutboxStore::counts) tell of records.
    #[must_use]
    pub fn state(&self) -> RelayState {
        self.core.state.borrow().clone()
    }

    /// Follows what it is doing.
    #[must_use]
    pub fn states(&self) -> watch::Receiver<RelayState> {
        self.core.state.subscribe()
    }

    /// Finishes the batch in hand and stops, within the client's drain timeout. While the store is
    /// away it is asked again and again until then to mark what went out; what it has not taken by
    /// then goes out again under the same id. Closing twice is no error.
    ///
    /// # Errors
    /// None today; the result leaves room for them.
    ///
    /// # Cancellation
    /// Dropping the future does not stop the closing.
    pub async fn close(&self) -> Result<()> {
        let deadline = Instant::now() + self.core.client.options().drain_timeout;
        self.core.stop(deadline).await?;
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            // A batch that outlasts the bound is cut off here; its lease brings it back.
            task.abort();
            let _ = task.await;
        }
        Ok(())
    }
}

impl fmt::Debug for OutboxRelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboxRelay")
            .field("settings", &self.core.settings)
            .field("published", &self.published())
            .field("failed", &self.failed())
            .field("state", &self.state())
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
