//! The one error type of the library.
//!
//! [`Error`] is opaque: what a caller decides by is its [`kind`](Error::kind), whether trying
//! again can help ([`is_transient`](Error::is_transient)), whether a message may be at the broker
//! all the same ([`may_have_been_published`](Error::may_have_been_published)), and the names of
//! what it concerns. The text says what was being done, to what, what happened and what to do;
//! the cause, where there is one, is its [`source`](std::error::Error::source), unless the text says
//! it already: who prints an error with its causes reads each of them once.

use std::{fmt, iter::successors, sync::Arc};

/// A boxed error of any kind, as handlers, stores and codecs of the user's own return it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, in the terms of what a caller can do about it.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The broker or the database refused the login. Not transient: correct the credentials.
    Authentication,
    /// The broker has paused publishing (a memory or disk alarm). Transient.
    Blocked,
    /// The client, consumer or relay has been closed. Not transient.
    Closed,
    /// A setting, name or URL that cannot work. Not transient: correct it.
    Config,
    /// A queue or exchange exists with other arguments. Not transient: see [`Error::conflict`].
    Conflict,
    /// No connection could be made. Transient.
    Connect,
    /// Bytes that are not what the codec reads. Not transient.
    Decode,
    /// A payload or header that cannot be written. Not transient.
    Encode,
    /// An interceptor refused the message. Not transient.
    Interceptor,
    /// The connection or channel was lost on the way. Transient; a publish may have arrived, see
    /// [`Error::may_have_been_published`].
    Lost,
    /// An exchange, queue, virtual host, database or table that does not exist. Not transient: make
    /// it. Or a payload that the claim-check store no longer holds.
    NotFound,
    /// The broker or the database refused access. Not transient: grant the permission.
    Refused,
    /// The broker took the message and then said it could not keep it. Transient.
    Rejected,
    /// The responder of a request failed, and said so: see [`Requests::request`]. Not transient:
    /// what it would say the next time is its own affair.
    ///
    /// [`Requests::request`]: crate::Requests::request
    Responder,
    /// A store (outbox, idempotency, schema registry, claim check) failed. Transient.
    Store,
    /// An answer did not come in time. Transient.
    Timeout,
    /// A certificate could not be verified, or TLS could not be agreed on. Not transient.
    Tls,
    /// A body, header table or name above a limit. Not transient.
    TooLarge,
    /// No queue is bound for the message. Not transient: bind one.
    Unroutable,
    /// Something this transport or store does not do. Not transient.
    Unsupported,
}

/// A queue or exchange that exists with another value than the one declared.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Conflict {
    /// The argument or property that differs, such as `x-message-ttl` or `durable`.
    pub argument: String,
    /// What this declaration asked for, as the broker names it.
    pub declared: String,
    /// What the broker has.
    pub existing: String,
}

impl Conflict {
    pub(crate) fn new(
        argument: impl Into<String>,
        declared: impl Into<String>,
        existing: impl Into<String>,
    ) -> Self {
        Self { argument: argument.into(), declared: declared.into(), existing: existing.into() }
    }
}

/// The error of every operation in this library.
///
/// ```
/// # async fn example(mq: &acemq::Client) -> acemq::Result<()> {
/// use acemq::ErrorKind;
///
/// let orders = mq.publisher::<String>("orders", "order.placed");
/// match orders.send(&"o-1".to_owned()).await {
///     Ok(_receipt) => {}
///     Err(error) if error.kind() == ErrorKind::Unroutable => { /* nobody listens yet */ }
///     Err(error) if error.is_transient() => { /* the same send may be tried again */ }
///     Err(error) => return Err(error),
/// }
/// # Ok(()) }
/// ```
pub struct Error(Box<Details>);

#[derive(Clone)]
struct Details {
    kind: ErrorKind,
    message: String,
    may_have_been_published: bool,
    message_id: Option<String>,
    exchange: Option<String>,
    routing_key: Option<String>,
    queue: Option<String>,
    conflict: Option<Conflict>,
    cause: Option<Arc<dyn std::error::Error + Send + Sync>>,
    /// Whether the message says what the cause says.
    quotes_cause: bool,
}

impl Error {
    /// Makes an error. `message` is lower case, without a full stop, and says what was being
    /// done, to what, what happened and what to do about it.
    ///
    /// Stores and codecs of your own use it to say what kind of failure they met.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Details {
            kind,
            message: message.into(),
            may_have_been_published: false,
            message_id: None,
            exchange: None,
            routing_key: None,
            queue: None,
            conflict: None,
            cause: None,
            quotes_cause: false,
        }))
    }

    /// Adds the cause, which becomes this error's [`source`](std::error::Error::source). The message
    /// does not say what the cause does: who prints both would print it twice.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        let source: BoxError = source.into();
        self.0.cause = Some(source.into());
        self
    }

    /// Adds the cause where the message has its text already. Then it is not the
    /// [`source`](std::error::Error::source), which is the first of its own causes that the message
    /// does not say; [`get_ref`](Self::get_ref) has it.
    ///
    /// ```
    /// use std::error::Error as _;
    /// use acemq::{Error, ErrorKind};
    ///
    /// let cause = std::io::Error::other("the disk is full");
    /// let text = format!("put a payload into the store: {cause}");
    /// let error = Error::new(ErrorKind::Store, text).with_quoted_source(cause);
    /// assert!(error.source().is_none());
    /// assert!(error.get_ref().unwrap().is::<std::io::Error>());
    /// ```
    #[must_use]
    pub fn with_quoted_source(mut self, source: impl Into<BoxError>) -> Self {
        self.0.quotes_cause = true;
        self.with_source(source)
    }

    /// The same error for one more who waited for it.
    pub(crate) fn again(&self) -> Self {
        Self(self.0.clone())
    }

    pub(crate) fn with_message_id(mut self, id: impl Into<String>) -> Self {
        self.0.message_id = Some(id.into());
        self
    }

    pub(crate) fn with_exchange(mut self, exchange: impl Into<String>) -> Self {
        self.0.exchange = Some(exchange.into());
        self
    }

    pub(crate) fn with_routing_key(mut self, routing_key: impl Into<String>) -> Self {
        self.0.routing_key = Some(routing_key.into());
        self
    }

    pub(crate) fn with_queue(mut self, queue: impl Into<String>) -> Self {
        self.0.queue = Some(queue.into());
        self
    }

    pub(crate) fn with_conflict(mut self, conflict: Conflict) -> Self {
        self.0.conflict = Some(conflict);
        self
    }

    pub(crate) fn maybe_published(mut self, may_have_been_published: bool) -> Self {
        self.0.may_have_been_published = may_have_been_published;
        self
    }

    /// The cause, whether it is the [`source`](std::error::Error::source) or the text says it: for
    /// looking at what it is, such as the database's own error.
    #[must_use]
    pub fn get_ref(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        self.0.cause.as_deref()
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the same call can succeed later without anybody changing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        // No wildcard: a new kind has to be decided here.
        match self.0.kind {
            ErrorKind::Blocked
            | ErrorKind::Connect
            | ErrorKind::Lost
            | ErrorKind::Rejected
            | ErrorKind::Store
            | ErrorKind::Timeout => true,
            ErrorKind::Authentication
            | ErrorKind::Closed
            | ErrorKind::Config
            | ErrorKind::Conflict
            | ErrorKind::Decode
            | ErrorKind::Encode
            | ErrorKind::Interceptor
            | ErrorKind::NotFound
            | ErrorKind::Refused
            | ErrorKind::Responder
            | ErrorKind::Tls
            | ErrorKind::TooLarge
            | ErrorKind::Unroutable
            | ErrorKind::Unsupported => false,
        }
    }

    /// Whether the message may be at the broker although this error was returned: it was written,
    /// and what became of it is not known. Publishing it again under the same id is safe for
    /// consumers that are idempotent.
    #[must_use]
    pub fn may_have_been_published(&self) -> bool {
        self.0.may_have_been_published
    }

    /// The id of the message this is about.
    #[must_use]
    pub fn message_id(&self) -> Option<&str> {
        self.0.message_id.as_deref()
    }

    /// The exchange this is about; empty for the default exchange.
    #[must_use]
    pub fn exchange(&self) -> Option<&str> {
        self.0.exchange.as_deref()
    }

    /// The routing key this is about.
    #[must_use]
    pub fn routing_key(&self) -> Option<&str> {
        self.0.routing_key.as_deref()
    }

    /// The queue this is about.
    #[must_use]
    pub fn queue(&self) -> Option<&str> {
        self.0.queue.as_deref()
    }

    /// For [`ErrorKind::Conflict`]: which argument differs, and both values.
    #[must_use]
    pub fn conflict(&self) -> Option<&Conflict> {
        self.0.conflict.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Error");
        out.field("kind", &self.0.kind).field("message", &self.0.message);
        if self.0.may_have_been_published {
            out.field("may_have_been_published", &true);
        }
        if let Some(cause) = &self.0.cause {
            out.field("source", cause);
        }
        out.finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let cause: &(dyn std::error::Error + 'static) = self.0.cause.as_deref()?;
        if !self.0.quotes_cause {
            return Some(cause);
        }
        // A cause often says its own causes as well.
        let mut causes = successors(cause.source(), |&cause| cause.source());
        causes.find(|cause| !self.0.message.contains(&cause.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::{error::Error as _, io};

    use super::*;

    #[test]
    fn a_cause_that_the_text_says_is_no_source_and_what_is_behind_it_is() {
        let disk =
            || Error::new(ErrorKind::Store, "write the file").with_source("the disk is full");
        let text = format!("put it: {}", disk());
        let error = Error::new(ErrorKind::Store, text).with_quoted_source(disk());
        assert_eq!(error.source().unwrap().to_string(), "the disk is full");
        assert_eq!(error.get_ref().unwrap().to_string(), "write the file");

        let both = format!("put it: {}: the disk is full", disk());
        let error = Error::new(ErrorKind::Store, both).with_quoted_source(disk());
        assert!(error.source().is_none());
    }

    #[test]
    fn a_cause_that_the_text_does_not_say_is_the_source() {
        let cause = io::Error::other("the disk is full");
        let error = Error::new(ErrorKind::Store, "put it").with_source(cause);
        assert!(
            error.source().unwrap().is::<io::Error>() && error.get_ref().unwrap().is::<io::Error>()
        );
    }
}
