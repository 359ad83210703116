use std::time::{Duration, UNIX_EPOCH};

use proptest::prelude::*;

use super::*;
use crate::envelope::Headers;

/// The instant in the family's example.
const AT: u64 = 1_788_962_591;

fn two_stops() -> Itinerary {
    Itinerary::empty().then("orders-events", "order.validate", "validate").then(
        "orders-events",
        "order.charge",
        "charge",
    )
}

fn with_header(value: impl Into<HeaderValue>) -> Envelope {
    let headers = Headers::from([(Itinerary::HEADER.to_owned(), value.into())]);
    crate::envelope::read(&headers, crate::envelope::ReadContext::default())
}

// promise: PL-9
#[test]
fn what_is_written_is_the_familys_json_to_the_byte() {
    let at = UNIX_EPOCH + Duration::from_millis(AT * 1_000 + 999);
    let slip = two_stops();
    assert_eq!(
        slip.to_header(),
        r#"{"steps":[{"exchange":"orders-events","routingKey":"order.validate","name":"validate"},{"exchange":"orders-events","routingKey":"order.charge","name":"charge"}]}"#
    );
    let slip = slip.advance(at);
    assert_eq!(
        slip.to_header(),
        r#"{"steps":[{"exchange":"orders-events","routingKey":"order.charge","name":"charge"}],"done":[{"exchange":"orders-events","routingKey":"order.validate","name":"validate","completedAt":"2026-09-09T14:03:11Z"}]}"#
    );
    let slip = Itinerary::empty().then("", "invoices", "").advance(at);
    assert_eq!(
        slip.to_header(),
        r#"{"steps":[],"done":[{"exchange":"","routingKey":"invoices","completedAt":"2026-09-09T14:03:11Z"}]}"#
    );
}

// promise: PL-9
#[test]
fn what_any_library_of_the_family_writes_is_read() {
    let java_go_ruby = r#"{"steps":[{"exchange":"orders-events","routingKey":"order.charge","name":"charge"}],"done":[{"exchange":"orders-events","routingKey":"order.validate","name":"validate","completedAt":"2026-09-09T14:03:11Z"}]}"#;
    let python = r#"{"steps": [{"exchange": "orders-events", "routingKey": "order.charge", "name": "charge"}], "done": [{"exchange": "orders-events", "routingKey": "order.validate", "name": "validate", "completedAt": "2026-09-09T14:03:11.000000+00:00"}]}"#;
    for written in [java_go_ruby, python] {
        let slip = Itinerary::parse(written).unwrap();
        assert_eq!(slip.next().unwrap().routing_key(), "order.charge");
        assert_eq!(slip.next().unwrap().completed_at(), None);
        let [validated] = slip.done() else { panic!("{slip}") };
        assert_eq!(validated.name(), "validate");
        assert_eq!(validated.completed_at(), Some(UNIX_EPOCH + Duration::from_secs(AT)));
    }
    // What was made elsewhere is handed on as it came.
    let python = Itinerary::parse(python).unwrap();
    assert!(python.to_header().contains(r#""completedAt":"2026-09-09T14:03:11.000000+00:00""#));

    let empty =
        [r#"{"steps":[]}"#, r#"{"steps": [], "done": []}"#, r#"{"steps":null,"done":null}"#];
    for written in empty {
        assert_eq!(Itinerary::parse(written).unwrap(), Itinerary::empty());
    }
}

#[test]
fn what_is_not_known_is_passed_over_and_what_is_absent_is_empty() {
    let slip = Itinerary::parse(
        r#" {"version":2,"steps":[{"routingKey":"q","retries":{"max":[3]}},{"exchange":null}]} "#,
    );
    assert_eq!(slip.unwrap(), Itinerary::empty().then("", "q", "").then("", "", ""));
}

#[test]
fn what_is_no_itinerary_is_refused() {
    let deep = format!("{{\"steps\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    for text in [
        "",
        "charge",
        "null",
        "[]",
        "{",
        "{}",
        r#"{"done":[]}"#,
        r#"{"steps":{}}"#,
        r#"{"steps":"charge"}"#,
        r#"{"steps":["charge"]}"#,
        r#"{"steps":[["orders-events","order.charge"]]}"#,
        r#"{"steps":[],"done":7}"#,
        r#"{"steps":[],"done":[null]}"#,
        r#"{"steps":[{"exchange":7}]}"#,
        r#"{"steps":[{"routingKey":true}]}"#,
        r#"{"steps":[{"name":["charge"]}]}"#,
        r#"{"steps":[{"completedAt":1788962591}]}"#,
        r#"{"steps":[]} {"steps":[]}"#,
        &deep,
    ] {
        let error = Itinerary::parse(text).unwrap_err();
        let shown: String = text.chars().take(60).collect();
        assert_eq!(error.kind(), ErrorKind::Decode, "{shown}");
        assert!(error.to_string().starts_with("read the routing slip: "), "{shown}: {error}");
    }
}

#[test]
fn the_header_is_text_or_bytes_of_it() {
    let text = two_stops().to_header();
    for value in [
        HeaderValue::from(&*text),
        HeaderValue::Bytes(text.clone().into()),
        HeaderValue::OpaqueText(text.into()),
    ] {
        assert_eq!(Itinerary::of(&with_header(value)).unwrap(), Some(two_stops()));
    }
    for value in [
        HeaderValue::Null,
        HeaderValue::I64(7),
        HeaderValue::List(Vec::new()),
        HeaderValue::OpaqueText(vec![0xFF].into()),
    ] {
        assert_eq!(Itinerary::of(&with_header(value)).unwrap_err().kind(), ErrorKind::Decode);
    }
    assert_eq!(Itinerary::of(&Envelope::new("t")).unwrap(), None);
}

// promise: PL-11
#[test]
fn adding_a_stop_and_advancing_make_a_new_itinerary() {
    let held = two_stops();
    let longer = held.clone().then("orders-events", "order.ship", "ship");
    let advanced = held.advance(UNIX_EPOCH);
    assert_eq!((held.steps().len(), held.done().len()), (2, 0));
    assert_eq!(longer.steps().len(), 3);
    assert_eq!((advanced.steps().len(), advanced.done().len()), (1, 1));
    assert_eq!(advanced.done()[0].completed_at(), Some(UNIX_EPOCH));

    let finished = advanced.advance(UNIX_EPOCH);
    assert!(finished.is_finished());
    assert_eq!(finished.next(), None);
    assert_eq!(finished.advance(UNIX_EPOCH), finished);
}

#[test]
fn people_see_where_it_has_been_and_where_it_goes() {
    let slip = two_stops().then("", "invoices", "").advance(UNIX_EPOCH);
    assert_eq!(slip.to_string(), "done: validate, next: charge -> /invoices");
}

fn stop() -> impl Strategy<Value = (String, String, String)> {
    ("\\PC{0,12}", "\\PC{0,12}", "\\PC{0,12}")
}

proptest! {
    #[test]
    fn an_itinerary_is_read_as_it_was_written_at_every_stop(
        stops in proptest::collection::vec(stop(), 0..8),
        seconds in 0_u64..200_000_000_000,
    ) {
        let at = UNIX_EPOCH + Duration::from_secs(seconds);
        let mut slip = Itinerary::empty();
        for (exchange, routing_key, name) in stops {
            slip = slip.then(exchange, routing_key, name);
        }
        let longest = slip.longest_header();
        loop {
            prop_assert_eq!(&Itinerary::parse(&slip.to_header()).unwrap(), &slip);
            prop_assert!(slip.to_header().len() <= longest);
            if slip.is_finished() {
                break;
            }
            slip = slip.advance(at);
            prop_assert_eq!(slip.done().last().unwrap().completed_at(), Some(at));
        }
    }

    #[test]
    fn whatever_stands_in_the_header_is_read_or_refused(text in "\\PC{0,64}") {
        let _ = Itinerary::parse(&text);
    }
}
