//! A step, or a compensation, that failed for good.

use std::{fmt, sync::Arc};

use crate::consume::HandlerError;

/// Why a step failed, or could not be undone: from [`SagaResult::failure`] and
/// [`SagaResult::unresolved`].
///
/// As an error it names the step, and its [`source`](std::error::Error::source) is what the step
/// returned.
///
/// [`SagaResult::failure`]: super::SagaResult::failure
/// [`SagaResult::unresolved`]: super::SagaResult::unresolved
pub struct StepFailure {
    step: Arc<str>,
    part: Part,
    attempts: u32,
    in_doubt: bool,
    error: HandlerError,
}

/// What of a step it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Action,
    Compensation,
}

impl Part {
    pub(super) fn noun(self) -> &'static str {
        match self {
            Self::Action => "a step",
            Self::Compensation => "a compensation",
        }
    }
}

impl StepFailure {
    pub(super) fn new(
        step: Arc<str>,
        part: Part,
        attempts: u32,
        in_doubt: bool,
        error: HandlerError,
    ) -> Self {
        Self { step, part, attempts, in_doubt, error }
    }

    /// A step that was not begun, since nobody waits for the run any more.
    pub(super) fn not_begun(step: Arc<str>) -> Self {
        let error = HandlerError::transient("nobody waits for this run any more");
        Self::new(step, Part::Action, 0, false, error)
    }

    /// The step's name.
    #[must_use]
    pub fn step(&self) -> &str {
        &self.step
    }

    /// How often it was tried.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Why the last attempt failed, with the causes, on one line: the text of an error, of a panic,
    /// or that it took too long.
    #[must_use]
    pub fn reason(&self) -> String {
        self.error.to_string()
    }

    /// Whether it may have been done all the same: an attempt took too long, or panicked on the way.
    /// One that returned an error says that it was not.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// Whether it said that trying again does not help ([`HandlerError::fatal`]).
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        self.error.is_fatal()
    }

    /// As the error of a consumer's handler, fatal if [`is_fatal`](Self::is_fatal), so that a
    /// message whose saga has failed is retried or dead-lettered as the step asks for.
    pub fn into_handler_error(self) -> HandlerError {
        if self.is_fatal() { HandlerError::fatal(self) } else { HandlerError::transient(self) }
    }
}

impl fmt::Display for StepFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = match self.part {
            Part::Action => "the step",
            Part::Compensation => "the compensation of",
        };
        let times = if self.attempts == 1 { "attempt" } else { "attempts" };
        write!(f, "{part} \"{}\" failed after {} {times}", self.step, self.attempts)
    }
}

impl fmt::Debug for StepFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepFailure")
            .field("step", &self.step)
            .field("part", &self.part)
            .field("attempts", &self.attempts)
            .field("in_doubt", &self.in_doubt)
            .field("error", &self.error)
            .finish()
    }
}

impl std::error::Error for StepFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.error.cause())
    }
}
