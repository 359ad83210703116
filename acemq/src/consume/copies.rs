//! The copies that replace a message which is not done with.
//!
//! A copy goes through the default exchange straight to one queue, never back through the
//! original exchange, where every bound queue would get it. It keeps all basic properties but
//! those that would misroute it or close the channel: the expiration, the user id, CC and BCC, and
//! the broker's own dead-letter history and delivery count, on which no retry may depend.

use bytes::Bytes;

use super::message::Received;
use crate::{
    envelope::{self, ERROR, Envelope, HeaderValue, Headers, REPLY_TO},
    transport::{Outgoing, Properties},
};

/// The longest reason that travels on a copy, in characters.
const MAX_REASON: usize = 1_000;

/// The longest message id in bytes that the property can hold; the header may hold a longer one.
const MAX_ID: usize = 255;

/// Room in a frame beside the header table: the frame itself and the other properties.
const FRAME_OVERHEAD: usize = 4_096;

/// A copy of the message for its next attempt.
pub(super) fn next_attempt(received: &Received, queue: &str) -> Outgoing {
    // A reason stands on what was set aside only; here one is left from before a replay.
    let next = Envelope { error: None, ..received.envelope.next_attempt() };
    let headers = envelope::write(&next);
    copy(received, queue, headers)
}

/// A copy of the message as it is, to go round once more.
pub(super) fn unchanged(received: &Received, queue: &str) -> Outgoing {
    copy(received, queue, envelope::write(&received.envelope))
}

/// A copy that is set aside, with the reason on its envelope.
pub(super) fn set_aside(
    received: &Received,
    queue: &str,
    reason: &str,
    frame_max: Option<usize>,
) -> Outgoing {
    let mut headers = envelope::write(&Envelope { error: None, ..received.envelope.clone() });
    put_reason(&mut headers, ERROR, reason, frame_max);
    copy(received, queue, headers)
}

/// A copy of a message that could not be read: its bytes and its headers as they came, and why.
pub(super) fn unread(
    received: &Received,
    queue: &str,
    reason: &str,
    frame_max: Option<usize>,
) -> Outgoing {
    let mut headers = received.properties.headers.clone();
    put_reason(&mut headers, ERROR, reason, frame_max);
    copy(received, queue, headers)
}

fn copy(received: &Received, queue: &str, headers: Headers) -> Outgoing {
    to_queue(queue, carried(received, headers), received.body.clone())
}

/// A copy of the message with these properties for that queue; `id` says what it is called where
/// its properties do not.
pub(crate) fn for_queue(
    queue: &str,
    properties: Properties,
    id: impl FnOnce() -> String,
    body: Bytes,
) -> Outgoing {
    to_queue(queue, going_on(properties, id), body)
}

fn to_queue(queue: &str, properties: Properties, body: Bytes) -> Outgoing {
    Outgoing {
        exchange: String::new(),
        routing_key: queue.to_owned(),
        mandatory: true,
        properties,
        body,
    }
}

/// The properties of a message that goes on from one that has arrived.
fn carried(received: &Received, mut headers: Headers) -> Properties {
    if !received.properties.headers.contains_key(REPLY_TO) {
        // The envelope has it from the property, which is carried on.
        headers.remove(REPLY_TO);
    }
    let arrived = &received.properties;
    let properties = Properties {
        content_type: arrived.content_type.clone(),
        content_encoding: arrived.content_encoding.clone(),
        headers,
        delivery_mode: arrived.delivery_mode,
        priority: arrived.priority,
        correlation_id: arrived.correlation_id.clone(),
        reply_to: arrived.reply_to.clone(),
        expiration: None,
        message_id: arrived.message_id.clone(),
        timestamp: arrived.timestamp,
        message_type: arrived.message_type.clone(),
        user_id: None,
        app_id: arrived.app_id.clone(),
        cluster_id: arrived.cluster_id.clone(),
    };
    going_on(properties, || received.envelope.id().to_owned())
}

/// What of these properties a message has that goes on from one that had them.
fn going_on(mut properties: Properties, id: impl FnOnce() -> String) -> Properties {
    properties.headers.retain(|name, _| !stays_behind(name));
    Properties {
        delivery_mode: Some(Properties::PERSISTENT),
        expiration: None,
        user_id: None,
        message_id: properties.message_id.take().or_else(|| Some(id()).filter(|id| fits(id))),
        ..properties
    }
}

impl Received {
    /// Has a message with another body carry on what a copy of this one would. Its id is its
    /// envelope's, and the body is in the form that it says itself.
    pub(crate) fn carry_over(&self, onward: &mut Outgoing) {
        let own = &mut onward.properties;
        let message_id = own.message_id.take().filter(|id| fits(id));
        let content_type = own.content_type.take();
        let headers = std::mem::take(&mut own.headers);
        onward.properties = Properties {
            message_id,
            content_type,
            content_encoding: None,
            ..carried(self, headers)
        };
    }
}

/// Somebody else's id may be too long for the property, which must not keep the message here.
fn fits(id: &str) -> bool {
    id.len() <= MAX_ID
}

fn stays_behind(name: &str) -> bool {
    matches!(name, "CC" | "BCC" | "x-death" | "x-delivery-count" | "x-acquired-count")
        || name.starts_with("x-first-death-")
        || name.starts_with("x-last-death-")
}

/// Puts the reason on, cut so that a person can read it and the table still fits a frame.
pub(super) fn put_reason(
    headers: &mut Headers,
    name: &str,
    reason: &str,
    frame_max: Option<usize>,
) {
    headers.remove(name);
    let mut bytes = reason.char_indices().nth(MAX_REASON).map_or(reason.len(), |(at, _)| at);
    if let Some(frame_max) = frame_max {
        let taken = envelope::encoded_len(headers) + name.len() + FRAME_OVERHEAD;
        bytes = reason.floor_char_boundary(bytes.min(frame_max.saturating_sub(taken)));
    }
    if bytes > 0 {
        headers.insert(name.to_owned(), HeaderValue::from(&reason[..bytes]));
    }
}
