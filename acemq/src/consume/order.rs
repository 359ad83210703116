//! Order where it matters: what belongs together is handled one after the other.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use super::handle::panic_text;
use crate::{envelope::HeaderValue, retry::RetryPolicy, transport::Delivery};

/// What becomes of a message that fails where order matters.
///
/// The retries of a [`RetryPolicy`](crate::RetryPolicy) go to the back of the queue, and what was
/// behind the message would overtake it. So an ordered consumer has none; it tries in place, or
/// does without the message, or stops. What that means for a stream, which has neither a back nor
/// dead letters, is with [`StreamConsumerBuilder::on_failure`](crate::StreamConsumerBuilder::on_failure).
///
/// ```
/// use std::time::Duration;
/// use acemq::OnFailure;
///
/// let stops_at_once = OnFailure::stop(); // the default
/// let three_attempts = OnFailure::retry_in_place(3, Duration::from_secs(1)); // and then stops
/// let and_then_skips = OnFailure::retry_in_place(3, Duration::from_secs(1)).then_skip();
/// # let _ = (stops_at_once, three_attempts, and_then_skips);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it does nothing until a consumer is given it"]
pub struct OnFailure {
    pub(crate) attempts: u32,
    pub(crate) delay: Duration,
    pub(crate) then: Then,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Skip,
    Stop,
}

impl OnFailure {
    /// One attempt. Then nothing of that key (for a partition: nothing of that partition) is handled
    /// any more until somebody resumes it.
    pub const fn stop() -> Self {
        Self { attempts: 1, delay: Duration::ZERO, then: Then::Stop }
    }

    /// One attempt. Then the message goes to the dead-letter queue, with the reason, and the next one
    /// has its turn.
    pub const fn skip() -> Self {
        Self { attempts: 1, delay: Duration::ZERO, then: Then::Skip }
    }

    /// So many attempts, the first among them, with this delay between one and the next. What comes
    /// behind the message waits, and so does the handler's place: other keys have the others. Then it
    /// stops.
    pub const fn retry_in_place(attempts: u32, delay: Duration) -> Self {
        Self { attempts, delay, then: Then::Stop }
    }

    /// Skips the message after the last attempt, instead of stopping.
    pub const fn then_skip(mut self) -> Self {
        self.then = Then::Skip;
        self
    }
}

impl Default for OnFailure {
    /// [`OnFailure::stop`].
    fn default() -> Self {
        Self::stop()
    }
}

/// A key of an ordered consumer of which nothing is handled any more, from
/// [`Consumer::halted`](super::Consumer::halted).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HaltedKey {
    /// The key.
    pub key: String,
    /// The message that failed.
    pub message_id: String,
    /// How many attempts it has had.
    pub attempts: u32,
    /// Why the last of them failed.
    pub reason: String,
    /// How many messages of the key are held here, that one among them.
    pub held: usize,
}

/// How one consumer keeps order.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) by: OrderedBy,
    pub(super) on_failure: OnFailure,
}

/// What is wrong with settings that cannot go together.
pub(super) fn fault(
    ordered_by: Option<&OrderedBy>,
    on_failure: Option<OnFailure>,
    policy: &RetryPolicy,
) -> Option<&'static str> {
    match (ordered_by, on_failure) {
        (None, Some(_)) => Some(
            "it says what becomes of failures where order matters, and not by what messages are \
             ordered; use a retry policy, or `ordered_by_header` and the like",
        ),
        (Some(_), _) if policy.max_attempts() > 1 => Some(
            "it is ordered and has a retry policy, whose retries go to the back of the queue, where \
             the next message overtakes them; use `on_failure` instead",
        ),
        (Some(_), Some(OnFailure { attempts: 0, .. })) => {
            Some("it has no attempt at handling a message; there is at least 1")
        }
        _ => None,
    }
}

/// What tells a message's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OrderedBy {
    Header(String),
    /// What the handler's half of the consumer makes of the payload.
    Payload,
    RoutingKey,
    /// All messages belong together, and a failure stops the whole consumer.
    Queue {
        /// Whether the queue is known to have one active consumer at a time.
        single_active: bool,
    },
}

impl OrderedBy {
    /// The message's turn, where the payload need not be read for it.
    pub(super) fn turn(&self, delivery: &Delivery) -> Turn {
        match self {
            Self::Header(name) => by_header(name, delivery.properties.headers.get(name)),
            Self::RoutingKey => Turn::Of(delivery.routing_key.as_str().into()),
            // One lane, whose key is no allocation.
            Self::Queue { .. } => Turn::Of(Arc::default()),
            Self::Payload => Turn::Any,
        }
    }
}

fn by_header(name: &str, value: Option<&HeaderValue>) -> Turn {
    let fault = match value {
        Some(HeaderValue::Text(key)) => return Turn::Of(key.as_str().into()),
        Some(value) => match value.as_i64() {
            Some(number) => return Turn::Of(number.to_string().into()),
            None => "is neither text nor an integer",
        },
        None => "is missing",
    };
    Turn::Never(format!("it cannot be put in order: its header `{name}` {fault}"))
}

/// Where among the others a message has its turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Any time.
    Any,
    /// After those of the same key that came before it.
    Of(Arc<str>),
    /// It has no key, for this reason.
    Never(String),
}

/// What makes a key of a payload.
pub(super) type MakeOrderKey<T> = Box<dyn Fn(&T) -> String + Send + Sync>;

/// The turn of a message with that payload.
pub(super) fn by_payload<T>(make: &MakeOrderKey<T>, payload: &T) -> Turn {
    match catch_unwind(AssertUnwindSafe(|| make(payload))) {
        Ok(key) => Turn::Of(key.into()),
        Err(panic) => Turn::Never(format!(
            "it cannot be put in order: making its key panicked: {}",
            panic_text(&*panic)
        )),
    }
}
