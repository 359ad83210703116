//! What a scheduled message says of itself, and the messages that are made of it.

use std::time::SystemTime;

use crate::{
    consume::Received,
    envelope::{self, HeaderValue, Headers, TYPE},
    transport::Outgoing,
};

use super::ladder::{EXCHANGE, Rung};

/// Headers that begin so belong to schedulers.
pub(super) const PREFIX: &str = "x-schedule-";

const TO_EXCHANGE: &str = "x-schedule-exchange";
const TO_ROUTING_KEY: &str = "x-schedule-routing-key";
const DUE_AT: &str = "x-schedule-due-at";
const CONTENT_TYPE: &str = "x-schedule-content-type";
/// Ours: the type that the message has once it is delivered.
const MESSAGE_TYPE: &str = "x-schedule-type";

/// The type of every message that waits.
const WAITING_TYPE: &str = "ScheduledMessage";
/// The content type of every message that waits.
const WAITING_CONTENT_TYPE: &str = "application/octet-stream";
/// The content type of a message that does not say which it has once it is delivered.
const DEFAULT_CONTENT_TYPE: &str = "application/json";

/// The last millisecond of the year 9999: libraries of the family cannot read a later one, and
/// would throw the message away.
pub(super) const LATEST: i64 = 253_402_300_799_999;

/// The longest name in bytes.
const MAX_NAME: usize = 255;

/// Where a message goes, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scheduled<'a> {
    pub(super) exchange: &'a str,
    pub(super) routing_key: &'a str,
    /// When, in milliseconds since 1970.
    pub(super) due: i64,
    content_type: &'a str,
    message_type: Option<&'a str>,
}

impl<'a> Scheduled<'a> {
    /// Reads it from a message's headers, whoever wrote them. The error says what is wrong.
    pub(super) fn read(headers: &'a Headers) -> Result<Self, String> {
        let exchange = name(headers, TO_EXCHANGE)?.ok_or_else(|| missing(TO_EXCHANGE))?;
        // A broker that reads past them would be asked for another exchange than the one that
        // it says is there.
        if exchange.contains(char::is_control) {
            return Err(format!("its header {TO_EXCHANGE} holds control characters"));
        }
        let routing_key = name(headers, TO_ROUTING_KEY)?.ok_or_else(|| missing(TO_ROUTING_KEY))?;
        if !headers.contains_key(DUE_AT) {
            return Err(missing(DUE_AT));
        }
        let due = envelope::integer(headers, DUE_AT)
            .ok_or_else(|| format!("its header {DUE_AT} is no number of milliseconds"))?;
        if due > LATEST {
            return Err(format!(
                "its header {DUE_AT} is {due}, which is after the year 9999; it has to be in \
                 milliseconds since 1970"
            ));
        }
        let content_type =
            name(headers, CONTENT_TYPE)?.filter(|content_type| !content_type.is_empty());
        Ok(Self {
            exchange,
            routing_key,
            due,
            content_type: content_type.unwrap_or(DEFAULT_CONTENT_TYPE),
            message_type: headers.get(MESSAGE_TYPE).and_then(text).filter(|text| !text.is_empty()),
        })
    }

    /// The message as its receiver gets it, with the envelope that was given for it. Its age counts
    /// from now: it was on nobody's way before.
    pub(super) fn delivery(&self, received: &Received, now: SystemTime) -> Outgoing {
        let mut envelope = received.envelope.clone();
        envelope.headers.retain(|name, _| !is_ours(name));
        envelope.message_type = self
            .message_type
            .map(str::to_owned)
            .or_else(|| envelope::text(&received.properties.headers, TYPE))
            .unwrap_or_else(|| WAITING_TYPE.to_owned());
        envelope.first_seen = Some(now);
        // It may have been among dead letters.
        (envelope.attempt, envelope.error) = (1, None);
        let id = envelope.id().to_owned();
        let target = (self.exchange.to_owned(), self.routing_key.to_owned());
        let headers = envelope::into_headers(envelope);
        let content_type = self.content_type.to_owned();
        let delivery = Outgoing::new(target, id, content_type, headers, received.body.clone());
        carry_over(received, delivery)
    }
}

/// The message on its way to a queue in which it waits on, as it came.
pub(super) fn hop(received: &Received, rung: &Rung) -> Outgoing {
    let arrived = &received.properties;
    let id = received.envelope.id().to_owned();
    let headers = arrived.headers.clone();
    let hop = Outgoing::new(to(rung), id, String::new(), headers, received.body.clone());
    let mut hop = carry_over(received, hop);
    hop.properties.content_type.clone_from(&arrived.content_type);
    hop
}

/// Makes a message that is ready to be delivered one that waits for that.
pub(super) fn postpone(message: &mut Outgoing, due: i64, rung: &Rung) {
    let (exchange, routing_key) = to(rung);
    let exchange = std::mem::replace(&mut message.exchange, exchange);
    let routing_key = std::mem::replace(&mut message.routing_key, routing_key);
    let properties = &mut message.properties;
    let content_type = properties.content_type.replace(WAITING_CONTENT_TYPE.to_owned());
    let headers = &mut properties.headers;
    let message_type = headers.insert(TYPE.to_owned(), WAITING_TYPE.into());
    let texts = [
        (TO_EXCHANGE, Some(exchange.into())),
        (TO_ROUTING_KEY, Some(routing_key.into())),
        (DUE_AT, Some(due.into())),
        (CONTENT_TYPE, content_type.map(HeaderValue::from)),
        (MESSAGE_TYPE, message_type),
    ];
    for (name, value) in texts {
        headers.extend(value.map(|value| (name.to_owned(), value)));
    }
}

fn to(rung: &Rung) -> (String, String) {
    (EXCHANGE.to_owned(), rung.queue.to_owned())
}

/// What every message carries on whose body stays as it is.
fn carry_over(received: &Received, mut message: Outgoing) -> Outgoing {
    received.carry_over(&mut message);
    message.properties.content_encoding.clone_from(&received.properties.content_encoding);
    message
}

fn is_ours(name: &str) -> bool {
    [TO_EXCHANGE, TO_ROUTING_KEY, DUE_AT, CONTENT_TYPE, MESSAGE_TYPE].contains(&name)
}

fn missing(header: &str) -> String {
    format!("it has no header {header}")
}

/// A header that becomes a short string of AMQP's.
fn name<'a>(headers: &'a Headers, header: &str) -> Result<Option<&'a str>, String> {
    let Some(value) = headers.get(header) else { return Ok(None) };
    let Some(text) = text(value) else { return Err(format!("its header {header} is no text")) };
    if text.len() > MAX_NAME {
        let bytes = text.len();
        return Err(format!(
            "its header {header} has {bytes} bytes; at most {MAX_NAME} are possible"
        ));
    }
    Ok(Some(text))
}

/// Text, which some clients write as bytes.
fn text(value: &HeaderValue) -> Option<&str> {
    match value {
        HeaderValue::Text(text) => Some(text),
        HeaderValue::Bytes(bytes) | HeaderValue::OpaqueText(bytes) => {
            std::str::from_utf8(bytes).ok()
        }
        _ => None,
    }
}
