use std::sync::Arc;

use super::{bench::*, conformance};
use crate::{
    error::ErrorKind,
    transport::{ConsumeEnd, ExchangeKind, ExchangeSpec, QueueSpec},
};

conformance!(
    a_binding_of_something_missing_names_it,
    a_broker_chooses_a_name_where_none_is_given,
    a_declaration_that_makes_no_sense_is_refused,
    a_different_declaration_names_what_differs,
    a_different_exchange_names_what_differs,
    a_name_of_the_brokers_own_cannot_be_declared,
    a_queue_can_be_asked_for_purged_and_deleted,
    an_auto_delete_exchange_goes_with_its_last_binding,
    an_auto_delete_queue_goes_with_its_last_consumer,
    an_exclusive_queue_is_its_links_alone_and_goes_with_it,
    declaring_the_same_again_changes_nothing,
);

async fn declaring_the_same_again_changes_nothing(bench: Arc<Bench>) {
    let arguments = [
        ("x-message-ttl", 600_000_i32.into()),
        ("x-dead-letter-exchange", "".into()),
        ("x-dead-letter-routing-key", "dead".into()),
    ];
    let queue = bench.queue_with(arguments.clone()).await;
    bench.send(&queue, "stays").await;
    bench.until_ready(&queue, 1).await;
    let same = with_arguments(super::bench::queue(&queue), arguments);
    let info = bench.link.declare_queue(&same).await.unwrap();
    assert_eq!((info.name, info.messages, info.consumers), (queue, 1, 0));
    // Integers of another width are the same number.
    let wider = with_arguments(same, [("x-message-ttl", 600_000_i64.into())]);
    bench.link.declare_queue(&wider).await.unwrap();

    let exchange = bench.exchange(ExchangeKind::Topic).await;
    let again = super::bench::exchange(&exchange, ExchangeKind::Topic);
    bench.link.declare_exchange(&again).await.unwrap();
    assert!(bench.link.exchange_exists(&exchange).await.unwrap());
    assert!(!bench.link.exchange_exists(&testkit::unique("missing")).await.unwrap());
}

async fn a_different_declaration_names_what_differs(bench: Arc<Bench>) {
    let name = bench.queue_name();
    let arguments = [("x-message-ttl", 600_000.into()), ("x-dead-letter-exchange", "here".into())];
    let declared = with_arguments(queue(&name), arguments);
    bench.link.declare_queue(&declared).await.unwrap();
    // Others are at work meanwhile, on the same link.
    let mut neighbour = bench.consume(&name, 1).await;
    let in_flight: Vec<_> =
        (0..100).map(|_| hand_over(&bench.link, message("", &name, "n"))).collect();

    let mut without_ttl = declared.clone();
    without_ttl.arguments.remove("x-message-ttl");
    let mut with_key = declared.clone();
    with_key.arguments.insert("x-dead-letter-routing-key".to_owned(), "key".into());
    let cases = [
        (
            with_arguments(declared.clone(), [("x-message-ttl", 1_000.into())]),
            ("x-message-ttl", "1000", "600000"),
        ),
        (
            with_arguments(declared.clone(), [("x-dead-letter-exchange", "there".into())]),
            ("x-dead-letter-exchange", "there", "here"),
        ),
        (without_ttl, ("x-message-ttl", "none", "600000")),
        (with_key, ("x-dead-letter-routing-key", "key", "none")),
        (QueueSpec { durable: false, ..declared.clone() }, ("durable", "false", "true")),
        (QueueSpec { auto_delete: true, ..declared.clone() }, ("auto_delete", "true", "false")),
    ];
    for (different, (argument, ours, theirs)) in cases {
        let error = bench.link.declare_queue(&different).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert_eq!(error.queue(), Some(name.as_str()));
        let conflict = error.conflict().unwrap();
        assert_eq!(
            (&*conflict.argument, &*conflict.declared, &*conflict.existing),
            (argument, ours, theirs)
        );
    }

    // RabbitMQ 3.x says that the queue has no type, 4.x that it is classic.
    let quorum = with_arguments(declared, [("x-queue-type", "quorum".into())]);
    let error = bench.link.declare_queue(&quorum).await.unwrap_err();
    assert_eq!(error.conflict().unwrap().argument, "x-queue-type");

    for handed_over in in_flight {
        verdict(handed_over).await.unwrap();
    }
    for _ in 0..100 {
        let delivery = delivery(&mut neighbour).await;
        assert!(neighbour.settler().ack(delivery.tag));
    }
    neighbour.close().await;
}

async fn a_different_exchange_names_what_differs(bench: Arc<Bench>) {
    let name = bench.exchange(ExchangeKind::Topic).await;
    let declared = exchange(&name, ExchangeKind::Topic);
    let cases = [
        (exchange(&name, ExchangeKind::Direct), ("type", "direct", "topic")),
        (ExchangeSpec { durable: false, ..declared.clone() }, ("durable", "false", "true")),
        (ExchangeSpec { auto_delete: true, ..declared.clone() }, ("auto_delete", "true", "false")),
        (ExchangeSpec { internal: true, ..declared.clone() }, ("internal", "true", "false")),
    ];
    for (different, (argument, ours, theirs)) in cases {
        let error = bench.link.declare_exchange(&different).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert_eq!(error.exchange(), Some(name.as_str()));
        let conflict = error.conflict().unwrap();
        assert_eq!(
            (&*conflict.argument, &*conflict.declared, &*conflict.existing),
            (argument, ours, theirs)
        );
    }
    bench.link.declare_exchange(&declared).await.unwrap();
}

async fn a_binding_of_something_missing_names_it(bench: Arc<Bench>) {
    let (queue, exchange) = (bench.queue().await, bench.exchange(ExchangeKind::Topic).await);
    let missing = testkit::unique("missing");

    let error = bench.link.bind_queue(&binding(&queue, &missing, "#")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(error.exchange(), Some(missing.as_str()));

    let error = bench.link.bind_queue(&binding(&missing, &exchange, "#")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(error.queue(), Some(missing.as_str()));
}

async fn a_name_of_the_brokers_own_cannot_be_declared(bench: Arc<Bench>) {
    let name = testkit::unique("amq.conformance");
    assert_eq!(kind(bench.link.declare_queue(&queue(&name)).await), ErrorKind::Refused);
    let ours = exchange(&name, ExchangeKind::Topic);
    assert_eq!(kind(bench.link.declare_exchange(&ours).await), ErrorKind::Refused);
    let theirs = exchange("amq.topic", ExchangeKind::Topic);
    bench.link.declare_exchange(&theirs).await.unwrap();
}

async fn a_broker_chooses_a_name_where_none_is_given(bench: Arc<Bench>) {
    let nameless = QueueSpec { exclusive: true, durable: false, ..queue("") };
    let one = bench.link.declare_queue(&nameless).await.unwrap().name;
    let two = bench.link.declare_queue(&nameless).await.unwrap().name;
    assert!(!one.is_empty() && !two.is_empty() && one != two);
    bench.send(&one, "arrives").await;
    assert_eq!(bodies(&bench.drain(&one).await), ["arrives"]);
}

async fn a_queue_can_be_asked_for_purged_and_deleted(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    for _ in 0..3 {
        bench.send(&queue, "").await;
    }
    let mut channel = bench.consume(&queue, 1).await;
    let held = delivery(&mut channel).await;
    bench.until_ready(&queue, 2).await;
    let info = bench.link.inspect_queue(&queue).await.unwrap().unwrap();
    assert_eq!((&info.name, info.messages, info.consumers), (&queue, 2, 1));

    assert_eq!(bench.link.purge_queue(&queue).await.unwrap(), 2);
    channel.settler().nack(held.tag, true);
    assert!(delivery(&mut channel).await.redelivered, "what was delivered is not purged");
    channel.close().await;

    bench.link.delete_queue(&queue).await.unwrap();
    assert_eq!(bench.link.inspect_queue(&queue).await.unwrap(), None);
    bench.link.delete_queue(&queue).await.unwrap();
    assert_eq!(kind(bench.link.purge_queue(&queue).await), ErrorKind::NotFound);
    bench.link.delete_exchange(&testkit::unique("missing")).await.unwrap();
}

async fn an_exclusive_queue_is_its_links_alone_and_goes_with_it(bench: Arc<Bench>) {
    let name = bench.queue_name();
    let exclusive = QueueSpec { exclusive: true, durable: false, ..queue(&name) };
    let owner = bench.another_link().await;
    owner.declare_queue(&exclusive).await.unwrap();
    owner.declare_queue(&exclusive).await.unwrap();

    let other = &bench.link;
    assert_eq!(kind(other.declare_queue(&exclusive).await), ErrorKind::Refused);
    assert_eq!(kind(other.subscribe(subscription(&name, 1)).await), ErrorKind::Refused);
    assert_eq!(kind(other.inspect_queue(&name).await), ErrorKind::Refused);
    assert_eq!(kind(other.purge_queue(&name).await), ErrorKind::Refused);
    assert_eq!(kind(other.delete_queue(&name).await), ErrorKind::Refused);
    // Anybody may publish to it.
    bench.send(&name, "for you").await;
    let mut channel = consume(&owner, &name, 1).await;
    assert_eq!(delivery(&mut channel).await.body, "for you");

    owner.close().await;
    assert!(matches!(end(&mut channel).await, ConsumeEnd::Lost(_)));
    testkit::eventually("the queue is gone", DEADLINE, async || {
        matches!(bench.link.inspect_queue(&name).await, Ok(None))
    })
    .await;
}

async fn an_auto_delete_queue_goes_with_its_last_consumer(bench: Arc<Bench>) {
    let name = bench.queue_name();
    let passing = QueueSpec { auto_delete: true, ..queue(&name) };
    bench.link.declare_queue(&passing).await.unwrap();
    let first = bench.consume(&name, 1).await;
    let mut second = bench.consume(&name, 1).await;
    first.close().await;
    assert!(bench.link.inspect_queue(&name).await.unwrap().is_some());
    second.cancel().await.unwrap();
    testkit::eventually("the queue is gone", DEADLINE, async || {
        bench.link.inspect_queue(&name).await.unwrap().is_none()
    })
    .await;
    assert_eq!(end(&mut second).await, ConsumeEnd::Cancelled);
}

async fn an_auto_delete_exchange_goes_with_its_last_binding(bench: Arc<Bench>) {
    let name = bench.exchange_name();
    let passing = ExchangeSpec { auto_delete: true, ..exchange(&name, ExchangeKind::Topic) };
    bench.link.declare_exchange(&passing).await.unwrap();
    assert!(bench.link.exchange_exists(&name).await.unwrap(), "it has had no binding yet");
    let queue = bench.queue().await;
    bench.bind(&queue, &name, "a").await;
    bench.bind(&queue, &name, "b").await;
    bench.link.unbind_queue(&binding(&queue, &name, "a")).await.unwrap();
    assert!(bench.link.exchange_exists(&name).await.unwrap());
    bench.link.delete_queue(&queue).await.unwrap();
    assert!(!bench.link.exchange_exists(&name).await.unwrap());
}

async fn a_declaration_that_makes_no_sense_is_refused(bench: Arc<Bench>) {
    let quorum = |name: &str| with_arguments(queue(name), [("x-queue-type", "quorum".into())]);
    let name = bench.queue_name();
    let cases = [
        with_arguments(queue(&name), [("x-message-ttl", (-1).into())]),
        with_arguments(queue(&name), [("x-message-ttl", "1000".into())]),
        with_arguments(queue(&name), [("x-message-ttl", 315_360_000_001_i64.into())]),
        with_arguments(queue(&name), [("x-dead-letter-exchange", 1.into())]),
        with_arguments(queue(&name), [("x-dead-letter-routing-key", "no exchange".into())]),
        QueueSpec { exclusive: true, ..quorum(&name) },
        QueueSpec { durable: false, ..quorum(&name) },
    ];
    for senseless in cases {
        let error = bench.link.declare_queue(&senseless).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{senseless:?}: {error}");
    }
    let long = "n".repeat(256);
    assert_eq!(kind(bench.link.declare_queue(&queue(&long)).await), ErrorKind::TooLarge);
    let long = exchange(&long, ExchangeKind::Topic);
    assert_eq!(kind(bench.link.declare_exchange(&long).await), ErrorKind::TooLarge);
    let default = exchange("", ExchangeKind::Direct);
    assert_eq!(kind(bench.link.declare_exchange(&default).await), ErrorKind::Refused);
    bench.link.declare_queue(&queue(&name)).await.unwrap();
    let default = binding(&name, "", &name);
    assert_eq!(kind(bench.link.bind_queue(&default).await), ErrorKind::Refused);
}
