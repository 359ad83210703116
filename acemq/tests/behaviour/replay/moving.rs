//! What is moved, and what stays.

use std::{collections::BTreeMap, time::Duration};

use acemq::{ReplayReason, RetryPolicy};
use testkit::eventually;

use super::{always_fails, fill, number, numbers, with_dead_letters};
use crate::{
    consumer::bench::{Bench, SOON, next, recorder},
    on_every_broker,
    support::wire,
};

on_every_broker! {
    // promise: RT-4
    async fn a_dead_letter_goes_back_as_it_was_with_its_attempts_counted_anew(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let failing = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .retry(RetryPolicy::fixed(3, Duration::from_millis(5)))
            .start(always_fails)
            .await
            .unwrap();
        let publisher = bench.mq.publisher::<String>("", &*bench.queue);
        publisher
            .send(&"o-1".to_owned())
            .id("id-1")
            .correlation_id("corr-1")
            .header("x-tenant", "acme")
            .header("x-lines", 3_i64)
            .await
            .unwrap();
        bench.eventually_ready(&bench.dead_letters(), 1).await;
        failing.close().await.unwrap();
        let before = bench.mq.peek(bench.dead_letters()).messages().await.unwrap().remove(0);
        assert_eq!(before.reason(), Some("exhausted 3 attempts: out of stock"));

        let outcome = bench.mq.replay(&*bench.queue).await.unwrap();
        assert_eq!(outcome.to_string(), "moved 1, skipped 0 (drained)");
        assert!(outcome.error().is_none());
        bench.eventually_ready(&bench.dead_letters(), 0).await;
        let after = bench.take(&bench.queue).await;
        assert_eq!(after.body(), before.body());
        assert_eq!(after.content_type(), before.content_type());
        assert_eq!((after.id(), after.attempt()), ("id-1", 1));
        let (then, now) = (before.envelope(), after.envelope());
        assert_eq!(now.error(), None);
        assert_eq!(now.first_seen(), then.first_seen());
        assert_eq!(now.origin(), then.origin());
        assert_eq!(now.message_type(), then.message_type());
        assert_eq!(now.correlation_id(), "corr-1");
        assert_eq!(after.header("x-tenant").unwrap().as_str(), Some("acme"));
        assert_eq!(after.header("x-lines"), Some(&3_i64.into()));
        assert_eq!(now.replayed().from.as_deref(), Some(&*bench.dead_letters()));
        assert_eq!(now.replayed().count, 1);
        let age = std::time::SystemTime::now().duration_since(now.replayed().at.unwrap()).unwrap();
        assert!(age < SOON);
        bench.mq.close().await.unwrap();
    }

    // promise: RT-4
    async fn what_a_replay_changes_on_the_wire_is_the_attempt_the_reason_and_the_stamps(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let sent = bench.mq.send_to_queue(&bench.dead_letters(), "o-1").id("id-1");
        sent.header("acemq-replay-count", 2).header("x-odd", vec![1.into()]).await.unwrap();
        let outcome = bench.mq.replay(&*bench.queue).await.unwrap();
        assert_eq!(outcome.moved, 1);
        bench.eventually_ready(&bench.queue, 1).await;
        let mut moved = wire::take_one(&broker, &bench.queue).await;
        bench.mq.send_to_queue(&bench.queue, "o-1").id("id-1").header("x-odd", vec![1.into()]).await.unwrap();
        bench.eventually_ready(&bench.queue, if broker.memory.is_some() { 2 } else { 1 }).await;
        let mut direct = wire::take(&broker, &bench.queue).await.pop().unwrap();

        let stamps: BTreeMap<_, _> = ["acemq-replayed-from", "acemq-replayed-at", "acemq-replay-count"]
            .map(|name| (name, moved.headers.remove(name).unwrap()))
            .into();
        assert!(stamps["acemq-replayed-from"].contains(&bench.dead_letters()), "{stamps:?}");
        let at = &stamps["acemq-replayed-at"];
        assert!(at.contains('T') && at.contains("Z"), "{at}");
        assert!(stamps["acemq-replay-count"].contains('3'), "{stamps:?}");
        // Who publishes to another queue names another type, at another time.
        for headers in [&mut moved.headers, &mut direct.headers] {
            headers.remove("x-acemq-type");
            headers.remove("x-acemq-first-seen");
        }
        assert_eq!(moved, direct);
        bench.mq.close().await.unwrap();
    }

    // promise: RT-4
    async fn no_more_are_moved_than_were_there_while_they_fail_again(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .concurrency(4)
            .start(always_fails)
            .await
            .unwrap();
        fill(&bench.mq, &bench.queue, 0..300).await;
        bench.eventually_ready(&bench.dead_letters(), 300).await;
        for round in 1..=2 {
            let outcome = bench.mq.replay(&*bench.queue).await.unwrap();
            assert_eq!(outcome.to_string(), "moved 300, skipped 0 (drained)");
            bench.eventually_ready(&bench.dead_letters(), 300).await;
            eventually("each has failed once more, and no more often", SOON, async || {
                let counters = consumer.counters();
                (counters.dead_lettered, counters.in_flight) == (300 * (round + 1), 0)
            })
            .await;
        }
        let counts = bench.mq.peek(bench.dead_letters()).limit(1).messages().await.unwrap();
        assert_eq!(counts[0].envelope().replayed().count, 2);
        bench.mq.close().await.unwrap();
    }

    // promise: RT-4
    async fn a_limit_moves_so_many_in_order_and_touches_no_other(broker: Broker) {
        let bench = with_dead_letters(&broker, 700).await;
        for (limit, moved) in [(1, 0..1), (300, 1..301)] {
            let outcome = bench.mq.replay(&*bench.queue).limit(limit).await.unwrap();
            assert_eq!((outcome.moved, outcome.skipped, outcome.reason), (limit, 0, ReplayReason::Limit));
            let left = 700 - u64::from(moved.end);
            bench.eventually_ready(&bench.dead_letters(), left).await;
            let next = bench.mq.peek(bench.dead_letters()).limit(1).messages().await.unwrap();
            assert_eq!(number(next[0].body()), moved.end);
            assert!(!next[0].redelivered(), "more was taken than the limit");
        }
        let outcome = bench.mq.replay(&*bench.queue).limit(1_000).await.unwrap();
        assert_eq!(outcome.to_string(), "moved 399, skipped 0 (drained)");
        bench.eventually_ready(&bench.queue, 700).await;
        assert_eq!(numbers(&broker, &bench.queue).await, Vec::from_iter(0..700));
        bench.mq.close().await.unwrap();
    }

    // promise: RT-4
    async fn what_the_filter_declines_stays_where_it_is_however_much_that_is(broker: Broker) {
        let bench = with_dead_letters(&broker, 1_000).await;
        let outcome = bench
            .mq
            .replay(&*bench.queue)
            .filter(|message| number(message.body()) % 100 == 99)
            .await
            .unwrap();
        assert_eq!(outcome.to_string(), "moved 10, skipped 990 (drained)");
        bench.eventually_ready(&bench.queue, 10).await;
        bench.eventually_ready(&bench.dead_letters(), 990).await;
        let moved: Vec<u32> = (0..1_000).filter(|n| n % 100 == 99).collect();
        assert_eq!(numbers(&broker, &bench.queue).await, moved);
        let stayed: Vec<u32> = (0..1_000).filter(|n| n % 100 != 99).collect();
        assert_eq!(numbers(&broker, &bench.dead_letters()).await, stayed);
        bench.mq.close().await.unwrap();
    }

    async fn a_limit_counts_what_is_moved_and_not_what_is_declined(broker: Broker) {
        let bench = with_dead_letters(&broker, 40).await;
        let outcome = bench
            .mq
            .replay(&*bench.queue)
            .limit(5)
            .filter(|message| number(message.body()) % 2 == 1)
            .await
            .unwrap();
        assert_eq!(outcome.to_string(), "moved 5, skipped 5 (limit)");
        bench.eventually_ready(&bench.dead_letters(), 35).await;
        bench.eventually_ready(&bench.queue, 5).await;
        assert_eq!(numbers(&broker, &bench.queue).await, [1, 3, 5, 7, 9]);
        bench.mq.close().await.unwrap();
    }

    async fn a_dry_run_counts_and_moves_nothing(broker: Broker) {
        let bench = with_dead_letters(&broker, 20).await;
        let untouched = bench.mq.replay(&*bench.queue).dry_run().await.unwrap();
        assert_eq!(untouched.to_string(), "moved 20, skipped 0 (drained)");
        let limited = bench.mq.replay(&*bench.queue).dry_run().limit(7).await.unwrap();
        assert_eq!(limited.to_string(), "moved 7, skipped 0 (limit)");
        let first = bench.mq.peek(bench.dead_letters()).limit(1).messages().await.unwrap();
        assert!(!first[0].redelivered(), "it was taken out to be counted");

        let even = |message: &acemq::QueuedMessage| number(message.body()).is_multiple_of(2);
        let filtered = bench.mq.replay(&*bench.queue).dry_run().filter(even).await.unwrap();
        assert_eq!(filtered.to_string(), "moved 10, skipped 10 (drained)");
        bench.eventually_ready(&bench.dead_letters(), 20).await;
        assert_eq!(bench.ready(&bench.queue).await, 0);
        assert_eq!(numbers(&broker, &bench.dead_letters()).await, Vec::from_iter(0..20));
        bench.mq.close().await.unwrap();
    }

    async fn parked_messages_and_any_others_go_to_the_queue_that_is_said(broker: Broker) {
        let bench = Bench::new(&broker).await;
        fill(&bench.mq, &bench.parked(), 0..3).await;
        bench.eventually_ready(&bench.parked(), 3).await;
        assert_eq!(bench.mq.replay(&*bench.queue).parked().limit(2).await.unwrap().moved, 2);
        bench.eventually_ready(&bench.queue, 2).await;
        let other = Bench::new(&broker).await;
        let outcome = bench
            .mq
            .replay(&*bench.queue)
            .out_of(bench.parked())
            .into_queue(&*other.queue)
            .await
            .unwrap();
        assert_eq!(outcome.moved, 1);
        let moved = other.take(&other.queue).await;
        assert_eq!(&moved.body()[..], b"\"2\"");
        assert_eq!(moved.envelope().replayed().from.as_deref(), Some(&*bench.parked()));
        bench.mq.close().await.unwrap();
    }

    async fn attempts_can_be_kept(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let policy = RetryPolicy::fixed(3, Duration::from_millis(5));
        let failing = bench.mq.consumer::<String>(&*bench.queue).retry(policy);
        let failing = failing.start(always_fails).await.unwrap();
        bench.send("o-1").await;
        bench.eventually_ready(&bench.dead_letters(), 1).await;
        failing.close().await.unwrap();
        let _ = bench.mq.replay(&*bench.queue).keep_attempts().await.unwrap();
        let moved = bench.take(&bench.queue).await;
        assert_eq!(moved.attempt(), 3);
        assert_eq!(moved.envelope().error(), Some("exhausted 3 attempts: out of stock"));
        bench.mq.close().await.unwrap();
    }

    async fn an_empty_queue_is_drained_at_once(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let outcome = bench.mq.replay(&*bench.queue).await.unwrap();
        assert_eq!(outcome.to_string(), "moved 0, skipped 0 (drained)");
        bench.mq.close().await.unwrap();
    }

    async fn messages_that_somebody_else_takes_meanwhile_are_not_waited_for(broker: Broker) {
        let bench = with_dead_letters(&broker, 400).await;
        let (record, mut taken) = recorder::<String>();
        let rival = bench.mq.clone();
        let dead_letters = bench.dead_letters();
        let (begin, begun) = std::sync::mpsc::channel();
        let begun = std::sync::Mutex::new(begun);
        // The first message waits until the rival has a share.
        let replay = bench
            .mq
            .replay(&*bench.queue)
            .filter(move |message| {
                if message.position() == 1 {
                    let lock = begun.lock().unwrap();
                    tokio::task::block_in_place(|| lock.recv_timeout(SOON)).unwrap();
                }
                true
            })
            .start()
            .unwrap();
        let consumer = rival.consumer::<String>(dead_letters).declare(false).start(record).await;
        let consumer = consumer.unwrap();
        next(&mut taken).await;
        begin.send(()).unwrap();
        let outcome = replay.outcome().await;
        assert_eq!(outcome.reason, ReplayReason::Drained);
        assert!(outcome.moved < 400, "{outcome}");
        eventually("every message is somewhere", SOON, async || {
            outcome.moved + consumer.counters().acknowledged == 400
        })
        .await;
        bench.eventually_ready(&bench.queue, outcome.moved).await;
        bench.mq.close().await.unwrap();
    }

    async fn how_far_it_is_can_be_followed(broker: Broker) {
        let bench = with_dead_letters(&broker, 50).await;
        let replay = bench
            .mq
            .replay(&*bench.queue)
            .filter(|message| !number(message.body()).is_multiple_of(10))
            .start()
            .unwrap();
        let mut progresses = replay.progresses();
        let mut last = replay.progress();
        while let Ok(Ok(())) = tokio::time::timeout(SOON, progresses.changed()).await {
            let now = *progresses.borrow_and_update();
            assert!(now.moved >= last.moved && now.skipped >= last.skipped, "{now:?}");
            last = now;
            if now.moved + now.skipped == 50 {
                break;
            }
        }
        assert_eq!((last.total, last.moved, last.skipped), (50, 45, 5));
        assert_eq!(replay.outcome().await.to_string(), "moved 45, skipped 5 (drained)");
        assert_eq!(replay.progress(), last);
        bench.mq.close().await.unwrap();
    }
}
