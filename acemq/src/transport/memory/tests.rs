use std::{future::poll_fn, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{sync::oneshot, time::Instant};

use super::{MemoryBroker, MemoryTransport};
use crate::{
    envelope::{HeaderValue, Headers},
    error::ErrorKind,
    transport::{
        ConsumeChannel, ConsumeEnd, ConsumeEvent, Delivery, DialOptions, ExchangeKind,
        ExchangeSpec, Link, LinkState, Outgoing, Properties, Publish, PublishAnswer,
        PublishFailure, QueueSpec, Subscription, Transport,
    },
};

async fn dial(broker: &MemoryBroker) -> Arc<dyn Link> {
    let url = broker.url();
    let name = url.strip_prefix("memory://").unwrap();
    let options = DialOptions {
        connection_name: "test".to_owned(),
        step_timeout: Duration::from_secs(30),
        body_max: None,
        publishes: true,
    };
    MemoryTransport::new(name).unwrap().dial(options).await.unwrap()
}

fn queue(name: &str) -> QueueSpec {
    QueueSpec {
        name: name.to_owned(),
        durable: true,
        exclusive: false,
        auto_delete: false,
        arguments: Headers::new(),
    }
}

fn with(mut queue: QueueSpec, name: &str, value: impl Into<HeaderValue>) -> QueueSpec {
    queue.arguments.insert(name.to_owned(), value.into());
    queue
}

fn to(queue: &str, body: &str) -> Outgoing {
    Outgoing {
        exchange: String::new(),
        routing_key: queue.to_owned(),
        mandatory: true,
        properties: Properties {
            delivery_mode: Some(Properties::PERSISTENT),
            ..Properties::default()
        },
        body: Bytes::copy_from_slice(body.as_bytes()),
    }
}

fn hand_over(
    link: &Arc<dyn Link>,
    message: Outgoing,
) -> oneshot::Receiver<Result<(), PublishFailure>> {
    let (sender, verdict) = oneshot::channel();
    let answer = PublishAnswer { sender, permit: None };
    link.publish(Publish::new(Arc::new(message), answer));
    verdict
}

async fn publish(link: &Arc<dyn Link>, message: Outgoing) {
    hand_over(link, message).await.unwrap().unwrap();
}

async fn consume(link: &Arc<dyn Link>, queue: &str, prefetch: u16) -> Box<dyn ConsumeChannel> {
    let subscription = Subscription {
        queue: queue.to_owned(),
        prefetch,
        exclusive: false,
        arguments: Headers::new(),
    };
    link.subscribe(subscription).await.unwrap()
}

async fn next(channel: &mut Box<dyn ConsumeChannel>) -> ConsumeEvent {
    let next = poll_fn(|context| channel.poll_next(context));
    tokio::time::timeout(Duration::from_hours(48), next).await.expect("nothing came")
}

async fn delivery(channel: &mut Box<dyn ConsumeChannel>) -> Delivery {
    match next(channel).await {
        ConsumeEvent::Delivery(delivery) => delivery,
        ConsumeEvent::Ended(end) => panic!("the subscription ended: {end:?}"),
    }
}

fn bodies(broker: &MemoryBroker, queue: &str) -> Vec<String> {
    let messages = broker.queue(queue).unwrap();
    messages.iter().map(|m| String::from_utf8(m.body().to_vec()).unwrap()).collect()
}

// promise: BX-10
#[tokio::test(start_paused = true)]
async fn a_day_in_a_waiting_queue_passes_with_a_paused_clock() {
    let broker = MemoryBroker::new();
    let link = dial(&broker).await;
    link.declare_queue(&queue("orders")).await.unwrap();
    let waiting = with(queue("orders.wait"), "x-message-ttl", 86_400_000);
    let waiting = with(waiting, "x-dead-letter-exchange", "");
    let waiting = with(waiting, "x-dead-letter-routing-key", "orders");
    link.declare_queue(&waiting).await.unwrap();
    let mut consumer = consume(&link, "orders", 1).await;

    let started = Instant::now();
    publish(&link, to("orders.wait", "o-1")).await;
    let delivery = delivery(&mut consumer).await;

    assert_eq!(delivery.body, "o-1");
    let waited = started.elapsed();
    assert!(waited >= Duration::from_hours(24) && waited < Duration::from_hours(25), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn an_earlier_deadline_is_kept_beside_a_later_one() {
    let broker = MemoryBroker::new();
    let link = dial(&broker).await;
    link.declare_queue(&queue("due")).await.unwrap();
    for (name, ttl) in [("slow", 60_000), ("quick", 1_000)] {
        let waiting = with(queue(name), "x-message-ttl", ttl);
        let waiting = with(waiting, "x-dead-letter-exchange", "");
        let waiting = with(waiting, "x-dead-letter-routing-key", "due");
        link.declare_queue(&waiting).await.unwrap();
    }
    let mut consumer = consume(&link, "due", 10).await;
    let started = Instant::now();
    publish(&link, to("slow", "slow")).await;
    tokio::task::yield_now().await;
    publish(&link, to("quick", "quick")).await;

    assert_eq!(delivery(&mut consumer).await.body, "quick");
    assert_eq!(started.elapsed().as_secs(), 1);
    assert_eq!(delivery(&mut consumer).await.body, "slow");
    assert_eq!(started.elapsed().as_secs(), 60);
}

#[tokio::test]
async fn the_same_name_is_the_same_broker_for_as_long_as_somebody_uses_it() {
    let broker = MemoryBroker::new();
    let link = dial(&broker).await;
    link.declare_queue(&queue("orders")).await.unwrap();
    let name = broker.url().strip_prefix("memory://").unwrap().to_owned();
    assert_eq!(MemoryBroker::named(&name).queues().len(), 1);

    drop(broker);
    assert_eq!(MemoryBroker::named(&name).queues().len(), 1, "the link holds it");
    drop(link);
    assert_eq!(MemoryBroker::named(&name).queues().len(), 0);
}

#[tokio::test]
async fn no_task_outlives_the_broker() {
    let broker = MemoryBroker::new();
    let link = dial(&broker).await;
    link.declare_queue(&with(queue("waiting"), "x-message-ttl", 60_000)).await.unwrap();
    publish(&link, to("waiting", "w")).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    assert_eq!(tasks(), 1, "the broker's timer");

    drop((broker, link));
    testkit::eventually("the timer is gone", Duration::from_secs(5), async || tasks() == 0).await;
}

#[tokio::test]
async fn a_broker_that_outlives_a_runtime_still_expires() {
    let broker = MemoryBroker::new();
    let other = broker.clone();
    tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let link = dial(&other).await;
            link.declare_queue(&with(queue("waiting"), "x-message-ttl", 50)).await.unwrap();
            publish(&link, to("waiting", "first")).await;
        });
    })
    .await
    .unwrap();

    let link = dial(&broker).await;
    let dead = with(queue("again"), "x-message-ttl", 50);
    let dead = with(dead, "x-dead-letter-exchange", "");
    let dead = with(dead, "x-dead-letter-routing-key", "due");
    link.declare_queue(&dead).await.unwrap();
    link.declare_queue(&queue("due")).await.unwrap();
    let mut consumer = consume(&link, "due", 1).await;
    let started = Instant::now();
    publish(&link, to("again", "second")).await;
    let arrived = tokio::time::timeout(Duration::from_secs(5), delivery(&mut consumer)).await;
    assert_eq!(arrived.unwrap().body, "second");
    // Looking at the deadline is what gives it, not the look that the bound's end causes.
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_blocked_broker_answers_when_it_is_unblocked() {
    let broker = MemoryBroker::new();
    let link = dial(&broker).await;
    link.declare_queue(&queue("orders")).await.unwrap();
    broker.block("low on memory");
    assert_eq!(*link.state().borrow(), LinkState::Open, "it has not published yet");

    let mut first = hand_over(&link, to("orders", "1"));
    let second = hand_over(&link, to("orders", "2"));
    assert_eq!(*link.state().borrow(), LinkState::Blocked("low on memory".to_owned()));
    assert!(tokio::time::timeout(Duration::from_secs(3_600), &mut first).await.is_err());
    assert_eq!(bodies(&broker, "orders"), [""; 0]);
    let question = link.inspect_queue("orders").await.unwrap_err();
    assert_eq!(question.kind(), ErrorKind::Timeout, "a blocked connection is not read");

    broker.unblock();
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    assert_eq!(*link.state().borrow(), LinkState::Open);
    assert_eq!(bodies(&broker, "orders"), ["1", "2"]);
}

#[tokio::test]
async fn a_link_that_ends_while_blocked_leaves_its_publishes_in_doubt() {
    let broker = MemoryBroker::new();
    let link = dial(&broker).await;
    link.declare_queue(&queue("orders")).await.unwrap();
    broker.block("low on disk");
    let verdict = hand_over(&link, to("orders", "1"));
    broker.drop_connections();
    let verdict = verdict.await.unwrap();
    assert!(matches!(verdict, Err(PublishFailure::Lost { written: true, .. })), "{verdict:?}");
    assert!(matches!(*link.state().borrow(), LinkState::Ended(_)));
}

#[tokio::test]
async fn dropped_connections_keep_what_is_not_exclusive() {
    let broker = MemoryBroker::new();
    let link = dial(&broker).await;
    link.declare_queue(&queue("durable")).await.unwrap();
    link.declare_queue(&QueueSpec { durable: false, ..queue("transient") }).await.unwrap();
    link.declare_queue(&QueueSpec { exclusive: true, ..queue("mine") }).await.unwrap();
    publish(&link, to("durable", "1")).await;
    publish(&link, to("durable", "2")).await;
    let mut consumer = consume(&link, "durable", 1).await;
    delivery(&mut consumer).await;

    broker.drop_connections();
    let end = next(&mut consumer).await;
    assert!(matches!(end, ConsumeEvent::Ended(ConsumeEnd::Lost(_))), "{end:?}");
    assert_eq!(bodies(&broker, "durable"), ["1", "2"]);
    assert!(broker.queue("durable").unwrap()[0].is_redelivered());
    let names: Vec<_> = broker.queues().into_iter().map(|queue| queue.name).collect();
    assert_eq!(names, ["durable", "transient"]);
}

#[tokio::test]
async fn a_restart_keeps_what_is_durable() {
    let broker = MemoryBroker::new();
    let link = dial(&broker).await;
    link.declare_queue(&queue("durable")).await.unwrap();
    link.declare_queue(&QueueSpec { durable: false, ..queue("transient") }).await.unwrap();
    let exchange = ExchangeSpec {
        name: "passing".to_owned(),
        kind: ExchangeKind::Fanout,
        durable: false,
        auto_delete: false,
        internal: false,
        arguments: Headers::new(),
    };
    link.declare_exchange(&exchange).await.unwrap();
    publish(&link, to("durable", "kept")).await;
    let mut transient = to("durable", "lost");
    transient.properties.delivery_mode = Some(Properties::TRANSIENT);
    publish(&link, transient).await;

    broker.restart();
    assert_eq!(bodies(&broker, "durable"), ["kept"]);
    assert!(broker.queue("transient").is_none());
    let link = dial(&broker).await;
    assert!(!link.exchange_exists("passing").await.unwrap());
}

#[tokio::test]
async fn what_was_published_can_be_looked_at() {
    let broker = MemoryBroker::new();
    let link = dial(&broker).await;
    link.declare_queue(&queue("orders")).await.unwrap();
    let mut message = to("orders", "{}");
    message.properties.content_type = Some("application/json".to_owned());
    message.properties.headers.insert("x-tenant".to_owned(), "acme".into());
    publish(&link, message).await;
    hand_over(&link, to("nowhere", "{}")).await.unwrap().unwrap_err();

    let published = broker.published();
    assert_eq!(published.len(), 2);
    assert_eq!(published[0].routing_key(), "orders");
    assert_eq!(published[0].content_type(), Some("application/json"));
    assert_eq!(published[0].headers()["x-tenant"].as_str(), Some("acme"));
    assert!(published[0].is_routed() && published[0].is_persistent());
    assert!(!published[1].is_routed());
}

#[tokio::test]
async fn what_the_memory_broker_does_not_do_is_refused() {
    let broker = MemoryBroker::new();
    let link = dial(&broker).await;
    let arguments: [(&str, HeaderValue); 4] = [
        ("x-max-priority", 10.into()),
        ("x-max-length", 10.into()),
        ("x-queue-type", "stream".into()),
        ("x-not-known-yet", 1.into()),
    ];
    for (name, value) in arguments {
        let error = link.declare_queue(&with(queue("q"), name, value)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{name}");
    }
    let headers = ExchangeSpec {
        name: "by-header".to_owned(),
        kind: ExchangeKind::Headers,
        durable: true,
        auto_delete: false,
        internal: false,
        arguments: Headers::new(),
    };
    let error = link.declare_exchange(&headers).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);

    link.declare_queue(&with(queue("quorum"), "x-queue-type", "quorum")).await.unwrap();
    let mut urgent = to("quorum", "now");
    urgent.properties.priority = Some(9);
    match hand_over(&link, urgent).await.unwrap() {
        Err(PublishFailure::Refused(error)) => assert_eq!(error.kind(), ErrorKind::Unsupported),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_quorum_queue_gives_a_message_up_after_its_delivery_limit() {
    let broker = MemoryBroker::new();
    let link = dial(&broker).await;
    link.declare_queue(&queue("dead")).await.unwrap();
    let quorum = with(queue("quorum"), "x-queue-type", "quorum");
    let quorum = with(quorum, "x-dead-letter-exchange", "");
    let quorum = with(quorum, "x-dead-letter-routing-key", "dead");
    link.declare_queue(&quorum).await.unwrap();
    publish(&link, to("quorum", "again")).await;
    let mut consumer = consume(&link, "quorum", 1).await;
    for returned in 0..=20 {
        let delivery = delivery(&mut consumer).await;
        let count = delivery.properties.headers.get("x-delivery-count");
        assert_eq!(count.and_then(HeaderValue::as_i64).unwrap_or(0), returned);
        consumer.settler().nack(delivery.tag, true);
    }
    assert_eq!(bodies(&broker, "dead"), ["again"]);
    let dead = &broker.queue("dead").unwrap()[0];
    assert_eq!(dead.headers()["x-first-death-reason"].as_str(), Some("delivery_limit"));
}

#[test]
fn an_address_that_is_more_than_a_name_is_refused() {
    for name in ["", "a/b", "a?x=1", "user@a"] {
        assert_eq!(MemoryTransport::new(name).unwrap_err().kind(), ErrorKind::Config);
    }
}
