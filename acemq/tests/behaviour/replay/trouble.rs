//! A replay that cannot go on, or is not wanted any more, loses nothing.

use std::{collections::BTreeSet, time::Duration};

use acemq::{ErrorKind, ReplayReason};
use futures_util::FutureExt as _;
use testkit::eventually;
use tokio::sync::mpsc::unbounded_channel;

use super::{number, numbers, with_dead_letters};
use crate::{
    consumer::bench::{Bench, SOON, next},
    on_every_broker,
    support::Broker,
};

/// Every number is in one of the two queues; says how many are in both.
async fn nothing_is_lost(broker: &Broker, bench: &Bench, count: u32) -> usize {
    let (moved, stayed) = async {
        eventually("everything is back or there", SOON, async || {
            let moved = bench.ready(&bench.queue).await;
            moved + bench.ready(&bench.dead_letters()).await >= count.into()
        })
        .await;
        let moved: BTreeSet<u32> = numbers(broker, &bench.queue).await.into_iter().collect();
        let stayed: BTreeSet<u32> =
            numbers(broker, &bench.dead_letters()).await.into_iter().collect();
        (moved, stayed)
    }
    .await;
    let all: BTreeSet<u32> = &moved | &stayed;
    assert_eq!(all.len(), count as usize);
    moved.intersection(&stayed).count()
}

on_every_broker! {
    // promise: RT-4
    async fn a_queue_to_go_to_that_does_not_exist_fails_the_replay_and_touches_nothing(broker: Broker) {
        let bench = with_dead_letters(&broker, 3).await;
        let missing = broker.name("missing");
        let outcome = bench.mq.replay(&*bench.queue).into_queue(&*missing).await.unwrap();
        assert_eq!(outcome.to_string(), "moved 0, skipped 0 (failed)");
        let error = outcome.error().unwrap();
        assert_eq!((error.kind(), error.queue()), (ErrorKind::NotFound, Some(&*missing)));
        assert!(outcome.into_result().is_err());
        let there = bench.mq.peek(bench.dead_letters()).messages().await.unwrap();
        assert!(there.len() == 3 && !there[0].redelivered());

        let nowhere = bench.mq.replay(&*bench.queue).out_of(&*missing).await.unwrap();
        assert_eq!(nowhere.reason, ReplayReason::Failed);
        assert_eq!(nowhere.error().unwrap().queue(), Some(&*missing));
        bench.mq.close().await.unwrap();
    }

    // promise: RT-4
    async fn a_queue_to_go_to_that_is_deleted_on_the_way_loses_nothing(broker: Broker) {
        let bench = with_dead_letters(&broker, 30).await;
        let target = broker.name("target");
        bench.mq.declare_queue(&acemq::Queue::new(&*target)).await.unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let receiver = std::sync::Mutex::new(receiver);
        let (begun, mut looking) = unbounded_channel();
        let replay = bench
            .mq
            .replay(&*bench.queue)
            .into_queue(&*target)
            .filter(move |_| {
                let lock = receiver.lock().unwrap();
                begun.send(()).unwrap();
                tokio::task::block_in_place(|| lock.recv_timeout(SOON)).is_ok()
            })
            .start()
            .unwrap();
        // It has found the queue there.
        next(&mut looking).await;
        bench.mq.delete_queue(&target).await.unwrap();
        for _ in 0..30 {
            // It may have stopped already.
            let _ = sender.send(());
        }
        let outcome = replay.outcome().await;
        assert_eq!((outcome.reason, outcome.moved), (ReplayReason::Failed, 0));
        assert_eq!(outcome.error().unwrap().kind(), ErrorKind::Unroutable);
        bench.eventually_ready(&bench.dead_letters(), 30).await;
        assert_eq!(numbers(&broker, &bench.dead_letters()).await, Vec::from_iter(0..30));
        bench.mq.close().await.unwrap();
    }

    async fn what_could_have_no_end_or_no_effect_is_refused(broker: Broker) {
        let bench = with_dead_letters(&broker, 1).await;
        let replay = || bench.mq.replay(&*bench.queue);
        for (refused, said) in [
            (replay().into_queue(bench.dead_letters()), "the queue it reads from"),
            (replay().out_of(&*bench.queue), "the queue it reads from"),
            (replay().limit(0), "at least 1"),
            (bench.mq.replay("").out_of(bench.dead_letters()), "no name"),
            (replay().out_of(""), "no name"),
        ] {
            let error = refused.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(said), "{error}");
        }
        let closed = bench.mq.clone();
        bench.mq.close().await.unwrap();
        assert_eq!(closed.replay("q").await.unwrap_err().kind(), ErrorKind::Closed);
    }

    async fn closing_a_replay_ends_it_between_messages(broker: Broker) {
        let bench = with_dead_letters(&broker, 400).await;
        let (sender, mut seen) = unbounded_channel();
        let (going, goes) = std::sync::mpsc::channel::<()>();
        let goes = std::sync::Mutex::new(goes);
        let replay = bench
            .mq
            .replay(&*bench.queue)
            .filter(move |message| {
                let _ = sender.send(message.position());
                let lock = goes.lock().unwrap();
                message.position() < 100
                    || tokio::task::block_in_place(|| lock.recv_timeout(SOON)).is_ok()
            })
            .start()
            .unwrap();
        while next(&mut seen).await < 100 {}
        let (outcome, ()) = tokio::join!(replay.close(), async { drop(going) });
        assert_eq!(outcome.reason, ReplayReason::Cancelled);
        assert!(outcome.moved <= 99, "{outcome}");
        bench.eventually_ready(&bench.queue, outcome.moved).await;
        bench.eventually_ready(&bench.dead_letters(), 400 - outcome.moved).await;
        assert_eq!(nothing_is_lost(&broker, &bench, 400).await, 0, "in both queues");
        assert_eq!(replay.close().await.moved, outcome.moved);
        bench.mq.close().await.unwrap();
    }

    async fn closing_the_client_ends_a_replay_in_order(broker: Broker) {
        let bench = with_dead_letters(&broker, 400).await;
        let replay = bench.mq.replay(&*bench.queue).start().unwrap();
        let mut progresses = replay.progresses();
        progresses.wait_for(|progress| progress.moved > 10).await.unwrap();
        bench.mq.close().await.unwrap();
        let outcome = replay.outcome().await;
        assert!(matches!(outcome.reason, ReplayReason::Cancelled | ReplayReason::Drained), "{outcome}");
        let after = Bench { mq: broker.client().await, queue: bench.queue.clone() };
        after.eventually_ready(&after.queue, outcome.moved).await;
        after.eventually_ready(&after.dead_letters(), 400 - outcome.moved).await;
        after.mq.close().await.unwrap();
    }

    async fn a_replay_that_is_dropped_anywhere_loses_nothing(broker: Broker) {
        let bench = with_dead_letters(&broker, 60).await;
        for polls in 0..25 {
            let replay = bench.mq.replay(&*bench.queue).start().unwrap();
            for _ in 0..polls {
                tokio::task::yield_now().await;
            }
            drop(replay);
            let mut dropped = Box::pin(bench.mq.replay(&*bench.queue).limit(2).into_future());
            for _ in 0..polls {
                if dropped.as_mut().now_or_never().is_some() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        nothing_is_lost(&broker, &bench, 60).await;
        bench.mq.close().await.unwrap();
    }

    async fn a_deadline_ends_it_and_what_was_published_is_settled(broker: Broker) {
        let bench = with_dead_letters(&broker, 50).await;
        let none = bench.mq.replay(&*bench.queue).deadline(Duration::ZERO).await.unwrap();
        assert_eq!(none.to_string(), "moved 0, skipped 0 (deadline)");
        let outcome = bench
            .mq
            .replay(&*bench.queue)
            .deadline(Duration::from_millis(500))
            .filter(|message| {
                if message.position() == 10 {
                    tokio::task::block_in_place(|| std::thread::sleep(Duration::from_millis(600)));
                }
                true
            })
            .await
            .unwrap();
        assert_eq!(outcome.reason, ReplayReason::Deadline);
        assert!((1..=10).contains(&outcome.moved), "{outcome}");
        bench.eventually_ready(&bench.queue, outcome.moved).await;
        bench.eventually_ready(&bench.dead_letters(), 50 - outcome.moved).await;
        bench.mq.close().await.unwrap();
    }

    async fn a_filter_that_panics_fails_the_replay_and_loses_nothing(broker: Broker) {
        let bench = with_dead_letters(&broker, 20).await;
        let outcome = bench
            .mq
            .replay(&*bench.queue)
            .filter(|message| {
                assert_ne!(number(message.body()), 7, "on purpose");
                true
            })
            .await
            .unwrap();
        assert_eq!((outcome.reason, outcome.moved), (ReplayReason::Failed, 7));
        let error = outcome.error().unwrap();
        assert!(error.to_string().contains("the filter panicked"), "{error}");
        assert!(error.message_id().is_some());
        bench.eventually_ready(&bench.queue, 7).await;
        bench.eventually_ready(&bench.dead_letters(), 13).await;
        assert_eq!(numbers(&broker, &bench.dead_letters()).await, Vec::from_iter(7..20));
        bench.mq.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_has_paused_publishing_fails_a_replay_after_the_bound() {
    let broker = Broker::memory();
    let memory = broker.memory.clone().unwrap();
    let bench = with_dead_letters(&broker, 5).await;
    memory.block("low on memory");
    let outcome = bench.mq.replay(&*bench.queue).await.unwrap();
    assert_eq!((outcome.reason, outcome.moved), (ReplayReason::Failed, 0));
    assert_eq!(outcome.error().unwrap().kind(), ErrorKind::Blocked);
    assert_eq!(memory.queue(&bench.dead_letters()).unwrap().len(), 5);
    memory.unblock();
    bench.mq.close().await.unwrap();
}

#[tokio::test]
async fn a_connection_that_is_lost_fails_a_replay_and_loses_nothing() {
    let broker = Broker::memory();
    let bench = with_dead_letters(&broker, 500).await;
    let memory = broker.memory.clone().unwrap();
    let dropped = memory.clone();
    let outcome = bench
        .mq
        .replay(&*bench.queue)
        .filter(move |message| {
            if message.position() == 100 {
                dropped.drop_connections();
            }
            true
        })
        .await
        .unwrap();
    assert_eq!(outcome.reason, ReplayReason::Failed);
    assert!(outcome.error().unwrap().is_transient(), "{:?}", outcome.error());
    nothing_is_lost(&broker, &bench, 500).await;
    bench.mq.close().await.unwrap();
}
