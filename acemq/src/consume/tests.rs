//! What needs messages that no publisher of ours would send, or a look at every property.

use std::{future::poll_fn, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::timeout;

use super::{HandlerError, Message};
use crate::{
    Client, MemoryIdempotencyStore, Queue, RetryPolicy,
    envelope::{HeaderValue, Headers},
    on_every_broker,
    support::Broker,
    transport::{ConsumeEvent, Delivery, Outgoing, Properties, Subscription},
};

const SOON: Duration = Duration::from_secs(30);
const MOMENT: Duration = Duration::from_millis(10);

struct Bench {
    mq: Client,
    queue: String,
}

impl Bench {
    async fn new(broker: &Broker) -> Self {
        let mq = crate::connect(&*broker.url).await.unwrap();
        let queue = broker.name("raw");
        mq.declare_queue(&Queue::new(&*queue).dead_letters()).await.unwrap();
        Self { mq, queue }
    }

    async fn publish(&self, properties: Properties, body: &'static [u8]) {
        let message = Outgoing {
            exchange: String::new(),
            routing_key: self.queue.clone(),
            mandatory: true,
            properties,
            body: Bytes::from_static(body),
        };
        self.mq.publish(Arc::new(message)).await.unwrap();
    }

    /// Takes the first message out of a queue, whole.
    async fn take(&self, queue: &str) -> Delivery {
        let link = self.mq.consuming_link().await.unwrap();
        let subscription = Subscription {
            queue: queue.to_owned(),
            prefetch: 1,
            exclusive: false,
            arguments: Headers::new(),
        };
        let mut channel = link.subscribe(subscription).await.unwrap();
        let event = timeout(SOON, poll_fn(|context| channel.poll_next(context))).await;
        let ConsumeEvent::Delivery(delivery) = event.expect("nothing came") else {
            panic!("the subscription ended")
        };
        channel.settler().ack(delivery.tag);
        channel.close().await;
        delivery
    }

    fn dead_letters(&self) -> String {
        format!("{}.dlq", self.queue)
    }

    fn parked(&self) -> String {
        format!("{}.parked", self.queue)
    }
}

async fn always_fails(_: Message<String>) -> Result<(), HandlerError> {
    Err(HandlerError::transient("no"))
}

fn with_headers<const N: usize>(headers: [(&str, HeaderValue); N]) -> Properties {
    let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Properties { headers, message_id: Some("m-1".to_owned()), ..Properties::default() }
}

on_every_broker! {
    async fn copies_keep_every_property_but_those_that_would_misroute_them(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let arrived = Properties {
            content_type: Some("application/json".to_owned()),
            content_encoding: Some("identity".to_owned()),
            delivery_mode: Some(1),
            correlation_id: Some("corr-property".to_owned()),
            reply_to: Some("answers".to_owned()),
            expiration: Some("60000".to_owned()),
            timestamp: Some(1_767_323_045),
            message_type: Some("type-property".to_owned()),
            user_id: Some("guest".to_owned()),
            app_id: Some("app".to_owned()),
            ..with_headers([
                ("x-acemq-id", "h-1".into()),
                ("x-acemq-of-a-later-version", 1.into()),
                ("CC", HeaderValue::List(vec!["nobody-is-here".into()])),
                ("x-death", HeaderValue::List(Vec::new())),
                ("x-first-death-queue", "other".into()),
                ("x-delivery-count", 7_i64.into()),
                ("decimal", HeaderValue::Decimal { scale: 2, value: 5 }),
                ("opaque", HeaderValue::OpaqueText(Bytes::from_static(b"\xff"))),
                ("bytes", Bytes::from_static(b"\x00\xff").into()),
                ("timestamp", HeaderValue::Timestamp(7)),
                ("acemq-replayed-at", "2026-02-03T04:05:06.789000+00:00".into()),
                (
                    "list",
                    HeaderValue::List(vec!["text".into(), HeaderValue::Null, 1_i16.into()]),
                ),
            ])
        };
        // The memory broker refuses priorities instead of ignoring them.
        let priority = broker.memory.is_none().then_some(3);
        bench.publish(Properties { priority, ..arrived.clone() }, b"\"o-1\"").await;
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .retry(RetryPolicy::fixed(3, MOMENT))
            .start(always_fails)
            .await
            .unwrap();
        let dead = bench.take(&bench.dead_letters()).await;
        consumer.close().await.unwrap();

        assert_eq!(&dead.body[..], b"\"o-1\"");
        let mut properties = dead.properties;
        let headers = std::mem::take(&mut properties.headers);
        let expected = Properties {
            priority,
            delivery_mode: Some(Properties::PERSISTENT),
            expiration: None,
            user_id: None,
            headers: Headers::new(),
            ..arrived.clone()
        };
        assert_eq!(properties, expected);
        for gone in ["CC", "x-death", "x-first-death-queue", "x-delivery-count", "acemq-reply-to"] {
            assert_eq!(headers.get(gone), None, "{gone}");
        }
        for (name, value) in &arrived.headers {
            let is_gone = ["CC", "x-death", "x-first-death-queue", "x-delivery-count"];
            if !is_gone.contains(&&**name) {
                assert_eq!(headers.get(name), Some(value), "{name}");
            }
        }
        assert_eq!(headers["x-acemq-attempt"], HeaderValue::I32(3));
        assert_eq!(headers["x-acemq-error"].as_str(), Some("exhausted 3 attempts: no"));
        bench.mq.close().await.unwrap();
    }

    // promise: RT-2
    async fn what_is_parked_undecoded_keeps_its_raw_headers(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let arrived = with_headers([
            ("x-acemq-attempt", "abc".into()),
            ("x-acemq-version", (-1).into()),
            ("x-tenant", "acme".into()),
        ]);
        let consumer = bench.mq.consumer::<String>(&*bench.queue).start(always_fails).await.unwrap();
        bench.publish(arrived.clone(), b"{\"a").await;
        let parked = bench.take(&bench.parked()).await;
        let mut headers = parked.properties.headers;
        let error = headers.remove("x-acemq-error").unwrap();
        assert!(error.as_str().unwrap().starts_with("could not be decoded: "), "{error:?}");
        assert_eq!(headers, arrived.headers);
        assert_eq!(&parked.body[..], b"{\"a");
        assert_eq!(parked.properties.content_type, None);
        consumer.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn forged_attempts_neither_loop_nor_break_the_consumer(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .retry(RetryPolicy::fixed(2, MOMENT))
            .start(always_fails)
            .await
            .unwrap();
        let forged: [(HeaderValue, i32); 6] = [
            ((-1).into(), 2),
            ("abc".into(), 2),
            ("9223372036854775808".into(), 2),
            (HeaderValue::Null, 2),
            (2.into(), 2),
            (i32::MAX.into(), i32::MAX),
        ];
        for (attempt, at_last) in forged {
            bench.publish(with_headers([("x-acemq-attempt", attempt.clone())]), b"\"o-1\"").await;
            let dead = bench.take(&bench.dead_letters()).await;
            let headers = dead.properties.headers;
            assert_eq!(headers["x-acemq-attempt"], HeaderValue::I32(at_last), "{attempt:?}");
        }
        consumer.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn a_message_of_a_stranger_gets_an_envelope_with_its_first_copy(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .idempotent(MemoryIdempotencyStore::new())
            .retry(RetryPolicy::fixed(2, MOMENT))
            .start(always_fails)
            .await
            .unwrap();
        bench.publish(Properties::default(), b"\"o-1\"").await;
        let dead = bench.take(&bench.dead_letters()).await;
        let headers = &dead.properties.headers;
        let id = headers["x-acemq-id"].as_str().unwrap();
        assert_eq!(dead.properties.message_id.as_deref(), Some(id));
        assert_eq!(headers["x-acemq-correlation"].as_str(), Some(id));
        assert_eq!(headers["x-acemq-type"].as_str(), Some(&*bench.queue));
        assert!(matches!(headers["x-acemq-first-seen"], HeaderValue::I64(ms) if ms > 1_700_000_000_000));
        assert_eq!(headers["x-acemq-attempt"], HeaderValue::I32(2));
        consumer.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn a_reason_left_from_before_a_replay_does_not_travel_on(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let handler = |message: Message<String>| async move {
            if message.attempt() == 1 {
                return Err(HandlerError::transient("no"));
            }
            assert_eq!(message.envelope().error(), None);
            Ok(())
        };
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .retry(RetryPolicy::fixed(2, MOMENT))
            .start(handler)
            .await
            .unwrap();
        bench.publish(with_headers([("x-acemq-error", "long ago".into())]), b"\"o-1\"").await;
        testkit::eventually("it is acknowledged", SOON, async || {
            consumer.counters().acknowledged == 1
        })
        .await;
        assert_eq!(consumer.counters().retried, 1);
        consumer.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }
}
