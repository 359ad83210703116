//! Exchanges, queues and bindings as a transport declares them.

use crate::envelope::Headers;

/// How an exchange routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExchangeKind {
    /// To the queues bound with exactly the message's routing key.
    Direct,
    /// To every bound queue.
    Fanout,
    /// By matching the headers of the binding. Not on the memory transport.
    Headers,
    /// By pattern: `*` is one word, `#` any number of words.
    Topic,
}

impl ExchangeKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Fanout => "fanout",
            Self::Headers => "headers",
            Self::Topic => "topic",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ExchangeSpec {
    pub(crate) name: String,
    pub(crate) kind: ExchangeKind,
    pub(crate) durable: bool,
    pub(crate) auto_delete: bool,
    pub(crate) internal: bool,
    pub(crate) arguments: Headers,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct QueueSpec {
    /// Empty to let the broker choose one.
    pub(crate) name: String,
    pub(crate) durable: bool,
    pub(crate) exclusive: bool,
    pub(crate) auto_delete: bool,
    pub(crate) arguments: Headers,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BindingSpec {
    pub(crate) queue: String,
    pub(crate) exchange: String,
    pub(crate) routing_key: String,
    pub(crate) arguments: Headers,
}

/// What a broker says about a queue when asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueInfo {
    /// Its name; the one the broker chose where the declaration gave none.
    pub name: String,
    /// How many messages are ready for delivery.
    pub messages: u64,
    /// How many consumers it has.
    pub consumers: u32,
}
