//! Several consumers of one queue as one.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use acemq::{
    ConsumerGroup, ConsumerState, ErrorKind, HandlerError, MemoryIdempotencyStore, Message,
    RetryPolicy,
};
use futures_util::FutureExt as _;
use testkit::eventually;

use crate::{
    consumer::{
        bench::{Bench, SOON, recorder},
        gate::{Gate, payloads},
    },
    on_every_broker,
    support::Broker,
};

async fn send(bench: &Bench, payloads: &[String]) {
    bench.mq.publisher::<String>("", &*bench.queue).send_all(payloads).await.unwrap();
}

async fn settled(group: &ConsumerGroup, acknowledged: u64) {
    let what = format!("{acknowledged} messages are acknowledged and none is in flight");
    eventually(&what, SOON, async || {
        let counters = group.counters();
        (counters.acknowledged, counters.in_flight) == (acknowledged, 0)
    })
    .await;
}

on_every_broker! {
    async fn the_members_of_a_group_share_a_queue_and_count_together(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let gate = Gate::closed();
        let start = bench.mq.consumer::<String>(&*bench.queue).prefetch(1).start(gate.handler());
        let group = start.group(3).await.unwrap();
        assert_eq!((group.members(), group.queue()), (3, &*bench.queue));
        bench.eventually_consumers(3).await;

        send(&bench, &payloads(30)).await;
        eventually("each member is busy", SOON, async || group.counters().in_flight == 3).await;
        bench.eventually_ready(&bench.queue, 27).await;
        gate.let_go(30);
        settled(&group, 30).await;
        assert_eq!(gate.begun_sorted(), payloads(30));
        assert_eq!(group.member_states(), [const { ConsumerState::Receiving }; 3]);
        group.close().await.unwrap();
        bench.eventually_consumers(0).await;
        bench.mq.close().await.unwrap();
    }

    async fn a_group_grows_at_once_and_shrinks_by_members_that_finish_what_they_began(
        broker: Broker
    ) {
        let bench = Bench::new(&broker).await;
        let gate = Gate::closed();
        let start = bench.mq.consumer::<String>(&*bench.queue).prefetch(2).start(gate.handler());
        let group = start.group(1).await.unwrap();
        group.scale_to(4).await.unwrap();
        assert_eq!(group.members(), 4);
        bench.eventually_consumers(4).await;

        send(&bench, &payloads(20)).await;
        eventually("each member is busy", SOON, async || group.counters().in_flight == 4).await;
        bench.eventually_ready(&bench.queue, 12).await;
        let shrinking = group.scale_to(1);
        let finishing = async {
            // What the three had not begun is there for the others.
            eventually("three hand back", SOON, async || bench.ready(&bench.queue).await == 15)
                .await;
            assert_eq!((group.members(), group.counters().in_flight), (1, 4));
            gate.let_go(4);
        };
        let (shrunk, ()) = tokio::join!(shrinking, finishing);
        shrunk.unwrap();
        assert_eq!(group.members(), 1);
        bench.eventually_consumers(1).await;
        assert!(group.counters().acknowledged >= 4, "{:?}", group.counters());

        gate.let_go(20);
        settled(&group, 20).await;
        assert_eq!(gate.begun_sorted(), payloads(20));
        assert_eq!(group.counters().returned, 0);
        bench.mq.close().await.unwrap();
    }

    async fn nothing_is_lost_or_doubled_and_no_counter_falls_however_often_it_is_scaled(
        broker: Broker
    ) {
        const MESSAGES: usize = 2_000;
        let bench = Bench::new(&broker).await;
        // Classic: on a quorum queue every return costs a delivery, and there are many here.
        bench.mq.delete_queue(&bench.queue).await.unwrap();
        bench.mq.declare_queue(&acemq::Queue::new(&*bench.queue).classic()).await.unwrap();
        let gate = Gate::open();
        let start = bench.mq.consumer::<String>(&*bench.queue).prefetch(10).start(gate.handler());
        let group = start.group(1).await.unwrap();
        let done = AtomicBool::new(false);
        let scaling = async {
            for members in [5, 2, 7, 1, 3].into_iter().cycle() {
                group.scale_to(members).await.unwrap();
                assert_eq!(group.members(), members);
                if group.counters().acknowledged == MESSAGES as u64 {
                    break;
                }
            }
            done.store(true, Ordering::SeqCst);
        };
        let watching = async {
            let mut last = 0;
            while !done.load(Ordering::SeqCst) {
                let now = group.counters().acknowledged;
                assert!(now >= last, "{now} after {last}");
                last = now;
                tokio::task::yield_now().await;
            }
        };
        let all = payloads(MESSAGES);
        tokio::join!(send(&bench, &all), scaling, watching);
        settled(&group, MESSAGES as u64).await;
        assert_eq!(gate.begun_sorted(), all);
        group.close().await.unwrap();
        assert_eq!(bench.ready(&bench.queue).await, 0);
        bench.mq.close().await.unwrap();
    }

    async fn changes_asked_for_at_once_are_made_one_after_the_other(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let start = bench.mq.consumer::<String>(&*bench.queue).start(Gate::open().handler());
        let group = start.group(2).await.unwrap();
        let (up, down, again) =
            tokio::join!(group.scale_to(6), group.scale_to(1), group.scale_to(4));
        up.and(down).and(again).unwrap();
        assert_eq!(group.members(), 4);
        bench.eventually_consumers(4).await;
        bench.mq.close().await.unwrap();
    }

    async fn another_prefetch_is_for_members_that_are_there_and_for_those_to_come(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let gate = Gate::closed();
        let builder = bench.mq.consumer::<String>(&*bench.queue).prefetch(1).concurrency(100);
        let group = builder.start(gate.handler()).group(2).await.unwrap();
        group.set_prefetch(3).await.unwrap();
        group.scale_to(3).await.unwrap();
        send(&bench, &payloads(20)).await;
        eventually("nine run", SOON, async || group.counters().in_flight == 9).await;
        bench.eventually_ready(&bench.queue, 11).await;
        gate.let_go(20);
        settled(&group, 20).await;
        bench.mq.close().await.unwrap();
    }

    async fn a_group_is_paused_and_resumed_with_the_members_that_come_meanwhile(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let gate = Gate::open();
        let start = bench.mq.consumer::<String>(&*bench.queue).start(gate.handler());
        let group = start.group(2).await.unwrap();
        group.pause().await.unwrap();
        group.scale_to(3).await.unwrap();
        assert_eq!(group.member_states(), [const { ConsumerState::Paused }; 3]);
        bench.eventually_consumers(0).await;
        send(&bench, &payloads(5)).await;
        bench.eventually_ready(&bench.queue, 5).await;

        group.resume().await.unwrap();
        bench.eventually_consumers(3).await;
        settled(&group, 5).await;
        bench.mq.close().await.unwrap();
    }

    async fn a_group_has_everything_that_its_builder_has(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let (record, mut seen) = recorder::<String>();
        let handler = move |message: Message<String>| {
            let (record, fails) = (record.clone(), message.attempt() == 1);
            async move {
                if fails { Err(HandlerError::transient("not yet")) } else { record(message).await }
            }
        };
        let start = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .retry(RetryPolicy::fixed(3, Duration::from_millis(10)))
            .idempotent(MemoryIdempotencyStore::new())
            .start(handler);
        let group = start.group(4).await.unwrap();
        let publisher = bench.mq.publisher::<String>("", &*bench.queue);
        for payload in payloads(20) {
            for _ in 0..2 {
                publisher.send(&payload).id(&*payload).await.unwrap();
            }
        }
        eventually("each is handled once, or was before", SOON, async || {
            group.counters().acknowledged == 40
        })
        .await;
        let counters = group.counters();
        assert_eq!((counters.duplicates, counters.dead_lettered), (20, 0), "{counters:?}");
        let mut handled = Vec::new();
        while let Ok(message) = seen.try_recv() {
            handled.push(message.into_payload());
        }
        handled.sort();
        assert_eq!(handled, payloads(20));
        bench.mq.close().await.unwrap();
    }

    async fn a_group_whose_members_can_not_start_does_not_start(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let missing = broker.name("missing");
        let start = bench.mq.consumer::<String>(&*missing).start(Gate::open().handler());
        let error = start.group(3).await.unwrap_err();
        assert_eq!((error.kind(), error.queue()), (ErrorKind::NotFound, Some(&*missing)));
        bench.mq.close().await.unwrap();
    }

    async fn a_group_that_can_not_grow_is_as_it_was(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let gate = Gate::open();
        let start = bench.mq.consumer::<String>(&*bench.queue).start(gate.handler());
        let group = start.group(2).await.unwrap();
        // What a new member declares exists in another form.
        bench.mq.delete_queue(&bench.dead_letters()).await.unwrap();
        let other = acemq::Queue::new(bench.dead_letters()).classic();
        bench.mq.declare_queue(&other.message_ttl(SOON)).await.unwrap();
        let error = group.scale_to(4).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert_eq!(group.members(), 2);
        bench.eventually_consumers(2).await;
        bench.send("o-1").await;
        settled(&group, 1).await;
        bench.mq.close().await.unwrap();
    }

    async fn a_change_whose_future_is_dropped_leaves_no_member_behind(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let gate = Gate::closed();
        let start = bench.mq.consumer::<String>(&*bench.queue).prefetch(1).start(gate.handler());
        let group = start.group(3).await.unwrap();
        send(&bench, &payloads(3)).await;
        eventually("each is busy", SOON, async || group.counters().in_flight == 3).await;

        assert!(group.scale_to(1).now_or_never().is_none(), "handlers were still running");
        assert_eq!(group.members(), 1);
        gate.let_go(3);
        settled(&group, 3).await;
        bench.eventually_consumers(1).await;

        // Wherever it is dropped while it grows.
        for polls in 1..40 {
            let mut growing = Box::pin(group.scale_to(4));
            for _ in 0..polls {
                if (&mut growing).now_or_never().is_some() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(growing);
            if group.members() == 4 {
                group.scale_to(1).await.unwrap();
            }
            assert_eq!(group.members(), 1);
        }
        bench.eventually_consumers(1).await;
        group.scale_to(2).await.unwrap();
        bench.eventually_consumers(2).await;
        bench.mq.close().await.unwrap();
    }

    async fn a_closed_group_refuses_further_calls_and_closing_twice_is_no_error(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let start = bench.mq.consumer::<String>(&*bench.queue).start(Gate::open().handler());
        let group = start.group(2).await.unwrap();
        group.close().await.unwrap();
        group.close().await.unwrap();
        assert_eq!(group.member_states(), [const { ConsumerState::Closed }; 2]);
        for refused in [
            group.scale_to(3).await,
            group.set_prefetch(3).await,
            group.pause().await,
            group.resume().await,
        ] {
            let error = refused.unwrap_err();
            assert_eq!((error.kind(), error.queue()), (ErrorKind::Closed, Some(&*bench.queue)));
        }
        bench.eventually_consumers(0).await;
        bench.mq.close().await.unwrap();
    }

    async fn closing_while_it_grows_leaves_no_member_behind(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let start = bench.mq.consumer::<String>(&*bench.queue).start(Gate::open().handler());
        let group = start.group(1).await.unwrap();
        let (grown, closed) = tokio::join!(group.scale_to(5), group.close());
        closed.unwrap();
        if let Err(error) = grown {
            assert_eq!(error.kind(), ErrorKind::Closed);
        }
        bench.eventually_consumers(0).await;
        bench.mq.close().await.unwrap();
    }

    async fn closing_the_client_closes_its_groups_and_dropping_a_group_stops_it(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let group = || bench.mq.consumer::<String>(&*bench.queue).start(Gate::open().handler());
        drop(group().group(3).await.unwrap());
        bench.eventually_consumers(0).await;

        let mq = acemq::connect(&*broker.url).await.unwrap();
        let start = mq.consumer::<String>(&*bench.queue).start(Gate::open().handler());
        let group = start.group(3).await.unwrap();
        mq.close().await.unwrap();
        assert_eq!(group.member_states(), [const { ConsumerState::Closed }; 3]);
        bench.eventually_consumers(0).await;
        assert_eq!(group.scale_to(4).await.unwrap_err().kind(), ErrorKind::Closed);
        bench.mq.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_group_without_members_and_several_exclusive_members_are_refused() {
    let bench = Bench::new(&Broker::memory()).await;
    let builder = || bench.mq.consumer::<String>(&*bench.queue);
    let starts = [
        builder().start(Gate::open().handler()).group(0),
        builder().exclusive().start(Gate::open().handler()).group(2),
        builder().prefetch(0).start(Gate::open().handler()).group(2),
    ];
    for start in starts {
        assert_eq!(start.await.unwrap_err().kind(), ErrorKind::Config);
    }
    let group = builder().exclusive().start(Gate::open().handler()).group(1).await.unwrap();
    for refused in [group.scale_to(2).await, group.scale_to(0).await, group.set_prefetch(0).await] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Config);
    }
    assert_eq!(group.members(), 1);
    bench.mq.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn all_members_are_closed_within_one_bound_and_what_still_ran_is_counted() {
    let broker = Broker::memory();
    let mq = acemq::connect(&*broker.url).drain_timeout(Duration::from_secs(20)).await.unwrap();
    let bench = Bench { queue: Bench::new(&broker).await.queue, mq };
    let gate = Gate::closed();
    let start = bench.mq.consumer::<String>(&*bench.queue).start(gate.handler());
    let group = start.group(4).await.unwrap();
    send(&bench, &payloads(4)).await;
    eventually("each is busy", SOON, async || group.counters().in_flight == 4).await;

    let begun = tokio::time::Instant::now();
    let error = group.scale_to(3).await.unwrap_err();
    assert!(error.to_string().contains("1 handler was still running"), "{error}");
    assert_eq!((error.kind(), group.members()), (ErrorKind::Timeout, 3));
    let error = group.close().await.unwrap_err();
    assert!(error.to_string().contains("3 handlers were still running"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(45), "it took {:?}", begun.elapsed());
    bench.eventually_ready(&bench.queue, 4).await;
    drop(group);
    bench.mq.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_of_which_some_members_can_not_start_closes_those_that_have() {
    for (_, url) in testkit::brokers() {
        let broker = Broker::rabbitmq(Some(url)).unwrap();
        broker
            .run(async |broker| {
                let bench = Bench::new(&broker).await;
                let mq = acemq::connect(format!("{}?channel_max=8", broker.url)).await.unwrap();
                let start = mq.consumer::<String>(&*bench.queue).start(Gate::open().handler());
                start.group(40).await.unwrap_err();
                bench.eventually_consumers(0).await;

                let start = mq.consumer::<String>(&*bench.queue).start(Gate::open().handler());
                let group = start.group(3).await.unwrap();
                group.scale_to(40).await.unwrap_err();
                assert_eq!(group.members(), 3);
                bench.eventually_consumers(3).await;
                mq.close().await.unwrap();
                bench.mq.close().await.unwrap();
            })
            .await;
    }
}
