//! Routes that name steps, as Java, .NET and Go write them.

use testkit::eventually;

use super::{Bench, SOON, arrivals, shout, with_headers};
use crate::{RetryPolicy, envelope::HeaderValue, on_every_broker};

on_every_broker! {
    // promise: PL-8
    async fn what_is_sent_in_carries_the_route_of_all_steps(broker: Broker) {
        let bench = Bench::new(&broker, &["validate", "reserve", "dispatch"]).await;
        let (arrived, _) = arrivals();
        let line = bench
            .mq
            .pipeline(&*bench.name)
            .step("validate", shout)
            .step("reserve", shout)
            .last("dispatch", arrived)
            .start()
            .await
            .unwrap();
        line.close().await.unwrap();
        let sent = line.send(&"o-1".to_owned()).id("m-1").await.unwrap();

        let message = bench.take_at("validate").await;
        let headers = &message.properties.headers;
        let text = |name: &str| headers[name].as_str().unwrap();
        assert_eq!(text("x-acemq-route"), "validate,reserve,dispatch");
        assert_eq!(headers["x-acemq-route-position"], HeaderValue::I32(0));
        assert_eq!(text("x-acemq-route-id"), sent.run_id);
        assert_eq!(uuid::Uuid::parse_str(&sent.run_id).unwrap().get_version_num(), 4);
        assert_eq!(text("x-acemq-type"), bench.name);
        assert_eq!((text("x-acemq-id"), &*sent.message_id), ("m-1", "m-1"));
        assert_eq!(headers.get("acemq-routing-slip"), None);
        assert_eq!((&*message.exchange, &*message.routing_key), (&*bench.name, "validate"));
        bench.mq.close().await.unwrap();
    }

    // promise: PL-8
    async fn a_step_in_the_middle_of_a_route_that_java_declared_sends_it_on_as_java_would(broker: Broker) {
        let bench = Bench::new(&broker, &["enrich", "dispatch"]).await;
        bench.declare_elsewhere("enrich").await;
        bench.declare_elsewhere("dispatch").await;
        let step = bench.mq.pipeline(&*bench.name).join("enrich", shout).start().await.unwrap();
        let arrived = with_headers([
            ("x-acemq-id", "6f4d2c36-8e3b-4a6e-9d0e-0d6b9f1f2a10".into()),
            ("x-acemq-type", HeaderValue::from(&*bench.name)),
            ("x-acemq-version", 1.into()),
            ("x-acemq-correlation", "corr-1".into()),
            ("x-acemq-attempt", 1.into()),
            ("x-acemq-first-seen", 1_767_323_045_678_i64.into()),
            ("x-acemq-origin", "orders@host-7".into()),
            ("x-acemq-route", "validate,enrich,dispatch".into()),
            ("x-acemq-route-position", 1.into()),
            ("x-acemq-route-id", "run-1".into()),
            ("x-tenant", "acme".into()),
        ]);
        bench.publish("enrich", arrived.clone(), "\"o-1\"").await;

        let onward = bench.take_at("dispatch").await;
        assert_eq!(onward.body, "\"O-1\"");
        let mut expected = arrived.headers;
        expected.insert("x-acemq-route-position".to_owned(), 2.into());
        assert_eq!(onward.properties.headers, expected);
        step.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn positions_are_read_in_every_width_and_as_text(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b"]).await;
        bench.declare_elsewhere("a").await;
        bench.declare_elsewhere("b").await;
        let step = bench.mq.pipeline(&*bench.name).join("a", shout).start().await.unwrap();
        for position in [HeaderValue::I64(1), HeaderValue::U8(1), " 1 ".into()] {
            let route = [("x-acemq-route", "z, a ,b".into()), ("x-acemq-route-position", position)];
            bench.publish("a", with_headers(route), "\"o-1\"").await;
            let headers = bench.take_at("b").await.properties.headers;
            assert_eq!(headers["x-acemq-route"].as_str(), Some("z,a,b"));
            assert_eq!(headers["x-acemq-route-position"], HeaderValue::I32(2));
            assert_eq!(headers.get("x-acemq-route-id"), None);
        }
        step.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn a_message_without_a_slip_is_at_the_step_whose_queue_it_came_out_of(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b", "c"]).await;
        let (arrived, seen) = arrivals();
        let line = bench
            .mq
            .pipeline::<String>(&*bench.name)
            .step("a", async |_| Ok(Some("not this way".to_owned())))
            .step("b", shout)
            .last("c", arrived)
            .start()
            .await
            .unwrap();
        bench.publish("b", with_headers([]), "\"o-1\"").await;
        eventually("it arrived", SOON, async || *seen.lock().unwrap() == ["O-1"]).await;
        eventually("the run is over", SOON, async || line.counters().completed == 1).await;
        line.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    // promise: PL-12
    async fn a_route_that_cannot_be_followed_is_dead_lettered_at_once(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b"]).await;
        bench.declare_elsewhere("a").await;
        let policy = RetryPolicy::fixed(5, SOON);
        let step =
            bench.mq.pipeline(&*bench.name).join("a", shout).retry(policy).start().await.unwrap();
        let route = |route: &str, position: HeaderValue| {
            with_headers([("x-acemq-route", route.into()), ("x-acemq-route-position", position)])
        };
        for (properties, why) in [
            (route("a,b", (-1).into()), "malformed"),
            (route("a,b", "one".into()), "malformed"),
            (route("a,b", i64::MIN.into()), "malformed"),
            (route("a,,b", 0.into()), "has no name"),
            (with_headers([]), "carries none"),
        ] {
            bench.publish("a", properties.clone(), "\"o-1\"").await;
            let (dead, reason) = bench.take_dead("a").await;
            let expected = "the handler rejected it: read the routing slip: ";
            assert!(reason.starts_with(expected) && reason.contains(why), "{reason}");
            assert_eq!(dead.properties.headers["x-acemq-attempt"], HeaderValue::I32(1));
            // Whoever looks at it sees what came.
            for (name, value) in &properties.headers {
                assert_eq!(dead.properties.headers.get(name), Some(value));
            }
        }
        step.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn a_position_past_the_end_is_the_end(broker: Broker) {
        let bench = Bench::new(&broker, &["a"]).await;
        bench.declare_elsewhere("a").await;
        let step = bench.mq.pipeline(&*bench.name).join("a", shout).start().await.unwrap();
        for position in [1, 2, i64::MAX] {
            let route =
                [("x-acemq-route", "a,b".into()), ("x-acemq-route-position", position.into())];
            bench.publish("a", with_headers(route), "\"o-1\"").await;
        }
        eventually("all are done", SOON, async || step.stats().await.unwrap().completed == 3).await;
        step.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }
}
