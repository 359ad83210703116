//! Dead letters: what a message looks like after it expired or was rejected.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::{
    envelope::{HeaderValue, Headers},
    transport::Outgoing,
};

const DEATHS: &str = "x-death";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    DeliveryLimit,
    Expired,
    Rejected,
}

impl Reason {
    fn as_str(self) -> &'static str {
        match self {
            Self::DeliveryLimit => "delivery_limit",
            Self::Expired => "expired",
            Self::Rejected => "rejected",
        }
    }
}

/// The copy of a message that goes to a dead-letter exchange: without its expiration, with one
/// more entry in `x-death`.
pub(super) fn dead_letter(
    message: &Outgoing,
    queue: &str,
    reason: Reason,
    (exchange, routing_key): (&str, Option<&str>),
    now: SystemTime,
) -> Outgoing {
    let mut copy = message.clone();
    copy.mandatory = false;
    let expiration = copy.properties.expiration.take();
    let headers = &mut copy.properties.headers;
    record_death(headers, message, queue, reason, expiration, now);
    exchange.clone_into(&mut copy.exchange);
    if let Some(routing_key) = routing_key {
        routing_key.clone_into(&mut copy.routing_key);
        headers.remove("CC");
    }
    copy
}

fn record_death(
    headers: &mut Headers,
    message: &Outgoing,
    queue: &str,
    reason: Reason,
    expiration: Option<String>,
    now: SystemTime,
) {
    let place =
        [("reason", reason.as_str()), ("queue", queue), ("exchange", message.exchange.as_str())];
    let mut deaths = match headers.remove(DEATHS) {
        Some(HeaderValue::List(deaths)) => deaths,
        _ => Vec::new(),
    };
    for (what, value) in place {
        if deaths.is_empty() {
            headers.insert(format!("x-first-death-{what}"), value.into());
        }
        headers.insert(format!("x-last-death-{what}"), value.into());
    }
    let same = deaths.iter().position(|death| {
        text(death, "queue") == Some(queue) && text(death, "reason") == Some(reason.as_str())
    });
    let death = match same.map(|index| deaths.remove(index)) {
        Some(HeaderValue::Table(mut death)) => {
            let count = death.get("count").and_then(HeaderValue::as_i64).unwrap_or(0);
            death.insert("count".to_owned(), count.saturating_add(1).into());
            death
        }
        _ => {
            let mut death: Headers =
                place.map(|(what, value)| (what.to_owned(), value.into())).into();
            let keys = std::iter::once(message.routing_key.as_str())
                .chain(copy_keys(&message.properties.headers, "CC"));
            let keys = keys.map(HeaderValue::from).collect::<Vec<_>>();
            let time = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            death.insert("count".to_owned(), HeaderValue::I64(1));
            death.insert("time".to_owned(), HeaderValue::Timestamp(time));
            death.insert("routing-keys".to_owned(), keys.into());
            if let Some(expiration) = expiration {
                death.insert("original-expiration".to_owned(), expiration.into());
            }
            death
        }
    };
    deaths.insert(0, death.into());
    headers.insert(DEATHS.to_owned(), deaths.into());
}

/// The routing keys in a `CC` or `BCC` header.
pub(super) fn copy_keys<'a>(headers: &'a Headers, name: &str) -> impl Iterator<Item = &'a str> {
    let keys = match headers.get(name) {
        Some(HeaderValue::List(keys)) => keys.as_slice(),
        _ => &[],
    };
    keys.iter().filter_map(HeaderValue::as_str)
}

/// Whether a dead letter that comes to `queue` goes round in a circle: it was there before, and
/// nobody rejected it since. RabbitMQ drops such a message, since nothing would ever stop it.
pub(super) fn goes_round(letter: &Outgoing, queue: &str) -> bool {
    let Some(HeaderValue::List(deaths)) = letter.properties.headers.get(DEATHS) else {
        return false;
    };
    let Some(before) = deaths.iter().position(|death| text(death, "queue") == Some(queue)) else {
        return false;
    };
    deaths.iter().take(before + 1).all(|death| text(death, "reason") != Some("rejected"))
}

fn text<'a>(death: &'a HeaderValue, name: &str) -> Option<&'a str> {
    match death {
        HeaderValue::Table(death) => death.get(name).and_then(HeaderValue::as_str),
        _ => None,
    }
}
