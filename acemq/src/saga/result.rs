//! How a run of a saga ended.

use std::{fmt, sync::Arc};

use super::StepFailure;

/// How a run of a saga ended, from [`Saga::run`](super::Saga::run).
///
/// [`needs_attention`](Self::needs_attention) is what to alert on.
#[must_use = "a saga that failed says so here"]
pub struct SagaResult<T> {
    pub(super) saga: Arc<str>,
    pub(super) output: Result<T, StepFailure>,
    pub(super) completed: Vec<String>,
    pub(super) compensated: Vec<String>,
    pub(super) unresolved: Vec<StepFailure>,
}

impl<T> SagaResult<T> {
    /// The saga's name.
    #[must_use]
    pub fn saga(&self) -> &str {
        &self.saga
    }

    /// Whether all its steps have succeeded.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.output.is_ok()
    }

    /// What the last step made, if the saga is complete.
    #[must_use]
    pub fn output(&self) -> Option<&T> {
        self.output.as_ref().ok()
    }

    /// The step that failed.
    #[must_use]
    pub fn failed_at(&self) -> Option<&str> {
        self.failure().map(StepFailure::step)
    }

    /// The step that failed, and why.
    #[must_use]
    pub fn failure(&self) -> Option<&StepFailure> {
        self.output.as_ref().err()
    }

    /// The steps that have succeeded, in their order: all of them if the saga is complete, else those
    /// before the one that failed.
    #[must_use]
    pub fn completed(&self) -> &[String] {
        &self.completed
    }

    /// The steps whose compensation has succeeded, in the order in which they ran: the last step
    /// first. Steps without one are not among them.
    #[must_use]
    pub fn compensated(&self) -> &[String] {
        &self.compensated
    }

    /// The steps whose compensation failed, and why, in the order in which they were tried. Their
    /// effects were to be undone and are not; no retry resolves that, a person does.
    #[must_use]
    pub fn unresolved(&self) -> &[StepFailure] {
        &self.unresolved
    }

    /// Whether a compensation failed.
    #[must_use]
    pub fn has_unresolved(&self) -> bool {
        !self.unresolved.is_empty()
    }

    /// Whether something may be left of a saga that failed: a compensation failed, or the step that
    /// failed may have been done all the same ([`StepFailure::is_in_doubt`]) and nothing has undone
    /// it ([`when_in_doubt`](super::SagaStepBuilder::when_in_doubt)).
    #[must_use]
    pub fn needs_attention(&self) -> bool {
        let left_in_doubt = self.failure().is_some_and(|failure| {
            failure.is_in_doubt() && !self.compensated.iter().any(|step| step == failure.step())
        });
        self.has_unresolved() || left_in_doubt
    }

    /// What the last step made, or the failure of the step that failed. It does not tell what was
    /// undone: look at [`needs_attention`](Self::needs_attention) first.
    ///
    /// # Errors
    /// [`failure`](Self::failure).
    pub fn into_result(self) -> Result<T, StepFailure> {
        self.output
    }
}

/// `saga "place-order" failed at "book-courier": none is free; compensated: reserve-stock,
/// take-payment; unresolved: none`.
impl<T> fmt::Display for SagaResult<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "saga \"{}\" ", self.saga)?;
        let Err(failure) = &self.output else { return f.write_str("is complete") };
        write!(f, "failed at \"{}\": {}", failure.step(), failure.reason())?;
        if failure.is_in_doubt() {
            f.write_str(" (it may have been done all the same)")?;
        }
        list(f, "; compensated: ", &self.compensated)?;
        let left = |failure: &StepFailure| format!("{} ({})", failure.step(), failure.reason());
        list(f, "; unresolved: ", self.unresolved.iter().map(left))
    }
}

fn list(
    f: &mut fmt::Formatter<'_>,
    what: &str,
    steps: impl IntoIterator<Item = impl fmt::Display>,
) -> fmt::Result {
    f.write_str(what)?;
    let mut steps = steps.into_iter();
    let Some(first) = steps.next() else { return f.write_str("none") };
    write!(f, "{first}")?;
    steps.try_for_each(|step| write!(f, ", {step}"))
}

impl<T> fmt::Debug for SagaResult<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SagaResult")
            .field("saga", &self.saga)
            .field("completed", &self.completed)
            .field("failure", &self.failure())
            .field("compensated", &self.compensated)
            .field("unresolved", &self.unresolved)
            .finish_non_exhaustive()
    }
}
