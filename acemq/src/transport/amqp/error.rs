//! What went wrong, from lapin's terms to ours.

mod tls;

use std::sync::Arc;

use lapin::{ErrorKind as Lapin, protocol::AMQPErrorKind};

pub(super) use self::tls::{is_of_tls, of_tls};
use super::address::Address;
use crate::error::{Conflict, Error, ErrorKind};

/// What the broker said when it closed a channel or the connection.
pub(super) struct Reply<'a> {
    pub(super) code: u16,
    pub(super) text: &'a str,
}

impl<'a> Reply<'a> {
    pub(super) fn of(error: &'a lapin::Error) -> Option<Self> {
        match error.kind() {
            Lapin::ProtocolError(error) => {
                Some(Self { code: error.get_id(), text: error.get_message().as_str() })
            }
            _ => None,
        }
    }
}

/// Whether this is the end of a channel only: the connection goes on, or may go on.
pub(super) fn ends_channel_only(error: &lapin::Error) -> bool {
    match error.kind() {
        Lapin::ProtocolError(error) => matches!(error.kind(), AMQPErrorKind::Soft(_)),
        Lapin::InvalidChannelState(..) | Lapin::InvalidChannel(_) => true,
        _ => false,
    }
}

/// An error of something that was done on a channel.
pub(super) fn of_channel(action: &str, error: &lapin::Error) -> Error {
    match (Reply::of(error), error.kind()) {
        (Some(Reply { code, text }), _) => of_reply(action, code, text),
        // Nothing is wrong with what was asked for: it may be asked again.
        (None, Lapin::ChannelsLimitReached) => Error::new(
            ErrorKind::Lost,
            format!(
                "{action}: every channel of the connection is in use; raise channel_max or close consumers"
            ),
        ),
        (None, _) => lost(action, &reason(error)),
    }
}

/// What the broker's closing of a channel says about what was done on it.
pub(super) fn of_reply(action: &str, code: u16, text: &str) -> Error {
    let kind = match code {
        311 => ErrorKind::TooLarge,
        403 | 405 => ErrorKind::Refused,
        404 => {
            return Error::new(ErrorKind::NotFound, format!("{action}: {text}; declare it first"));
        }
        406 => return of_precondition(action, text),
        540 => ErrorKind::Unsupported,
        _ => return lost(action, text),
    };
    Error::new(kind, format!("{action}: {text}"))
}

/// A 406 says that something exists with other properties, or that the request cannot be met.
fn of_precondition(action: &str, text: &str) -> Error {
    let message = format!("{action}: {text}");
    match conflict(text) {
        Some(conflict) => {
            let message = format!("{message}; declare it as it is, or delete it first");
            Error::new(ErrorKind::Conflict, message).with_conflict(conflict)
        }
        None if text.contains("invalid arg 'x-priority'") && text.contains("stream") => Error::new(
            ErrorKind::Config,
            format!("{message}; it is a stream, which a stream consumer reads"),
        ),
        None if text.contains("invalid arg 'x-stream-offset'") => Error::new(
            ErrorKind::Config,
            format!("{message}; it is no stream, and an ordinary consumer consumes it"),
        ),
        None if text.contains("larger than") => Error::new(ErrorKind::TooLarge, message),
        None if text.contains("user_id property") => Error::new(ErrorKind::Refused, message),
        None => Error::new(ErrorKind::Config, message),
    }
}

/// Reads `inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received '20000' but
/// current is '10000'`, of which RabbitMQ writes variants: values without quotes, and `none of
/// type …` or `the value '…' of type '…'` around them.
pub(super) fn conflict(text: &str) -> Option<Conflict> {
    let rest = text.split_once("inequivalent arg '")?.1;
    let (argument, rest) = rest.split_once('\'')?;
    // The names of queues and virtual hosts come first and may hold anything, so from the end.
    let (before, existing) = rest.rsplit_once(" but current is ")?;
    let declared = before.rsplit_once("received ")?.1;
    Some(Conflict::new(argument, value(declared), value(existing)))
}

/// The value in `'10000'`, `the value '10000' of type 'signedint'`, `none` or `true`.
fn value(text: &str) -> &str {
    let text = text.trim();
    let text = text.strip_prefix("the value ").unwrap_or(text);
    match text.strip_prefix('\'') {
        Some(quoted) => match quoted.split_once("' of type") {
            Some((value, _)) => value,
            None => quoted.strip_suffix('\'').unwrap_or(quoted),
        },
        None => text,
    }
}

/// An error of logging in.
pub(super) fn of_dial(address: &Address, error: lapin::Error) -> Error {
    let vhost = &address.uri.vhost;
    let check = match address.is_external() {
        true => {
            "is the plugin rabbitmq_auth_mechanism_ssl enabled, EXTERNAL among its auth_mechanisms, and the certificate's name a user?"
        }
        false => "check the user and the password",
    };
    let (kind, why) = match Reply::of(&error) {
        Some(Reply { code: 403, text }) => {
            (ErrorKind::Authentication, format!("{text}; {check}"))
        }
        Some(Reply { text, .. }) if text.contains("authentication mechanism") => {
            (ErrorKind::Authentication, format!("{text}; {check}"))
        }
        Some(Reply { code: 530, text }) if text.contains("not found") => {
            (ErrorKind::NotFound, format!("the virtual host {vhost:?} does not exist: {text}"))
        }
        Some(Reply { code: 530, text }) if text.contains("limit") => {
            (ErrorKind::Connect, text.to_owned())
        }
        Some(Reply { code: 530, text }) => {
            (ErrorKind::Refused, format!("no access to the virtual host {vhost:?}: {text}"))
        }
        Some(Reply { text, .. }) => (ErrorKind::Connect, text.to_owned()),
        None => match error.kind() {
            Lapin::ParsingError(_) | Lapin::InvalidProtocolVersion(_) => {
                (ErrorKind::Connect, "the peer does not speak AMQP 0-9-1".to_owned())
            }
            Lapin::AuthProviderError(why) => (ErrorKind::Authentication, why.clone()),
            // Erlang does not always send the alert that tells of a client certificate before it
            // closes the socket (seen with RabbitMQ 3.10 and TLS 1.3).
            _ if address.wants_tls() => (
                ErrorKind::Connect,
                "the peer closed the connection while logging in; is this RabbitMQ's AMQP port? If it demands a client certificate, give it one that it takes"
                    .to_owned(),
            ),
            _ => (
                ErrorKind::Connect,
                "the peer closed the connection while logging in; is this RabbitMQ's AMQP port? If it is the one for TLS, write amqps://"
                    .to_owned(),
            ),
        },
    };
    let quoted = Reply::of(&error).is_some();
    let failed = Error::new(kind, format!("connect to {address}: {why}"));
    match error.kind() {
        Lapin::AuthProviderError(_) => failed.with_quoted_source(error),
        // Around this one lapin says the same again.
        Lapin::IOError(cause) => failed.with_source(Arc::clone(cause)),
        _ if quoted => failed.with_quoted_source(error),
        _ => failed.with_source(error),
    }
}

/// The error of a plain connection to a peer that speaks TLS.
pub(super) fn not_plain(peer: &str, error: lapin::Error) -> Error {
    Error::new(
        ErrorKind::Tls,
        format!("connect to {peer}: the peer speaks TLS there; write amqps://, or the plain port"),
    )
    .with_source(error)
}

pub(super) fn lost(action: &str, reason: &str) -> Error {
    Error::new(ErrorKind::Lost, format!("{action}: the connection was lost: {reason}"))
}

pub(super) fn timed_out(action: &str, after: std::time::Duration) -> Error {
    Error::new(ErrorKind::Timeout, format!("{action}: no answer within {after:?}"))
}

/// Why a connection or channel ended, for people.
pub(super) fn reason(error: &lapin::Error) -> String {
    match Reply::of(error) {
        Some(reply) => format!("{} ({})", reply.text, reply.code),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (String, String, String) {
        let Conflict { argument, declared, existing } = conflict(text).unwrap();
        (argument, declared, existing)
    }

    #[test]
    fn a_conflict_names_the_argument_and_both_values() {
        for (text, expected) in [
            (
                "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received '20000' but current is '10000'",
                ("x-message-ttl", "20000", "10000"),
            ),
            (
                "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received none but current is the value '10000' of type 'signedint'",
                ("x-message-ttl", "none", "10000"),
            ),
            (
                "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received the value '20000' of type 'signedint' but current is none",
                ("x-message-ttl", "20000", "none"),
            ),
            (
                "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost '/': received 'false' but current is 'true'",
                ("durable", "false", "true"),
            ),
            (
                "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'x' in vhost '/': received 'topic' but current is 'direct'",
                ("type", "topic", "direct"),
            ),
            (
                "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'it's received 'x' but current is 'y'' in vhost '/': received 'false' but current is 'true'",
                ("durable", "false", "true"),
            ),
        ] {
            let (argument, declared, existing) = parsed(text);
            assert_eq!((&*argument, &*declared, &*existing), expected, "{text}");
        }
    }

    #[test]
    fn another_precondition_is_no_conflict() {
        assert_eq!(conflict("PRECONDITION_FAILED - invalid arg 'x-max-length'"), None);
    }
}
