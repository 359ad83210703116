use std::{sync::Arc, time::Duration};

use super::{bench::*, conformance};

conformance!(
    a_message_expires_by_its_own_lifetime,
    a_message_that_expires_at_once_still_reaches_a_waiting_consumer,
    a_message_may_live_for_ten_years,
    a_message_with_no_lifetime_left_is_not_kept,
    a_queue_lets_its_messages_expire,
    an_expired_message_waits_behind_one_that_has_not_expired,
    the_shorter_lifetime_counts,
    what_expired_in_a_consumers_hands_does_not_come_back,
);

async fn a_queue_lets_its_messages_expire(bench: Arc<Bench>) {
    let queue = bench.queue_with([("x-message-ttl", 200.into())]).await;
    bench.send(&queue, "1").await;
    bench.send(&queue, "2").await;
    bench.until_ready(&queue, 0).await;
}

async fn a_message_expires_by_its_own_lifetime(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    bench.publish(with_expiration(message("", &queue, "short"), "200")).await.unwrap();
    bench.publish(with_expiration(message("", &queue, "long"), "600000")).await.unwrap();
    bench.until_ready(&queue, 1).await;
    assert_eq!(bodies(&bench.drain(&queue).await), ["long"]);
}

async fn the_shorter_lifetime_counts(bench: Arc<Bench>) {
    let long = bench.queue_with([("x-message-ttl", 600_000.into())]).await;
    let short = bench.queue_with([("x-message-ttl", 200.into())]).await;
    bench.publish(with_expiration(message("", &long, ""), "200")).await.unwrap();
    bench.publish(with_expiration(message("", &short, ""), "600000")).await.unwrap();
    bench.until_ready(&long, 0).await;
    bench.until_ready(&short, 0).await;
}

async fn an_expired_message_waits_behind_one_that_has_not_expired(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    bench.send(&queue, "lasting").await;
    bench.publish(with_expiration(message("", &queue, "expired"), "100")).await.unwrap();
    bench.send(&queue, "behind").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(bench.ready(&queue).await, 3, "it expires at the head only");

    // It is at the head once the first is taken, and is then dropped instead of delivered.
    let mut channel = bench.consume(&queue, 1).await;
    let first = delivery(&mut channel).await;
    assert_eq!(first.body, "lasting");
    channel.settler().ack(first.tag);
    assert_eq!(delivery(&mut channel).await.body, "behind");
    channel.close().await;
}

async fn a_message_with_no_lifetime_left_is_not_kept(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    bench.publish(with_expiration(message("", &queue, ""), "0")).await.unwrap();
    bench.until_ready(&queue, 0).await;
    assert!(bench.drain(&queue).await.is_empty());
}

async fn a_message_that_expires_at_once_still_reaches_a_waiting_consumer(bench: Arc<Bench>) {
    let queue = bench.queue_with([("x-message-ttl", 0.into())]).await;
    let mut channel = bench.consume(&queue, 1).await;
    bench.send(&queue, "now").await;
    assert_eq!(delivery(&mut channel).await.body, "now");
    // No room: nobody waits.
    bench.send(&queue, "too late").await;
    bench.until_ready(&queue, 0).await;
    channel.close().await;
}

async fn what_expired_in_a_consumers_hands_does_not_come_back(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    bench.publish(with_expiration(message("", &queue, "held"), "200")).await.unwrap();
    bench.send(&queue, "next").await;
    let mut channel = bench.consume(&queue, 1).await;
    let held = delivery(&mut channel).await;
    assert_eq!(held.body, "held");
    tokio::time::sleep(Duration::from_millis(400)).await;
    channel.settler().nack(held.tag, true);
    assert_eq!(delivery(&mut channel).await.body, "next");
    channel.close().await;
}

async fn a_message_may_live_for_ten_years(bench: Arc<Bench>) {
    let decade = 10 * 365 * 86_400_000_i64;
    let queue = bench.queue_with([("x-message-ttl", decade.into())]).await;
    let sent = with_expiration(message("", &queue, "for ages"), &decade.to_string());
    bench.publish(sent).await.unwrap();
    assert_eq!(bodies(&bench.drain(&queue).await), ["for ages"]);
}
