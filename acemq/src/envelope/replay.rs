//! The headers of a message that goes back to where it failed.

use std::time::SystemTime;

use super::{
    ATTEMPT, ERROR, HeaderValue, Headers, REPLAY_COUNT, REPLAYED_AT, REPLAYED_FROM, TYPE,
    read::integer,
    write::{self, rfc3339_millis},
};

/// The stamps as older libraries of the family called them, which no reader sees.
const OLD_STAMPS: [&str; 3] = ["x-acemq-replayed-from", "x-acemq-replayed-at", OLD_REPLAY_COUNT];
const OLD_REPLAY_COUNT: &str = "x-acemq-replay-count";

/// What a replay does to a message's headers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replay<'a> {
    pub(crate) from: &'a str,
    pub(crate) at: SystemTime,
    pub(crate) keep_attempts: bool,
}

/// Stamps the headers of a message that is replayed; all others stay as they came, also those that
/// make no sense, because whoever set the message aside may have read them otherwise.
///
/// The attempts begin anew and the reason is taken off, unless attempts are kept: it tells of the
/// attempt that it stands with.
pub(crate) fn stamp(headers: &mut Headers, replay: Replay<'_>) {
    if !replay.keep_attempts {
        headers.remove(ERROR);
        if let Some(attempt) = headers.get_mut(ATTEMPT) {
            *attempt = write::integer(1);
        }
    }
    if !headers.contains_key(TYPE)
        && let Some(key) = first_routing_key(headers)
    {
        // Without a header the type is the routing key, which the way through the broker's
        // dead-lettering has changed.
        headers.insert(TYPE.to_owned(), key.into());
    }
    let count = integer(headers, REPLAY_COUNT).or_else(|| integer(headers, OLD_REPLAY_COUNT));
    let count = count.unwrap_or(0).max(0).saturating_add(1);
    for name in OLD_STAMPS {
        headers.remove(name);
    }
    headers.insert(REPLAY_COUNT.to_owned(), write::integer(count));
    headers.insert(REPLAYED_FROM.to_owned(), replay.from.into());
    match rfc3339_millis(replay.at) {
        Some(at) => headers.insert(REPLAYED_AT.to_owned(), at.into()),
        None => headers.remove(REPLAYED_AT),
    };
}

/// The key under which a message was published that the broker has dead-lettered: its history has
/// the first death last.
fn first_routing_key(headers: &Headers) -> Option<String> {
    let HeaderValue::List(deaths) = headers.get("x-death")? else { return None };
    let HeaderValue::Table(death) = deaths.last()? else { return None };
    let HeaderValue::List(keys) = death.get("routing-keys")? else { return None };
    keys.first()?.as_str().filter(|key| !key.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::envelope::{ReadContext, read};

    fn headers<const N: usize>(entries: [(&str, HeaderValue); N]) -> Headers {
        entries.map(|(name, value)| (name.to_owned(), value)).into()
    }

    fn replayed(mut headers: Headers, keep_attempts: bool) -> Headers {
        let at = UNIX_EPOCH + Duration::from_millis(1_770_091_506_789);
        stamp(&mut headers, Replay { from: "orders.new.dlq", at, keep_attempts });
        headers
    }

    #[test]
    fn a_message_that_failed_begins_anew_and_says_where_it_was() {
        let failed = headers([
            ("x-acemq-id", "id-1".into()),
            ("x-acemq-attempt", 5.into()),
            ("x-acemq-first-seen", 1_767_323_045_678_i64.into()),
            ("x-acemq-route", "a,b".into()),
            ("x-acemq-route-position", 1.into()),
            ("x-acemq-claim", "s3://b/k".into()),
            ("x-acemq-error", "exhausted 5 attempts: no".into()),
            ("x-acemq-of-a-later-version", true.into()),
            ("x-tenant", "acme".into()),
        ]);
        let mut expected = failed.clone();
        expected.remove("x-acemq-error");
        expected.extend(headers([
            ("x-acemq-attempt", 1.into()),
            ("acemq-replayed-from", "orders.new.dlq".into()),
            ("acemq-replayed-at", "2026-02-03T04:05:06.789Z".into()),
            ("acemq-replay-count", 1.into()),
        ]));
        assert_eq!(replayed(failed.clone(), false), expected);

        let kept = replayed(failed, true);
        assert_eq!(kept["x-acemq-attempt"], 5.into());
        assert_eq!(kept["x-acemq-error"].as_str(), Some("exhausted 5 attempts: no"));
        assert_eq!(kept["acemq-replay-count"], 1.into());
    }

    #[test]
    fn the_count_of_replays_grows_whoever_wrote_it_and_in_whatever_form() {
        let cases: [(&str, HeaderValue, i64); 9] = [
            ("acemq-replay-count", 2_i64.into(), 3),
            ("acemq-replay-count", " 7 ".into(), 8),
            ("acemq-replay-count", "many".into(), 1),
            ("acemq-replay-count", (-4).into(), 1),
            ("acemq-replay-count", HeaderValue::Null, 1),
            ("acemq-replay-count", i64::MAX.into(), i64::MAX),
            ("acemq-replay-count", HeaderValue::List(vec![1.into()]), 1),
            ("x-acemq-replay-count", 4.into(), 5),
            ("x-acemq-replay-count", "4".into(), 5),
        ];
        for (name, value, expected) in cases {
            let written = replayed(headers([(name, value.clone())]), false);
            assert_eq!(written["acemq-replay-count"].as_i64(), Some(expected), "{name} {value:?}");
            assert!(!written.contains_key("x-acemq-replay-count"));
        }
    }

    #[test]
    fn a_forged_attempt_is_the_first_again_and_one_that_nobody_wrote_stays_unwritten() {
        let forged = replayed(headers([("x-acemq-attempt", "abc".into())]), false);
        assert_eq!(forged["x-acemq-attempt"], 1.into());
        let foreign = replayed(Headers::new(), false);
        let names: Vec<_> = foreign.keys().map(String::as_str).collect();
        assert_eq!(names, ["acemq-replay-count", "acemq-replayed-at", "acemq-replayed-from"]);
    }

    #[test]
    fn a_message_that_the_broker_set_aside_keeps_the_type_it_was_published_as() {
        let death = |key: HeaderValue| {
            HeaderValue::Table(headers([("routing-keys", HeaderValue::List(vec![key]))]))
        };
        let deaths =
            HeaderValue::List(vec![death("orders.new".into()), death("order.placed".into())]);
        let foreign = replayed(headers([("x-death", deaths.clone())]), false);
        let context = ReadContext { routing_key: "orders.new", ..ReadContext::default() };
        assert_eq!(read(&foreign, context).message_type(), "order.placed");
        let ours = headers([("x-death", deaths), ("x-acemq-type", "order.cancelled".into())]);
        assert_eq!(read(&replayed(ours, false), context).message_type(), "order.cancelled");

        let odd = [
            HeaderValue::Null,
            HeaderValue::List(vec![]),
            HeaderValue::List(vec![1.into()]),
            HeaderValue::List(vec![death(1.into())]),
            HeaderValue::List(vec![death("".into())]),
        ];
        for odd in odd {
            let foreign = replayed(headers([("x-death", odd.clone())]), false);
            assert_eq!(read(&foreign, context).message_type(), "orders.new", "{odd:?}");
        }
    }
}
