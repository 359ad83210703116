//! Dead letters that the library did not make.

use acemq::{HandlerError, Message, Queue, RetryPolicy};
use lapin::{
    BasicProperties, Connection, ConnectionProperties,
    options::{BasicGetOptions, BasicPublishOptions, BasicRejectOptions},
    types::{AMQPValue, FieldTable, LongString},
};
use testkit::eventually;

use crate::{
    consumer::bench::{AnyBytes, Bench, SOON, next, recorder},
    support::Broker,
};

fn table<const N: usize>(entries: [(&str, AMQPValue); N]) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in entries {
        table.insert(name.into(), value);
    }
    table
}

fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(LongString::from(text))
}

/// Publishes as a client of no library would.
async fn publish(url: &str, exchange: &str, key: &str, properties: BasicProperties) {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.confirm_select(Default::default()).await.unwrap();
    let options = BasicPublishOptions { mandatory: true, ..Default::default() };
    let sent = channel.basic_publish(exchange.into(), key.into(), options, b"{}", properties);
    assert!(sent.await.unwrap().await.unwrap().is_ack());
    connection.close(200, "OK".into()).await.unwrap();
}

async fn on_rabbitmq<F: Future<Output = ()>>(behaviour: impl Fn(Broker) -> F) {
    for url in [testkit::amqp_url(), testkit::amqp4_url()] {
        if let Some(broker) = Broker::rabbitmq(url) {
            broker.run(&behaviour).await;
        }
    }
}

// promise: RT-4
#[tokio::test]
async fn what_the_broker_itself_has_set_aside_goes_back_as_what_it_was_published() {
    on_rabbitmq(|broker| async move {
        let bench = Bench::new(&broker).await;
        publish(&broker.url, "", &bench.queue, BasicProperties::default()).await;
        let connection =
            Connection::connect(&broker.url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        bench.eventually_ready(&bench.queue, 1).await;
        let got = channel.basic_get((&*bench.queue).into(), BasicGetOptions::default());
        let got = got.await.unwrap().unwrap();
        got.delivery.reject(BasicRejectOptions { requeue: false }).await.unwrap();
        bench.eventually_ready(&bench.dead_letters(), 1).await;
        connection.close(200, "OK".into()).await.unwrap();

        let letters = bench.mq.peek(bench.dead_letters()).messages().await.unwrap();
        assert_eq!(letters[0].reason(), Some("rejected"));
        bench.eventually_ready(&bench.dead_letters(), 1).await;
        assert_eq!(bench.mq.replay(&*bench.queue).await.unwrap().moved, 1);
        let moved = bench.take(&bench.queue).await;
        assert_eq!(moved.attempt(), 1);
        assert_eq!(moved.envelope().message_type(), bench.queue);
        assert_eq!(moved.envelope().replayed().count, 1);
        assert!(!moved.headers().contains_key("x-death"));
        assert_eq!(&moved.body()[..], b"{}");
        bench.mq.close().await.unwrap();
    })
    .await;
}

// promise: RT-4
#[tokio::test]
async fn headers_that_make_no_sense_are_no_obstacle() {
    on_rabbitmq(|broker| async move {
        let bench = Bench::new(&broker).await;
        let odd = table([
            ("x-acemq-attempt", text("many")),
            ("x-acemq-version", AMQPValue::Boolean(true)),
            ("x-acemq-first-seen", text("yesterday")),
            ("x-acemq-error", AMQPValue::FieldTable(FieldTable::default())),
            ("x-acemq-replay-count", AMQPValue::ShortInt(4)),
            ("acemq-replayed-at", AMQPValue::Timestamp(7)),
            ("x-death", text("of natural causes")),
            ("CC", AMQPValue::LongLongInt(1)),
            ("mine", AMQPValue::Void),
        ]);
        let properties = BasicProperties::default()
            .with_headers(odd)
            .with_message_id("id-1".into())
            .with_expiration("86400000".into())
            .with_priority(3)
            .with_correlation_id("c".into());
        // The broker itself refuses a CC header that is none.
        let mut headers = properties.headers().clone().unwrap().inner().clone();
        headers.remove("CC");
        let properties = properties.with_headers(FieldTable::from(headers));
        publish(&broker.url, "", &bench.dead_letters(), properties).await;
        bench.eventually_ready(&bench.dead_letters(), 1).await;

        assert_eq!(
            bench.mq.replay(&*bench.queue).await.unwrap().to_string(),
            "moved 1, skipped 0 (drained)"
        );
        let wire = crate::support::wire::take_one(&broker, &bench.queue).await;
        assert_eq!(wire.properties["message-id"], "id-1");
        assert_eq!(wire.properties["priority"], "3");
        assert_eq!(wire.properties["correlation-id"], "c");
        assert!(!wire.properties.contains_key("expiration"));
        assert!(
            !wire.headers.contains_key("x-death") && !wire.headers.contains_key("x-acemq-error")
        );
        assert!(
            wire.headers.contains_key("mine") && wire.headers.contains_key("x-acemq-first-seen")
        );
        assert_eq!(wire.headers["x-acemq-attempt"], "LongInt(1)");
        assert_eq!(wire.headers["acemq-replay-count"], "LongInt(5)");
        bench.mq.close().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_foreign_message_without_an_id_has_one_from_then_on() {
    on_rabbitmq(|broker| async move {
        let bench = Bench::new(&broker).await;
        publish(&broker.url, "", &bench.dead_letters(), BasicProperties::default()).await;
        bench.eventually_ready(&bench.dead_letters(), 1).await;
        assert_eq!(bench.mq.replay(&*bench.queue).await.unwrap().moved, 1);
        let (record, mut seen) = recorder();
        let fails_once = {
            let failed = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
            move |message: Message<bytes::Bytes>| {
                let first = !failed.swap(true, std::sync::atomic::Ordering::SeqCst);
                let recorded = record(message);
                async move {
                    recorded.await?;
                    if first { Err(HandlerError::transient("once")) } else { Ok(()) }
                }
            }
        };
        let policy = RetryPolicy::fixed(2, std::time::Duration::from_millis(5));
        let consumer = bench.mq.consumer(&*bench.queue).codec(AnyBytes).retry(policy);
        let consumer = consumer.start(fails_once).await.unwrap();
        let (first, second) = (next(&mut seen).await, next(&mut seen).await);
        assert_eq!(first.id(), second.id());
        eventually("it is handled", SOON, async || consumer.counters().acknowledged == 1).await;
        bench.mq.close().await.unwrap();
    })
    .await;
}

// promise: RT-4
#[tokio::test]
async fn a_quorum_queue_is_read_as_well() {
    on_rabbitmq(|broker| async move {
        let bench = Bench::new(&broker).await;
        let source = broker.name("dead");
        bench.mq.declare_queue(&Queue::new(&*source)).await.unwrap();
        super::fill(&bench.mq, &source, 0..600).await;
        bench.eventually_ready(&source, 600).await;
        let outcome = bench
            .mq
            .replay(&*bench.queue)
            .out_of(&*source)
            .filter(|message| super::number(message.body()).is_multiple_of(2))
            .await
            .unwrap();
        assert_eq!(outcome.to_string(), "moved 300, skipped 300 (drained)");
        bench.eventually_ready(&source, 300).await;
        bench.eventually_ready(&bench.queue, 300).await;
        let rest = bench.mq.replay(&*bench.queue).out_of(&*source).await.unwrap();
        assert_eq!(rest.to_string(), "moved 300, skipped 0 (drained)");
        bench.eventually_ready(&bench.queue, 600).await;
        let odd: Vec<u32> = (0..600).filter(|number| number % 2 == 1).collect();
        // What several windows held comes back in any order of the windows.
        let mut moved = super::numbers(&broker, &bench.queue).await.split_off(300);
        moved.sort_unstable();
        assert_eq!(moved, odd);
        bench.mq.close().await.unwrap();
    })
    .await;
}
