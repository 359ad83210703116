//! Itineraries, as Go, Python, Ruby and Java write them.

use testkit::eventually;

use super::{Bench, SOON, arrivals, shout, with_headers};
use crate::{Itinerary, Queue, RetryPolicy, envelope::HeaderValue, on_every_broker};

const SLIP: &str = "acemq-routing-slip";

/// A slip with its times left out, which are those of the test.
fn without_times(slip: &str) -> String {
    let mut rest = slip;
    let mut text = String::new();
    while let Some((before, after)) = rest.split_once(r#""completedAt":""#) {
        let (time, after) = after.split_once('"').unwrap();
        let is_rfc3339 = time.len() == 20 && time.ends_with('Z');
        assert!(is_rfc3339 || time.ends_with("+00:00"), "{time}");
        text.push_str(before);
        rest = after;
    }
    text + rest
}

on_every_broker! {
    // promises: PL-9, PL-10
    async fn a_step_sends_a_message_to_the_next_stop_on_its_slip_whoever_wrote_it(broker: Broker) {
        let bench = Bench::new(&broker, &["charge", "ship"]).await;
        let (arrived, seen) = arrivals();
        // The next declared step is not where it goes.
        let line = bench
            .mq
            .pipeline(&*bench.name)
            .step("charge", shout)
            .last("ship", arrived)
            .start()
            .await
            .unwrap();
        let invoices = broker.name("invoices");
        bench.mq.declare_queue(&Queue::new(&*invoices)).await.unwrap();
        let here = format!(r#""exchange":"{}","routingKey":"charge""#, bench.name);
        let go_ruby_java = format!(
            r#"{{"steps":[{{{here},"name":"charge"}},{{"exchange":"","routingKey":"{invoices}"}}],"done":[{{"exchange":"orders-events","routingKey":"order.validate","name":"validate","completedAt":"2026-09-09T14:03:11Z"}}]}}"#
        );
        let python = format!(
            r#"{{"steps": [{{"exchange": "{}", "routingKey": "charge", "name": "charge"}}, {{"exchange": "", "routingKey": "{invoices}"}}], "done": [{{"exchange": "orders-events", "routingKey": "order.validate", "name": "validate", "completedAt": "2026-09-09T14:03:11.000123+00:00"}}]}}"#,
            bench.name
        );
        for slip in [go_ruby_java, python] {
            let arrived = with_headers([
                ("x-acemq-id", "m-1".into()),
                ("x-acemq-correlation", "corr-1".into()),
                ("x-acemq-causation", "cause-1".into()),
                (SLIP, slip.into()),
                ("x-tenant", "acme".into()),
            ]);
            bench.publish("charge", arrived, "\"o-1\"").await;
            let onward = bench.take(&invoices).await;
            assert_eq!(onward.body, "\"O-1\"");
            let headers = onward.properties.headers;
            assert_eq!(
                without_times(headers[SLIP].as_str().unwrap()),
                format!(
                    r#"{{"steps":[{{"exchange":"","routingKey":"{invoices}"}}],"done":[{{"exchange":"orders-events","routingKey":"order.validate","name":"validate",}},{{{here},"name":"charge",}}]}}"#
                )
            );
            let text = |name: &str| headers[name].as_str().unwrap();
            assert_eq!(text("x-acemq-id"), "m-1");
            assert_eq!(text("x-acemq-correlation"), "corr-1");
            assert_eq!(text("x-acemq-causation"), "cause-1");
            assert_eq!(text("x-tenant"), "acme");
            // It stays in the form that it came in.
            assert_eq!(headers.get("x-acemq-route"), None);
        }
        assert!(seen.lock().unwrap().is_empty());
        line.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    // promise: PL-9
    async fn what_is_sent_along_an_itinerary_carries_it_and_no_declared_route(broker: Broker) {
        let bench = Bench::new(&broker, &["a"]).await;
        let (arrived, _) = arrivals();
        let line = bench.mq.pipeline(&*bench.name).last("a", arrived).start().await.unwrap();
        let queue = broker.name("elsewhere");
        bench.mq.declare_queue(&Queue::new(&*queue)).await.unwrap();
        let slip = Itinerary::empty().then("", &*queue, "first").then(&*bench.name, "a", "a");
        let sent = line.send(&"o-1".to_owned()).along(slip.clone()).await.unwrap();

        let headers = bench.take(&queue).await.properties.headers;
        assert_eq!(headers[SLIP].as_str(), Some(&*slip.to_header()));
        assert!(headers.keys().all(|name| !name.starts_with("x-acemq-route")));
        assert_eq!(headers["x-acemq-correlation"].as_str(), Some(&*sent.run_id));
        line.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn of_two_slips_the_itinerary_is_followed(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b", "c"]).await;
        for step in ["a", "b", "c"] {
            bench.declare_elsewhere(step).await;
        }
        let step = bench.mq.pipeline(&*bench.name).join("a", shout).start().await.unwrap();
        let slip = Itinerary::empty().then(&*bench.name, "a", "").then(&*bench.name, "c", "");
        let both = with_headers([
            ("x-acemq-route", "a,b".into()),
            ("x-acemq-route-position", 0.into()),
            (SLIP, slip.to_header().into()),
        ]);
        bench.publish("a", both, "\"o-1\"").await;
        let headers = bench.take_at("c").await.properties.headers;
        // The other one is none of our business.
        assert_eq!(headers["x-acemq-route-position"], HeaderValue::I32(0));
        step.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    // promise: PL-12
    async fn a_slip_that_cannot_be_read_is_dead_lettered_at_once(broker: Broker) {
        let bench = Bench::new(&broker, &["a"]).await;
        bench.declare_elsewhere("a").await;
        let policy = RetryPolicy::fixed(5, SOON);
        let step =
            bench.mq.pipeline(&*bench.name).join("a", shout).retry(policy).start().await.unwrap();
        for slip in [
            "".into(),
            "a,b".into(),
            "{".into(),
            "[]".into(),
            "{}".into(),
            r#"{"steps":"a"}"#.into(),
            r#"{"steps":[{"exchange":1}]}"#.into(),
            HeaderValue::I32(7),
            HeaderValue::Null,
            HeaderValue::List(vec!["a".into()]),
            HeaderValue::OpaqueText(bytes::Bytes::from_static(b"\xff")),
        ] {
            // Not even a route that could be followed makes up for it.
            let properties = with_headers([
                (SLIP, slip.clone()),
                ("x-acemq-route", "a,b".into()),
                ("x-acemq-route-position", 0.into()),
            ]);
            bench.publish("a", properties, "\"o-1\"").await;
            let (dead, reason) = bench.take_dead("a").await;
            let expected = "the handler rejected it: read the routing slip: ";
            assert!(reason.starts_with(expected), "{slip:?}: {reason}");
            let headers = dead.properties.headers;
            assert_eq!(headers["x-acemq-attempt"], HeaderValue::I32(1));
            assert_eq!(headers[SLIP], slip);
        }
        step.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn a_slip_with_no_stop_left_is_the_end_of_the_route(broker: Broker) {
        let bench = Bench::new(&broker, &["a"]).await;
        bench.declare_elsewhere("a").await;
        let step = bench.mq.pipeline(&*bench.name).join("a", shout).start().await.unwrap();
        for slip in [r#"{"steps":[]}"#, r#"{"steps":null,"done":null}"#] {
            bench.publish("a", with_headers([(SLIP, slip.into())]), "\"o-1\"").await;
        }
        eventually("both are done", SOON, async || step.stats().await.unwrap().completed == 2).await;
        step.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn a_stop_that_cannot_be_reached_is_a_failure_that_names_it(broker: Broker) {
        let bench = Bench::new(&broker, &["a"]).await;
        bench.declare_elsewhere("a").await;
        let step = bench.mq.pipeline(&*bench.name).join("a", shout).start().await.unwrap();
        let nobody = testkit::unique("nobody");
        let long = "k".repeat(300);
        for (slip, named) in [
            (Itinerary::empty().then("", "", "a").then("", &*nobody, ""), format!("the queue \"{nobody}\"")),
            (
                Itinerary::empty().then("", "", "a").then(&*nobody, "k", ""),
                format!("the key \"k\" of the exchange \"{nobody}\""),
            ),
            (Itinerary::empty().then("", "", "a").then("", &*nobody, "nap"), "the step \"nap\"".into()),
            (Itinerary::empty().then("", "", "a").then("", long, "long"), "the step \"long\"".into()),
        ] {
            let header = slip.to_header();
            bench.publish("a", with_headers([(SLIP, (&*header).into())]), "\"o-1\"").await;
            let (dead, reason) = bench.take_dead("a").await;
            assert!(
                reason.contains(&format!("it was handled and did not arrive at {named}: ")),
                "{reason}"
            );
            assert_eq!(dead.body, "\"o-1\"");
            assert_eq!(dead.properties.headers[SLIP].as_str(), Some(&*header));
        }
        step.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }
}
