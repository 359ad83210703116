//! Messages as a transport carries them.

use bytes::Bytes;

use crate::envelope::Headers;

/// A message on its way to an exchange.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Outgoing {
    /// Empty for the default exchange, which routes to the queue named by the routing key.
    pub(crate) exchange: String,
    pub(crate) routing_key: String,
    pub(crate) mandatory: bool,
    pub(crate) properties: Properties,
    pub(crate) body: Bytes,
}

impl Outgoing {
    /// A message as the library makes every one: persistent, mandatory, with its id, its content
    /// type and its headers. Who needs more sets it afterwards.
    pub(crate) fn new(
        (exchange, routing_key): (String, String),
        message_id: String,
        content_type: String,
        headers: Headers,
        body: Bytes,
    ) -> Self {
        Self {
            exchange,
            routing_key,
            mandatory: true,
            properties: Properties {
                content_type: Some(content_type),
                delivery_mode: Some(Properties::PERSISTENT),
                message_id: Some(message_id),
                headers,
                ..Properties::default()
            },
            body,
        }
    }
}

/// A message that arrived.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Delivery {
    /// What the channel's settler calls this delivery.
    pub(crate) tag: u64,
    pub(crate) redelivered: bool,
    pub(crate) exchange: String,
    pub(crate) routing_key: String,
    pub(crate) properties: Properties,
    pub(crate) body: Bytes,
}

/// The basic properties of AMQP 0-9-1, all of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Properties {
    pub(crate) content_type: Option<String>,
    pub(crate) content_encoding: Option<String>,
    pub(crate) headers: Headers,
    pub(crate) delivery_mode: Option<u8>,
    pub(crate) priority: Option<u8>,
    pub(crate) correlation_id: Option<String>,
    pub(crate) reply_to: Option<String>,
    /// Milliseconds, as text.
    pub(crate) expiration: Option<String>,
    pub(crate) message_id: Option<String>,
    /// Seconds since the epoch.
    pub(crate) timestamp: Option<u64>,
    pub(crate) message_type: Option<String>,
    pub(crate) user_id: Option<String>,
    pub(crate) app_id: Option<String>,
    pub(crate) cluster_id: Option<String>,
}

impl Properties {
    /// AMQP's delivery mode for a message that survives a restart of the broker.
    pub(crate) const PERSISTENT: u8 = 2;
    /// AMQP's delivery mode for one that does not.
    pub(crate) const TRANSIENT: u8 = 1;
}
