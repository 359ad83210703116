//! Removing what is done with, on a schedule.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    connection::{Client, Stop},
    error::{Error, ErrorKind, Result},
    idempotency::IdempotencyStore,
    outbox::OutboxStore,
    saga::SagaStore,
    transport::BoxFuture,
};

const EVERY: Duration = Duration::from_secs(3_600);
/// The first purge comes within this, so that a process which is restarted often purges as well.
const FIRST: Duration = Duration::from_secs(60);
/// How long one purge may take; what it has not removed by then is left to the next.
const LONGEST_PURGE: Duration = Duration::from_secs(600);

type OnError = Arc<dyn Fn(&Error) + Send + Sync>;
type Purge = Box<dyn Fn() -> BoxFuture<'static, Result<u64>> + Send + Sync>;

/// Purges outboxes, idempotency stores and saga stores on a schedule. Nothing else deletes their rows.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> acemq::Result<()> {
/// use std::time::Duration;
/// use acemq::{Maintenance, MemoryIdempotencyStore, MemoryOutboxStore};
///
/// let mq = acemq::connect("memory://maintenance-example").await?;
/// let outbox = MemoryOutboxStore::new();
/// let handled = MemoryIdempotencyStore::new();
/// let maintenance = Maintenance::builder(&mq)
///     .outbox(outbox.clone(), Duration::from_secs(7 * 86_400)) // keep a week of what was published
///     .idempotency(handled.clone())
///     .start();
/// // … until the service stops:
/// maintenance.close().await?;
/// # mq.close().await
/// # }
/// ```
///
/// Several processes may do this to one table: they remove the same rows, side by side or one
/// after the other, and jitter keeps them apart. Dropping it stops it at once, and closing the
/// client does; a purge that is under way ends where it is, and the next one goes on there.
#[must_use = "dropping it stops the purges"]
pub struct Maintenance {
    core: Arc<Core>,
    task: Mutex<Option<AbortOnDropHandle<()>>>,
}

/// A maintenance about to be started, from [`Maintenance::builder`].
#[must_use = "nothing is purged until it is started"]
pub struct MaintenanceBuilder {
    client: Client,
    jobs: Vec<Job>,
    every: Duration,
    on_error: Option<OnError>,
}

struct Job {
    what: &'static str,
    purge: Purge,
}

struct Core {
    jobs: Vec<Job>,
    every: Duration,
    on_error: Option<OnError>,
    purged: AtomicU64,
    closing: CancellationToken,
    ended: CancellationToken,
}

impl MaintenanceBuilder {
    /// Removes what that outbox published longer ago than `older_than`.
    pub fn outbox(self, store: impl OutboxStore, older_than: Duration) -> Self {
        let store = Arc::new(store);
        self.job("outbox records that were published", move || {
            let store = Arc::clone(&store);
            Box::pin(async move { store.purge_published(older_than).await })
        })
    }

    /// Removes the claims and confirmations of that store that have run out.
    pub fn idempotency(self, store: impl IdempotencyStore) -> Self {
        let store = Arc::new(store);
        self.job("idempotency keys that have run out", move || {
            let store = Arc::clone(&store);
            Box::pin(async move { store.purge_expired().await })
        })
    }

    /// Removes the instances of durable sagas in that store that were completed or compensated longer
    /// ago than `older_than`, of all its sagas. What is unresolved stays. The id of one that is removed
    /// is free: begun again, it runs again, so keep them longer than a request may be repeated.
    pub fn sagas(self, store: impl SagaStore, older_than: Duration) -> Self {
        let store = Arc::new(store);
        self.job("sagas that are over", move || {
            let store = Arc::clone(&store);
            Box::pin(async move { store.purge_finished(older_than).await })
        })
    }

    fn job(
        mut self,
        what: &'static str,
        purge: impl Fn() -> BoxFuture<'static, Result<u64>> + Send + Sync + 'static,
    ) -> Self {
        self.jobs.push(Job { what, purge: Box::new(purge) });
        self
    }

    /// How long from one purge to the next, about: each wait is up to a tenth shorter or longer.
    /// The first comes within a minute, or within this if that is shorter. Default 1 hour, at
    /// least 1 second.
    pub fn every(mut self, period: Duration) -> Self {
        self.every = period.max(Duration::from_secs(1));
        self
    }

    /// Called with every purge's failure, which is in the log as well. The next one tries again.
    pub fn on_error(mut self, callback: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.on_error = Some(Arc::new(callback));
        self
    }

    /// Starts it. Has to be called inside a tokio runtime.
    pub fn start(self) -> Maintenance {
        let core = Arc::new(Core {
            jobs: self.jobs,
            every: self.every,
            on_error: self.on_error,
            purged: AtomicU64::new(0),
            closing: CancellationToken::new(),
            ended: CancellationToken::new(),
        });
        let weak: Weak<dyn Stop> = Arc::downgrade(&core) as Weak<dyn Stop>;
        if !self.client.owns_relay(weak) {
            core.closing.cancel();
        }
        let running = Arc::clone(&core);
        let at_the_end = core.ended.clone().drop_guard();
        let task = tokio::spawn(async move {
            let _at_the_end = at_the_end;
            running.run().await;
        });
        Maintenance { core, task: Mutex::new(Some(AbortOnDropHandle::new(task))) }
    }
}

impl Maintenance {
    /// Sets up purges that stop with that client.
    pub fn builder(client: &Client) -> MaintenanceBuilder {
        MaintenanceBuilder {
            client: client.clone(),
            jobs: Vec::new(),
            every: EVERY,
            on_error: None,
        }
    }

    /// How many rows were removed so far.
    #[must_use]
    pub fn purged(&self) -> u64 {
        self.core.purged.load(Ordering::Relaxed)
    }

    /// Stops it; a purge that is under way ends where it is. Closing twice is no error.
    ///
    /// # Errors
    /// None today; the result leaves room for them.
    ///
    /// # Cancel safety
    /// Dropped on the way, it is stopped all the same.
    pub async fn close(&self) -> Result<()> {
        self.core.closing.cancel();
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            // The task ends by itself; that it was stopped on the way is no error.
            let _ = task.await;
        }
        Ok(())
    }
}

impl Core {
    async fn run(&self) {
        let purging = async {
            sleep(self.every.min(FIRST).mul_f64(fastrand::f64())).await;
            loop {
                for job in &self.jobs {
                    self.purge(job).await;
                }
                sleep(self.every.mul_f64(0.9 + fastrand::f64() / 5.0)).await;
            }
        };
        tokio::select! {
            biased;
            () = self.closing.cancelled() => {}
            () = purging => {}
        }
    }

    async fn purge(&self, job: &Job) {
        // A store of the user's own that panics is a store that failed.
        let purge = AssertUnwindSafe(async { (job.purge)().await }).catch_unwind();
        let purged = match timeout(LONGEST_PURGE, purge).await {
            Ok(Ok(purged)) => purged,
            Ok(Err(_)) => Err(failed(job, "the store panicked")),
            Err(_) => Err(failed(job, "it took too long; the next purge goes on")),
        };
        match purged {
            Ok(rows) => {
                tracing::debug!(rows, "purged {}", job.what);
                self.purged.fetch_add(rows, Ordering::Relaxed);
            }
            Err(error) => {
                tracing::warn!(%error, "purging {} failed", job.what);
                let Some(callback) = &self.on_error else { return };
                if catch_unwind(AssertUnwindSafe(|| callback(&error))).is_err() {
                    tracing::error!("the error callback of the maintenance panicked");
                }
            }
        }
    }
}

fn failed(job: &Job, why: &str) -> Error {
    Error::new(ErrorKind::Store, format!("purge {}: {why}", job.what))
}

impl Stop for Core {
    fn stop(&self, deadline: Instant) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.closing.cancel();
            let _ = tokio::time::timeout_at(deadline, self.ended.cancelled()).await;
            Ok(())
        })
    }
}

impl fmt::Debug for Maintenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Maintenance")
            .field("jobs", &self.core.jobs.len())
            .field("every", &self.core.every)
            .field("purged", &self.purged())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for MaintenanceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaintenanceBuilder")
            .field("jobs", &self.jobs.len())
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}
