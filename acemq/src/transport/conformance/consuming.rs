use std::{collections::HashSet, sync::Arc, time::Duration};

use tokio::time::timeout;

use super::{bench::*, conformance};
use crate::{
    envelope::HeaderValue,
    error::ErrorKind,
    transport::{ConsumeEnd, ConsumeEvent, Subscription},
};

conformance!(
    a_channel_that_is_dropped_gives_back_what_it_held,
    a_consumer_that_is_cancelled_gives_what_had_arrived_and_then_ends,
    a_consumer_that_was_cancelled_consumes_again_and_settles_what_it_had,
    a_consumer_whose_queue_is_gone_does_not_consume_again,
    a_message_that_is_rejected_without_dead_letters_is_gone,
    a_message_that_is_requeued_comes_back_at_its_place,
    a_missing_queue_cannot_be_consumed_from,
    a_queue_that_is_deleted_cancels_its_consumers,
    acknowledgements_before_a_close_are_kept,
    another_prefetch_neither_loses_nor_doubles_what_is_out,
    an_exclusive_consumer_is_the_only_one,
    of_the_consumers_of_a_queue_with_a_single_active_one_the_next_takes_over,
    consumers_of_one_queue_take_turns,
    no_more_than_the_prefetch_is_delivered,
    a_quorum_queue_gives_a_message_up_after_its_delivery_limit,
    a_renewed_subscription_holds_what_it_held_and_has_room_for_as_many_again,
    a_renewed_subscription_of_a_quorum_queue_holds_what_it_held_as_well,
    settling_a_delivery_twice_ends_the_channel,
    settling_after_the_end_of_the_channel_says_so,
    the_end_of_a_link_gives_back_what_its_consumers_held,
    what_is_unsettled_comes_back_after_the_channel_closed,
);

/// Long enough for a broker to deliver what it should not.
const MOMENT: Duration = Duration::from_millis(300);

async fn fill(bench: &Bench, queue: &str, count: usize) {
    for number in 0..count {
        bench.send(queue, &number.to_string()).await;
    }
}

async fn no_more_than_the_prefetch_is_delivered(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    fill(&bench, &queue, 10).await;
    let mut channel = bench.consume(&queue, 3).await;
    let first = delivery(&mut channel).await;
    delivery(&mut channel).await;
    delivery(&mut channel).await;
    assert!(!gives_within(&mut channel, MOMENT).await, "a fourth delivery");

    assert!(channel.settler().ack(first.tag));
    assert_eq!(delivery(&mut channel).await.body, "3");
    assert!(!gives_within(&mut channel, MOMENT).await, "more than one in place of one");
    channel.close().await;
    bench.until_ready(&queue, 9).await;
}

async fn a_consumer_that_was_cancelled_consumes_again_and_settles_what_it_had(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    fill(&bench, &queue, 4).await;
    let mut channel = bench.consume(&queue, 1).await;
    let held = delivery(&mut channel).await;
    channel.cancel().await.unwrap();
    assert_eq!(end(&mut channel).await, ConsumeEnd::Cancelled);
    assert!(!gives_within(&mut channel, MOMENT).await, "a delivery to nobody");
    // Whether or not what is held counts, there is room for one.
    channel.resume(2).await.unwrap();
    let next = delivery(&mut channel).await;
    assert_eq!((&*held.body, &*next.body), (&b"0"[..], &b"1"[..]));
    assert!(channel.settler().ack(held.tag) && channel.settler().ack(next.tag));
    channel.close().await;
    bench.until_ready(&queue, 2).await;
    assert_eq!(bodies(&bench.drain(&queue).await), ["2", "3"]);
}

async fn a_consumer_whose_queue_is_gone_does_not_consume_again(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    let mut channel = bench.consume(&queue, 1).await;
    channel.cancel().await.unwrap();
    bench.link.delete_queue(&queue).await.unwrap();
    assert_eq!(kind(channel.resume(1).await), ErrorKind::NotFound);
    assert!(!channel.settler().is_open());
    assert!(channel.set_prefetch(1).await.is_err());
}

async fn another_prefetch_neither_loses_nor_doubles_what_is_out(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    fill(&bench, &queue, 20).await;
    let mut channel = bench.consume(&queue, 2).await;
    let (mut held, mut seen) = (Vec::new(), Vec::new());
    for (prefetch, least, most) in [(6, 6, 8), (3, 3, 9)] {
        held.push(delivery(&mut channel).await);
        channel.set_prefetch(prefetch).await.unwrap();
        while held.len() < least {
            held.push(delivery(&mut channel).await);
        }
        // What was out by then may come on top.
        while let Ok(delivery) = timeout(MOMENT, delivery(&mut channel)).await {
            held.push(delivery);
        }
        assert!((least..=most).contains(&held.len()), "{} with {prefetch}", held.len());
        // Those that were out before go first.
        for delivery in held.drain(..) {
            assert!(channel.settler().ack(delivery.tag));
            seen.push(delivery.body);
        }
    }
    while seen.len() < 20 {
        let delivery = delivery(&mut channel).await;
        assert!(!delivery.redelivered && channel.settler().ack(delivery.tag));
        seen.push(delivery.body);
    }
    let sent: Vec<_> = (0..20).map(|number| number.to_string()).collect();
    assert_eq!(seen, sent);
    channel.close().await;
    bench.until_ready(&queue, 0).await;
}

async fn a_message_that_is_requeued_comes_back_at_its_place(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    fill(&bench, &queue, 5).await;
    let mut channel = bench.consume(&queue, 3).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        let delivery = delivery(&mut channel).await;
        assert!(!delivery.redelivered);
        held.push(delivery);
    }
    // The one consumer has no room but for what comes back.
    assert!(channel.settler().nack(held[1].tag, true));
    let again = delivery(&mut channel).await;
    assert_eq!(again.body, "1");
    assert!(again.redelivered);
    assert_ne!(again.tag, held[1].tag);

    channel.close().await;
    bench.until_ready(&queue, 5).await;
    let deliveries = bench.drain(&queue).await;
    assert_eq!(bodies(&deliveries), ["0", "1", "2", "3", "4"]);
    let redelivered: Vec<bool> = deliveries.iter().map(|delivery| delivery.redelivered).collect();
    assert_eq!(redelivered, [true, true, true, false, false]);
}

async fn a_renewed_subscription_holds_what_it_held_and_has_room_for_as_many_again(
    bench: Arc<Bench>,
) {
    let queue = bench.queue().await;
    renewed_twice(&bench, &queue).await;
}

async fn a_renewed_subscription_of_a_quorum_queue_holds_what_it_held_as_well(bench: Arc<Bench>) {
    let queue = bench.queue_with([("x-queue-type", "quorum".into())]).await;
    renewed_twice(&bench, &queue).await;
}

async fn renewed_twice(bench: &Bench, queue: &str) {
    fill(bench, queue, 8).await;
    let mut channel = bench.consume(queue, 2).await;
    let mut held = vec![delivery(&mut channel).await, delivery(&mut channel).await];
    for prefetch in [3, 1] {
        assert!(!gives_within(&mut channel, MOMENT).await, "more than there was room for");
        channel.set_prefetch(prefetch).await.unwrap();
        for _ in 0..prefetch {
            held.push(delivery(&mut channel).await);
        }
    }
    assert!(!gives_within(&mut channel, MOMENT).await, "more than there was room for");
    assert_eq!(bodies(&held), ["0", "1", "2", "3", "4", "5"]);

    // What was held before makes no room, and what came since does.
    let settler = channel.settler();
    assert!(settler.ack(held[0].tag));
    assert!(!gives_within(&mut channel, MOMENT).await, "in place of one from before");
    assert!(settler.ack(held[5].tag));
    held.push(delivery(&mut channel).await);
    channel.cancel().await.unwrap();
    assert_eq!(end(&mut channel).await, ConsumeEnd::Cancelled);
    for kept in &held[1..5] {
        assert!(settler.nack(kept.tag, true));
    }
    channel.close().await;
    bench.until_ready(queue, 6).await;
    // What the nacks gave back is in the order of the nacks; what the closing did may be anywhere.
    let left = bench.drain(queue).await;
    let mut bodies = bodies(&left);
    assert_eq!(bodies.iter().filter(|body| "1234".contains(**body)).count(), 4);
    bodies.sort_unstable();
    assert_eq!(bodies, ["1", "2", "3", "4", "6", "7"]);
}

async fn of_the_consumers_of_a_queue_with_a_single_active_one_the_next_takes_over(
    bench: Arc<Bench>,
) {
    for kind in ["classic", "quorum"] {
        let queue = bench
            .queue_with([("x-queue-type", kind.into()), ("x-single-active-consumer", true.into())])
            .await;
        let mut first = bench.consume(&queue, 2).await;
        let mut second = bench.consume(&queue, 2).await;
        let mut third = bench.consume(&queue, 2).await;
        fill(&bench, &queue, 5).await;
        let held = [delivery(&mut first).await, delivery(&mut first).await];
        assert_eq!(bodies(&held), ["0", "1"]);
        assert!(!gives_within(&mut second, MOMENT).await, "two are active on a {kind} queue");

        // What it held comes to the next one first, in order.
        drop(first);
        let taken_over = [delivery(&mut second).await, delivery(&mut second).await];
        assert_eq!(bodies(&taken_over), ["0", "1"]);
        assert!(second.settler().ack(taken_over[0].tag));
        assert_eq!(delivery(&mut second).await.body, "2");
        assert!(!gives_within(&mut third, MOMENT).await, "two are active on a {kind} queue");

        // So it is where one leaves.
        second.leave(true).await;
        let taken_over = [delivery(&mut third).await, delivery(&mut third).await];
        assert_eq!(bodies(&taken_over), ["1", "2"]);
    }
}

async fn a_message_that_is_rejected_without_dead_letters_is_gone(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    fill(&bench, &queue, 2).await;
    let mut channel = bench.consume(&queue, 1).await;
    let first = delivery(&mut channel).await;
    assert!(channel.settler().nack(first.tag, false));
    assert_eq!(delivery(&mut channel).await.body, "1");
    channel.close().await;
    bench.until_ready(&queue, 1).await;
}

async fn what_is_unsettled_comes_back_after_the_channel_closed(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    fill(&bench, &queue, 6).await;
    let mut channel = bench.consume(&queue, 4).await;
    for number in 0..2 {
        let delivery = delivery(&mut channel).await;
        assert_eq!(delivery.body, number.to_string());
        if number == 0 {
            channel.settler().ack(delivery.tag);
        }
    }
    channel.close().await;
    bench.until_ready(&queue, 5).await;
    assert_eq!(bodies(&bench.drain(&queue).await), ["1", "2", "3", "4", "5"]);
}

async fn a_channel_that_is_dropped_gives_back_what_it_held(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    fill(&bench, &queue, 2).await;
    let mut channel = bench.consume(&queue, 10).await;
    delivery(&mut channel).await;
    drop(channel);
    bench.until_ready(&queue, 2).await;
    let deliveries = bench.drain(&queue).await;
    assert_eq!(bodies(&deliveries), ["0", "1"]);
    assert!(deliveries[0].redelivered);
}

async fn the_end_of_a_link_gives_back_what_its_consumers_held(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    fill(&bench, &queue, 4).await;
    let link = bench.another_link().await;
    let mut one = consume(&link, &queue, 1).await;
    let mut two = consume(&link, &queue, 1).await;
    delivery(&mut one).await;
    delivery(&mut two).await;
    link.close().await;
    assert!(matches!(end(&mut one).await, ConsumeEnd::Lost(_)));
    assert!(matches!(end(&mut two).await, ConsumeEnd::Lost(_)));
    bench.until_ready(&queue, 4).await;
    assert_eq!(bodies(&bench.drain(&queue).await), ["0", "1", "2", "3"]);
}

async fn settling_after_the_end_of_the_channel_says_so(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    fill(&bench, &queue, 2).await;
    let mut channel = bench.consume(&queue, 2).await;
    let (first, second) = (delivery(&mut channel).await, delivery(&mut channel).await);
    let settler = channel.settler();
    assert!(settler.is_open());
    assert!(settler.ack(first.tag));
    channel.cancel().await.unwrap();
    assert!(settler.is_open());
    channel.close().await;
    assert!(!settler.is_open());
    assert!(!settler.ack(second.tag));
    assert!(!settler.nack(second.tag, true));
    bench.until_ready(&queue, 1).await;
}

async fn acknowledgements_before_a_close_are_kept(bench: Arc<Bench>) {
    for kind in ["classic", "quorum"] {
        let queue = bench.queue_with([("x-queue-type", kind.into())]).await;
        let verdicts: Vec<_> = (0..2_000)
            .map(|number: u32| hand_over(&bench.link, message("", &queue, &number.to_string())))
            .collect();
        for handed_over in verdicts {
            verdict(handed_over).await.unwrap();
        }
        let mut handled = HashSet::new();
        while handled.len() < 2_000 {
            let mut channel = bench.consume(&queue, 100).await;
            for _ in 0..500 {
                let delivery = delivery(&mut channel).await;
                assert!(handled.insert(delivery.body.clone()), "{delivery:?} came again");
                channel.settler().ack(delivery.tag);
            }
            channel.close().await;
        }
        bench.until_ready(&queue, 0).await;
    }
}

async fn a_consumer_that_is_cancelled_gives_what_had_arrived_and_then_ends(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    fill(&bench, &queue, 3).await;
    let mut channel = bench.consume(&queue, 2).await;
    let first = delivery(&mut channel).await;
    // The second is on its way with the first, the third has no room.
    bench.until_ready(&queue, 1).await;
    channel.cancel().await.unwrap();
    bench.send(&queue, "later").await;

    let settler = channel.settler();
    assert!(settler.ack(first.tag), "a cancelled consumer still settles");
    assert_eq!(delivery(&mut channel).await.body, "1");
    assert_eq!(end(&mut channel).await, ConsumeEnd::Cancelled);
    assert!(!gives_within(&mut channel, MOMENT).await, "something after the end");
    channel.close().await;
    bench.until_ready(&queue, 3).await;
    assert_eq!(bodies(&bench.drain(&queue).await), ["1", "2", "later"]);
}

async fn a_queue_that_is_deleted_cancels_its_consumers(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    fill(&bench, &queue, 1).await;
    let mut channel = bench.consume(&queue, 2).await;
    let held = delivery(&mut channel).await;
    bench.link.delete_queue(&queue).await.unwrap();
    assert_eq!(end(&mut channel).await, ConsumeEnd::CancelledByBroker);

    // What it held is gone with the queue, and comes back into no other.
    bench.link.declare_queue(&super::bench::queue(&queue)).await.unwrap();
    channel.settler().nack(held.tag, true);
    channel.close().await;
    bench.send(&queue, "new").await;
    assert_eq!(bodies(&bench.drain(&queue).await), ["new"]);
}

async fn a_missing_queue_cannot_be_consumed_from(bench: Arc<Bench>) {
    let missing = testkit::unique("missing");
    let error = bench.link.subscribe(subscription(&missing, 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(error.queue(), Some(missing.as_str()));
}

async fn an_exclusive_consumer_is_the_only_one(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    let exclusive = Subscription { exclusive: true, ..subscription(&queue, 1) };
    let first = bench.link.subscribe(exclusive.clone()).await.unwrap();
    for other in [exclusive.clone(), subscription(&queue, 1)] {
        assert_eq!(kind(bench.link.subscribe(other).await), ErrorKind::Refused);
    }
    first.close().await;
    let shared = bench.consume(&queue, 1).await;
    assert_eq!(kind(bench.link.subscribe(exclusive).await), ErrorKind::Refused);
    shared.close().await;
}

async fn consumers_of_one_queue_take_turns(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    let mut channels = Vec::new();
    for _ in 0..3 {
        channels.push(bench.consume(&queue, 10).await);
    }
    fill(&bench, &queue, 9).await;
    let mut taken = HashSet::new();
    for channel in &mut channels {
        for _ in 0..3 {
            match next(channel).await {
                ConsumeEvent::Delivery(delivery) => taken.insert(delivery.body),
                ConsumeEvent::Ended(end) => panic!("{end:?}"),
            };
        }
    }
    assert_eq!(taken.len(), 9);
}

async fn settling_a_delivery_twice_ends_the_channel(bench: Arc<Bench>) {
    let queue = bench.queue().await;
    fill(&bench, &queue, 3).await;
    let mut neighbour = bench.consume(&bench.queue().await, 1).await;
    let mut channel = bench.consume(&queue, 2).await;
    let (first, _second) = (delivery(&mut channel).await, delivery(&mut channel).await);
    let settler = channel.settler();
    settler.ack(first.tag);
    settler.ack(first.tag);
    // The third may have come before the broker looked at the second acknowledgement.
    let lost = loop {
        match next(&mut channel).await {
            ConsumeEvent::Delivery(_) => {}
            ConsumeEvent::Ended(end) => break end,
        }
    };
    assert!(matches!(lost, ConsumeEnd::Lost(_)), "{lost:?}");
    assert!(!settler.is_open());
    bench.until_ready(&queue, 2).await;
    assert!(!gives_within(&mut neighbour, Duration::ZERO).await, "a neighbour was harmed");
    assert!(neighbour.settler().is_open());
}

async fn a_quorum_queue_gives_a_message_up_after_its_delivery_limit(bench: Arc<Bench>) {
    let dead = bench.queue().await;
    let queue = bench
        .queue_with([
            ("x-queue-type", "quorum".into()),
            ("x-delivery-limit", 2.into()),
            ("x-dead-letter-exchange", "".into()),
            ("x-dead-letter-routing-key", dead.as_str().into()),
        ])
        .await;
    bench.send(&queue, "again").await;
    let mut channel = bench.consume(&queue, 1).await;
    for returned in 0..=2 {
        let delivery = delivery(&mut channel).await;
        let count = delivery.properties.headers.get("x-delivery-count");
        assert_eq!(count.and_then(HeaderValue::as_i64).unwrap_or(0), returned);
        assert_eq!(delivery.redelivered, returned > 0);
        channel.settler().nack(delivery.tag, true);
    }
    bench.until_ready(&dead, 1).await;
    let letter = bench.drain(&dead).await.remove(0);
    let reason = letter.properties.headers["x-first-death-reason"].as_str();
    assert_eq!(reason, Some("delivery_limit"));
    channel.close().await;
}
