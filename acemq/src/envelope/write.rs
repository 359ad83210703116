//! From an envelope to headers.

use std::time::SystemTime;

use time::{OffsetDateTime, macros::format_description};

use super::{
    ATTEMPT, CAUSATION, CLAIM, CORRELATION, ERROR, Envelope, FIRST_SEEN, HeaderValue, Headers, ID,
    ORIGIN, REPLAY_COUNT, REPLAYED_AT, REPLAYED_FROM, REPLY_TO, RESERVED_PREFIX, ROUTE, ROUTE_ID,
    ROUTE_POSITION, TYPE, VERSION,
};
use crate::{
    clock::epoch_millis,
    error::{Error, ErrorKind, Result},
};

/// Writes everything an envelope says into one header table.
///
/// Reserved headers are strings and integers only, and one that is not set is left out. What the
/// application's own headers say already (`acemq-…` of a message on its way) stays as it came.
pub(crate) fn write(envelope: &Envelope) -> Headers {
    into_headers(envelope.clone())
}

/// As [`write`], of an envelope that is not needed any more.
pub(crate) fn into_headers(envelope: Envelope) -> Headers {
    let mut headers = envelope.headers;
    headers.extend(envelope.unknown);
    let mut put = |name: &str, value: HeaderValue| {
        headers.entry(name.to_owned()).or_insert(value);
    };
    put(ID, envelope.id.into());
    put(TYPE, envelope.message_type.into());
    put(VERSION, integer(envelope.version));
    put(CORRELATION, envelope.correlation_id.into());
    put(ATTEMPT, integer(envelope.attempt));
    if let Some(first_seen) = envelope.first_seen {
        put(FIRST_SEEN, epoch_millis(first_seen).into());
    }
    let optional = [
        (CAUSATION, envelope.causation_id),
        (ORIGIN, envelope.origin),
        (ERROR, envelope.error),
        (CLAIM, envelope.claim),
        (REPLY_TO, envelope.reply_to),
        (REPLAYED_FROM, envelope.replayed.from),
    ];
    for (name, value) in optional {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            put(name, value.into());
        }
    }
    if let Some(route) = envelope.route {
        put(ROUTE, route.steps.join(",").into());
        put(ROUTE_POSITION, integer(route.position));
        if !route.run_id.is_empty() {
            put(ROUTE_ID, route.run_id.into());
        }
    }
    if let Some(at) = envelope.replayed.at.and_then(rfc3339_millis) {
        put(REPLAYED_AT, at.into());
    }
    if envelope.replayed.count > 0 {
        put(REPLAY_COUNT, integer(envelope.replayed.count));
    }
    headers
}

/// A 32-bit integer as the family writes it, or a wider one for what somebody made larger.
pub(super) fn integer(value: impl TryInto<i64>) -> HeaderValue {
    let value = value.try_into().unwrap_or(i64::MAX);
    i32::try_from(value).map_or_else(|_| value.into(), HeaderValue::from)
}

/// RFC 3339 in UTC with milliseconds and `Z`; `None` for a time that the form cannot say.
pub(super) fn rfc3339_millis(at: SystemTime) -> Option<String> {
    let format =
        format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    let nanos = i128::from(epoch_millis(at)) * 1_000_000;
    OffsetDateTime::from_unix_timestamp_nanos(nanos).ok()?.format(format).ok()
}

/// Refuses a header of the application's that carries a reserved name or one that does not fit
/// the wire.
pub(crate) fn check_application_header(name: &str) -> Result<()> {
    if name.starts_with(RESERVED_PREFIX) {
        return Err(Error::new(
            ErrorKind::Encode,
            format!(
                "set header `{name}`: names that begin with `{RESERVED_PREFIX}` belong to the \
                 library; use another name, or the method for that field"
            ),
        ));
    }
    Ok(())
}

/// Leaves the reserved names out of a whole map of headers, as the family does.
pub(crate) fn strip_reserved(headers: Headers) -> impl Iterator<Item = (String, HeaderValue)> {
    headers.into_iter().filter(|(name, _)| !name.starts_with(RESERVED_PREFIX))
}
