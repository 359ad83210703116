//! What a handler answers.

use std::fmt;

use super::onward::Onward;
use crate::error::BoxError;

/// What becomes of a message that its handler has seen.
///
/// A handler that returns `Ok(())` accepts the message.
#[derive(Debug)]
pub struct Ack(pub(super) Answer);

#[derive(Debug)]
pub(super) enum Answer {
    Accept,
    /// Accepted once this has arrived.
    Forward(Box<Onward>),
    Retry(BoxError),
    Reject(BoxError),
    Park(BoxError),
}

impl Ack {
    /// The message is done with.
    #[must_use]
    pub fn accept() -> Self {
        Self(Answer::Accept)
    }

    /// Try again: the retry policy decides when, and whether.
    pub fn retry(reason: impl Into<BoxError>) -> Self {
        Self(Answer::Retry(reason.into()))
    }

    /// To the dead-letter queue at once.
    pub fn reject(reason: impl Into<BoxError>) -> Self {
        Self(Answer::Reject(reason.into()))
    }

    /// To the parking queue at once.
    pub fn park(reason: impl Into<BoxError>) -> Self {
        Self(Answer::Park(reason.into()))
    }
}

impl From<()> for Ack {
    fn from((): ()) -> Self {
        Self::accept()
    }
}

/// Why a handler failed.
///
/// Every error converts with `?` and counts as transient: the retry policy decides. What will not
/// get better is [`HandlerError::fatal`], and goes to the dead-letter queue at once.
///
/// ```
/// use acemq::HandlerError;
///
/// fn charge(cents: &str) -> Result<u64, HandlerError> {
///     let cents: u64 = cents.parse().map_err(HandlerError::fatal)?;
///     std::fs::metadata("/")?; // transient
///     Ok(cents)
/// }
/// # assert!(charge("12").is_ok());
/// ```
pub struct HandlerError {
    pub(super) fatal: bool,
    pub(super) cause: BoxError,
}

impl HandlerError {
    /// A failure that may be gone next time.
    pub fn transient(cause: impl Into<BoxError>) -> Self {
        Self { fatal: false, cause: cause.into() }
    }

    /// A failure that will not get better: no retry is spent on it.
    pub fn fatal(cause: impl Into<BoxError>) -> Self {
        Self { fatal: true, cause: cause.into() }
    }

    /// Whether it skips the retries.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        self.fatal
    }

    pub(crate) fn cause(&self) -> &(dyn std::error::Error + 'static) {
        &*self.cause
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for HandlerError {
    fn from(cause: E) -> Self {
        Self::transient(cause)
    }
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerError")
            .field("fatal", &self.fatal)
            .field("cause", &self.cause)
            .finish()
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&chain(&*self.cause))
    }
}

/// An error with its causes, on one line.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        // Some errors repeat their cause in their own text.
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    if text.is_empty() { "no reason given".to_owned() } else { text }
}
