use std::sync::Arc;

use super::{bench::*, conformance};
use crate::{envelope::HeaderValue, transport::ExchangeKind};

conformance!(
    a_direct_exchange_routes_by_the_exact_key,
    a_fanout_exchange_routes_whatever_the_key,
    a_topic_pattern_matches_by_words,
    blind_copies_are_routed_and_not_shown,
    several_bindings_of_one_queue_bring_one_copy,
    the_default_exchange_routes_to_the_queue_by_its_name,
    what_was_unbound_is_not_routed,
);

/// The routing keys of what a queue holds.
async fn keys(bench: &Bench, queue: &str) -> Vec<String> {
    bench.drain(queue).await.into_iter().map(|delivery| delivery.routing_key).collect()
}

async fn a_topic_pattern_matches_by_words(bench: Arc<Bench>) {
    let keys_sent = ["", ".", "a", "a.", "a..b", "a.b", "a.b.c", "a.x.b", "b", "x.y.b"];
    let expected: [(&str, &[&str]); 14] = [
        ("#", &keys_sent),
        ("", &[""]),
        ("*", &["a", "b"]),
        ("*.*", &[".", "a.", "a.b"]),
        ("*.b", &["a.b"]),
        ("#.b", &["a..b", "a.b", "a.x.b", "b", "x.y.b"]),
        ("a", &["a"]),
        ("a.#", &["a", "a.", "a..b", "a.b", "a.b.c", "a.x.b"]),
        ("a.*", &["a.", "a.b"]),
        ("a..b", &["a..b"]),
        ("a.*.b", &["a..b", "a.x.b"]),
        ("a.#.b", &["a..b", "a.b", "a.x.b"]),
        ("#.a.#", &["a", "a.", "a..b", "a.b", "a.b.c", "a.x.b"]),
        ("*.#", &[".", "a", "a.", "a..b", "a.b", "a.b.c", "a.x.b", "b", "x.y.b"]),
    ];
    let exchange = bench.exchange(ExchangeKind::Topic).await;
    let mut queues = Vec::new();
    for (pattern, _) in expected {
        let queue = bench.queue().await;
        bench.bind(&queue, &exchange, pattern).await;
        queues.push(queue);
    }
    for key in keys_sent {
        bench.publish(message(&exchange, key, "")).await.unwrap();
    }
    for ((pattern, matching), queue) in expected.into_iter().zip(queues) {
        assert_eq!(keys(&bench, &queue).await, matching, "bound with {pattern:?}");
    }
}

async fn a_direct_exchange_routes_by_the_exact_key(bench: Arc<Bench>) {
    let exchange = bench.exchange(ExchangeKind::Direct).await;
    let (one, two) = (bench.queue().await, bench.queue().await);
    bench.bind(&one, &exchange, "a.b").await;
    bench.bind(&two, &exchange, "#").await;
    bench.bind(&two, &exchange, "").await;
    for (key, routed) in [("a.b", true), ("a", false), ("#", true), ("", true), ("A.B", false)] {
        let verdict = bench.publish(message(&exchange, key, "")).await;
        assert_eq!(!is_unroutable(&verdict), routed, "{key:?}");
    }
    assert_eq!(keys(&bench, &one).await, ["a.b"]);
    assert_eq!(keys(&bench, &two).await, ["#", ""]);
}

async fn a_fanout_exchange_routes_whatever_the_key(bench: Arc<Bench>) {
    let exchange = bench.exchange(ExchangeKind::Fanout).await;
    let (one, two) = (bench.queue().await, bench.queue().await);
    bench.bind(&one, &exchange, "").await;
    bench.bind(&two, &exchange, "ignored").await;
    bench.publish(message(&exchange, "any.key", "")).await.unwrap();
    assert_eq!(keys(&bench, &one).await, ["any.key"]);
    assert_eq!(keys(&bench, &two).await, ["any.key"]);
}

async fn the_default_exchange_routes_to_the_queue_by_its_name(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    bench.send(&queue, "here").await;
    let verdict = bench.publish(message("", &format!("{queue}.not"), "")).await;
    assert!(is_unroutable(&verdict));
    let deliveries = bench.drain(&queue).await;
    assert_eq!(bodies(&deliveries), ["here"]);
    assert_eq!((deliveries[0].exchange.as_str(), &deliveries[0].routing_key), ("", &queue));
}

async fn several_bindings_of_one_queue_bring_one_copy(bench: Arc<Bench>) {
    let exchange = bench.exchange(ExchangeKind::Topic).await;
    let queue = bench.queue().await;
    for pattern in ["#", "a.*", "*.b", "a.b", "a.b"] {
        bench.bind(&queue, &exchange, pattern).await;
    }
    bench.publish(message(&exchange, "a.b", "once")).await.unwrap();
    assert_eq!(bodies(&bench.drain(&queue).await), ["once"]);
}

async fn what_was_unbound_is_not_routed(bench: Arc<Bench>) {
    let exchange = bench.exchange(ExchangeKind::Direct).await;
    let queue = bench.queue().await;
    bench.bind(&queue, &exchange, "a").await;
    bench.bind(&queue, &exchange, "b").await;
    bench.publish(message(&exchange, "a", "before")).await.unwrap();

    let bound = binding(&queue, &exchange, "a");
    bench.link.unbind_queue(&bound).await.unwrap();
    assert!(is_unroutable(&bench.publish(message(&exchange, "a", "after")).await));
    bench.publish(message(&exchange, "b", "other")).await.unwrap();
    assert_eq!(bodies(&bench.drain(&queue).await), ["before", "other"]);

    bench.link.unbind_queue(&bound).await.unwrap();
    let missing = binding(&queue, &testkit::unique("missing"), "a");
    bench.link.unbind_queue(&missing).await.unwrap();
}

async fn blind_copies_are_routed_and_not_shown(bench: Arc<Bench>) {
    let (to, copy, blind) = (bench.queue().await, bench.queue().await, bench.queue().await);
    let list = |keys: &[&String]| -> HeaderValue {
        keys.iter().map(|key| HeaderValue::from(key.as_str())).collect::<Vec<_>>().into()
    };
    let sent = with_header(message("", &to, "copied"), "CC", list(&[&copy, &to]));
    bench.publish(with_header(sent, "BCC", list(&[&blind]))).await.unwrap();
    for queue in [&to, &copy, &blind] {
        let deliveries = bench.drain(queue).await;
        assert_eq!(bodies(&deliveries), ["copied"]);
        assert_eq!(deliveries[0].routing_key, to);
        let headers = &deliveries[0].properties.headers;
        assert_eq!(headers.get("CC"), Some(&list(&[&copy, &to])));
        assert!(!headers.contains_key("BCC"));
    }

    let only_copied = message("", &testkit::unique("nowhere"), "only copied");
    bench.publish(with_header(only_copied, "CC", list(&[&copy]))).await.unwrap();
    assert_eq!(bodies(&bench.drain(&copy).await), ["only copied"]);
}
