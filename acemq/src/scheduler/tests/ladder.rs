//! How long a message waits, and where.

use proptest::prelude::*;

use crate::{
    envelope::HeaderValue,
    scheduler::{
        ladder::{self, AGAIN, DUE, EXCHANGE, RUNGS},
        scheduled::LATEST,
    },
};

const SECOND: i64 = 1_000;
const HOUR: i64 = 3_600 * SECOND;
const YEAR: i64 = 365 * 24 * HOUR;

/// The queue that a message waits in next which is due in that many milliseconds.
fn rung(remaining: i64) -> Option<&'static str> {
    ladder::next(1_767_323_045_678 + remaining, 1_767_323_045_678)
        .map(|rung| rung.queue.trim_start_matches("acemq.schedule."))
}

/// The queues that a message waits in until it is due, where each hop takes that long.
fn way(mut remaining: i64, hop: i64) -> Vec<&'static str> {
    let mut way = Vec::new();
    while let Some(rung) = ladder::next(remaining, 0) {
        way.push(rung.queue.trim_start_matches("acemq.schedule."));
        remaining -= i64::try_from(rung.wait.as_millis()).unwrap() + hop;
    }
    way
}

// promise: SC-1
#[test]
fn a_message_waits_in_the_longest_queue_that_does_not_make_it_late() {
    let table = [
        (i64::MIN, None),
        (-HOUR, None),
        (0, None),
        (999, None),
        (SECOND, Some("1s")),
        (9_999, Some("1s")),
        (10 * SECOND, Some("10s")),
        (59_999, Some("10s")),
        (60 * SECOND, Some("1m")),
        (599_999, Some("1m")),
        (600 * SECOND, Some("10m")),
        (HOUR - 1, Some("10m")),
        (HOUR, Some("1h")),
        (10 * YEAR, Some("1h")),
    ];
    for (remaining, expected) in table {
        let next = ladder::next(remaining, 0).map(|rung| rung.queue);
        let expected = expected.map(|rung| format!("acemq.schedule.{rung}"));
        assert_eq!(next, expected.as_deref(), "{remaining} ms");
    }
    assert_eq!(rung(7_300), Some("1s"));
    // The furthest apart that two times can be.
    assert_eq!(ladder::next(i64::MAX, i64::MIN).unwrap().queue, "acemq.schedule.1h");
    assert_eq!(ladder::next(i64::MIN, i64::MAX), None);
}

// promise: SC-3
#[test]
fn four_hours_are_four_hops_of_an_hour_and_a_day_is_twenty_four() {
    assert_eq!(way(4 * HOUR, 0), ["1h"; 4]);
    assert_eq!(way(24 * HOUR, 0), ["1h"; 24]);
    assert_eq!(way(HOUR + 600 * SECOND + 71 * SECOND + 500, 0), ["1h", "10m", "1m", "10s", "1s"]);
    assert_eq!(way(YEAR, 0).len(), 365 * 24);
    let last_of_a_day = way(24 * HOUR, 20);
    assert_eq!(last_of_a_day[..23], ["1h"; 23], "{last_of_a_day:?}");
    assert_eq!(last_of_a_day[23], "10m", "what the hops took is made up for");
}

proptest! {
    /// However long the delay and however slow the hops.
    #[test]
    fn a_message_is_at_most_a_second_early_and_late_by_no_more_than_the_last_hop(
        due in 0..40 * HOUR,
        hop in 0..2 * SECOND,
    ) {
        let mut now = 0;
        while let Some(rung) = ladder::next(due, now) {
            let wait = i64::try_from(rung.wait.as_millis()).unwrap();
            prop_assert!(now + wait <= due);
            now += wait + hop;
        }
        prop_assert!(due - now < SECOND);
        prop_assert!(now - due <= hop);
    }
}

#[test]
fn no_queue_keeps_a_message_for_longer_than_a_broker_can_count() {
    for due in [HOUR, YEAR, 100 * YEAR, LATEST, i64::MAX] {
        let wait = ladder::next(due, 0).unwrap().wait.as_millis();
        assert!(wait < u128::from(u32::MAX), "{due}");
        assert_eq!(wait, 3_600_000);
    }
}

// The wire is the family's: another argument is a conflict with their libraries.
#[test]
fn the_ladder_is_declared_argument_for_argument_as_by_the_family() {
    let topology = ladder::topology();
    let [exchange] = &*topology.exchanges else { panic!("{topology:?}") };
    let exchange = &exchange.0;
    assert_eq!((&*exchange.name, exchange.kind.as_str()), ("acemq.schedule", "direct"));
    assert!(exchange.durable && !exchange.auto_delete && !exchange.internal);
    assert!(exchange.arguments.is_empty());

    let expected = [
        ("acemq.schedule.1h", 3_600_000),
        ("acemq.schedule.10m", 600_000),
        ("acemq.schedule.1m", 60_000),
        ("acemq.schedule.10s", 10_000),
        ("acemq.schedule.1s", 1_000),
    ];
    let (due, rungs) = topology.queues.split_last().unwrap();
    assert_eq!(rungs.len(), expected.len());
    for (queue, (name, ttl)) in rungs.iter().zip(expected) {
        assert_eq!(queue.spec.name, name);
        let arguments: Vec<(&str, HeaderValue)> =
            queue.spec.arguments.iter().map(|(name, value)| (&**name, value.clone())).collect();
        assert_eq!(
            arguments,
            [
                ("x-dead-letter-exchange", "acemq.schedule".into()),
                ("x-dead-letter-routing-key", "acemq.schedule.due".into()),
                ("x-message-ttl", HeaderValue::I64(ttl)),
            ]
        );
    }
    assert_eq!(due.spec.name, "acemq.schedule.due");
    assert!(due.spec.arguments.is_empty());
    for (queue, binding) in topology.queues.iter().zip(&topology.bindings) {
        let spec = &queue.spec;
        assert!(spec.durable && !spec.exclusive && !spec.auto_delete && !queue.dead_letters);
        assert_eq!(
            (&binding.queue, &*binding.exchange, &binding.routing_key),
            (&spec.name, EXCHANGE, &spec.name)
        );
    }
    assert_eq!(topology.bindings.len(), 6);
    assert_eq!((AGAIN.queue, DUE), ("acemq.schedule.10s", "acemq.schedule.due"));
    assert!(RUNGS.contains(&AGAIN));
}
