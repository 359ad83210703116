//! What goes on with instances in the background.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::Instrument as _;

use super::{
    ClaimedSaga, SagaNext, SagaStatus, SagaStore,
    engine::{Driven, Engine},
    held::id_of,
    lease::{Patience, answer},
};
use crate::error::{Error, ErrorKind, Result};

const CONCURRENCY: usize = 10;
/// More than any database has connections.
const MOST_AT_ONCE: u32 = 1 << 20;
const POLL: Duration = Duration::from_secs(1);
const SHORTEST_POLL: Duration = Duration::from_millis(1);
const DRAIN: Duration = Duration::from_secs(20);
/// The pauses after a look at the store that failed: doubling between these, with jitter.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How often instances with another list of steps are looked for, and how many are named.
const LOOK_FOR_OTHERS: Duration = Duration::from_secs(60);
const NAMED: usize = 20;

/// A worker about to be started, from [`DurableSaga::worker`](super::DurableSaga::worker).
#[must_use = "a worker does nothing until it is started"]
pub struct SagaWorkerBuilder<S> {
    engine: Arc<Engine<S>>,
    settings: Settings,
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    concurrency: usize,
    poll: Duration,
    drain: Duration,
}

/// Goes on with the instances of a durable saga: those that were begun, whose next attempt is due,
/// whose reply has come or did not come in time, and those that lost their process. Any number of
/// workers, in any number of processes, can do so at the same time.
///
/// Dropping it stops it at once: the instances in hand go on elsewhere when their lease has run out.
/// [`close`](Self::close) lets the steps in hand end. It belongs to no client, so close it before what
/// its steps use: the client, the pool.
#[must_use = "dropping a worker stops it"]
pub struct SagaWorker {
    core: Arc<Core>,
    task: Mutex<Option<AbortOnDropHandle<()>>>,
}

/// What a worker is doing, from [`SagaWorker::state`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SagaWorkerState {
    /// It looks for instances and goes on with what it finds.
    Active,
    /// Its last look at the store failed, or what has happened to an instance cannot be written. It
    /// tries again and again, and nothing is lost.
    Failing {
        /// What it failed with.
        reason: String,
    },
    /// Started; its first look at the store is under way.
    Starting,
    /// Closed.
    Stopped,
}

/// What a worker has done so far, from [`SagaWorker::counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SagaWorkerCounters {
    /// How often it took an instance.
    pub taken: u64,
    /// Instances that it saw complete.
    pub completed: u64,
    /// Instances that it saw compensated.
    pub compensated: u64,
    /// Instances of which something is left.
    pub unresolved: u64,
    /// How often an instance was lost to another process: its lease had run out.
    pub lost: u64,
    /// How often an instance could not be gone on with: it cannot be read, or cannot be written.
    pub failed: u64,
    /// How many instances have another list of steps and are left as they are, by the last look;
    /// 20 at most.
    pub other_steps: u64,
}

/// What is kept from one look at the store to the next.
struct Looks {
    next_for_others: Instant,
    /// Since when the store answers although something is not written.
    answers_since: Option<Instant>,
    /// A permit for each instance that there is room for.
    room: Arc<Semaphore>,
}

struct Core {
    settings: Settings,
    state: watch::Sender<SagaWorkerState>,
    closing: CancellationToken,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    taken: AtomicU64,
    completed: AtomicU64,
    compensated: AtomicU64,
    unresolved: AtomicU64,
    lost: AtomicU64,
    failed: AtomicU64,
    other_steps: AtomicU64,
}

impl<S: SagaStore> SagaWorkerBuilder<S> {
    pub(super) fn new(engine: Arc<Engine<S>>) -> Self {
        let settings = Settings { concurrency: CONCURRENCY, poll: POLL, drain: DRAIN };
        Self { engine, settings }
    }

    /// How many instances it goes on with at the same time. Default 10, at least 1.
    ///
    /// One that has crashed twice at the same step runs alone, once those in hand have ended: should it
    /// be what ends its processes, it takes no other with it.
    pub fn concurrency(mut self, instances: usize) -> Self {
        self.settings.concurrency = instances.clamp(1, MOST_AT_ONCE as usize);
        self
    }

    /// How long it waits between looks when nothing was announced. What this process begins, answers
    /// or puts down is announced. Default 1 second, with a jitter of a tenth.
    pub fn poll(mut self, interval: Duration) -> Self {
        self.settings.poll = interval.max(SHORTEST_POLL);
        self
    }

    /// How long [`close`](SagaWorker::close) lets the steps in hand run. Default 20 seconds.
    pub fn drain_timeout(mut self, bound: Duration) -> Self {
        self.settings.drain = bound;
        self
    }

    /// Starts it. Has to be called inside a tokio runtime.
    pub fn start(self) -> SagaWorker {
        let core = Arc::new(Core {
            settings: self.settings,
            state: watch::Sender::new(SagaWorkerState::Starting),
            closing: CancellationToken::new(),
            counts: Counts::default(),
        });
        let (engine, running) = (self.engine, Running(Arc::clone(&core)));
        let task = tokio::spawn(async move { running.0.run(&engine).await });
        SagaWorker { core, task: Mutex::new(Some(AbortOnDropHandle::new(task))) }
    }
}

impl SagaWorker {
    /// What it is doing now.
    #[must_use]
    pub fn state(&self) -> SagaWorkerState {
        self.core.state.borrow().clone()
    }

    /// Follows what it is doing.
    #[must_use]
    pub fn states(&self) -> watch::Receiver<SagaWorkerState> {
        self.core.state.subscribe()
    }

    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> SagaWorkerCounters {
        let counts = &self.core.counts;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SagaWorkerCounters {
            taken: read(&counts.taken),
            completed: read(&counts.completed),
            compensated: read(&counts.compensated),
            unresolved: read(&counts.unresolved),
            lost: read(&counts.lost),
            failed: read(&counts.failed),
            other_steps: read(&counts.other_steps),
        }
    }

    /// Takes no more instances, lets the steps in hand end and puts their instances down, so that
    /// others go on with them at once. What takes longer than the
    /// [`drain_timeout`](SagaWorkerBuilder::drain_timeout) is cut off, and goes on elsewhere when its
    /// lease has run out. Closing twice is no error.
    ///
    /// # Errors
    /// None today; the result leaves room for them.
    ///
    /// # Cancellation
    /// Dropping the future does not stop the closing.
    pub async fn close(&self) -> Result<()> {
        self.core.closing.cancel();
        let mut states = self.core.state.subscribe();
        let stopped = states.wait_for(|state| *state == SagaWorkerState::Stopped);
        let in_time = timeout(self.core.settings.drain, stopped).await.is_ok();
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            if !in_time {
                tracing::warn!(
                    "a saga worker was closed before its steps had ended; they run again elsewhere"
                );
                task.abort();
            }
            let _ = task.await;
        }
        Ok(())
    }
}

impl Core {
    async fn run<S: SagaStore>(self: &Arc<Self>, engine: &Arc<Engine<S>>) {
        let mut in_hand = JoinSet::new();
        let mut pause = FIRST_PAUSE;
        let mut changes = engine.signal.listen();
        let room = Arc::new(Semaphore::new(self.settings.concurrency));
        let mut looks = Looks { next_for_others: Instant::now(), answers_since: None, room };
        while !self.closing.is_cancelled() {
            changes.mark_unchanged();
            match self.look(engine, &mut in_hand, &mut looks).await {
                Ok(is_full) => {
                    pause = FIRST_PAUSE;
                    self.turn_to(SagaWorkerState::Active);
                    // More is due than there is room for: the next one that ends makes room.
                    let poll = self.settings.poll;
                    let rest = if is_full { poll } else { engine.signal.rest(poll) };
                    tokio::select! {
                        () = self.rest(rest.mul_f64(0.9 + fastrand::f64() / 10.0), &mut in_hand) => {}
                        _ = changes.changed(), if !is_full => {}
                    }
                }
                Err(error) => {
                    self.fails(&engine.saga, &error);
                    self.rest(pause.mul_f64(0.5 + fastrand::f64() / 2.0), &mut in_hand).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
        while in_hand.join_next().await.is_some() {}
    }

    /// Takes what is due and says whether there may be more than room for it.
    async fn look<S: SagaStore>(
        self: &Arc<Self>,
        engine: &Arc<Engine<S>>,
        in_hand: &mut JoinSet<()>,
        looks: &mut Looks,
    ) -> Result<bool> {
        if Instant::now() >= looks.next_for_others {
            answer("look at the saga store", engine.store.check()).await?;
            looks.next_for_others = Instant::now() + LOOK_FOR_OTHERS;
            self.look_for_others(engine).await;
        }
        self.writes_first(engine, looks).await?;
        while in_hand.try_join_next().is_some() {}
        let room = looks.room.available_permits();
        let permits = u32::try_from(room).unwrap_or(MOST_AT_ONCE);
        let mut reserved = match Arc::clone(&looks.room).try_acquire_many_owned(permits) {
            Ok(reserved) if room > 0 => reserved,
            _ => return Ok(true),
        };
        let asked = Instant::now();
        let lease = engine.settings.lease;
        let due = engine.store.claim_due(&engine.saga, &engine.fingerprint, room, lease);
        let claimed = answer("look for due sagas", due).await?;
        let is_full = claimed.len() == room;
        for claimed in claimed {
            self.counts.taken.fetch_add(1, Ordering::Relaxed);
            let (core, engine) = (Arc::clone(self), Arc::clone(engine));
            let (permit, room) = (reserved.split(1), Arc::clone(&looks.room));
            in_hand.spawn(async move { core.drive(&engine, claimed, asked, permit, room).await });
        }
        Ok(is_full)
    }

    /// Takes nothing while something that has happened is not written: its lease may be over, and it
    /// would be this process that takes it over from itself. But a store that answers for a whole
    /// lease is back, and then one instance holds up no others.
    async fn writes_first<S: SagaStore>(
        &self,
        engine: &Engine<S>,
        looks: &mut Looks,
    ) -> Result<()> {
        if engine.unwritten.load(Ordering::Relaxed) == 0 {
            looks.answers_since = None;
            return Ok(());
        }
        // No instance is called so: each key has a slash.
        let asked = answer("look at the saga store", engine.store.find(&engine.saga)).await;
        if let Err(error) = asked {
            looks.answers_since = None;
            return Err(error);
        }
        if looks.answers_since.get_or_insert_with(Instant::now).elapsed() >= engine.settings.lease {
            return Ok(());
        }
        let text = "what has happened to a saga cannot be written, and is before others are taken";
        Err(Error::new(ErrorKind::Store, text))
    }

    async fn drive<S: SagaStore>(
        &self,
        engine: &Engine<S>,
        claimed: ClaimedSaga,
        asked: Instant,
        permit: Option<OwnedSemaphorePermit>,
        room: Arc<Semaphore>,
    ) {
        let key = claimed.stored.key.clone();
        let span = tracing::info_span!("saga", saga = %engine.saga, id = id_of(&engine.saga, &key));
        let driving = self.drive_on(engine, claimed, asked, permit, room);
        let counter = match driving.instrument(span).await {
            Ok(Driven::Waits) => return,
            Ok(Driven::Lost) => &self.counts.lost,
            Ok(Driven::Over(SagaStatus::Completed, _)) => &self.counts.completed,
            Ok(Driven::Over(SagaStatus::Unresolved, _)) => &self.counts.unresolved,
            Ok(Driven::Over(..)) => &self.counts.compensated,
            Err(error) => {
                tracing::warn!(key, %error, "a saga could not be gone on with");
                &self.counts.failed
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    async fn drive_on<S: SagaStore>(
        &self,
        engine: &Engine<S>,
        claimed: ClaimedSaga,
        asked: Instant,
        mut permit: Option<OwnedSemaphorePermit>,
        room: Arc<Semaphore>,
    ) -> Result<Driven> {
        let mut held = match engine.hold(&claimed, asked) {
            Ok(held) => held,
            Err(error) => return engine.leave(&claimed, error).await,
        };
        if let Some(turn) = engine.is_suspect(&held) {
            let keep = SagaNext::Keep(engine.settings.lease);
            // A crash while it waits is none of its own: nothing of it is under way.
            if !engine.note(&mut held, keep).await? {
                return Ok(Driven::Lost);
            }
            drop(permit.take());
            let all = u32::try_from(self.settings.concurrency).unwrap_or(MOST_AT_ONCE);
            let alone = engine.under_lease(&held, false, room.acquire_many_owned(all));
            permit = tokio::select! {
                alone = alone => match alone {
                    Some(permits) => permits.ok(),
                    None => return Ok(Driven::Lost),
                },
                () = self.closing.cancelled() => None,
            };
            if permit.is_some() && !self.closing.is_cancelled() {
                held.journal.begin(turn, held.now());
                if !engine.note(&mut held, keep).await? {
                    return Ok(Driven::Lost);
                }
            }
        }
        let _permit = permit;
        if self.closing.is_cancelled() && engine.turn(&held.journal).is_some() {
            let is_held = engine.note(&mut held, SagaNext::After(Duration::ZERO)).await?;
            return Ok(if is_held { Driven::Waits } else { Driven::Lost });
        }
        engine.go_on(held, Patience::Unbounded, &self.closing).await
    }

    /// Rests, and no longer than until an instance in hand ends, which makes room.
    async fn rest(&self, wait: Duration, in_hand: &mut JoinSet<()>) {
        tokio::select! {
            () = self.closing.cancelled() => {}
            () = sleep(wait) => {}
            Some(_) = in_hand.join_next() => {}
        }
    }

    /// Says which instances have another list of steps: nobody with this one goes on with them.
    async fn look_for_others<S: SagaStore>(&self, engine: &Engine<S>) {
        let (saga, steps) = (&*engine.saga, &*engine.fingerprint);
        let others = engine.store.with_other_steps(saga, steps, NAMED);
        let others = match answer("look for other lists of steps", others).await {
            Ok(others) => others,
            // It is only said, and keeps no instance from going on.
            Err(error) => {
                tracing::warn!(saga, %error, "other lists of steps were not looked for");
                return;
            }
        };
        for other in &others {
            tracing::warn!("{}", engine.other_steps(other));
        }
        self.counts.other_steps.store(others.len() as u64, Ordering::Relaxed);
    }

    fn fails(&self, saga: &str, error: &Error) {
        if matches!(*self.state.borrow(), SagaWorkerState::Failing { .. }) {
            tracing::debug!(saga, %error, "a look at the saga store failed again");
        } else {
            tracing::warn!(
                saga, %error,
                "a look at the saga store failed; it is tried again and again, at growing intervals \
                 up to {LONGEST_PAUSE:?}"
            );
        }
        self.turn_to(SagaWorkerState::Failing { reason: error.to_string() });
    }

    fn turn_to(&self, state: SagaWorkerState) {
        self.state.send_if_modified(|current| {
            let changes = *current != state;
            current.clone_from(&state);
            changes
        });
    }
}

/// Held by the task, also before its first poll: however that ends, nobody waits for it in vain.
struct Running(Arc<Core>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.turn_to(SagaWorkerState::Stopped);
    }
}

impl fmt::Debug for SagaWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SagaWorker")
            .field("settings", &self.core.settings)
            .field("state", &self.state())
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for SagaWorkerBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SagaWorkerBuilder")
            .field("saga", &self.engine.saga)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
