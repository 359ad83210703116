//! What is scheduled, and what arrives.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use acemq::{Envelope, Exchange, HeaderValue, RawBytes, Text, Topology};
use bytes::Bytes;
use testkit::eventually;

use crate::{
    consumer::bench::SOON,
    on_every_broker,
    scheduler::bench::{Bench, MOMENT},
    support::{Broker, wire},
};

on_every_broker! {
    // promise: SC-1
    async fn a_message_arrives_after_its_delay_or_at_its_time_and_what_is_past_at_once(
        broker: Broker
    ) {
        let bench = Bench::new(&broker).await;
        let mut arrivals = bench.receive().await;
        let delay = Duration::from_millis(2_600);
        let (begun, at) = (Instant::now(), SystemTime::now() + delay);
        bench.after(delay, "after").await;
        bench.scheduler.at(at, "", &*bench.queue, "at").await.unwrap();
        bench.after(Duration::from_millis(900), "soon").await;
        bench.scheduler.at(UNIX_EPOCH, "", &*bench.queue, "long past").await.unwrap();
        let before = UNIX_EPOCH - Duration::from_secs(1_000_000);
        bench.scheduler.at(before, "", &*bench.queue, "longer past").await.unwrap();

        for expected in ["soon", "long past", "longer past"] {
            assert_eq!(arrivals.next().await.payload(), expected);
        }
        let mut late = [arrivals.next().await, arrivals.next().await].map(|m| m.into_payload());
        assert!(begun.elapsed() >= delay - Duration::from_secs(1), "after {:?}", begun.elapsed());
        late.sort();
        assert_eq!(late, ["after", "at"]);
        bench.mq.close().await.unwrap();
    }

    // promise: SC-2
    async fn a_short_delay_does_not_wait_behind_a_long_one(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let mut arrivals = bench.receive().await;
        let begun = Instant::now();
        bench.after(Duration::from_millis(10_500), "long").await;
        bench.after(Duration::from_millis(3_300), "odd").await;
        bench.after(MOMENT, "short").await;
        bench.after(Duration::ZERO, "none").await;
        for expected in ["none", "short", "odd"] {
            assert_eq!(arrivals.next().await.payload(), expected);
        }
        assert_eq!(arrivals.next().await.payload(), "long");
        assert!(begun.elapsed() >= Duration::from_millis(9_500), "after {:?}", begun.elapsed());
        bench.mq.close().await.unwrap();
    }

    // promise: SC-5
    async fn what_is_delivered_is_on_the_wire_what_a_send_would_have_made_it(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let exchange = broker.exchange("billing");
        let topology = Topology::new()
            .exchange(Exchange::topic(&*exchange))
            .bind(&*bench.queue, &*exchange, "invoice.*");
        bench.mq.declare(&topology).await.unwrap();
        let body = Bytes::from_static(b"\xff\x00 not text");
        let codec = || RawBytes::of_type("application/pdf");
        let cause = Envelope::new("order.placed").with_correlation_id("checkout-7");
        let headers = BTreeMap::from([
            ("x-tenant".to_owned(), HeaderValue::from("acme")),
            ("x-small".to_owned(), HeaderValue::I8(-3)),
            ("traceparent".to_owned(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        ]);

        let publisher = bench.mq.publisher::<Bytes>(&*exchange, "invoice.due").codec(codec());
        let sent = publisher.message_type("invoice").version(3);
        sent.send(&body).id("i-7").caused_by(&cause).claim("s3://i").headers(headers.clone()).await.unwrap();
        eventually("it is there", SOON, async || bench.ready(&bench.queue).await == 1).await;
        let mut expected = wire::take_one(&broker, &bench.queue).await;

        let to = bench.scheduler.to::<Bytes>(&*exchange, "invoice.due").codec(codec());
        let scheduled = to.message_type("invoice").version(3);
        for delay in [Duration::ZERO, MOMENT] {
            bench.mq.purge_queue(&bench.queue).await.unwrap();
            scheduled
                .after(delay, &body)
                .id("i-7")
                .caused_by(&cause)
                .claim("s3://i")
                .headers(headers.clone())
                .await
                .unwrap();
            eventually("it arrives", SOON, async || bench.ready(&bench.queue).await == 1).await;
            let mut delivered = wire::take_one(&broker, &bench.queue).await;
            // Each was first published at a time of its own.
            for message in [&mut expected, &mut delivered] {
                message.headers.insert("x-acemq-first-seen".to_owned(), String::new());
            }
            assert_eq!(delivered, expected, "{delay:?}");
        }
        bench.mq.close().await.unwrap();
    }

    // promise: SC-5
    async fn the_envelope_given_at_the_scheduling_arrives_and_its_age_counts_from_the_delivery(
        broker: Broker
    ) {
        let bench = Bench::new(&broker).await;
        let mut arrivals = bench.receive().await;
        let reminders = bench.scheduler.to::<String>("", &*bench.queue).codec(Text);
        let delay = Duration::from_millis(3_200);
        let receipt = reminders
            .after(delay, &"water the plants".to_owned())
            .id("plants-7")
            .correlation_id("garden")
            .causation_id("sunday")
            .message_type("reminder")
            .header("x-tenant", "acme")
            .await
            .unwrap();
        assert_eq!(receipt.message_id, "plants-7");
        assert!(receipt.confirmed);

        let message = arrivals.next().await;
        let envelope = message.envelope();
        assert_eq!(message.payload(), "water the plants");
        assert_eq!(message.content_type(), Some("text/plain"));
        assert_eq!(message.id(), "plants-7");
        assert_eq!(envelope.correlation_id(), "garden");
        assert_eq!(envelope.causation_id(), Some("sunday"));
        assert_eq!(envelope.message_type(), "reminder");
        assert_eq!((envelope.version(), envelope.attempt()), (1, 1));
        assert_eq!(envelope.origin(), Some(bench.mq.origin()));
        assert_eq!(message.headers().keys().collect::<Vec<_>>(), ["x-tenant"]);
        assert_eq!(message.header("x-tenant"), Some(&"acme".into()));
        assert!(message.age() < Duration::from_secs(2), "{:?}", message.age());
        bench.mq.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_time_with_a_zone_is_the_moment_that_it_names() {
    let broker = Broker::memory();
    let bench = Bench::new(&broker).await;
    let utc = time::OffsetDateTime::from_unix_timestamp(4_102_444_800).unwrap();
    let elsewhere = utc.to_offset(time::UtcOffset::from_hms(5, 45, 0).unwrap());
    assert_ne!(utc.hour(), elsewhere.hour());
    let to = bench.scheduler.to::<u8>("", &*bench.queue);
    to.at(utc, &1).await.unwrap();
    to.at(elsewhere, &1).await.unwrap();
    to.at(SystemTime::from(utc), &1).await.unwrap();
    for waiting in broker.memory.as_ref().unwrap().queue("acemq.schedule.1h").unwrap() {
        assert_eq!(waiting.headers()["x-schedule-due-at"], HeaderValue::I64(4_102_444_800_000));
    }
    bench.mq.close().await.unwrap();
}

// What other languages read while it waits.
#[tokio::test]
async fn a_message_that_waits_is_on_the_wire_as_the_family_has_it() {
    let broker = Broker::memory();
    let bench = Bench::new(&broker).await;
    let due = UNIX_EPOCH + Duration::from_millis(4_102_444_800_123); // 2100
    let message = bench.scheduler.at(due, "billing", "invoice.due", &7);
    message.id("i-7").correlation_id("c-7").header("x-tenant", "acme").await.unwrap();

    let [waiting] = &*broker.memory.as_ref().unwrap().queue("acemq.schedule.1h").unwrap() else {
        panic!("it does not wait there")
    };
    assert_eq!(&**waiting.body(), b"7");
    assert_eq!(
        (waiting.exchange(), waiting.routing_key()),
        ("acemq.schedule", "acemq.schedule.1h")
    );
    assert_eq!(waiting.content_type(), Some("application/octet-stream"));
    assert_eq!(waiting.message_id(), Some("i-7"));
    assert_eq!((waiting.expiration(), waiting.is_persistent()), (None, true));
    let headers = waiting.headers();
    let texts = [
        ("x-schedule-exchange", "billing"),
        ("x-schedule-routing-key", "invoice.due"),
        ("x-schedule-content-type", "application/json"),
        ("x-schedule-type", "invoice.due"),
        ("x-acemq-type", "ScheduledMessage"),
        ("x-acemq-id", "i-7"),
        ("x-acemq-correlation", "c-7"),
        ("x-tenant", "acme"),
    ];
    for (name, text) in texts {
        assert_eq!(headers.get(name), Some(&text.into()), "{name}");
    }
    assert_eq!(headers["x-schedule-due-at"], HeaderValue::I64(4_102_444_800_123));
    bench.mq.close().await.unwrap();
}
