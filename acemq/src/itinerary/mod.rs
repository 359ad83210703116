//! A route that a message carries with it: where it still goes, and where it has been.
//!
//! On the wire it is JSON in one header, which every library of the family writes the same way.
//! Each stop names its own exchange and routing key, so that whoever reads the header can send the
//! message on, whatever is declared where.

mod json;
#[cfg(test)]
mod tests;

use std::{fmt, time::SystemTime};

use time::{OffsetDateTime, format_description::well_known::Rfc3339, macros::format_description};

use crate::{
    clock::epoch_millis,
    envelope::{Envelope, HeaderValue},
    error::{Error, ErrorKind, Result},
};

/// The stops of one message's route: those still to come, and those it has made.
///
/// An itinerary does not change. [`then`](Self::then) and [`advance`](Self::advance) make new ones.
///
/// ```
/// use acemq::Itinerary;
///
/// let slip = Itinerary::empty()
///     .then("orders-events", "order.validate", "validate")
///     .then("orders-events", "order.charge", "charge");
/// assert_eq!(slip.next().unwrap().name(), "validate");
/// assert_eq!(slip.to_string(), "done: none, next: validate -> charge");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Itinerary {
    steps: Vec<Stop>,
    done: Vec<Stop>,
}

/// One stop of an [`Itinerary`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stop {
    exchange: String,
    routing_key: String,
    name: String,
    /// As it was written, so that it is handed on as it came.
    completed_at: String,
}

impl Itinerary {
    /// The header it travels in. It is one of the application's, which a handler sees.
    pub const HEADER: &'static str = "acemq-routing-slip";

    /// An itinerary without stops. One cannot be sent before it has a stop.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// With one more stop at the end: the message goes to that exchange under that routing key.
    /// The empty exchange is the default one, and then the key is a queue's name. The name is for
    /// people, and may be empty.
    #[must_use]
    pub fn then(
        mut self,
        exchange: impl Into<String>,
        routing_key: impl Into<String>,
        name: impl Into<String>,
    ) -> Self {
        self.steps.push(Stop {
            exchange: exchange.into(),
            routing_key: routing_key.into(),
            name: name.into(),
            completed_at: String::new(),
        });
        self
    }

    /// The itinerary after the stop that is [`next`](Self::next), which was made at `completed_at`:
    /// it is the last of those that are [`done`](Self::done) then. One that is finished stays as it
    /// is.
    #[must_use]
    pub fn advance(&self, completed_at: SystemTime) -> Self {
        let Some((made, rest)) = self.steps.split_first() else { return self.clone() };
        let mut done = Vec::with_capacity(self.done.len() + 1);
        done.extend_from_slice(&self.done);
        done.push(Stop { completed_at: rfc3339_seconds(completed_at), ..made.clone() });
        Self { steps: rest.to_vec(), done }
    }

    /// The stop that the message is on its way to, or at; `None` where there is none left.
    #[must_use]
    pub fn next(&self) -> Option<&Stop> {
        self.steps.first()
    }

    /// Whether every stop was made.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.steps.is_empty()
    }

    /// The stops that are still to be made, in order.
    #[must_use]
    pub fn steps(&self) -> &[Stop] {
        &self.steps
    }

    /// The stops that were made, oldest first.
    #[must_use]
    pub fn done(&self) -> &[Stop] {
        &self.done
    }

    /// The itinerary that a message carries; `None` where it carries none.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] for one that cannot be read, as [`parse`](Self::parse) says.
    pub fn of(envelope: &Envelope) -> Result<Option<Self>> {
        let Some(header) = envelope.headers().get(Self::HEADER) else { return Ok(None) };
        let text = match header {
            HeaderValue::Text(text) => text.as_str(),
            HeaderValue::OpaqueText(bytes) | HeaderValue::Bytes(bytes) => {
                std::str::from_utf8(bytes).map_err(|_| unreadable("it is not UTF-8"))?
            }
            _ => return Err(unreadable("the header is not text")),
        };
        Self::parse(text).map(Some)
    }

    /// Reads an itinerary as it stands in the header, whichever library wrote it. Fields that are
    /// not known are passed over; a name or time that is absent or `null` is empty.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] for what is not JSON, is not an object, has no list of `steps`, or has
    /// a stop that is not an object of texts.
    pub fn parse(text: &str) -> Result<Self> {
        json::read(text)
    }

    /// The itinerary as it stands in the header.
    #[must_use]
    pub fn to_header(&self) -> String {
        json::write(self)
    }

    /// How long the header is at most on the way: every stop that is made adds its time.
    pub(crate) fn longest_header(&self) -> usize {
        let times = self.steps.len() * (r#","completedAt":"2026-01-01T00:00:00Z""#.len());
        self.to_header().len() + r#","done":[]"#.len() + times
    }
}

impl Stop {
    /// Where the message goes; empty for the default exchange.
    #[must_use]
    pub fn exchange(&self) -> &str {
        &self.exchange
    }

    /// Under which routing key.
    #[must_use]
    pub fn routing_key(&self) -> &str {
        &self.routing_key
    }

    /// What people call it; empty where it has no name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// When it was made; `None` where that is still to come, or is not said in RFC 3339.
    #[must_use]
    pub fn completed_at(&self) -> Option<SystemTime> {
        OffsetDateTime::parse(self.completed_at.trim(), &Rfc3339).ok().map(SystemTime::from)
    }

    /// Whether both are the same place to go to.
    pub(crate) fn is_same_place(&self, other: &Self) -> bool {
        (&self.exchange, &self.routing_key) == (&other.exchange, &other.routing_key)
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.name {
            "" => write!(f, "{}/{}", self.exchange, self.routing_key),
            name => f.write_str(name),
        }
    }
}

impl fmt::Display for Itinerary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (title, stops) in [("done: ", &self.done), (", next: ", &self.steps)] {
            f.write_str(title)?;
            for (place, stop) in stops.iter().enumerate() {
                f.write_str(if place == 0 { "" } else { " -> " })?;
                stop.fmt(f)?;
            }
            if stops.is_empty() {
                f.write_str("none")?;
            }
        }
        Ok(())
    }
}

/// RFC 3339 in UTC with whole seconds and `Z`; empty for a time that the form cannot say.
fn rfc3339_seconds(at: SystemTime) -> String {
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]Z");
    OffsetDateTime::from_unix_timestamp(epoch_millis(at).div_euclid(1_000))
        .ok()
        .and_then(|at| at.format(format).ok())
        .unwrap_or_default()
}

fn unreadable(why: &str) -> Error {
    Error::new(ErrorKind::Decode, format!("read the routing slip: {why}"))
}
