//! How a durable saga is declared.

use std::{collections::HashSet, fmt, marker::PhantomData, sync::Arc, time::Duration};

use serde::{Serialize, de::DeserializeOwned};

use super::{
    DurableSaga, SagaStore, StepContext, TransactionalSagaStore,
    engine::{Engine, Settings, Step},
    key,
    work::{self, Work},
};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::{
    codec::from_json,
    consume::HandlerError,
    error::Result,
    outbox::OutboxRecord,
    retry::RetryPolicy,
    saga::step::{StepOptions, refused},
};

const LEASE: Duration = Duration::from_secs(60);
/// Shorter ones would be renewed all the time.
const SHORTEST_LEASE: Duration = Duration::from_millis(50);
const LONGEST_LEASE: Duration = Duration::from_secs(24 * 60 * 60);
const MAX_CRASHES: u32 = 5;

/// A durable saga that has no step yet, from [`Saga::durable`](crate::Saga::durable). It is given an
/// `In`.
#[must_use = "a saga is made by `build`, after its steps"]
pub struct DurableSagaBuilder<In, S> {
    parts: Parts<S>,
    input: PhantomData<fn(In)>,
}

/// A durable saga about to be built, and its latest step, from [`DurableSagaBuilder::step`]: the
/// saga is given an `In`, and the step makes an `N` of a `Cur`.
#[must_use = "a saga is made by `build`"]
pub struct DurableStepBuilder<In, Cur, N, S> {
    parts: Parts<S>,
    latest: Latest<S>,
    types: PhantomData<fn(In, Cur) -> N>,
}

struct Parts<S> {
    saga: String,
    store: S,
    settings: Settings,
    steps: Vec<Step<S>>,
}

struct Latest<S> {
    options: StepOptions,
    action: Work<S>,
    compensation: Option<Work<S>>,
    in_doubt: Option<Work<S>>,
    check_reply: Option<fn(&str) -> Result<()>>,
}

impl<In, S: SagaStore> DurableSagaBuilder<In, S> {
    pub(in crate::saga) fn new(saga: String, store: S) -> Self {
        let settings = Settings { lease: LEASE, deadline: None, max_crashes: MAX_CRASHES };
        let parts = Parts { saga, store, settings, steps: Vec::new() };
        Self { parts, input: PhantomData }
    }

    /// How long an instance is held before another process may go on with it, which is how long a
    /// crash holds it up. It is renewed while a step takes longer. Default 60 seconds, at least 50
    /// milliseconds and at most a day.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.parts.settings.lease = lease.clamp(SHORTEST_LEASE, LONGEST_LEASE);
        self
    }

    /// How long an instance may go forward, from when it was begun, by the store's clock. Past it
    /// the step in hand has failed, and what was done is undone, which has no deadline. It is stored
    /// with the instance, so that a crash does not forget it. Default none.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.parts.settings.deadline = Some(deadline);
        self
    }

    /// How often a step, or a compensation, is run again although a crash ended it, beside what its
    /// retry policy says of failures. Past it, it has failed, so that a step which kills its process
    /// does not do so for ever. Default 5.
    ///
    /// A step that outlives its lease counts as well: nobody has seen its end.
    pub fn max_crashes(mut self, crashes: u32) -> Self {
        self.parts.settings.max_crashes = crashes;
        self
    }

    /// Adds the first step: an `async fn(In, StepContext) -> Result<N, HandlerError>`, or a closure.
    /// See [`DurableStepBuilder::step`].
    pub fn step<N, F, Fut>(
        self,
        name: impl Into<String>,
        function: F,
    ) -> DurableStepBuilder<In, In, N, S>
    where
        In: DeserializeOwned,
        N: Serialize,
        F: Fn(In, StepContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<N, HandlerError>> + Send + 'static,
    {
        self.parts.then(name.into(), work::local(function))
    }

    /// Adds the first step, which is given an open transaction. See
    /// [`DurableStepBuilder::step_in_transaction`].
    pub fn step_in_transaction<N, F, Fut>(
        self,
        name: impl Into<String>,
        function: F,
    ) -> DurableStepBuilder<In, In, N, S>
    where
        In: DeserializeOwned + 'static,
        N: Serialize + Send + 'static,
        S: TransactionalSagaStore,
        F: Fn(In, StepContext, S::Transaction) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(N, S::Transaction), HandlerError>> + Send + 'static,
    {
        self.parts.then(name.into(), work::in_transaction(function))
    }

    /// Adds the first step, which sends messages and waits for the reply. See
    /// [`DurableStepBuilder::step_by_message`].
    pub fn step_by_message<N, R, F, Fut>(
        self,
        name: impl Into<String>,
        function: F,
    ) -> DurableStepBuilder<In, In, N, S>
    where
        In: DeserializeOwned,
        N: DeserializeOwned,
        R: IntoIterator<Item = OutboxRecord>,
        F: Fn(In, StepContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, HandlerError>> + Send + 'static,
    {
        self.parts.then_replied(name.into(), work::message(function))
    }
}

impl<In, Cur, N, S: SagaStore> DurableStepBuilder<In, Cur, N, S> {
    /// Undoes the step, given what it has made, when a later one fails. A step without a
    /// compensation is passed over. It runs at least once, as the step does.
    ///
    /// One that fails for good is logged, leaves the instance
    /// [`Unresolved`](super::SagaStatus::Unresolved), and keeps no other from running.
    pub fn compensate_with<F, Fut>(mut self, function: F) -> Self
    where
        N: DeserializeOwned,
        F: Fn(N, StepContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        self.latest.compensation = Some(work::local(function));
        self
    }

    /// Undoes the step in a transaction in which that is noted as well, as
    /// [`step_in_transaction`](Self::step_in_transaction) takes it.
    pub fn compensate_in_transaction<F, Fut>(mut self, function: F) -> Self
    where
        N: DeserializeOwned + 'static,
        S: TransactionalSagaStore,
        F: Fn(N, StepContext, S::Transaction) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<((), S::Transaction), HandlerError>> + Send + 'static,
    {
        self.latest.compensation = Some(work::in_transaction(function));
        self
    }

    /// Undoes the step by messages, which go out through the outbox if and when it is written that
    /// they do. No reply is awaited: the step counts as compensated then.
    pub fn compensate_by_message<R, F, Fut>(mut self, function: F) -> Self
    where
        N: DeserializeOwned,
        R: IntoIterator<Item = OutboxRecord>,
        F: Fn(N, StepContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, HandlerError>> + Send + 'static,
    {
        self.latest.compensation = Some(work::message(function));
        self
    }

    /// Undoes the step, given what it was given, if it fails and may have been done all the same: an
    /// attempt took too long, panicked, was ended by a crash, or its message was not answered in
    /// time. As [`SagaStepBuilder::when_in_doubt`](crate::SagaStepBuilder::when_in_doubt).
    ///
    /// Without it such a step leaves the instance [`Unresolved`](super::SagaStatus::Unresolved).
    pub fn when_in_doubt<F, Fut>(mut self, function: F) -> Self
    where
        Cur: DeserializeOwned,
        F: Fn(Cur, StepContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        self.latest.in_doubt = Some(work::local(function));
        self
    }

    /// Undoes the step by messages if it fails and may have been done all the same. See
    /// [`when_in_doubt`](Self::when_in_doubt) and
    /// [`compensate_by_message`](Self::compensate_by_message).
    pub fn when_in_doubt_by_message<R, F, Fut>(mut self, function: F) -> Self
    where
        Cur: DeserializeOwned,
        R: IntoIterator<Item = OutboxRecord>,
        F: Fn(Cur, StepContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, HandlerError>> + Send + 'static,
    {
        self.latest.in_doubt = Some(work::message(function));
        self
    }

    /// How often the step may fail before the saga gives up on it. Default: once.
    ///
    /// Waits are due times in the store: a crash neither shortens nor forgets them, and nobody holds
    /// the instance meanwhile. [`give_up_after`](RetryPolicy::give_up_after) counts from the first
    /// attempt. A [`HandlerError::fatal`] is not tried again, and a reply that says that the step
    /// failed is one.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.latest.options.limits.retry = policy;
        self
    }

    /// How long an attempt at the step may take; for a step that sends messages, how long the reply
    /// is waited for. Past it, it has failed. Default 30 seconds.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.latest.options.limits.timeout = limit;
        self
    }

    /// How often the step's compensation may fail before it counts as unresolved. Default: once. As
    /// [`retry`](Self::retry).
    pub fn compensation_retry(mut self, policy: RetryPolicy) -> Self {
        self.latest.options.compensation_limits.retry = policy;
        self
    }

    /// How long an attempt at the step's compensation may take. Default 30 seconds.
    pub fn compensation_timeout(mut self, limit: Duration) -> Self {
        self.latest.options.compensation_limits.timeout = limit;
        self
    }

    /// Adds a step: an `async fn(N, StepContext) -> Result<M, HandlerError>`, or a closure. It is
    /// given what the step before has made, and makes what the next one is given. Both go through
    /// the store as JSON.
    ///
    /// It runs at least once: after a crash it runs again, so it has to be safe to run twice. What
    /// helps is [`StepContext::key`].
    ///
    /// ```compile_fail,E0631
    /// # use acemq::{HandlerError, MemorySagaStore, Saga, StepContext};
    /// async fn count(words: String, _: StepContext) -> Result<usize, HandlerError> {
    ///     Ok(words.len())
    /// }
    /// async fn print(words: String, _: StepContext) -> Result<(), HandlerError> {
    ///     Ok(println!("{words}"))
    /// }
    /// let store = MemorySagaStore::new();
    /// let _ = Saga::durable("words", store).step("count", count).step("print", print);
    /// ```
    pub fn step<M, F, Fut>(
        self,
        name: impl Into<String>,
        function: F,
    ) -> DurableStepBuilder<In, N, M, S>
    where
        N: DeserializeOwned,
        M: Serialize,
        F: Fn(N, StepContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<M, HandlerError>> + Send + 'static,
    {
        self.settled().then(name.into(), work::local(function))
    }

    /// Adds a step that is given an open transaction of the store's database, and gives it back:
    /// what it writes, what it adds to an outbox, and the note that it is done commit together. So
    /// it takes effect exactly once, whatever crashes.
    ///
    /// An error, a panic or a timeout rolls it back, and so does a lease that was lost meanwhile.
    /// What the database undoes for the sake of another transaction runs again at once. At PostgreSQL's
    /// `REPEATABLE READ` and `SERIALIZABLE` the renewal of the saga's own lease is such another one:
    /// there a step has to end within a third of the [`lease`](DurableSagaBuilder::lease).
    ///
    /// One that has ended the transaction itself has failed for good, and is in doubt.
    pub fn step_in_transaction<M, F, Fut>(
        self,
        name: impl Into<String>,
        function: F,
    ) -> DurableStepBuilder<In, N, M, S>
    where
        N: DeserializeOwned + 'static,
        M: Serialize + Send + 'static,
        S: TransactionalSagaStore,
        F: Fn(N, StepContext, S::Transaction) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(M, S::Transaction), HandlerError>> + Send + 'static,
    {
        self.settled().then(name.into(), work::in_transaction(function))
    }

    /// Adds a step that is done by somebody else: it makes messages, which go out through the
    /// store's outbox if and when it is written that they do, and the instance waits for the reply,
    /// an `M`, from [`DurableSaga::reply`]. Nobody holds it meanwhile.
    ///
    /// The messages' correlation id becomes the instance's key, `<saga>/<id>`, which a reply that
    /// they cause carries on, and their header `acemq-saga-step` the step's name. A reply that does
    /// not come within the [`timeout`](Self::timeout) is a failure in doubt; where that is retried,
    /// the function is called again, and the reply to any of its messages counts.
    pub fn step_by_message<M, R, F, Fut>(
        self,
        name: impl Into<String>,
        function: F,
    ) -> DurableStepBuilder<In, N, M, S>
    where
        N: DeserializeOwned,
        M: DeserializeOwned,
        R: IntoIterator<Item = OutboxRecord>,
        F: Fn(N, StepContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, HandlerError>> + Send + 'static,
    {
        self.settled().then_replied(name.into(), work::message(function))
    }

    /// Makes the saga, of which any number of instances can run.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a saga or step without a name, a saga's name with a slash in it or
    /// of more than 100 bytes, two steps of one name, a timeout or deadline of zero, a retry policy
    /// that contradicts itself, and messages where the store has no outbox.
    pub fn build(self) -> Result<DurableSaga<In, N, S>> {
        let parts = self.settled();
        parts.check()?;
        let Parts { saga, store, settings, steps } = parts;
        Ok(DurableSaga::new(Engine::new(saga, store, settings, steps)))
    }

    fn settled(self) -> Parts<S> {
        let Self { mut parts, latest, .. } = self;
        let Latest { options, action, compensation, in_doubt, check_reply } = latest;
        let options = Arc::new(options);
        parts.steps.push(Step { options, action, compensation, in_doubt, check_reply });
        parts
    }
}

impl<S: SagaStore> Parts<S> {
    fn then<In, Cur, N>(self, name: String, action: Work<S>) -> DurableStepBuilder<In, Cur, N, S> {
        let latest = Latest {
            options: StepOptions::new(name),
            action,
            compensation: None,
            in_doubt: None,
            check_reply: None,
        };
        DurableStepBuilder { parts: self, latest, types: PhantomData }
    }

    fn then_replied<In, Cur, N: DeserializeOwned>(
        self,
        name: String,
        action: Work<S>,
    ) -> DurableStepBuilder<In, Cur, N, S> {
        let mut builder = self.then(name, action);
        builder.latest.check_reply = Some(|reply| from_json::<N>(reply).map(drop));
        builder
    }

    /// Refuses what cannot work.
    fn check(&self) -> Result<()> {
        let saga = &self.saga;
        if saga.is_empty() {
            return Err(refused(saga, "it has no name"));
        }
        if let Some(fault) = key::name_fault(saga) {
            return Err(refused(saga, &fault));
        }
        if self.settings.deadline.is_some_and(|deadline| deadline.is_zero()) {
            return Err(refused(saga, "its deadline is zero, so nothing succeeds"));
        }
        let mut seen = HashSet::new();
        for step in &self.steps {
            let options = &step.options;
            options.check(saga)?;
            if !seen.insert(&*options.name) {
                let why = format!("two of its steps are called \"{}\"", options.name);
                return Err(refused(saga, &why));
            }
            if step.sends() && !self.store.sends() {
                let why = format!(
                    "its step \"{}\" sends messages, and its store has no outbox to put them in; \
                     give it one with `outbox`",
                    options.name
                );
                return Err(refused(saga, &why));
            }
        }
        Ok(())
    }
}

impl<In, S> fmt::Debug for DurableSagaBuilder<In, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableSagaBuilder")
            .field("name", &self.parts.saga)
            .field("settings", &self.parts.settings)
            .finish_non_exhaustive()
    }
}

impl<In, Cur, N, S> fmt::Debug for DurableStepBuilder<In, Cur, N, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableStepBuilder")
            .field("name", &self.parts.saga)
            .field("step", &self.latest.options)
            .finish_non_exhaustive()
    }
}
