//! Code of the application's that sees every message on its way in.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use super::HandlerError;
use crate::envelope::Envelope;

/// A message as an interceptor sees it: decoded and claimed, not handled yet.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConsumeContext {
    /// The queue it came out of.
    pub queue: Arc<str>,
    /// Its envelope; may be replaced, and a dead letter keeps the replaced one.
    pub envelope: Envelope,
    /// Whether the broker has delivered it before.
    pub redelivered: bool,
    /// What its sender says the body is.
    pub content_type: Option<String>,
    /// The body as it arrived.
    pub body: bytes::Bytes,
}

/// How a message was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settlement {
    /// Handled, or a duplicate: acknowledged.
    Acknowledged,
    /// Sent on to its next attempt, or about to have it in its place.
    Retried,
    /// Set aside in the dead-letter queue because the handler said so.
    Rejected,
    /// Set aside in the dead-letter queue because its attempts or its age ran out.
    DeadLettered,
    /// Set aside in the parking queue.
    Parked,
    /// Somebody else is handling it: sent round once more, or waited for in its place.
    InProgress,
    /// Given back to the broker, or lost with its channel: it comes again. Where order matters it may
    /// also stay in its place, because what was made of it did not arrive.
    Returned,
    /// It failed where order matters: nothing behind it is handled until somebody resumes its key or
    /// partition, and then it comes again.
    Halted,
}

/// Sees every message before and after its handler, at each attempt, also at those that an ordered
/// consumer makes in place; each method does nothing by default.
pub trait ConsumeInterceptor: Send + Sync + 'static {
    /// Its place among the interceptors: lower runs first on the way in and last on the way out.
    /// Equal ones run in the order they were added.
    fn order(&self) -> i32 {
        0
    }

    /// May change the envelope. An error is treated as the handler's: a transient one is retried,
    /// a fatal one (and a panic) goes to the dead-letter queue.
    ///
    /// # Errors
    /// Whatever speaks against handling the message.
    fn before_handle(&self, _message: &mut ConsumeContext) -> Result<(), HandlerError> {
        Ok(())
    }

    /// After the message was settled, however that went.
    fn after_handle(&self, _message: &ConsumeContext, _settlement: Settlement) {}

    /// After the handler failed, before the message is settled.
    fn on_error(&self, _message: &ConsumeContext, _error: &str) {}
}

pub(super) fn before_handle(
    interceptors: &[Arc<dyn ConsumeInterceptor>],
    message: &mut ConsumeContext,
) -> Result<(), HandlerError> {
    for interceptor in interceptors {
        match catch_unwind(AssertUnwindSafe(|| interceptor.before_handle(message))) {
            Ok(answer) => answer?,
            Err(_) => return Err(HandlerError::fatal("it panicked")),
        }
    }
    Ok(())
}

pub(super) fn on_error(
    interceptors: &[Arc<dyn ConsumeInterceptor>],
    message: &ConsumeContext,
    error: &str,
) {
    backwards(interceptors, |interceptor| interceptor.on_error(message, error));
}

pub(crate) fn after_handle(
    interceptors: &[Arc<dyn ConsumeInterceptor>],
    message: &ConsumeContext,
    settlement: Settlement,
) {
    backwards(interceptors, |interceptor| interceptor.after_handle(message, settlement));
}

/// A panic on the way back changes nothing about the message; it is reported.
fn backwards(interceptors: &[Arc<dyn ConsumeInterceptor>], call: impl Fn(&dyn ConsumeInterceptor)) {
    for interceptor in interceptors.iter().rev() {
        if catch_unwind(AssertUnwindSafe(|| call(&**interceptor))).is_err() {
            tracing::error!("a consume interceptor panicked after the handler");
        }
    }
}
