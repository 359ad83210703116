use std::sync::Arc;

use tokio::sync::{Semaphore, oneshot};

use super::{bench::*, conformance};
use crate::{
    error::ErrorKind,
    transport::{ExchangeKind, LinkState, Outgoing, Publish, PublishAnswer, PublishFailure},
};

conformance!(
    a_link_that_has_ended_writes_nothing,
    a_link_that_was_not_made_for_publishing_writes_nothing,
    a_message_nobody_waits_for_gives_its_permit_back,
    a_message_that_need_not_be_routed_is_confirmed,
    a_message_that_the_broker_refuses_harms_no_neighbour,
    a_missing_exchange_is_refused_and_harms_no_neighbour,
    an_exchange_that_is_deleted_is_missing_from_then_on,
    what_is_too_large_is_refused_before_it_is_written,
    messages_are_taken_in_the_order_they_were_handed_over,
    with_thousands_in_flight_no_return_is_misattributed,
    with_thousands_in_flight_no_return_is_misattributed_on_a_quorum_queue,
);

async fn a_message_that_need_not_be_routed_is_confirmed(bench: Arc<Bench>) {
    let nowhere = Outgoing { mandatory: false, ..message("", &testkit::unique("nowhere"), "") };
    bench.publish(nowhere).await.unwrap();
}

// promise: RT-5
async fn with_thousands_in_flight_no_return_is_misattributed(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    misattribute_none(&bench, &queue).await;
}

// promise: RT-5
async fn with_thousands_in_flight_no_return_is_misattributed_on_a_quorum_queue(bench: Arc<Bench>) {
    let queue = bench.queue_with([("x-queue-type", "quorum".into())]).await;
    misattribute_none(&bench, &queue).await;
}

/// Every third message is unroutable. The ids are unique in one run, the same few again and again
/// in the next, and missing in the last.
async fn misattribute_none(bench: &Bench, queue: &str) {
    let nowhere = testkit::unique("nowhere");
    for run in 0..20 {
        let mut in_flight = Vec::new();
        for number in 0..3_000 {
            let unroutable = number % 3 == 0;
            let mut sent = message("", if unroutable { &nowhere } else { queue }, "x");
            match run % 3 {
                0 => {}
                1 => sent.properties.message_id = Some(format!("id-{}", number % 7)),
                _ => sent.properties.message_id = None,
            }
            in_flight.push((unroutable, hand_over(&bench.link, sent)));
        }
        for (number, (unroutable, handed_over)) in in_flight.into_iter().enumerate() {
            let verdict = verdict(handed_over).await;
            assert_eq!(is_unroutable(&verdict), unroutable, "message {number} of run {run}");
        }
        assert_eq!(bench.link.purge_queue(queue).await.unwrap(), 2_000, "run {run}");
    }
}

async fn messages_are_taken_in_the_order_they_were_handed_over(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    let sent: Vec<String> = (0..1_000).map(|number| number.to_string()).collect();
    let verdicts: Vec<_> =
        sent.iter().map(|body| hand_over(&bench.link, message("", &queue, body))).collect();
    for handed_over in verdicts {
        verdict(handed_over).await.unwrap();
    }
    assert_eq!(bodies(&bench.drain(&queue).await), sent);
}

async fn a_missing_exchange_is_refused_and_harms_no_neighbour(bench: Arc<Bench>) {
    let missing = testkit::unique("missing");
    let error = refuse_among_neighbours(&bench, message(&missing, "key", "")).await;
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(error.exchange(), Some(missing.as_str()));
}

async fn a_message_that_the_broker_refuses_harms_no_neighbour(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    for expiration in ["soon", "-1", "1.5", "", "315360000001"] {
        let bad = with_expiration(message("", &queue, ""), expiration);
        let error = refuse_among_neighbours(&bench, bad).await;
        assert_eq!(error.kind(), ErrorKind::Config, "{expiration:?}: {error}");
    }
    let bad = with_header(message("", &queue, ""), "CC", "not a list");
    let error = refuse_among_neighbours(&bench, bad).await;
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");

    let mut foreign = message("", &queue, "");
    foreign.properties.user_id = Some("somebody-else".to_owned());
    let error = refuse_among_neighbours(&bench, foreign).await;
    assert_eq!(error.kind(), ErrorKind::Refused);

    let name = bench.exchange_name();
    let internal = exchange(&name, ExchangeKind::Fanout);
    let internal = crate::transport::ExchangeSpec { internal: true, ..internal };
    bench.link.declare_exchange(&internal).await.unwrap();
    let error = refuse_among_neighbours(&bench, message(&name, "", "")).await;
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert_eq!(bench.ready(&queue).await, 0);
}

/// Publishes a message that must be refused between others that must be confirmed, each once.
async fn refuse_among_neighbours(bench: &Bench, bad: Outgoing) -> crate::Error {
    let queue = bench.queue().await;
    let neighbours = |from: u32| (from..from + 200).map(|number| number.to_string());
    let send = |body: String| hand_over(&bench.link, message("", &queue, &body));
    let before: Vec<_> = neighbours(0).map(send).collect();
    let bad = hand_over(&bench.link, bad);
    let after: Vec<_> = neighbours(200).map(send).collect();

    for handed_over in before.into_iter().chain(after) {
        verdict(handed_over).await.unwrap();
    }
    let error = refusal(verdict(bad).await);
    let deliveries = bench.drain(&queue).await;
    let mut numbers: Vec<u32> =
        bodies(&deliveries).into_iter().map(|body| body.parse().unwrap()).collect();
    numbers.sort_unstable();
    // A broker that closed the channel may have had some of them already.
    numbers.dedup();
    assert_eq!(numbers, (0..400).collect::<Vec<_>>());
    error
}

async fn an_exchange_that_is_deleted_is_missing_from_then_on(bench: Arc<Bench>) {
    let exchange = bench.exchange(ExchangeKind::Fanout).await;
    let queue = bench.queue().await;
    bench.bind(&queue, &exchange, "").await;
    bench.publish(message(&exchange, "", "there")).await.unwrap();
    bench.link.delete_exchange(&exchange).await.unwrap();
    let error = refusal(bench.publish(message(&exchange, "", "gone")).await);
    assert_eq!(error.kind(), ErrorKind::NotFound);
    bench.send(&queue, "goes on").await;
    assert_eq!(bodies(&bench.drain(&queue).await), ["there", "goes on"]);
}

async fn a_link_that_has_ended_writes_nothing(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    let link = bench.another_link().await;
    publish(&link, message("", &queue, "first")).await.unwrap();
    link.close().await;
    link.close().await;
    assert!(matches!(*link.state().borrow(), LinkState::Ended(_)));
    let verdict = publish(&link, message("", &queue, "second")).await;
    assert!(matches!(verdict, Err(PublishFailure::Lost { written: false, .. })), "{verdict:?}");
    assert_eq!(bodies(&bench.drain(&queue).await), ["first"]);
    assert_eq!(kind(link.inspect_queue(&queue).await), ErrorKind::Lost);
    assert_eq!(kind(link.subscribe(subscription(&queue, 1)).await), ErrorKind::Lost);
}

async fn a_link_that_was_not_made_for_publishing_writes_nothing(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    let link = bench.link_that_does_not_publish().await;
    let verdict = publish(&link, message("", &queue, "")).await;
    assert!(matches!(verdict, Err(PublishFailure::Lost { written: false, .. })), "{verdict:?}");
    assert_eq!(link.inspect_queue(&queue).await.unwrap().unwrap().messages, 0);
    link.close().await;
}

async fn a_message_nobody_waits_for_gives_its_permit_back(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    let permits = Arc::new(Semaphore::new(50));
    for _ in 0..500 {
        let permit = permits.clone().acquire_owned();
        let permit = tokio::time::timeout(DEADLINE, permit).await.expect("a permit").unwrap();
        let (sender, _) = oneshot::channel();
        let answer = PublishAnswer { sender, permit: Some(permit) };
        bench.link.publish(Publish::new(Arc::new(message("", &queue, "")), answer));
    }
    bench.until_ready(&queue, 500).await;
    testkit::eventually("all permits are back", DEADLINE, async || {
        permits.available_permits() == 50
    })
    .await;
}

async fn what_is_too_large_is_refused_before_it_is_written(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    let link = bench.link_with_body_max(1_000).await;
    assert_eq!(link.limits().body_max, 1_000);
    let name = |length: usize| "n".repeat(length);
    let mut long_id = message("", &queue, "");
    long_id.properties.message_id = Some(name(256));
    let cases = [
        ("a body", message("", &queue, &name(1_001))),
        ("headers", with_header(message("", &queue, ""), "x", name(200_000))),
        ("a header's name", with_header(message("", &queue, ""), &name(256), 1)),
        ("a routing key", message("", &name(256), "")),
        ("an exchange", message(&name(256), "", "")),
        ("a message id", long_id),
    ];
    for (what, too_large) in cases {
        let error = refusal(publish(&link, too_large).await);
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{what}");
    }

    let mut largest = with_header(message("", &queue, &name(1_000)), &name(255), name(100_000));
    largest.properties.message_id = Some(name(255));
    publish(&link, largest).await.unwrap();
    assert!(is_unroutable(&publish(&link, message("", &name(255), "")).await));
    assert_eq!(*link.state().borrow(), LinkState::Open);
    assert_eq!(bench.drain(&queue).await.len(), 1);
    link.close().await;
}
