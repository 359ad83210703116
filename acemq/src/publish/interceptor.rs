//! Code of the application's that sees every message on its way out.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use super::Receipt;
use crate::{
    envelope::Envelope,
    error::{BoxError, Error, ErrorKind, Result},
};

/// A message as an interceptor sees it: addressed, not encoded yet.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PublishContext {
    /// Where it goes; may be changed.
    pub exchange: String,
    /// Where it goes; may be changed.
    pub routing_key: String,
    /// Its envelope; may be replaced, with [`Envelope::with_header`] for instance.
    pub envelope: Envelope,
}

/// Sees every message that is sent; each method does nothing by default.
///
/// Runs once per message, batches included, before encoding. Records that go through an outbox are
/// not intercepted: their headers are fixed when the record is made.
pub trait PublishInterceptor: Send + Sync + 'static {
    /// Its place among the interceptors: lower runs first on the way out and last on the way
    /// back. Equal ones run in the order they were added.
    fn order(&self) -> i32 {
        0
    }

    /// May change the message. An error (or a panic) refuses it: nothing is sent.
    ///
    /// # Errors
    /// Whatever speaks against sending the message.
    fn before_publish(&self, _message: &mut PublishContext) -> Result<(), BoxError> {
        Ok(())
    }

    /// After the message was sent.
    fn after_confirm(&self, _message: &PublishContext, _receipt: &Receipt) {}

    /// After sending it failed, or an interceptor after this one refused it.
    fn on_error(&self, _message: &PublishContext, _error: &Error) {}
}

/// Runs the interceptors in order until one refuses; those that had their turn before it hear of
/// that as of any other failure.
pub(crate) fn before_publish(
    interceptors: &[Arc<dyn PublishInterceptor>],
    message: &mut PublishContext,
) -> Result<()> {
    for (turn, interceptor) in interceptors.iter().enumerate() {
        let refused = match catch_unwind(AssertUnwindSafe(|| interceptor.before_publish(message))) {
            Ok(Ok(())) => continue,
            Ok(Err(cause)) => cause,
            Err(_) => "it panicked".into(),
        };
        let error = Error::new(
            ErrorKind::Interceptor,
            format!(
                "publish message {}: an interceptor refused it: {refused}; it was not published",
                message.envelope.id()
            ),
        )
        .with_message_id(message.envelope.id())
        .with_exchange(&*message.exchange)
        .with_routing_key(&*message.routing_key)
        .with_quoted_source(refused);
        on_error(&interceptors[..turn], message, &error);
        return Err(error);
    }
    Ok(())
}

pub(crate) fn after_confirm(
    interceptors: &[Arc<dyn PublishInterceptor>],
    message: &PublishContext,
    receipt: &Receipt,
) {
    backwards(interceptors, |interceptor| interceptor.after_confirm(message, receipt));
}

pub(crate) fn on_error(
    interceptors: &[Arc<dyn PublishInterceptor>],
    message: &PublishContext,
    error: &Error,
) {
    backwards(interceptors, |interceptor| interceptor.on_error(message, error));
}

/// A panic on the way back changes nothing about the message; it is reported.
fn backwards(interceptors: &[Arc<dyn PublishInterceptor>], call: impl Fn(&dyn PublishInterceptor)) {
    for interceptor in interceptors.iter().rev() {
        if catch_unwind(AssertUnwindSafe(|| call(&**interceptor))).is_err() {
            tracing::error!("a publish interceptor panicked after the message was sent");
        }
    }
}
