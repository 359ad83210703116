//! From headers to an envelope, whoever wrote them.

use std::time::SystemTime;

use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{
    ATTEMPT, CAUSATION, CLAIM, CORRELATION, ERROR, Envelope, FIRST_SEEN, HeaderValue, Headers, ID,
    ORIGIN, REPLAY_COUNT, REPLAYED_AT, REPLAYED_FROM, REPLY_TO, RESERVED_PREFIX, ROUTE, ROUTE_ID,
    ROUTE_POSITION, Replayed, Route, TYPE, VERSION,
};
use crate::clock::from_epoch_millis;

/// What a delivery says beside its headers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadContext<'a> {
    pub(crate) message_id: Option<&'a str>,
    pub(crate) reply_to: Option<&'a str>,
    pub(crate) routing_key: &'a str,
}

/// Reads an envelope. Never fails: every field has a default, so that a message of any publisher
/// is readable, and what cannot be read counts as not set.
pub(crate) fn read(headers: &Headers, context: ReadContext<'_>) -> Envelope {
    let id = text(headers, ID)
        .or_else(|| context.message_id.filter(|id| !id.is_empty()).map(str::to_owned))
        .unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    let message_type = text(headers, TYPE).unwrap_or_else(|| match context.routing_key {
        "" => "message".to_owned(),
        routing_key => routing_key.to_owned(),
    });
    let route = route(headers);
    Envelope {
        correlation_id: text(headers, CORRELATION).unwrap_or_else(|| id.clone()),
        id,
        message_type,
        version: counter(headers, VERSION),
        causation_id: text(headers, CAUSATION),
        origin: text(headers, ORIGIN),
        attempt: counter(headers, ATTEMPT),
        first_seen: integer(headers, FIRST_SEEN).and_then(from_epoch_millis),
        error: text(headers, ERROR),
        claim: text(headers, CLAIM),
        reply_to: text(headers, REPLY_TO)
            .or_else(|| context.reply_to.filter(|to| !to.is_empty()).map(str::to_owned)),
        replayed: Replayed {
            from: text(headers, REPLAYED_FROM),
            at: replayed_at(headers),
            count: integer(headers, REPLAY_COUNT).and_then(|n| n.try_into().ok()).unwrap_or(0),
        },
        headers: headers
            .iter()
            .filter(|(name, _)| !name.starts_with(RESERVED_PREFIX))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        unknown: headers
            .iter()
            .filter(|(name, _)| match name.as_str() {
                // Copies keep what cannot be read, for whoever looks at it.
                ROUTE | ROUTE_POSITION | ROUTE_ID => route.is_none(),
                name => name.starts_with(RESERVED_PREFIX) && !is_known(name),
            })
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        route,
    }
}

fn is_known(name: &str) -> bool {
    [ID, TYPE, VERSION, CORRELATION, ATTEMPT, FIRST_SEEN, CAUSATION, ORIGIN, ERROR, CLAIM]
        .contains(&name)
}

/// A text field: a string, bytes that are UTF-8, or any scalar's text form. Empty is absent.
pub(crate) fn text(headers: &Headers, name: &str) -> Option<String> {
    let text = match headers.get(name)? {
        HeaderValue::Text(text) => text.clone(),
        HeaderValue::Bytes(bytes) | HeaderValue::OpaqueText(bytes) => {
            String::from_utf8_lossy(bytes).into_owned()
        }
        HeaderValue::Bool(value) => value.to_string(),
        HeaderValue::F32(value) => value.to_string(),
        HeaderValue::F64(value) => value.to_string(),
        HeaderValue::Timestamp(seconds) => seconds.to_string(),
        HeaderValue::Decimal { scale, value } => decimal(*scale, *value),
        HeaderValue::Null | HeaderValue::List(_) | HeaderValue::Table(_) => return None,
        integer => integer.as_i64()?.to_string(),
    };
    Some(text).filter(|text| !text.is_empty())
}

fn decimal(scale: u8, value: u32) -> String {
    let digits = format!("{value:0>width$}", width = usize::from(scale) + 1);
    let (whole, fraction) = digits.split_at(digits.len() - usize::from(scale));
    if fraction.is_empty() { whole.to_owned() } else { format!("{whole}.{fraction}") }
}

/// An integer field: any width, or its text form. Anything else is absent.
pub(crate) fn integer(headers: &Headers, name: &str) -> Option<i64> {
    match headers.get(name)? {
        HeaderValue::Text(text) => text.trim().parse().ok(),
        HeaderValue::Bytes(bytes) | HeaderValue::OpaqueText(bytes) => {
            std::str::from_utf8(bytes).ok()?.trim().parse().ok()
        }
        value => value.as_i64(),
    }
}

/// A counter that starts at 1. A forged or broken one counts as 1.
fn counter(headers: &Headers, name: &str) -> u32 {
    integer(headers, name).and_then(|n| u32::try_from(n).ok()).filter(|n| *n >= 1).unwrap_or(1)
}

/// A route whose position cannot be read is none: taken for its first step, the message would go
/// over the way that it has come.
fn route(headers: &Headers) -> Option<Route> {
    let steps: Vec<String> =
        text(headers, ROUTE)?.split(',').map(|s| s.trim().to_owned()).collect();
    let position = match headers.get(ROUTE_POSITION) {
        Some(_) => integer(headers, ROUTE_POSITION)?.try_into().ok()?,
        None => 0,
    };
    Some(Route { steps, position, run_id: text(headers, ROUTE_ID).unwrap_or_default() })
}

/// The stamp is an RFC 3339 text today; older libraries wrote epoch milliseconds.
fn replayed_at(headers: &Headers) -> Option<SystemTime> {
    if let Some(millis) = integer(headers, REPLAYED_AT) {
        return from_epoch_millis(millis);
    }
    OffsetDateTime::parse(text(headers, REPLAYED_AT)?.trim(), &Rfc3339).ok().map(SystemTime::from)
}
