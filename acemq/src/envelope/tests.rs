use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::clock::from_epoch_millis;

const KEY: ReadContext<'static> =
    ReadContext { message_id: None, reply_to: None, routing_key: "order.placed" };

fn headers<const N: usize>(entries: [(&str, HeaderValue); N]) -> Headers {
    entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn read_one(name: &str, value: impl Into<HeaderValue>) -> Envelope {
    read(&headers([(name, value.into())]), KEY)
}

fn vectors() -> Value {
    serde_json::from_str(include_str!("../../tests/vectors/envelope.json")).unwrap()
}

/// The envelope that a publisher makes of a vector's `given`.
fn given(case: &Value) -> Envelope {
    let given = &case["given"];
    let text = |field: &str| given[field].as_str().map(str::to_owned);
    let mut envelope = Envelope::new(text("type").or_else(|| text("routing_key")).unwrap());
    if let Some(id) = text("id") {
        envelope = envelope.with_id(id);
    }
    if let Some(version) = given["version"].as_u64() {
        envelope = envelope.with_version(version.try_into().unwrap());
    }
    if let Some(correlation) = text("correlation_id") {
        envelope = envelope.with_correlation_id(correlation);
    }
    if let Some(causation) = text("causation_id") {
        envelope = envelope.with_causation_id(causation);
    }
    envelope = envelope
        .with_origin(text("origin").unwrap_or_else(|| "acemq@host".to_owned()))
        .with_first_seen(from_epoch_millis(given["first_seen_ms"].as_i64().unwrap_or(1)).unwrap());
    envelope.replayed = Replayed {
        from: text("replayed_from"),
        at: text("replayed_at").map(|at| read_one(REPLAYED_AT, at).replayed.at.unwrap()),
        count: given["replay_count"].as_u64().unwrap_or(0),
    };
    for (name, value) in given["headers"].as_object().into_iter().flatten() {
        envelope = envelope.with_header(name, value.as_str().unwrap()).unwrap();
    }
    envelope
}

#[test]
fn what_is_written_is_what_the_family_writes() {
    for (name, case) in vectors()["cases"].as_object().unwrap() {
        let envelope = given(case);
        let written = write(&envelope);
        let expected = case["headers"].as_object().unwrap();
        assert_eq!(
            written.keys().collect::<Vec<_>>(),
            expected.keys().collect::<Vec<_>>(),
            "{name}"
        );
        for (header, value) in &written {
            match &expected[header] {
                Value::String(made) if made == "*" => {}
                Value::String(text) => assert_eq!(value.as_str(), Some(&**text), "{name} {header}"),
                number => assert_eq!(value.as_i64(), number.as_i64(), "{name} {header}"),
            }
        }
        assert_eq!(read(&written, KEY), with_stamps_as_headers(envelope), "{name}");
    }
}

/// Whoever reads sees the stamps of a replay among the application's headers as well.
fn with_stamps_as_headers(mut envelope: Envelope) -> Envelope {
    let stamps = write(&envelope);
    let stamps = stamps.into_iter().filter(|(name, _)| !name.starts_with(RESERVED_PREFIX));
    envelope.headers.extend(stamps);
    envelope
}

#[test]
fn counters_are_32_bits_wide_and_times_are_64() {
    let written = write(&Envelope::new("t").with_first_seen(SystemTime::UNIX_EPOCH));
    assert_eq!(written[VERSION], HeaderValue::I32(1));
    assert_eq!(written[ATTEMPT], HeaderValue::I32(1));
    assert_eq!(written[FIRST_SEEN], HeaderValue::I64(0));
}

#[test]
fn a_replay_stamp_is_read_in_every_form_that_was_ever_written() {
    let vectors = vectors();
    let at = from_epoch_millis(vectors["replayed_at_millis"].as_i64().unwrap());
    for form in vectors["replayed_at"].as_array().unwrap() {
        let value: HeaderValue = match form {
            Value::String(text) => text.as_str().into(),
            number => number.as_i64().unwrap().into(),
        };
        assert_eq!(read_one(REPLAYED_AT, value).replayed.at, at, "{form}");
    }
    for unreadable in ["yesterday", "", "2026-02-30T00:00:00Z"] {
        assert_eq!(read_one(REPLAYED_AT, unreadable).replayed.at, None, "{unreadable}");
    }
}

#[test]
fn a_message_of_any_publisher_has_every_field() {
    let nothing = read(&Headers::new(), ReadContext::default());
    assert_eq!(uuid::Uuid::parse_str(nothing.id()).unwrap().get_version_num(), 4);
    assert_eq!(nothing.correlation_id(), nothing.id());
    assert_eq!(nothing.message_type(), "message");
    assert_eq!((nothing.version(), nothing.attempt()), (1, 1));
    assert_eq!((nothing.origin(), nothing.first_seen()), (None, None));
    assert_eq!(nothing.age(SystemTime::now()), Duration::ZERO);

    let context =
        ReadContext { message_id: Some("m-1"), reply_to: Some("answers"), routing_key: "k" };
    let foreign = read(&Headers::new(), context);
    assert_eq!((foreign.id(), foreign.message_type()), ("m-1", "k"));
    assert_eq!(foreign.reply_to(), Some("answers"));
    let ours = read(&headers([(ID, "h-1".into()), (REPLY_TO, "header".into())]), context);
    assert_eq!((ours.id(), ours.reply_to()), ("h-1", Some("header")));
}

#[test]
fn a_text_field_is_read_from_whatever_says_it() {
    let cases: [(HeaderValue, Option<&str>); 9] = [
        ("o@h".into(), Some("o@h")),
        (Bytes::from_static("grüße".as_bytes()).into(), Some("grüße")),
        (42.into(), Some("42")),
        (true.into(), Some("true")),
        (1.5_f64.into(), Some("1.5")),
        (HeaderValue::Decimal { scale: 2, value: 5 }, Some("0.05")),
        ("".into(), None),
        (HeaderValue::Null, None),
        (HeaderValue::List(vec!["o@h".into()]), None),
    ];
    for (value, expected) in cases {
        assert_eq!(read_one(ORIGIN, value.clone()).origin(), expected, "{value:?}");
    }
}

#[test]
fn a_forged_attempt_counts_as_the_first() {
    let forged: [HeaderValue; 9] = [
        (-1).into(),
        0.into(),
        i64::MIN.into(),
        "abc".into(),
        "9223372036854775808".into(),
        "".into(),
        1e30_f64.into(),
        HeaderValue::Null,
        HeaderValue::List(vec![3.into()]),
    ];
    for value in forged {
        assert_eq!(read_one(ATTEMPT, value.clone()).attempt(), 1, "{value:?}");
        assert_eq!(read_one(VERSION, value).version(), 1);
    }
    let read_as: [(HeaderValue, u32); 5] = [
        (3_i8.into(), 3),
        (3_u16.into(), 3),
        (i64::from(u32::MAX).into(), u32::MAX),
        (" 7 ".into(), 7),
        (Bytes::from_static(b"7").into(), 7),
    ];
    for (value, attempt) in read_as {
        assert_eq!(read_one(ATTEMPT, value).attempt(), attempt);
    }
    assert_eq!(read_one(ATTEMPT, u32::MAX).next_attempt().attempt(), u32::MAX);
}

#[test]
fn an_age_is_never_negative_and_an_unknown_one_is_young() {
    let now = from_epoch_millis(1_767_323_045_678).unwrap();
    for (first_seen, age) in [
        (HeaderValue::I64(1_767_323_044_678), 1),
        (HeaderValue::I64(1_767_323_999_999), 0),
        (HeaderValue::I64(i64::MAX), 0),
        ("1767323044678".into(), 1),
        ("yesterday".into(), 0),
    ] {
        let envelope = read_one(FIRST_SEEN, first_seen);
        assert_eq!(envelope.age(now), Duration::from_secs(age), "{:?}", envelope.first_seen());
    }
    assert!(read_one(FIRST_SEEN, i64::MIN).age(now) > Duration::from_secs(1 << 40));
}

#[test]
fn reserved_names_are_the_librarys() {
    let envelope = Envelope::new("t");
    let error = envelope.clone().with_header("x-acemq-mine", "x").unwrap_err();
    assert!(error.to_string().contains("x-acemq-mine"), "{error}");
    assert!(envelope.with_header("acemq-mine", "x").is_ok());

    let map = headers([("x-acemq-id", "x".into()), ("x-acemq-new", 1.into()), ("mine", 2.into())]);
    let left: Headers = strip_reserved(map).collect();
    assert_eq!(left, headers([("mine", 2.into())]));
}

#[test]
fn reading_hides_the_reserved_headers_and_a_copy_carries_even_the_unknown_ones() {
    let arrived = headers([
        ("x-acemq-id", "id-1".into()),
        ("x-acemq-of-a-later-version", vec![HeaderValue::from(1_u8)].into()),
        ("acemq-replay-count", 3.into()),
        ("x-tenant", "acme".into()),
    ]);
    let envelope = read(&arrived, KEY);
    let seen: Vec<&str> = envelope.headers().keys().map(String::as_str).collect();
    assert_eq!(seen, ["acemq-replay-count", "x-tenant"]);
    let written = write(&envelope);
    for (name, value) in &arrived {
        assert_eq!(written.get(name), Some(value));
    }
}

#[test]
fn a_follow_up_carries_the_correlation_and_names_its_cause() {
    let cause = Envelope::new("order.placed").with_origin("o@h").with_version(3);
    let next = cause.next_attempt().causing("payment.charged");
    assert_ne!(next.id(), cause.id());
    assert_eq!(next.correlation_id(), cause.correlation_id());
    assert_eq!(next.causation_id(), Some(cause.id()));
    assert_eq!((next.attempt(), next.version(), next.origin()), (1, 1, Some("o@h")));
}

#[test]
fn a_route_travels_with_its_position() {
    let route = Route { steps: vec!["a".into(), "b".into()], position: 1, run_id: "run-1".into() };
    let envelope = Envelope { route: Some(route), ..Envelope::new("t") };
    let written = write(&envelope);
    assert_eq!(written[ROUTE].as_str(), Some("a,b"));
    assert_eq!(written[ROUTE_POSITION], HeaderValue::I32(1));
    assert_eq!(read(&written, KEY).route(), envelope.route());
}

#[test]
fn a_route_that_cannot_be_read_is_carried_on_as_it_came() {
    for (position, read) in [
        (HeaderValue::from("1"), Some(1)),
        (HeaderValue::I64(1), Some(1)),
        (HeaderValue::from("one"), None),
        (HeaderValue::I32(-1), None),
        (HeaderValue::Null, None),
    ] {
        let arrived = headers([
            (ROUTE, "a, b".into()),
            (ROUTE_POSITION, position.clone()),
            (ROUTE_ID, "run-1".into()),
        ]);
        let envelope = super::read(&arrived, KEY);
        assert_eq!(envelope.route().map(|route| route.position), read);
        assert_eq!(envelope.has_unreadable_route(), read.is_none());
        if read.is_none() {
            let written = write(&envelope);
            for (name, value) in &arrived {
                assert_eq!(written.get(name), Some(value));
            }
        }
    }
    for absent in [HeaderValue::from(""), HeaderValue::from("a")] {
        assert!(!read_one(ROUTE, absent).has_unreadable_route());
    }
    assert!(read_one(ROUTE, HeaderValue::List(Vec::new())).has_unreadable_route());
}

fn value() -> impl Strategy<Value = HeaderValue> {
    let leaf = prop_oneof![
        Just(HeaderValue::Null),
        any::<bool>().prop_map(HeaderValue::from),
        any::<i8>().prop_map(HeaderValue::from),
        any::<u32>().prop_map(HeaderValue::from),
        any::<i64>().prop_map(HeaderValue::from),
        any::<i32>().prop_map(HeaderValue::from),
        // NaN is not equal to itself.
        any::<i16>().prop_map(|n| HeaderValue::F64(f64::from(n) / 8.0)),
        (any::<u8>(), any::<u32>())
            .prop_map(|(scale, value)| HeaderValue::Decimal { scale, value }),
        any::<u64>().prop_map(HeaderValue::Timestamp),
        "\\PC{0,12}".prop_map(HeaderValue::from),
        "-?[0-9]{1,20}".prop_map(HeaderValue::from),
        "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\\.[0-9]{1,12})?(Z|\\+00:00)"
            .prop_map(HeaderValue::from),
        proptest::collection::vec(any::<u8>(), 0..12)
            .prop_map(|bytes| HeaderValue::OpaqueText(bytes.into())),
        proptest::collection::vec(any::<u8>(), 0..12)
            .prop_map(|bytes| HeaderValue::Bytes(bytes.into())),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(HeaderValue::List),
            proptest::collection::btree_map("[a-z]{1,4}", inner, 0..4).prop_map(HeaderValue::Table),
        ]
    })
}

fn arriving() -> impl Strategy<Value = Headers> {
    let known = proptest::sample::select(vec![
        ID,
        TYPE,
        VERSION,
        CORRELATION,
        ATTEMPT,
        FIRST_SEEN,
        CAUSATION,
        ORIGIN,
        ERROR,
        CLAIM,
        ROUTE,
        ROUTE_POSITION,
        ROUTE_ID,
        REPLAYED_FROM,
        REPLAYED_AT,
        REPLAY_COUNT,
        REPLY_TO,
    ])
    .prop_map(str::to_owned);
    let name = prop_oneof![3 => known, 1 => "x-acemq-[a-z]{0,6}", 2 => "\\PC{0,16}"];
    proptest::collection::btree_map(name, value(), 0..12)
}

proptest! {
    #[test]
    fn whatever_arrives_is_read_and_no_header_of_the_applications_is_lost_or_changed(
        arrived in arriving(),
        routing_key in "\\PC{0,8}",
    ) {
        let context = ReadContext { message_id: None, reply_to: None, routing_key: &routing_key };
        let envelope = read(&arrived, context);
        let applications: BTreeMap<_, _> = arrived
            .iter()
            .filter(|(name, _)| !name.starts_with(RESERVED_PREFIX))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        prop_assert_eq!(envelope.headers(), &applications);

        let written = write(&envelope.next_attempt());
        for (name, value) in &applications {
            prop_assert_eq!(written.get(name), Some(value), "{}", name);
        }
        // What a copy says is read back as it was, as often as it is copied.
        prop_assert_eq!(read(&written, context), envelope.next_attempt());
        prop_assert!(envelope.attempt() >= 1 && envelope.version() >= 1);
        prop_assert!(!envelope.id().is_empty() && !envelope.message_type().is_empty());
    }

    #[test]
    fn reserved_headers_are_written_as_strings_and_integers_only(arrived in arriving()) {
        let envelope = Envelope { unknown: Headers::new(), ..read(&arrived, KEY) };
        for (name, value) in write(&envelope) {
            if name.starts_with(RESERVED_PREFIX) {
                let fits = match &value {
                    HeaderValue::Text(text) => !text.is_empty(),
                    value => value.as_i64().is_some(),
                };
                prop_assert!(fits, "{} = {:?}", name, value);
            }
        }
    }
}
