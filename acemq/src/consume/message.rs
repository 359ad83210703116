//! A message as its handler sees it.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;

use crate::{
    clock::Clock,
    envelope::{self, Envelope, HeaderValue, Headers, ReadContext},
    transport::{Delivery, Properties, STREAM_OFFSET},
};

/// What arrived, beside the decoded payload. Shared between the handler and the settlement.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) envelope: Envelope,
    pub(crate) queue: Arc<str>,
    pub(crate) exchange: String,
    pub(crate) routing_key: String,
    pub(crate) redelivered: bool,
    pub(crate) properties: Properties,
    pub(crate) body: Bytes,
    pub(crate) clock: Clock,
}

impl Received {
    pub(crate) fn new(
        delivery: Delivery,
        envelope: Envelope,
        queue: Arc<str>,
        clock: Clock,
    ) -> Self {
        Self {
            envelope,
            queue,
            exchange: delivery.exchange,
            routing_key: delivery.routing_key,
            redelivered: delivery.redelivered,
            properties: delivery.properties,
            body: delivery.body,
            clock,
        }
    }

    /// What has arrived, with its envelope read.
    pub(crate) fn read(delivery: Delivery, queue: Arc<str>, clock: Clock) -> Self {
        let mut envelope = envelope::read(
            &delivery.properties.headers,
            ReadContext {
                message_id: delivery.properties.message_id.as_deref(),
                reply_to: delivery.properties.reply_to.as_deref(),
                routing_key: &delivery.routing_key,
            },
        );
        // From the first copy on, a message of unknown age has one.
        envelope.first_seen.get_or_insert_with(|| clock.now());
        Self::new(delivery, envelope, queue, clock)
    }

    /// As it came, to be handled once more.
    pub(super) fn delivery(&self, tag: u64) -> Delivery {
        Delivery {
            tag,
            redelivered: self.redelivered,
            exchange: self.exchange.clone(),
            routing_key: self.routing_key.clone(),
            properties: self.properties.clone(),
            body: self.body.clone(),
        }
    }

    pub(crate) fn with_envelope(&self, envelope: Envelope) -> Self {
        Self {
            envelope,
            queue: Arc::clone(&self.queue),
            exchange: self.exchange.clone(),
            routing_key: self.routing_key.clone(),
            properties: self.properties.clone(),
            body: self.body.clone(),
            ..*self
        }
    }
}

/// Where a message stands in its stream.
pub(crate) fn stream_offset(headers: &Headers) -> Option<u64> {
    headers.get(STREAM_OFFSET)?.as_i64()?.try_into().ok()
}

/// A message with its payload decoded.
pub struct Message<T> {
    payload: T,
    received: Arc<Received>,
}

impl<T> Message<T> {
    pub(crate) fn new(payload: T, received: Arc<Received>) -> Self {
        Self { payload, received }
    }

    /// All but the payload, for who needs it after the handler has had the message.
    pub(crate) fn received(&self) -> Arc<Received> {
        Arc::clone(&self.received)
    }

    /// What the message carries.
    #[must_use]
    pub fn payload(&self) -> &T {
        &self.payload
    }

    /// What the message carries, without the rest.
    #[must_use]
    pub fn into_payload(self) -> T {
        self.payload
    }

    /// What the message says about itself.
    #[must_use]
    pub fn envelope(&self) -> &Envelope {
        &self.received.envelope
    }

    /// The message id.
    #[must_use]
    pub fn id(&self) -> &str {
        self.received.envelope.id()
    }

    /// Which attempt at handling it this is, counted from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.received.envelope.attempt()
    }

    /// The application's headers.
    #[must_use]
    pub fn headers(&self) -> &Headers {
        self.received.envelope.headers()
    }

    /// One of the application's headers.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&HeaderValue> {
        self.headers().get(name)
    }

    /// How old the message is; zero where its sender did not say.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.received.envelope.age(self.now())
    }

    /// The time now, on the client's clock.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        self.received.clock.now()
    }

    /// The queue it came out of.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.received.queue
    }

    /// The exchange it was published to; empty for the default exchange, as after a retry.
    #[must_use]
    pub fn exchange(&self) -> &str {
        &self.received.exchange
    }

    /// The key it was published under.
    #[must_use]
    pub fn routing_key(&self) -> &str {
        &self.received.routing_key
    }

    /// Whether the broker has delivered it before.
    #[must_use]
    pub fn redelivered(&self) -> bool {
        self.received.redelivered
    }

    /// Where it stands in the stream that it was read from; `None` for a message of a queue.
    #[must_use]
    pub fn stream_offset(&self) -> Option<u64> {
        stream_offset(&self.received.properties.headers)
    }

    /// The body as it arrived.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        &self.received.body
    }

    /// What its sender says the body is.
    #[must_use]
    pub fn content_type(&self) -> Option<&str> {
        self.received.properties.content_type.as_deref()
    }
}

impl<T: fmt::Debug> fmt::Debug for Message<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("queue", &self.received.queue)
            .field("envelope", &self.received.envelope)
            .field("payload", &self.payload)
            .finish_non_exhaustive()
    }
}
