use std::{sync::Arc, time::Duration};

use super::{bench::*, conformance};
use crate::{
    envelope::{HeaderValue, Headers},
    transport::{Delivery, ExchangeKind},
};

conformance!(
    a_dead_letter_for_a_missing_exchange_is_dropped,
    a_dead_letter_goes_through_its_exchange,
    a_dead_letter_says_where_it_died,
    a_dead_letter_that_goes_round_by_itself_is_dropped,
    a_dead_letter_that_is_rejected_goes_round,
    a_dead_letter_that_nobody_rejects_counts_its_deaths,
    a_lifetime_of_its_own_does_not_follow_a_dead_letter,
    copies_named_in_a_header_follow_a_dead_letter_with_its_own_key,
);

/// A queue whose dead letters go to another by the default exchange.
async fn dying<const N: usize>(
    bench: &Bench,
    target: &str,
    arguments: [(&str, HeaderValue); N],
) -> String {
    let name = bench.queue_name();
    let queue = with_arguments(queue(&name), arguments);
    let queue = with_arguments(
        queue,
        [("x-dead-letter-exchange", "".into()), ("x-dead-letter-routing-key", target.into())],
    );
    bench.link.declare_queue(&queue).await.unwrap();
    name
}

async fn reject_one(bench: &Bench, queue: &str) {
    let mut channel = bench.consume(queue, 1).await;
    let delivery = delivery(&mut channel).await;
    channel.settler().nack(delivery.tag, false);
    channel.close().await;
}

fn deaths(letter: &Delivery) -> Vec<&Headers> {
    let Some(HeaderValue::List(deaths)) = letter.properties.headers.get("x-death") else {
        panic!("no x-death: {letter:?}");
    };
    deaths
        .iter()
        .map(|death| match death {
            HeaderValue::Table(death) => death,
            other => panic!("not a table: {other:?}"),
        })
        .collect()
}

fn text<'a>(table: &'a Headers, name: &str) -> &'a str {
    table.get(name).and_then(HeaderValue::as_str).unwrap_or_else(|| panic!("{name}: {table:?}"))
}

async fn a_dead_letter_goes_through_its_exchange(bench: Arc<Bench>) {
    let exchange = bench.exchange(ExchangeKind::Direct).await;
    let (by_key, renamed) = (bench.queue().await, bench.queue().await);
    let as_it_was = bench.queue_with([("x-dead-letter-exchange", exchange.as_str().into())]).await;
    let with_key = bench
        .queue_with([
            ("x-dead-letter-exchange", exchange.as_str().into()),
            ("x-dead-letter-routing-key", "renamed".into()),
        ])
        .await;
    bench.bind(&by_key, &exchange, &as_it_was).await;
    bench.bind(&renamed, &exchange, "renamed").await;

    for (from, to, key) in
        [(&as_it_was, &by_key, as_it_was.as_str()), (&with_key, &renamed, "renamed")]
    {
        bench.send(from, "rejected").await;
        reject_one(&bench, from).await;
        bench.publish(with_expiration(message("", from, "expired"), "50")).await.unwrap();
        bench.until_ready(to, 2).await;
        let letters = bench.drain(to).await;
        assert_eq!(bodies(&letters), ["rejected", "expired"]);
        for letter in letters {
            assert_eq!((letter.exchange.as_str(), letter.routing_key.as_str()), (&*exchange, key));
            assert!(!letter.redelivered);
        }
        assert_eq!(bench.ready(from).await, 0);
    }
}

async fn a_dead_letter_says_where_it_died(bench: Arc<Bench>) {
    let target = bench.queue().await;
    let queue = dying(&bench, &target, []).await;
    let exchange = bench.exchange(ExchangeKind::Topic).await;
    bench.bind(&queue, &exchange, "order.*").await;
    let sent = with_header(message(&exchange, "order.placed", "body"), "x-tenant", "acme");
    let id = sent.properties.message_id.clone();
    bench.publish(sent.clone()).await.unwrap();
    reject_one(&bench, &queue).await;
    bench.publish(with_expiration(sent, "50")).await.unwrap();
    bench.until_ready(&target, 2).await;

    let letters = bench.drain(&target).await;
    for (letter, reason) in letters.iter().zip(["rejected", "expired"]) {
        let headers = &letter.properties.headers;
        assert_eq!(text(headers, "x-first-death-queue"), queue);
        assert_eq!(text(headers, "x-first-death-reason"), reason);
        assert_eq!(text(headers, "x-first-death-exchange"), exchange);
        assert_eq!(text(headers, "x-tenant"), "acme");
        assert_eq!(letter.properties.message_id, id);

        let deaths = deaths(letter);
        assert_eq!(deaths.len(), 1);
        assert_eq!(text(deaths[0], "queue"), queue);
        assert_eq!(text(deaths[0], "reason"), reason);
        assert_eq!(text(deaths[0], "exchange"), exchange);
        assert_eq!(deaths[0].get("count"), Some(&HeaderValue::I64(1)));
        assert_eq!(deaths[0].get("routing-keys"), Some(&vec!["order.placed".into()].into()));
        assert!(matches!(deaths[0].get("time"), Some(HeaderValue::Timestamp(_))));
    }
}

async fn a_lifetime_of_its_own_does_not_follow_a_dead_letter(bench: Arc<Bench>) {
    let target = bench.queue().await;
    let queue = dying(&bench, &target, []).await;
    bench.publish(with_expiration(message("", &queue, ""), "100")).await.unwrap();
    bench.until_ready(&target, 1).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let letter = bench.drain(&target).await.remove(0);
    assert_eq!(letter.properties.expiration, None);
    assert_eq!(text(deaths(&letter)[0], "original-expiration"), "100");
}

async fn a_dead_letter_for_a_missing_exchange_is_dropped(bench: Arc<Bench>) {
    let missing = testkit::unique("missing");
    let queue = bench.queue_with([("x-dead-letter-exchange", missing.into())]).await;
    bench.send(&queue, "").await;
    reject_one(&bench, &queue).await;
    bench.until_ready(&queue, 0).await;
}

async fn a_dead_letter_that_goes_round_by_itself_is_dropped(bench: Arc<Bench>) {
    // Each waits and hands on to the other; nothing would ever stop it.
    let (one, two) = (bench.queue_name(), bench.queue_name());
    for (queue_name, target) in [(&one, &two), (&two, &one)] {
        let waiting = with_arguments(
            queue(queue_name),
            [
                ("x-message-ttl", 100.into()),
                ("x-dead-letter-exchange", "".into()),
                ("x-dead-letter-routing-key", target.as_str().into()),
            ],
        );
        bench.link.declare_queue(&waiting).await.unwrap();
    }
    bench.send(&one, "").await;
    testkit::eventually("both queues stay empty", DEADLINE, async || {
        // A round takes 200 ms.
        for _ in 0..4 {
            if bench.ready(&one).await + bench.ready(&two).await > 0 {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
        true
    })
    .await;
}

async fn a_dead_letter_that_is_rejected_goes_round(bench: Arc<Bench>) {
    // The ladder that brokers offer by themselves: rejected, waits, comes back.
    let waiting = bench.queue_name();
    let work = dying(&bench, &waiting, []).await;
    let ladder = with_arguments(
        queue(&waiting),
        [
            ("x-message-ttl", 50.into()),
            ("x-dead-letter-exchange", "".into()),
            ("x-dead-letter-routing-key", work.as_str().into()),
        ],
    );
    bench.link.declare_queue(&ladder).await.unwrap();
    bench.send(&work, "stubborn").await;
    let mut channel = bench.consume(&work, 1).await;
    for round in 0..4 {
        let delivery = delivery(&mut channel).await;
        assert_eq!(delivery.body, "stubborn");
        if round > 0 {
            let deaths = deaths(&delivery);
            let shown: Vec<_> = deaths
                .iter()
                .map(|death| (text(death, "queue"), text(death, "reason"), death.get("count")))
                .collect();
            let count = HeaderValue::I64(round);
            let expected = [
                (waiting.as_str(), "expired", Some(&count)),
                (work.as_str(), "rejected", Some(&count)),
            ];
            assert_eq!(shown, expected, "round {round}");
            assert_eq!(text(&delivery.properties.headers, "x-first-death-queue"), work);
        }
        channel.settler().nack(delivery.tag, false);
    }
    channel.close().await;
}

async fn a_dead_letter_that_nobody_rejects_counts_its_deaths(bench: Arc<Bench>) {
    let last = bench.queue().await;
    let second = dying(&bench, &last, [("x-message-ttl", 50.into())]).await;
    let first = dying(&bench, &second, [("x-message-ttl", 50.into())]).await;
    bench.send(&first, "").await;
    bench.until_ready(&last, 1).await;
    let letter = bench.drain(&last).await.remove(0);
    let queues: Vec<&str> = deaths(&letter).iter().map(|death| text(death, "queue")).collect();
    assert_eq!(queues, [second.as_str(), first.as_str()]);
    assert_eq!(text(&letter.properties.headers, "x-first-death-queue"), first);
}

async fn copies_named_in_a_header_follow_a_dead_letter_with_its_own_key(bench: Arc<Bench>) {
    let exchange = bench.exchange(ExchangeKind::Direct).await;
    let queue = bench.queue_with([("x-dead-letter-exchange", exchange.as_str().into())]).await;
    let (by_key, by_copy) = (bench.queue().await, bench.queue().await);
    bench.bind(&by_key, &exchange, &queue).await;
    bench.bind(&by_copy, &exchange, "copy").await;
    let copied = with_header(message("", &queue, "letter"), "CC", vec!["copy".into()]);
    bench.publish(copied).await.unwrap();
    reject_one(&bench, &queue).await;
    bench.until_ready(&by_key, 1).await;
    bench.until_ready(&by_copy, 1).await;
    let letter = bench.drain(&by_copy).await.remove(0);
    assert_eq!(letter.routing_key, queue);
    assert_eq!(letter.properties.headers.get("CC"), Some(&vec!["copy".into()].into()));
}
