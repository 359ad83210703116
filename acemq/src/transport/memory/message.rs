//! A message as users' tests look at it.

use std::sync::Arc;

use bytes::Bytes;

use super::queue::Stored;
use crate::{
    envelope::Headers,
    transport::{Outgoing, Properties},
};

/// A message that a [`MemoryBroker`](super::MemoryBroker) was sent or holds.
#[derive(Clone, Debug)]
pub struct MemoryMessage {
    message: Arc<Outgoing>,
    routed: bool,
    redelivered: bool,
}

impl MemoryMessage {
    pub(super) fn published(message: Arc<Outgoing>, routed: bool) -> Self {
        Self { message, routed, redelivered: false }
    }

    pub(super) fn ready(stored: &Stored) -> Self {
        Self { message: stored.message.clone(), routed: true, redelivered: stored.redelivered }
    }

    /// The exchange it was published to; empty for the default exchange. In a queue after a
    /// dead-lettering, the dead-letter exchange.
    #[must_use]
    pub fn exchange(&self) -> &str {
        &self.message.exchange
    }

    /// The routing key it was published with.
    #[must_use]
    pub fn routing_key(&self) -> &str {
        &self.message.routing_key
    }

    /// The body.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.message.body
    }

    /// All headers, the library's own (`x-acemq-…`) among them.
    #[must_use]
    pub fn headers(&self) -> &Headers {
        &self.message.properties.headers
    }

    /// The `content-type` property.
    #[must_use]
    pub fn content_type(&self) -> Option<&str> {
        self.message.properties.content_type.as_deref()
    }

    /// The `message-id` property.
    #[must_use]
    pub fn message_id(&self) -> Option<&str> {
        self.message.properties.message_id.as_deref()
    }

    /// The `correlation-id` property.
    #[must_use]
    pub fn correlation_id(&self) -> Option<&str> {
        self.message.properties.correlation_id.as_deref()
    }

    /// The `type` property.
    #[must_use]
    pub fn message_type(&self) -> Option<&str> {
        self.message.properties.message_type.as_deref()
    }

    /// The `reply-to` property.
    #[must_use]
    pub fn reply_to(&self) -> Option<&str> {
        self.message.properties.reply_to.as_deref()
    }

    /// The `expiration` property: milliseconds, as text.
    #[must_use]
    pub fn expiration(&self) -> Option<&str> {
        self.message.properties.expiration.as_deref()
    }

    /// The `priority` property.
    #[must_use]
    pub fn priority(&self) -> Option<u8> {
        self.message.properties.priority
    }

    /// Whether it was published as persistent, so that it survives a restart of the broker.
    #[must_use]
    pub fn is_persistent(&self) -> bool {
        self.message.properties.delivery_mode == Some(Properties::PERSISTENT)
    }

    /// Whether any queue was bound for it.
    #[must_use]
    pub fn is_routed(&self) -> bool {
        self.routed
    }

    /// For a message in a queue: whether it was delivered before and came back.
    #[must_use]
    pub fn is_redelivered(&self) -> bool {
        self.redelivered
    }
}
