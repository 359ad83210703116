//! What the peer allows, and checking it before anything is written.
//!
//! A header table that does not fit a frame ends the whole connection, a body over the broker's
//! limit closes the channel, and a short string over 255 bytes cannot be written at all: each is
//! refused here, where it is still known which message it is.

use super::convert::encoded_header_length;
use crate::{
    envelope::{HeaderValue, Headers},
    error::{Error, ErrorKind, Result},
    transport::{Limits, Outgoing},
};

/// RabbitMQ's default `max_message_size` before 4.0.
const BODY_MAX_BEFORE_4: usize = 128 * 1024 * 1024;
/// The same since.
const BODY_MAX: usize = 16 * 1024 * 1024;
/// Frame type, channel, length and end marker.
const FRAME_OVERHEAD: usize = 8;
/// Class, weight and body size, before the properties.
const CONTENT_HEADER: usize = 12;
const SHORT_STRING_MAX: usize = 255;

/// The limits of a broker of this version, given the negotiated frame size (0: none) and what
/// body the caller wants to publish at most, if not the version's default.
pub(super) fn limits(version: Option<&str>, frame_max: u32, body_max: Option<usize>) -> Limits {
    let major = version.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    Limits {
        frame_max: if frame_max == 0 { usize::MAX } else { frame_max as usize },
        body_max: body_max.unwrap_or(match major {
            Some(0..4) => BODY_MAX_BEFORE_4,
            // A peer that does not say is taken for a new one: the smaller limit is the safe one.
            Some(_) | None => BODY_MAX,
        }),
    }
}

/// Checks everything about a message that would make the broker close the channel or the
/// connection and that can be seen from here.
pub(super) fn check(message: &Outgoing, user: &str, limits: Limits) -> Result<()> {
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
    check_names(&properties.headers).map_err(|why| about(message, ErrorKind::TooLarge, &why))?;
    if let Some(claimed) = &properties.user_id
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
                "its body has {} bytes, but the broker takes {}; raise both limits or use a claim check",
                message.body.len(),
                limits.body_max
            ),
        ));
    }
    Ok(())
}

/// Checks a name that AMQP carries as a short string.
pub(super) fn check_name(action: &str, field: &str, name: &str) -> Result<()> {
    check_short(field, name)
        .map_err(|why| Error::new(ErrorKind::TooLarge, format!("{action}: {why}")))
}

/// Checks the names in a table, nested ones included.
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
