//! What a run has done so far, and what would undo it.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{
    attempts::Attempts,
    failure::{Part, StepFailure},
    result::SagaResult,
    step::{Action, Step, StepOptions},
};
use crate::{consume::HandlerError, transport::BoxFuture};

pub(super) struct Journal {
    saga: Arc<str>,
    /// Cancelled once nobody waits for the run any more: no further step is begun.
    unheard: CancellationToken,
    completed: Vec<String>,
    compensated: Vec<String>,
    unresolved: Vec<StepFailure>,
    /// The newest last.
    undo: Vec<Undo>,
    under_way: Option<Arc<str>>,
}

/// The compensation of a step, with what it is given.
struct Undo {
    options: Arc<StepOptions>,
    call: Box<dyn Fn() -> BoxFuture<'static, Result<(), HandlerError>> + Send + Sync>,
}

impl Undo {
    fn new<T>(options: &Arc<StepOptions>, compensation: &Action<T, ()>, given: T) -> Self
    where
        T: Clone + Send + Sync + 'static,
    {
        let compensation = Arc::clone(compensation);
        let call = Box::new(move || compensation(given.clone()));
        Self { options: Arc::clone(options), call }
    }
}

impl Journal {
    pub(super) fn new(saga: Arc<str>, unheard: CancellationToken) -> Self {
        Self {
            saga,
            unheard,
            completed: Vec::new(),
            compensated: Vec::new(),
            unresolved: Vec::new(),
            undo: Vec::new(),
            under_way: None,
        }
    }

    /// Takes a step, and notes what undoes it.
    pub(super) async fn take<Cur, N>(
        &mut self,
        step: &Step<Cur, N>,
        input: Cur,
    ) -> Result<N, StepFailure>
    where
        Cur: Clone + Send + Sync + 'static,
        N: Clone + Send + Sync + 'static,
    {
        let Step { options, functions } = step;
        let name = &options.name;
        if self.unheard.is_cancelled() {
            return Err(StepFailure::not_begun(Arc::clone(name)));
        }
        self.under_way = Some(Arc::clone(name));
        let attempts =
            Attempts { saga: &self.saga, step: name, part: Part::Action, limits: &options.limits };
        let made = attempts.make(&self.unheard, || async {
            let made = (functions.action)(input.clone()).await?;
            // Copied here, where a panic of that is a failure of the step.
            let compensation = functions.compensation.as_ref();
            let undo = compensation.map(|compensate| Undo::new(options, compensate, made.clone()));
            Ok((made, undo))
        });
        let made = made.await;
        self.under_way = None;
        match made {
            Ok((made, undo)) => {
                tracing::debug!(saga = %self.saga, step = %name, "a step is completed");
                self.completed.push((**name).to_owned());
                self.undo.extend(undo);
                Ok(made)
            }
            Err(failure) => {
                if failure.is_in_doubt()
                    && let Some(in_doubt) = &functions.in_doubt
                {
                    self.undo.push(Undo::new(options, in_doubt, input));
                }
                Err(failure)
            }
        }
    }

    /// Undoes what was done, the newest first. What cannot be undone keeps nothing else from it.
    pub(super) async fn compensate(&mut self, failure: &StepFailure) {
        tracing::warn!(
            saga = %self.saga, step = %failure.step(), attempts = failure.attempts(),
            in_doubt = failure.is_in_doubt(), reason = failure.reason(),
            compensations = self.undo.len(),
            "a saga has failed; what it has done is undone"
        );
        let never = CancellationToken::new();
        while let Some(undo) = self.undo.pop() {
            let name = &undo.options.name;
            self.under_way = Some(Arc::clone(name));
            let attempts = Attempts {
                saga: &self.saga,
                step: name,
                part: Part::Compensation,
                limits: &undo.options.compensation_limits,
            };
            let undone = attempts.make(&never, || (undo.call)()).await;
            self.under_way = None;
            match undone {
                Ok(()) => {
                    tracing::debug!(saga = %self.saga, step = %name, "a step is compensated");
                    self.compensated.push((**name).to_owned());
                }
                Err(failure) => {
                    tracing::error!(
                        saga = %self.saga, step = %name, attempts = failure.attempts(),
                        reason = failure.reason(),
                        "a compensation failed: the step stays done, and somebody has to look at it"
                    );
                    self.unresolved.push(failure);
                }
            }
        }
    }

    /// Closes the books.
    pub(super) fn into_result<T>(mut self, output: Result<T, StepFailure>) -> SagaResult<T> {
        SagaResult {
            saga: Arc::clone(&self.saga),
            output,
            completed: std::mem::take(&mut self.completed),
            compensated: std::mem::take(&mut self.compensated),
            unresolved: std::mem::take(&mut self.unresolved),
        }
    }
}

/// Only the end of the runtime takes a run away while a step or compensation is under way. What it
/// leaves is said here.
impl Drop for Journal {
    fn drop(&mut self) {
        let Some(under_way) = &self.under_way else { return };
        let undo = self.undo.iter().rev().map(|undo| &*undo.options.name);
        let left: Vec<&str> = std::iter::once(&**under_way).chain(undo).collect();
        tracing::error!(
            saga = %self.saga, steps = left.join(", "),
            "the runtime has ended while a saga ran: these steps are done, or half done, and \
             somebody has to look at them"
        );
    }
}
