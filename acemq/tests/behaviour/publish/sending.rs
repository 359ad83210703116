//! One message on its way out, on every broker.

use std::{collections::HashSet, time::Duration};

use acemq::{Client, ErrorKind, Exchange, HeaderValue, Headers, Queue, Topology};
use futures_util::future::join_all;
use testkit::{eventually, unique};

use crate::{
    on_every_broker,
    support::wire::{take, take_one},
};

const SOON: Duration = Duration::from_secs(20);

/// An exchange with one queue bound under `bound`.
async fn exchange_with_queue(mq: &Client, queue: Queue, name: &str) -> String {
    let exchange = unique("exchange");
    mq.declare(
        &Topology::new()
            .exchange(Exchange::direct(&*exchange))
            .queue(queue)
            .bind(name, &*exchange, "bound"),
    )
    .await
    .unwrap();
    exchange
}

async fn tidy(mq: &Client, queue: &str, exchange: Option<&str>) {
    mq.delete_queue(queue).await.unwrap();
    if let Some(exchange) = exchange {
        mq.delete_exchange(exchange).await.unwrap();
    }
    mq.close().await.unwrap();
}

on_every_broker! {
    async fn a_send_is_over_when_the_message_is_in_a_queue(broker: Broker) {
        let mq = broker.client().await;
        let queue = unique("orders");
        let exchange = exchange_with_queue(&mq, Queue::new(&*queue), &queue).await;

        let receipt = mq.publisher::<String>(&*exchange, "bound").send(&"o-1".into()).await.unwrap();

        assert!(receipt.confirmed);
        let message = take_one(&broker, &queue).await;
        assert_eq!(message.body, b"\"o-1\"");
        assert_eq!(message.properties["message-id"], receipt.message_id);
        assert_eq!(message.properties["delivery-mode"], "2");
        tidy(&mq, &queue, Some(&exchange)).await;
    }

    async fn a_message_nobody_is_bound_for_is_an_error_that_names_it(broker: Broker) {
        let mq = broker.client().await;
        let queue = unique("orders");
        let exchange = exchange_with_queue(&mq, Queue::new(&*queue), &queue).await;
        let publisher = mq.publisher::<String>(&*exchange, "nobody");

        let error = publisher.send(&"o-1".into()).id("m-1").await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Unroutable);
        assert_eq!(error.message_id(), Some("m-1"));
        assert_eq!(error.exchange(), Some(&*exchange));
        assert_eq!(error.routing_key(), Some("nobody"));
        assert!(!error.may_have_been_published());
        let text = format!(
            "message m-1 to exchange \"{exchange}\" with key \"nobody\" reached no queue (312 \
             NO_ROUTE); the broker dropped it"
        );
        assert!(error.to_string().starts_with(&text), "{error}");
        publisher.send(&"o-2".into()).allow_unroutable().await.unwrap();
        tidy(&mq, &queue, Some(&exchange)).await;
    }

    async fn without_confirms_a_message_still_arrives_before_the_client_is_closed(broker: Broker) {
        let mq = acemq::connect(&*broker.url).without_confirms().await.unwrap();
        let queue = unique("orders");
        mq.declare_queue(&Queue::new(&*queue)).await.unwrap();
        for n in 0..500 {
            let receipt = mq.send_to_queue(&queue, &n).await.unwrap();
            assert!(!receipt.confirmed);
        }
        // Nobody is told of the one that reaches no queue.
        mq.send_to_queue(&unique("nobody"), &0).await.unwrap();
        mq.close().await.unwrap();

        let other = broker.client().await;
        eventually("all messages are in the queue", SOON, async || {
            other.inspect_queue(&queue).await.unwrap().unwrap().messages == 500
        })
        .await;
        tidy(&other, &queue, None).await;
    }

    async fn a_message_carries_what_it_was_given(broker: Broker) {
        let mq = acemq::connect(&*broker.url).client_name("shop").await.unwrap();
        let queue = unique("orders");
        mq.declare_queue(&Queue::new(&*queue).classic()).await.unwrap();
        let map = Headers::from([
            ("x-acemq-attempt".to_owned(), HeaderValue::from(7)),
            ("x-kept".to_owned(), HeaderValue::from(true)),
        ]);

        mq.send_to_queue(&queue, "o-1")
            .id("m-1")
            .correlation_id("c-1")
            .causation_id("a-1")
            .message_type("order.placed")
            .version(3)
            .claim("s3://claims/1")
            .header("x-tenant", "acme")
            .headers(map)
            .reply_to("answers")
            .priority(4)
            .expiration(Duration::from_secs(90))
            .transient()
            .await
            .unwrap();

        let message = take_one(&broker, &queue).await;
        let properties = [
            ("content-type", "application/json"),
            ("delivery-mode", "1"),
            ("expiration", "90000"),
            ("message-id", "m-1"),
            ("priority", "4"),
            ("reply-to", "answers"),
        ];
        let expected: Vec<_> = properties.map(|(name, value)| (name, value.to_owned())).into();
        assert_eq!(message.properties.into_iter().collect::<Vec<_>>(), expected);
        let header = |name: &str| message.headers[name].clone();
        for (name, value) in [
            ("x-acemq-id", "m-1"),
            ("x-acemq-type", "order.placed"),
            ("x-acemq-correlation", "c-1"),
            ("x-acemq-causation", "a-1"),
            ("x-acemq-claim", "s3://claims/1"),
            ("x-acemq-version", "3"),
            ("x-acemq-attempt", "1"),
            ("x-acemq-origin", "shop@"),
            ("acemq-reply-to", "answers"),
            ("x-tenant", "acme"),
            ("x-kept", "true"),
        ] {
            assert!(header(name).contains(value), "{name}: {}", header(name));
        }
        assert!(message.headers.contains_key("x-acemq-first-seen"));
        tidy(&mq, &queue, None).await;
    }

    async fn a_publisher_is_set_once_for_all_its_messages(broker: Broker) {
        let mq = broker.client().await;
        let queue = unique("orders");
        mq.declare_queue(&Queue::new(&*queue).classic()).await.unwrap();
        let publisher = mq
            .publisher::<String>("", &*queue)
            .codec(acemq::Text)
            .message_type("order.placed")
            .version(2)
            .transient()
            .priority(1)
            .expiration(Duration::from_millis(60_000));
        assert_eq!((publisher.exchange(), publisher.routing_key()), ("", &*queue));

        publisher.send(&"o-1".to_owned()).await.unwrap();

        let message = take_one(&broker, &queue).await;
        assert_eq!(message.body, b"o-1");
        for (name, value) in [
            ("content-type", "text/plain"),
            ("delivery-mode", "1"),
            ("expiration", "60000"),
            ("priority", "1"),
        ] {
            assert_eq!(message.properties[name], value, "{name}");
        }
        assert!(message.headers["x-acemq-version"].contains('2'));
        assert!(message.headers["x-acemq-type"].contains("order.placed"));
        tidy(&mq, &queue, None).await;
    }

    // promise: RT-5
    async fn a_return_is_matched_to_its_own_publish_with_thousands_in_flight(broker: Broker) {
        let mq =
            acemq::connect(&*broker.url).max_outstanding_publishes(3_000).await.unwrap();
        for quorum in [false, true] {
            let name = unique("orders");
            let queue = if quorum { Queue::new(&*name) } else { Queue::new(&*name).classic() };
            let exchange = exchange_with_queue(&mq, queue, &name).await;
            let bound = mq.publisher::<u32>(&*exchange, "bound");
            let nobody = mq.publisher::<u32>(&*exchange, "nobody");
            let payloads: Vec<u32> = (0..3_000).collect();
            // In the second half every id is shared by ten messages, some of them unroutable.
            let id = |n: u32| if n < 1_500 { format!("m-{n}") } else { format!("m-{}", n / 10) };

            let sends = payloads.iter().map(|n| {
                let publisher = if n % 3 == 0 { &nobody } else { &bound };
                publisher.send(n).id(id(*n)).into_future()
            });
            let results = join_all(sends).await;

            for (n, result) in results.iter().enumerate() {
                match result {
                    Ok(_) => assert_ne!(n % 3, 0, "{n} reached no queue and was confirmed"),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Unroutable, "{error}");
                        assert_eq!(n % 3, 0, "{n} is in the queue: {error}");
                        assert_eq!(error.message_id(), Some(&*id(u32::try_from(n).unwrap())));
                    }
                }
            }
            let arrived: HashSet<Vec<u8>> =
                take(&broker, &name).await.into_iter().map(|message| message.body).collect();
            let wanted = payloads.iter().filter(|n| *n % 3 != 0);
            assert_eq!(arrived, wanted.map(|n| n.to_string().into_bytes()).collect());
            mq.delete_queue(&name).await.unwrap();
            mq.delete_exchange(&exchange).await.unwrap();
        }
        mq.close().await.unwrap();
    }
}

#[tokio::test]
async fn what_cannot_be_a_message_is_refused_by_name_before_anything_is_sent() {
    let broker = crate::support::Broker::memory();
    let mq = broker.client().await;
    let send = || mq.send_to_queue("orders", "o-1");
    for (message, part) in [
        (send().header("x-acemq-attempt", 7), "x-acemq-attempt"),
        (send().version(0), "version"),
        (send().id(""), "message id"),
        (send().expiration(Duration::ZERO), "expiration"),
        (send().expiration(Duration::from_secs(1 << 32)), "expiration"),
    ] {
        let error = message.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Encode, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
    let publisher = mq.publisher::<String>("", "orders").expiration(Duration::ZERO).version(0);
    publisher.send(&"o-1".into()).await.unwrap_err();
    assert!(broker.memory.as_ref().unwrap().published().is_empty());
    mq.close().await.unwrap();
}

#[tokio::test]
async fn a_payload_that_the_codec_cannot_write_is_an_error_that_names_the_message() {
    #[derive(Debug)]
    struct Unwritable;
    impl serde::Serialize for Unwritable {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("it has no form"))
        }
    }
    let mq = crate::support::Broker::memory().client().await;

    let error = mq.send_to_queue("orders", &Unwritable).id("m-1").await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Encode);
    assert_eq!(error.message_id(), Some("m-1"));
    assert_eq!(error.routing_key(), Some("orders"));
}
