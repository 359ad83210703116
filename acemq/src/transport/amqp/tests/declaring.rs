use super::*;
use crate::{
    envelope::HeaderValue,
    error::{Error, ErrorKind},
    transport::{BindingSpec, ExchangeKind, ExchangeSpec, LinkState},
};

fn spec(name: &str) -> QueueSpec {
    QueueSpec {
        name: name.to_owned(),
        durable: true,
        exclusive: false,
        auto_delete: false,
        arguments: Headers::new(),
    }
}

fn ttl(milliseconds: i32) -> Headers {
    Headers::from([("x-message-ttl".to_owned(), HeaderValue::I32(milliseconds))])
}

/// What differs, as the error says.
fn conflict(error: &Error) -> (&str, &str, &str) {
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
    let conflict = error.conflict().unwrap();
    (&conflict.argument, &conflict.declared, &conflict.existing)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_exists_with_other_properties_is_a_conflict_that_names_them() {
    for (_, url) in testkit::brokers() {
        let link = dial(&url).await;
        let name = declare(&link, ttl(10_000)).await;
        let exists = QueueSpec { arguments: ttl(10_000), ..spec(&name) };
        link.declare_queue(&exists).await.unwrap();

        let other = QueueSpec { arguments: ttl(20_000), ..spec(&name) };
        let error = link.declare_queue(&other).await.unwrap_err();
        assert_eq!(conflict(&error), ("x-message-ttl", "20000", "10000"));
        assert_eq!(error.queue(), Some(&*name));

        let error = link.declare_queue(&spec(&name)).await.unwrap_err();
        assert_eq!(conflict(&error), ("x-message-ttl", "none", "10000"));

        let other = QueueSpec { durable: false, ..exists.clone() };
        let error = link.declare_queue(&other).await.unwrap_err();
        assert_eq!(conflict(&error), ("durable", "false", "true"));

        let mut other = exists.clone();
        other.arguments.extend(quorum());
        let error = link.declare_queue(&other).await.unwrap_err();
        let (argument, declared, existing) = conflict(&error);
        assert_eq!((argument, declared), ("x-queue-type", "quorum"));
        // RabbitMQ 4 writes the type into a queue that did not name one.
        assert!(["none", "classic"].contains(&existing), "{existing}");
        link.delete_queue(&name).await.unwrap();
        link.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exchange_that_exists_as_another_kind_is_a_conflict() {
    for (_, url) in testkit::brokers() {
        let link = dial(&url).await;
        let exchange = ExchangeSpec {
            name: testkit::unique("exchange"),
            kind: ExchangeKind::Direct,
            durable: true,
            auto_delete: false,
            internal: false,
            arguments: Headers::new(),
        };
        link.declare_exchange(&exchange).await.unwrap();
        let other = ExchangeSpec { kind: ExchangeKind::Topic, ..exchange.clone() };
        let error = link.declare_exchange(&other).await.unwrap_err();
        assert_eq!(conflict(&error), ("type", "topic", "direct"));
        assert!(link.exchange_exists(&exchange.name).await.unwrap());
        for _ in 0..2 {
            link.delete_exchange(&exchange.name).await.unwrap();
            assert!(!link.exchange_exists(&exchange.name).await.unwrap());
        }
        link.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_not_found_and_needs_no_deleting() {
    for (_, url) in testkit::brokers() {
        let link = dial(&url).await;
        let missing = testkit::unique("missing");
        assert_eq!(link.inspect_queue(&missing).await.unwrap(), None);
        link.delete_queue(&missing).await.unwrap();
        let error = link.purge_queue(&missing).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let subscription = Subscription {
            queue: missing.clone(),
            prefetch: 1,
            exclusive: false,
            arguments: Headers::new(),
        };
        let error = link.subscribe(subscription).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let queue = declare(&link, Headers::new()).await;
        let mut binding = BindingSpec {
            queue: queue.clone(),
            exchange: missing.clone(),
            routing_key: "key".to_owned(),
            arguments: Headers::new(),
        };
        let error = link.bind_queue(&binding).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains(&missing), "{error}");
        binding.exchange = "amq.direct".to_owned();
        link.bind_queue(&binding).await.unwrap();
        link.unbind_queue(&binding).await.unwrap();
        link.delete_queue(&queue).await.unwrap();
        link.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_connections_exclusive_queue_is_refused() {
    for (_, url) in testkit::brokers() {
        let (link, other) = (dial(&url).await, dial(&url).await);
        let exclusive = QueueSpec { exclusive: true, durable: false, ..spec("") };
        let queue = link.declare_queue(&exclusive).await.unwrap();
        assert!(!queue.name.is_empty());
        let again = QueueSpec { name: queue.name.clone(), ..exclusive };
        let error = other.declare_queue(&again).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
        let error = other.declare_queue(&spec("amq.mine")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
        link.close().await;
        other.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_declaration_hurts_no_publish_in_flight() {
    for (_, url) in testkit::brokers() {
        let link = dial(&url).await;
        let queue = declare(&link, ttl(10_000)).await;
        let verdicts: Vec<_> = (0..50)
            .map(|number| send(&link, message("", &queue, &format!("m-{number}"))))
            .collect();
        let other = QueueSpec { arguments: ttl(20_000), ..spec(&queue) };
        assert!(link.declare_queue(&other).await.is_err());
        for pending in verdicts {
            verdict(pending).await.unwrap();
        }
        link.delete_queue(&queue).await.unwrap();
        link.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_too_long_is_refused_before_it_is_written() {
    let Some(url) = testkit::amqp_url() else { return };
    let link = dial(&url).await;
    let long = "x".repeat(256);
    let error = link.declare_queue(&spec(&long)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.to_string().contains("256"), "{error}");
    assert_eq!(link.inspect_queue(&long).await.unwrap_err().kind(), ErrorKind::TooLarge);
    link.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn abandoned_questions_leave_no_channel_open() {
    let Some(url) = testkit::amqp_url() else { return };
    // Room for the publishing channel and three more.
    let link = dial(&format!("{url}?channel_max=4")).await;
    for _ in 0..50 {
        let question = link.exchange_exists("amq.topic");
        let _ = tokio::time::timeout(Duration::from_micros(200), question).await;
    }
    testkit::eventually("three channels are free again", BOUND, async || {
        let ask = || link.exchange_exists("amq.topic");
        let (one, two, three) = tokio::join!(ask(), ask(), ask());
        one.is_ok() && two.is_ok() && three.is_ok()
    })
    .await;
    link.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_no_is_never_the_answer_to_a_later_question() {
    let Some(url) = testkit::amqp_url() else { return };
    // So few numbers that they come round again.
    let link = dial(&format!("{url}?channel_max=20")).await;
    for _ in 0..15 {
        assert!(!link.exchange_exists("amq.nothing").await.unwrap());
    }
    for _ in 0..100 {
        assert!(link.exchange_exists("amq.topic").await.unwrap());
    }
    // A link that has used up its numbers ends, so that it is replaced.
    let mut state = link.state();
    for _ in 0..10 {
        let _ = link.exchange_exists("amq.nothing").await;
    }
    let ended = state.wait_for(|state| matches!(state, LinkState::Ended(_)));
    tokio::time::timeout(BOUND, ended).await.unwrap().unwrap();
    link.close().await;
}
