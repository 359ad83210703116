//! What a message takes with it from step to step.

use bytes::Bytes;

use super::{Bench, arrivals, shout, with_headers};
use crate::{envelope::HeaderValue, on_every_broker, support::Broker, transport::Properties};

fn arriving(broker: &Broker) -> Properties {
    Properties {
        content_encoding: Some("identity".to_owned()),
        delivery_mode: Some(1),
        correlation_id: Some("corr-property".to_owned()),
        reply_to: Some("answers".to_owned()),
        expiration: Some("60000".to_owned()),
        timestamp: Some(1_767_323_045),
        message_type: Some("type-property".to_owned()),
        user_id: Some("guest".to_owned()),
        app_id: Some("app".to_owned()),
        // The memory broker refuses priorities instead of ignoring them.
        priority: broker.memory.is_none().then_some(3),
        ..with_headers([
            ("x-acemq-id", "m-1".into()),
            ("x-acemq-attempt", 3.into()),
            ("x-acemq-error", "exhausted 3 attempts: no".into()),
            ("x-acemq-claim", "s3://orders/o-1".into()),
            ("x-acemq-version", 4.into()),
            ("x-acemq-first-seen", 1_767_323_045_678_i64.into()),
            ("x-acemq-route", "a,b".into()),
            ("x-acemq-route-position", 0.into()),
            ("x-acemq-of-a-later-version", 1.into()),
            ("acemq-replay-count", 2.into()),
            ("CC", HeaderValue::List(vec!["nobody-is-here".into()])),
            ("x-death", HeaderValue::List(Vec::new())),
            ("x-delivery-count", 7_i64.into()),
            ("opaque", HeaderValue::OpaqueText(Bytes::from_static(b"\xff"))),
            ("list", HeaderValue::List(vec!["text".into(), HeaderValue::Null, 1_i16.into()])),
        ])
    }
}

/// What becomes of these properties at the next step.
fn expected(arrived: &Properties) -> Properties {
    let mut headers = arrived.headers.clone();
    for gone in ["CC", "x-death", "x-delivery-count", "x-acemq-error"] {
        headers.remove(gone);
    }
    headers.insert("x-acemq-attempt".to_owned(), 1.into());
    headers.insert("x-acemq-route-position".to_owned(), 1.into());
    headers.insert("x-acemq-correlation".to_owned(), "m-1".into());
    headers.insert("x-acemq-type".to_owned(), "a".into());
    Properties {
        headers,
        delivery_mode: Some(Properties::PERSISTENT),
        expiration: None,
        user_id: None,
        ..arrived.clone()
    }
}

on_every_broker! {
    async fn a_hop_carries_every_property_on_but_those_that_belong_to_the_delivery(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b"]).await;
        bench.declare_elsewhere("a").await;
        bench.declare_elsewhere("b").await;
        let step = bench.mq.pipeline(&*bench.name).join("a", shout).start().await.unwrap();
        let arrived = arriving(&broker);
        bench.publish("a", arrived.clone(), "\"o-1\"").await;
        let onward = bench.take_at("b").await;
        // How the body was encoded says nothing about the new one.
        let expected = Properties { content_encoding: None, ..expected(&arrived) };
        assert_eq!(onward.properties, expected);
        assert_eq!(onward.body, "\"O-1\"");
        step.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn what_a_filter_lets_through_goes_on_byte_for_byte(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b"]).await;
        let (arrived, _) = arrivals();
        let line = bench
            .mq
            .pipeline::<String>(&*bench.name)
            .filter("a", async |_| Ok(true))
            .last("b", arrived)
            .start()
            .await
            .unwrap();
        line.step("b").unwrap().close().await.unwrap();
        let mut arrived = arriving(&broker);
        arrived.content_type = Some("application/json; charset=utf-8".to_owned());
        bench.publish("a", arrived.clone(), " \"\\u006f-1\" ").await;
        let onward = bench.take_at("b").await;
        assert_eq!(onward.body, " \"\\u006f-1\" ");
        assert_eq!(onward.properties, expected(&arrived));

        // And one without a content type stays without.
        arrived.content_type = None;
        bench.publish("a", arrived.clone(), "\"o-1\"").await;
        assert_eq!(bench.take_at("b").await.properties, expected(&arrived));
        line.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }
}
