use std::sync::Arc;

use bytes::Bytes;

use super::{bench::*, conformance};
use crate::{
    envelope::{HeaderValue, Headers},
    transport::{Delivery, Outgoing, Properties},
};

conformance!(
    a_body_may_be_empty_or_look_like_nothing,
    every_header_type_arrives_as_it_was_sent,
    every_property_arrives_as_it_was_sent,
    what_has_no_properties_arrives_without_any,
);

async fn through(bench: &Bench, sent: Outgoing) -> Delivery {
    let queue = bench.queue().await;
    bench.publish(Outgoing { routing_key: queue.clone(), ..sent }).await.unwrap();
    bench.drain(&queue).await.remove(0)
}

async fn every_header_type_arrives_as_it_was_sent(bench: Arc<Bench>) {
    let table = |entries: &[(&str, HeaderValue)]| -> Headers {
        entries.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    };
    let headers = table(&[
        ("null", HeaderValue::Null),
        ("yes", true.into()),
        ("no", false.into()),
        ("i8", i8::MIN.into()),
        ("u8", u8::MAX.into()),
        ("i16", i16::MIN.into()),
        ("u16", u16::MAX.into()),
        ("i32", i32::MIN.into()),
        ("u32", u32::MAX.into()),
        ("i64", i64::MIN.into()),
        ("f32", 1.5_f32.into()),
        ("f64", (-0.1_f64).into()),
        ("decimal", HeaderValue::Decimal { scale: 2, value: 12_345 }),
        ("text", "grüße".into()),
        ("empty text", "".into()),
        ("opaque", HeaderValue::OpaqueText(Bytes::from_static(b"\xff\x00\xfe"))),
        ("bytes", Bytes::from_static(b"\x00\x01\xff").into()),
        ("timestamp", HeaderValue::Timestamp(1_767_323_045)),
        ("empty list", Vec::new().into()),
        ("empty table", Headers::new().into()),
        (
            "list",
            vec![
                1_i8.into(),
                "two".into(),
                vec![HeaderValue::Null, table(&[("deep", 3_i64.into())]).into()].into(),
                Headers::new().into(),
            ]
            .into(),
        ),
        (
            "table",
            table(&[
                ("list", vec![true.into()].into()),
                ("table", table(&[("bytes", Bytes::from_static(b"\x80").into())]).into()),
            ])
            .into(),
        ),
    ]);
    let mut sent = message("", "", "");
    sent.properties.headers = headers.clone();
    assert_eq!(through(&bench, sent).await.properties.headers, headers);
}

async fn every_property_arrives_as_it_was_sent(bench: Arc<Bench>) {
    let text = |text: &str| Some(text.to_owned());
    let properties = Properties {
        content_type: text("application/json"),
        content_encoding: text("gzip"),
        headers: Headers::from([("x-tenant".to_owned(), "acme".into())]),
        delivery_mode: Some(Properties::TRANSIENT),
        priority: Some(7),
        correlation_id: text("c-1"),
        reply_to: text("answers"),
        expiration: text("600000"),
        message_id: text("m-1"),
        timestamp: Some(1_767_323_045),
        message_type: text("order.placed"),
        user_id: text("guest"),
        app_id: text("shop"),
        cluster_id: text("west"),
    };
    let sent = Outgoing { properties: properties.clone(), ..message("", "", "body") };
    let arrived = through(&bench, sent).await;
    assert_eq!(arrived.properties, properties);
    assert_eq!(arrived.body, "body");
    assert!(!arrived.redelivered);
}

async fn what_has_no_properties_arrives_without_any(bench: Arc<Bench>) {
    let sent = Outgoing { properties: Properties::default(), ..message("", "", "bare") };
    assert_eq!(through(&bench, sent).await.properties, Properties::default());
}

async fn a_body_may_be_empty_or_look_like_nothing(bench: Arc<Bench>) {
    let large = "x".repeat(300_000);
    for body in ["", "0", "null", "\0", &large] {
        assert_eq!(through(&bench, message("", "", body)).await.body, body);
    }
}
