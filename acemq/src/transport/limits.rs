//! Checking a message before anything is written.
//!
//! A header table that does not fit a frame ends the whole connection, a body over the broker's
//! limit closes the channel, and a short string over 255 bytes cannot be written at all: each is
//! refused here, where it is still known which message it is.

use super::{Limits, Outgoing, Properties};
use crate::{
    counted::counted,
    envelope::{HeaderValue, Headers, encoded_len},
    error::{Error, ErrorKind, Result},
};

/// Frame type, channel, length and end marker.
const FRAME_OVERHEAD: usize = 8;
/// Class, weight and body size, before the properties.
const CONTENT_HEADER: usize = 12;
const SHORT_STRING_MAX: usize = 255;

/// Checks everything about a message that would make the broker close the channel or the
/// connection and that can be seen from here. `user` is `None` where only the broker knows it.
pub(super) fn check(message: &Outgoing, user: Option<&str>, limits: Limits) -> Result<()> {
    check_texts(message)?;
    let properties = &message.properties;
    if let (Some(claimed), Some(user)) = (&properties.user_id, user)
        && claimed != user
    {
        return Err(about(
            message,
            ErrorKind::Refused,
            &format!("its user id is {claimed:?}, but the connection is {user:?}'s; leave it out"),
        ));
    }
    let header = FRAME_OVERHEAD + CONTENT_HEADER + encoded_header_length(properties);
    if header > limits.frame_max {
        return Err(about(
            message,
            ErrorKind::TooLarge,
            &format!(
                "its headers and properties take {header} bytes, but a frame holds {}; put large values into the body",
                limits.frame_max
            ),
        ));
    }
    if message.body.len() > limits.body_max {
        return Err(about(
            message,
            ErrorKind::TooLarge,
            &format!(
                "its body has {}, but the broker takes {}; raise both limits or use a claim check",
                counted(message.body.len(), "byte"),
                limits.body_max
            ),
        ));
    }
    Ok(())
}

/// Checks what AMQP carries as short strings.
pub(crate) fn check_texts(message: &Outgoing) -> Result<()> {
    let properties = &message.properties;
    let texts = [
        ("exchange", Some(&message.exchange)),
        ("routing key", Some(&message.routing_key)),
        ("message id", properties.message_id.as_ref()),
        ("correlation id", properties.correlation_id.as_ref()),
        ("content type", properties.content_type.as_ref()),
        ("content encoding", properties.content_encoding.as_ref()),
        ("type", properties.message_type.as_ref()),
        ("reply-to", properties.reply_to.as_ref()),
        ("expiration", properties.expiration.as_ref()),
        ("user id", properties.user_id.as_ref()),
        ("app id", properties.app_id.as_ref()),
        ("cluster id", properties.cluster_id.as_ref()),
    ];
    for (field, text) in texts {
        if let Some(text) = text {
            check_short(field, text).map_err(|why| about(message, ErrorKind::TooLarge, &why))?;
        }
    }
    check_names(&properties.headers).map_err(|why| about(message, ErrorKind::TooLarge, &why))
}

/// Checks a name that AMQP carries as a short string.
#[cfg(feature = "amqp")]
pub(super) fn check_name(action: &str, field: &str, name: &str) -> Result<()> {
    check_short(field, name)
        .map_err(|why| Error::new(ErrorKind::TooLarge, format!("{action}: {why}")))
}

/// Checks the names in a table, nested ones included.
#[cfg(feature = "amqp")]
pub(super) fn check_table(action: &str, table: &Headers) -> Result<()> {
    check_names(table).map_err(|why| Error::new(ErrorKind::TooLarge, format!("{action}: {why}")))
}

fn check_short(field: &str, text: &str) -> Result<(), String> {
    if text.len() > SHORT_STRING_MAX {
        return Err(format!(
            "its {field} has {} bytes; at most {SHORT_STRING_MAX} are possible",
            text.len()
        ));
    }
    Ok(())
}

fn check_names(table: &Headers) -> Result<(), String> {
    for (name, value) in table {
        if name.len() > SHORT_STRING_MAX {
            let start: String = name.chars().take(40).collect();
            return Err(format!(
                "the header name {start:?}… has {} bytes; at most {SHORT_STRING_MAX} are possible",
                name.len()
            ));
        }
        check_names_within(value)?;
    }
    Ok(())
}

fn check_names_within(value: &HeaderValue) -> Result<(), String> {
    match value {
        HeaderValue::Table(table) => check_names(table),
        HeaderValue::List(items) => items.iter().try_for_each(check_names_within),
        _ => Ok(()),
    }
}

/// An error about one message, naming its id, exchange and routing key.
pub(super) fn about(message: &Outgoing, kind: ErrorKind, why: &str) -> Error {
    let shorten = |text: &str| text.chars().take(255).collect::<String>();
    let id = shorten(message.properties.message_id.as_deref().unwrap_or("without id"));
    let exchange = shorten(&message.exchange);
    let key = shorten(&message.routing_key);
    Error::new(
        kind,
        format!("publish message {id} to exchange {exchange:?} with routing key {key:?}: {why}"),
    )
    .with_message_id(id)
    .with_exchange(exchange)
    .with_routing_key(key)
}

/// How many bytes these properties take in a content header, flags included.
fn encoded_header_length(properties: &Properties) -> usize {
    let flags = 2;
    let texts = [
        &properties.content_type,
        &properties.content_encoding,
        &properties.correlation_id,
        &properties.reply_to,
        &properties.expiration,
        &properties.message_id,
        &properties.message_type,
        &properties.user_id,
        &properties.app_id,
        &properties.cluster_id,
    ];
    let texts: usize = texts.into_iter().flatten().map(|text| 1 + text.len()).sum();
    let numbers = properties.delivery_mode.map_or(0, |_| 1)
        + properties.priority.map_or(0, |_| 1)
        + properties.timestamp.map_or(0, |_| 8);
    let headers = if properties.headers.is_empty() { 0 } else { encoded_len(&properties.headers) };
    flags + texts + numbers + headers
}
