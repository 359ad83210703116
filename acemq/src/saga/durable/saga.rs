//! A saga whose state is in a store.

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    ClaimedSaga, JoinsTransaction, NewSaga, ReplyOutcome, SagaInstances, SagaStore, ended,
    engine::{Driven, Engine},
    journal::Journal,
    key,
    lease::{Patience, answer},
    reply::Answer,
    worker::SagaWorkerBuilder,
};
use crate::{
    codec::to_json,
    envelope::Envelope,
    error::{Error, ErrorKind, Result},
    saga::SagaResult,
};

/// How often a run looks for what another process makes of its instance: pauses that double between
/// these.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// A saga whose instances are in a store, and survive a crash: steps that are taken one after the
/// other, and of which the finished ones are undone, the last one first, when one fails. It is given
/// an `In` and makes an `Out`.
///
/// It is the sibling of [`Saga`](crate::Saga): what that says of steps, compensations, doubt and
/// failures holds here. What is different:
///
/// - **Where an instance stands is written after each step**, under a lease, with what is about to
///   run next: three local steps cost four statements. What steps are given and make goes through the
///   store as JSON.
/// - **Any of several processes goes on with it.** A [`worker`](Self::worker) takes instances that
///   were begun, whose retry is due, whose reply has come, and those of a process that died, once
///   the lease of that has run out. No two ever both hold one.
/// - **Steps run at least once**, and are told their instance and attempt ([`StepContext`]), so that
///   they can do it once in effect. A step [in a transaction](super::DurableStepBuilder::step_in_transaction)
///   takes effect exactly once.
/// - **A step may be somebody else's**: [a message](super::DurableStepBuilder::step_by_message),
///   whose [`reply`](Self::reply) goes on with the instance.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> acemq::Result<()> {
/// use acemq::{HandlerError, MemorySagaStore, Saga, StepContext};
///
/// async fn book_flight(city: String, step: StepContext) -> Result<String, HandlerError> {
///     // An airline that is asked twice under one key books once.
///     Ok(format!("flight to {city}, booked as {}", step.key()))
/// }
/// async fn cancel_flight(flight: String, _: StepContext) -> Result<(), HandlerError> {
///     Ok(println!("cancelling {flight}"))
/// }
/// async fn book_hotel(flight: String, _: StepContext) -> Result<String, HandlerError> {
///     Ok(format!("{flight}, and a room"))
/// }
///
/// let store = MemorySagaStore::new(); // acemq_sql::SqlSagaStore outside of tests
/// let booking = Saga::durable("booking", store)
///     .step("flight", book_flight)
///     .compensate_with(cancel_flight)
///     .step("hotel", book_hotel)
///     .build()?;
/// let worker = booking.worker().start(); // goes on with what a crash left
///
/// let result = booking.run("trip-1", &"Lima".to_owned()).await?;
/// assert_eq!(
///     result.output().map(String::as_str),
///     Some("flight to Lima, booked as booking/trip-1/flight, and a room")
/// );
/// worker.close().await?;
/// # Ok(()) }
/// ```
///
/// [`StepContext`]: super::StepContext
///
/// **The list of steps is part of an instance.** A program whose list has other names, or another
/// order, does not touch instances of the old list: its worker warns of them, and a program with the
/// old list finishes them. So give a saga that changes a new name, or let the old program run until
/// its instances are over.
///
/// Cloning it is cheap.
pub struct DurableSaga<In, Out, S> {
    pub(super) engine: Arc<Engine<S>>,
    types: PhantomData<fn(In) -> Out>,
}

/// Whether an instance was begun, from [`DurableSaga::begin`] and [`DurableSaga::start`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an instance that was there before goes on with its own input"]
#[expect(clippy::exhaustive_enums, reason = "either it is new or it is not")]
pub enum SagaBegun {
    /// There is one of that id, which goes on, or is over, with the input that it was given then.
    AlreadyThere,
    /// It is new.
    New,
}

impl<In, Out, S: SagaStore> DurableSaga<In, Out, S> {
    pub(super) fn new(engine: Engine<S>) -> Self {
        Self { engine: Arc::new(engine), types: PhantomData }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.engine.saga
    }

    /// The names of its steps, in their order.
    pub fn steps(&self) -> impl Iterator<Item = &str> {
        self.engine.steps.iter().map(|step| &*step.options.name)
    }

    /// Begins an instance and drives it until it is over: here, and where it waits or is lost on the
    /// way, together with the workers. Where there is one of that id, it is that one which is driven
    /// and whose result comes back; `input` is not looked at then.
    ///
    /// # Errors
    /// The store's ([`ErrorKind::Store`] while it is away, and what it says otherwise): the error
    /// says what is known, and running the same id again is always right. [`ErrorKind::Conflict`]
    /// for an instance with another list of steps; [`ErrorKind::Decode`] for one that cannot be read;
    /// [`ErrorKind::Encode`] for an input that JSON cannot say; [`ErrorKind::Config`] and
    /// [`ErrorKind::TooLarge`] for an id that cannot be one.
    ///
    /// # Cancellation
    /// Dropping the future drops the step in hand. The instance stays as it was written last, and a
    /// worker goes on with it, forward, once the lease has run out.
    pub async fn run(&self, id: &str, input: &In) -> Result<SagaResult<Out>>
    where
        In: Serialize,
        Out: DeserializeOwned,
    {
        let engine = &*self.engine;
        let new = self.new_saga(id, input, Journal::begun_by_the_insert)?;
        let read = Instant::now();
        let inserted = answer("begin a saga", engine.store.insert(&new, engine.settings.lease));
        let inserted = inserted.await.map_err(|error| {
            let text = format!(
                "begin saga {}: it is not known whether it was begun; run the same id again: {error}",
                new.key
            );
            Error::new(error.kind(), text).with_source(error)
        })?;
        if inserted.is_none() {
            tracing::info!(saga = %engine.saga, id, "a saga of that id was begun before; joining it");
        }
        let journal =
            Box::pin(self.join(&new.key, inserted.map(|claimed| (claimed, read)))).await?;
        ended::result(&engine.saga, &new.key, &journal)
    }

    /// Drives an instance, or waits while others do, until it is over.
    async fn join(
        &self,
        key: &str,
        mut claimed: Option<(ClaimedSaga, Instant)>,
    ) -> Result<Box<Journal>> {
        let engine = &*self.engine;
        let patience = Patience::For(engine.settings.lease);
        let never = CancellationToken::new();
        let mut changes = engine.signal.listen();
        let mut pause = FIRST_LOOK;
        loop {
            if let Some((claimed, read)) = claimed.take() {
                match engine.drive(claimed, read, patience, &never).await {
                    Ok(Driven::Over(_, journal)) => return Ok(journal),
                    Ok(Driven::Lost | Driven::Waits) => pause = FIRST_LOOK,
                    Err(error) => return Err(self.interrupted(key, error)),
                }
            }
            let _ = timeout(pause, changes.changed()).await;
            pause = (pause * 2).min(LONGEST_LOOK);
            let found = patience.asks("look at a saga", || engine.store.find(key)).await;
            let Some(stored) = found.map_err(|error| self.interrupted(key, error))? else {
                let text = format!("run saga {key}: its row is not there any more; it was removed");
                return Err(Error::new(ErrorKind::NotFound, text));
            };
            engine.check_steps(&stored)?;
            let journal = engine.journal(&stored)?;
            if stored.status.is_over() {
                return Ok(Box::new(journal));
            }
            if !stored.is_held && stored.due_at.is_some_and(|due| due <= stored.read_at) {
                let read = Instant::now();
                let lease = engine.settings.lease;
                let claim = || engine.store.claim(key, &engine.fingerprint, lease);
                let taken = patience.asks("claim a saga", claim).await;
                let taken = taken.map_err(|error| self.interrupted(key, error))?;
                claimed = taken.map(|claimed| (claimed, read));
            }
        }
    }

    fn interrupted(&self, key: &str, error: Error) -> Error {
        if !error.is_transient() {
            return error;
        }
        let text = format!(
            "run saga {key}: the store is away, and what was written last stands; a worker goes on \
             from there, and so does running the same id again: {error}"
        );
        Error::new(error.kind(), text).with_source(error)
    }

    /// Begins an instance in the caller's transaction: it exists exactly if that commits, and then a
    /// [`worker`](Self::worker) drives it. Call [`wake`](Self::wake) after the commit, or leave it to
    /// the worker, which looks at short, growing intervals.
    ///
    /// A pool, or a connection outside of a transaction, does not compile in its place.
    ///
    /// # Errors
    /// As [`run`](Self::run); where the store has failed, roll back.
    ///
    /// # Cancel safety
    /// Dropped on the way, it may or may not have written the instance: roll back, or begin it again.
    pub async fn begin<T>(&self, transaction: &mut T, id: &str, input: &In) -> Result<SagaBegun>
    where
        In: Serialize,
        S: JoinsTransaction<T>,
    {
        let new = self.new_saga(id, input, |journal| journal)?;
        let is_new = self.engine.store.insert_in(transaction, &new).await?;
        Ok(self.begun(is_new))
    }

    /// Begins an instance that a [`worker`](Self::worker) drives.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn start(&self, id: &str, input: &In) -> Result<SagaBegun>
    where
        In: Serialize,
    {
        let new = self.new_saga(id, input, |journal| journal)?;
        let inserted = answer("begin a saga", self.engine.store.insert(&new, Duration::ZERO));
        Ok(self.begun(inserted.await?.is_some()))
    }

    fn begun(&self, is_new: bool) -> SagaBegun {
        self.engine.signal.arm();
        if is_new { SagaBegun::New } else { SagaBegun::AlreadyThere }
    }

    /// Says that a transaction with an instance has committed: the worker of this process looks at
    /// once.
    pub fn wake(&self) {
        self.engine.signal.wake();
    }

    /// Sets up a worker, which goes on with instances that were begun, wait no longer, or lost their
    /// process.
    pub fn worker(&self) -> SagaWorkerBuilder<S> {
        SagaWorkerBuilder::new(Arc::clone(&self.engine))
    }

    /// The instances of this saga, to be looked at and resolved.
    #[must_use]
    pub fn instances(&self) -> SagaInstances<'_, S> {
        SagaInstances::heard_by(&self.engine.saga, &self.engine.store, &self.engine.signal)
    }

    /// The id of the instance that a message belongs to, by its correlation id; `None` for one that
    /// belongs to no instance of this saga.
    #[must_use]
    pub fn id_in<'e>(&self, envelope: &'e Envelope) -> Option<&'e str> {
        key::id_in(&self.engine.saga, envelope.correlation_id())
    }

    /// Goes on with an instance that waits for the reply to a step's message: the step is done, and
    /// has made `reply`. It is safe to call any number of times and from several processes: the first
    /// reply counts, and what became of each is told.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use acemq::*;
    /// # async fn example<S: SagaStore>(mq: Client, booking: DurableSaga<String, u32, S>) -> Result<()> {
    /// let saga = booking.clone();
    /// let consumer = mq
    ///     .consumer::<u32>("hotel.booked")
    ///     // While a process that died holds the instance, a reply waits for its lease to run out.
    ///     .retry(RetryPolicy::exponential(6, Duration::from_secs(5), Duration::from_secs(60)))
    ///     .start(move |room: Message<u32>| {
    ///         let saga = saga.clone();
    ///         async move {
    ///             if let Some(id) = saga.id_in(room.envelope()) {
    ///                 let _outcome = saga.reply(id, "hotel", room.payload()).await?;
    ///             }
    ///             Ok::<_, HandlerError>(())
    ///         }
    ///     })
    ///     .await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The store's; [`ErrorKind::Timeout`] where the instance was held all the while, for a second or
    /// two: trying again helps, until the lease of whoever holds it has run out, so give the consumer
    /// a retry policy that lasts longer than the lease; [`ErrorKind::Config`] for a step that sends no message; [`ErrorKind::Decode`] for
    /// a reply that is not what the next step takes, or an instance that cannot be read;
    /// [`ErrorKind::Conflict`] for one with another list of steps.
    pub async fn reply<R>(&self, id: &str, step: &str, reply: &R) -> Result<ReplyOutcome>
    where
        R: Serialize + ?Sized,
    {
        self.engine.answered(id, step, Answer::Made(to_json(reply)?)).await
    }

    /// Goes on with an instance that waits for the reply to a step's message: the step has failed, did
    /// nothing, and is not tried again.
    ///
    /// # Errors
    /// As [`reply`](Self::reply).
    pub async fn reply_failed(
        &self,
        id: &str,
        step: &str,
        reason: impl Into<String>,
    ) -> Result<ReplyOutcome> {
        self.engine.answered(id, step, Answer::Failed(reason.into())).await
    }

    fn new_saga(
        &self,
        id: &str,
        input: &In,
        begin: impl FnOnce(Journal) -> Journal,
    ) -> Result<NewSaga>
    where
        In: Serialize,
    {
        Ok(NewSaga {
            key: key::of(&self.engine.saga, id)?,
            saga: self.engine.saga.to_string(),
            steps: self.engine.fingerprint.clone(),
            state: begin(Journal::new(to_json(input)?, self.steps())).write(),
            deadline: self.engine.settings.deadline,
        })
    }
}

impl<In, Out, S> Clone for DurableSaga<In, Out, S> {
    fn clone(&self) -> Self {
        Self { engine: Arc::clone(&self.engine), types: PhantomData }
    }
}

impl<In, Out, S> fmt::Debug for DurableSaga<In, Out, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: Vec<&str> = self.engine.steps.iter().map(|step| &*step.options.name).collect();
        f.debug_struct("DurableSaga")
            .field("name", &self.engine.saga)
            .field("steps", &steps)
            .field("settings", &self.engine.settings)
            .finish_non_exhaustive()
    }
}
