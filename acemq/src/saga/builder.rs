//! How a saga is declared.

use std::{collections::HashSet, fmt, marker::PhantomData, sync::Arc, time::Duration};

use super::{
    durable::{DurableSagaBuilder, SagaStore},
    in_process::Saga,
    path::{Start, Steps, Then},
    step::{Functions, Step, StepOptions, action, refused},
};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::{consume::HandlerError, error::Result, retry::RetryPolicy};

/// A saga that has no step yet, from [`Saga::named`]. It is given an `In`.
#[must_use = "a saga is made by `build`, after its steps"]
pub struct SagaBuilder<In> {
    name: String,
    input: PhantomData<fn(In)>,
}

/// A saga about to be built, and its latest step, from [`SagaBuilder::step`]: the saga is given an
/// `In`, and the step makes an `N` of a `Cur`.
#[must_use = "a saga is made by `build`"]
pub struct SagaStepBuilder<In, Cur, N> {
    before: Steps<In, Cur>,
    options: StepOptions,
    functions: Functions<Cur, N>,
}

impl<In> Saga<In, In> {
    /// Declares a saga of that name, which results and logs show. Its steps follow.
    pub fn named(name: impl Into<String>) -> SagaBuilder<In> {
        SagaBuilder { name: name.into(), input: PhantomData }
    }

    /// Declares a saga of that name whose instances are in a store and survive a crash. Its settings
    /// and steps follow.
    pub fn durable<S: SagaStore>(name: impl Into<String>, store: S) -> DurableSagaBuilder<In, S> {
        DurableSagaBuilder::new(name.into(), store)
    }
}

impl<In> SagaBuilder<In> {
    /// Adds the first step: an `async fn(In) -> Result<N, HandlerError>`, or a closure. See
    /// [`SagaStepBuilder::step`].
    pub fn step<N, F, Fut>(self, name: impl Into<String>, function: F) -> SagaStepBuilder<In, In, N>
    where
        In: Send + 'static,
        F: Fn(In) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<N, HandlerError>> + Send + 'static,
    {
        let before = Steps { saga: self.name, options: Vec::new(), path: Box::new(Start) };
        before.then(name.into(), function)
    }
}

impl<In, Cur, N> SagaStepBuilder<In, Cur, N> {
    /// Undoes the step, given what it has made, when a later one fails. A step without a
    /// compensation is passed over.
    ///
    /// It should be safe to run twice where it is retried. One that fails for good is logged,
    /// listed in [`SagaResult::unresolved`](super::SagaResult::unresolved), and keeps no other from
    /// running.
    pub fn compensate_with<F, Fut>(mut self, function: F) -> Self
    where
        F: Fn(N) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        self.functions.compensation = Some(action(function));
        self
    }

    /// Undoes the step, given what it was given, if it fails and may have been done all the same: an
    /// attempt took too long, or panicked on the way.
    ///
    /// A step that fails is not compensated, since there is nothing to undo. That is not so for a
    /// payment whose answer did not come in time. This runs then, before the compensations of the
    /// steps before, and like one of them: with their retries and timeout, and among what is
    /// compensated or unresolved. It has to do with both, that the step was done and that it was not,
    /// and the step itself may arrive later still; so let the order's own number tell that apart.
    ///
    /// Without it such a step is a failure that [needs
    /// attention](super::SagaResult::needs_attention).
    pub fn when_in_doubt<F, Fut>(mut self, function: F) -> Self
    where
        F: Fn(Cur) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        self.functions.in_doubt = Some(action(function));
        self
    }

    /// How often the step is tried before the saga gives up on it. Default: once.
    ///
    /// Each attempt is given the same input. All waits are spent in the process, and
    /// [`give_up_after`](RetryPolicy::give_up_after) counts from the first attempt. A
    /// [`HandlerError::fatal`] is not tried again.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.options.limits.retry = policy;
        self
    }

    /// How long an attempt at the step may take. Past it, its future is dropped and it has failed.
    /// Default 30 seconds.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.options.limits.timeout = limit;
        self
    }

    /// How often the step's compensation is tried before it counts as unresolved. Default: once. As
    /// [`retry`](Self::retry).
    pub fn compensation_retry(mut self, policy: RetryPolicy) -> Self {
        self.options.compensation_limits.retry = policy;
        self
    }

    /// How long an attempt at the step's compensation may take. Default 30 seconds.
    pub fn compensation_timeout(mut self, limit: Duration) -> Self {
        self.options.compensation_limits.timeout = limit;
        self
    }
}

impl<In, Cur, N> SagaStepBuilder<In, Cur, N>
where
    In: Send + 'static,
    Cur: Clone + Send + Sync + 'static,
    N: Clone + Send + Sync + 'static,
{
    /// Adds a step: an `async fn(N) -> Result<M, HandlerError>`, or a closure. It is given what the
    /// step before has made, and makes what the next one is given.
    ///
    /// A function that panics or takes too long has failed, as one that returns an error. Retried
    /// steps have to be safe to run twice: an attempt that took too long may have been done.
    ///
    /// ```compile_fail,E0631
    /// # use acemq::{HandlerError, Saga};
    /// async fn count(words: String) -> Result<usize, HandlerError> {
    ///     Ok(words.len())
    /// }
    /// async fn print(words: String) -> Result<(), HandlerError> {
    ///     Ok(println!("{words}"))
    /// }
    /// let _ = Saga::named("words").step("count", count).step("print", print);
    /// ```
    pub fn step<M, F, Fut>(self, name: impl Into<String>, function: F) -> SagaStepBuilder<In, N, M>
    where
        F: Fn(N) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<M, HandlerError>> + Send + 'static,
    {
        self.settled().then(name.into(), function)
    }

    /// Makes the saga, which can be run as often as wanted.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a saga or step without a name, two steps of one name, a timeout of
    /// zero, and a retry policy that contradicts itself.
    pub fn build(self) -> Result<Saga<In, N>> {
        let steps = self.settled();
        steps.check()?;
        Ok(Saga::new(steps))
    }

    /// With the latest step among the others.
    fn settled(self) -> Steps<In, N> {
        let Self { before: Steps { saga, mut options, path }, options: latest, functions } = self;
        let latest = Arc::new(latest);
        options.push(Arc::clone(&latest));
        let path = Then { before: path, step: Step { options: latest, functions } };
        Steps { saga, options, path: Box::new(path) }
    }
}

impl<In, Cur> Steps<In, Cur> {
    fn then<N, F, Fut>(self, name: String, function: F) -> SagaStepBuilder<In, Cur, N>
    where
        F: Fn(Cur) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<N, HandlerError>> + Send + 'static,
    {
        SagaStepBuilder {
            before: self,
            options: StepOptions::new(name),
            functions: Functions::new(action(function)),
        }
    }

    /// Refuses what cannot work.
    fn check(&self) -> Result<()> {
        if self.saga.is_empty() {
            return Err(refused(&self.saga, "it has no name"));
        }
        let mut seen = HashSet::new();
        for step in &self.options {
            step.check(&self.saga)?;
            if !seen.insert(&*step.name) {
                let why = format!("two of its steps are called \"{}\"", step.name);
                return Err(refused(&self.saga, &why));
            }
        }
        Ok(())
    }
}

impl<In> fmt::Debug for SagaBuilder<In> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SagaBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<In, Cur, N> fmt::Debug for SagaStepBuilder<In, Cur, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SagaStepBuilder")
            .field("name", &self.before.saga)
            .field("step", &self.options)
            .finish_non_exhaustive()
    }
}
