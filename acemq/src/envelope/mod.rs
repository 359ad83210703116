//! What a message says about itself: ids, type, attempt, where it came from.
//!
//! An [`Envelope`] travels in headers that all libraries of the family read and write the same
//! way (`x-acemq-…` for the engine, `acemq-…` where the application may look). It is immutable:
//! [`Envelope::causing`] and [`Envelope::next_attempt`] return new ones.

mod names;
mod read;
mod replay;
#[cfg(test)]
mod tests;
mod value;
mod with;
mod write;

use std::time::{Duration, SystemTime};

pub(crate) use value::encoded_len;
pub use value::{HeaderValue, Headers};

pub(crate) use names::*;
pub(crate) use read::{ReadContext, integer, read, text};
pub(crate) use replay::{Replay, stamp};
pub(crate) use write::{check_application_header, into_headers, strip_reserved, write};

/// The metadata of one message.
///
/// ```
/// use acemq::Envelope;
///
/// let placed = Envelope::new("order.placed");
/// assert_eq!(placed.correlation_id(), placed.id());
///
/// let charged = placed.causing("payment.charged");
/// assert_eq!(charged.correlation_id(), placed.correlation_id());
/// assert_eq!(charged.causation_id(), Some(placed.id()));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Envelope {
    pub(crate) id: String,
    pub(crate) message_type: String,
    pub(crate) version: u32,
    pub(crate) correlation_id: String,
    pub(crate) causation_id: Option<String>,
    pub(crate) origin: Option<String>,
    pub(crate) attempt: u32,
    /// `None` where the sender did not say: such a message counts as young.
    pub(crate) first_seen: Option<SystemTime>,
    pub(crate) error: Option<String>,
    pub(crate) claim: Option<String>,
    pub(crate) route: Option<Route>,
    pub(crate) reply_to: Option<String>,
    pub(crate) replayed: Replayed,
    pub(crate) headers: Headers,
    /// Reserved headers that this version does not know, passed on by copies.
    pub(crate) unknown: Headers,
}

/// The declared route of a pipeline's message, and where on it the message is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route {
    /// The names of all steps, in order.
    pub steps: Vec<String>,
    /// The index of the step the message is for, counted from 0.
    pub position: usize,
    /// The id of the run; empty where the sender gave none.
    pub run_id: String,
}

/// The stamps that a replay leaves on a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replayed {
    /// The queue the message was replayed out of.
    pub from: Option<String>,
    /// When.
    pub at: Option<SystemTime>,
    /// How many times it has been replayed.
    pub count: u64,
}

impl Envelope {
    /// An envelope for a new message: a random id, which is the correlation id as well, version
    /// and attempt 1. Whoever publishes it sets the origin and the time it was first seen.
    #[must_use]
    pub fn new(message_type: impl Into<String>) -> Self {
        let id = uuid::Uuid::new_v4().to_string();
        Self {
            correlation_id: id.clone(),
            id,
            message_type: message_type.into(),
            version: 1,
            causation_id: None,
            origin: None,
            attempt: 1,
            first_seen: None,
            error: None,
            claim: None,
            route: None,
            reply_to: None,
            replayed: Replayed::default(),
            headers: Headers::new(),
            unknown: Headers::new(),
        }
    }

    /// The envelope of a message that this one causes: a new id and attempt, the same correlation
    /// and origin, this id as its causation.
    #[must_use]
    pub fn causing(&self, message_type: impl Into<String>) -> Self {
        Self {
            correlation_id: self.correlation_id.clone(),
            causation_id: Some(self.id.clone()),
            origin: self.origin.clone(),
            ..Self::new(message_type)
        }
    }

    /// The same envelope for the next attempt. The time it was first seen does not change.
    #[must_use]
    pub fn next_attempt(&self) -> Self {
        Self { attempt: self.attempt.saturating_add(1), ..self.clone() }
    }

    /// The message id: a UUID unless the sender chose another.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The message type; the routing key unless the sender named one.
    #[must_use]
    pub fn message_type(&self) -> &str {
        &self.message_type
    }

    /// The schema version of the message type, from 1.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// What the message belongs to; its own id unless the sender said otherwise.
    #[must_use]
    pub fn correlation_id(&self) -> &str {
        &self.correlation_id
    }

    /// The id of the message that caused this one.
    #[must_use]
    pub fn causation_id(&self) -> Option<&str> {
        self.causation_id.as_deref()
    }

    /// Who published it, as `client@host`.
    #[must_use]
    pub fn origin(&self) -> Option<&str> {
        self.origin.as_deref()
    }

    /// Which attempt at handling it this is, counted from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// When it was first published; `None` where the sender did not say.
    #[must_use]
    pub fn first_seen(&self) -> Option<SystemTime> {
        self.first_seen
    }

    /// How old the message is at `now`. A message of unknown age is young: zero.
    #[must_use]
    pub fn age(&self, now: SystemTime) -> Duration {
        self.first_seen.and_then(|seen| now.duration_since(seen).ok()).unwrap_or_default()
    }

    /// On a copy in a dead-letter or parking queue: why it was set aside.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// The application's own claim header, by convention the URI of something the message
    /// refers to. The library carries it and does not read it.
    #[must_use]
    pub fn claim(&self) -> Option<&str> {
        self.claim.as_deref()
    }

    /// The declared route, for a message of a pipeline.
    #[must_use]
    pub fn route(&self) -> Option<&Route> {
        self.route.as_ref()
    }

    /// Whether the message has a declared route that cannot be read.
    pub(crate) fn has_unreadable_route(&self) -> bool {
        let is_empty = |value: &HeaderValue| value.as_str() == Some("");
        self.unknown.get(ROUTE).is_some_and(|route| !is_empty(route))
    }

    /// Where an answer is expected.
    #[must_use]
    pub fn reply_to(&self) -> Option<&str> {
        self.reply_to.as_deref()
    }

    /// What earlier replays left on the message.
    #[must_use]
    pub fn replayed(&self) -> &Replayed {
        &self.replayed
    }

    /// The application's headers: all but the reserved ones.
    #[must_use]
    pub fn headers(&self) -> &Headers {
        &self.headers
    }
}
