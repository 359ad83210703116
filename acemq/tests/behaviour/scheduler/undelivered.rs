//! What is due and reaches no queue.

use std::time::Duration;

use acemq::{Exchange, Queue, Topology};
use testkit::eventually;
use tokio::time::Instant;

use crate::{
    consumer::bench::SOON,
    on_every_broker,
    scheduler::bench::{Arrivals, Bench, DUE, MOMENT},
    support::Broker,
};

on_every_broker! {
    // promise: SC-4
    async fn what_reaches_no_queue_is_kept_until_it_does_and_holds_nobody_up(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let mut arrivals = bench.receive().await;
        let (missing, unbound) = (broker.exchange("missing"), broker.exchange("unbound"));
        bench.mq.declare(&Exchange::topic(&*unbound).into()).await.unwrap();
        let later = broker.name("nobody");
        // More than a scheduler moves at once, and the others behind them.
        for number in 0..80 {
            for (exchange, key) in [(&*missing, "key"), (&*unbound, "key"), ("", &*later)] {
                let payload = format!("{exchange} {number}");
                bench.scheduler.after(MOMENT, exchange, key, &*payload).await.unwrap();
            }
        }
        for number in 0..40 {
            bench.after(MOMENT, &number.to_string()).await;
        }
        let mut seen = Vec::new();
        for _ in 0..40 {
            seen.push(arrivals.next().await.into_payload().parse::<u32>().unwrap());
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..40).collect::<Vec<_>>());

        let topology = Topology::new()
            .exchange(Exchange::topic(&*missing))
            .queue(Queue::new(&*later).dead_letters())
            .bind(&*later, &*missing, "key")
            .bind(&*later, &*unbound, "key");
        bench.mq.declare(&topology).await.unwrap();
        let mut late = Arrivals::at(&bench.mq, &later).await;
        let mut seen = Vec::new();
        for _ in 0..240 {
            seen.push(late.next().await.into_payload());
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 240);
        bench.mq.close().await.unwrap();
    }
}

// promise: SC-4
#[tokio::test(start_paused = true)]
async fn it_is_tried_every_ten_seconds_with_a_warning_each_time_and_is_never_dead_lettered() {
    let (log, _guard) = testkit::logs::of_this_thread();
    let broker = Broker::memory();
    let memory = broker.memory.clone().unwrap();
    let bench = Bench::new(&broker).await;
    let mut arrivals = bench.receive().await;
    let warnings = || {
        let parts = ["WARN", "is due and could not be delivered", "nobody", "id-1"];
        log.lines_with(&parts).len()
    };
    let message = bench.scheduler.after(Duration::from_secs(5), "nobody", "key", "o-1");
    message.id("id-1").await.unwrap();
    tokio::time::sleep(Duration::from_millis(5_500)).await;
    assert_eq!(warnings(), 1);
    for tried in 2..=7 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(warnings(), tried);
    }
    // Meanwhile it is nobody's.
    assert_eq!(memory.queue("acemq.schedule.10s").unwrap().len(), 1);
    assert_eq!(bench.scheduler.consumer().unwrap().counters().in_flight, 0);
    // It is not given up.
    tokio::time::sleep(Duration::from_secs(3 * 3_600)).await;
    assert!(warnings() > 1_000, "{}", warnings());
    let counters = bench.scheduler.counters();
    assert_eq!((counters.delivered, counters.rejected), (0, 0));
    assert_eq!(counters.undelivered, warnings() as u64);
    for queue in [".dlq", ".parked"] {
        assert_eq!(memory.queue(&format!("{DUE}{queue}")).unwrap().len(), 0);
    }

    let begun = Instant::now();
    let topology =
        Topology::new().exchange(Exchange::direct("nobody")).bind(&*bench.queue, "nobody", "key");
    bench.mq.declare(&topology).await.unwrap();
    let message = arrivals.whenever().await;
    assert_eq!((message.id(), &**message.payload()), ("id-1", "o-1"));
    assert!(begun.elapsed() <= Duration::from_secs(11), "after {:?}", begun.elapsed());
    assert_eq!(bench.scheduler.counters().delivered, 1);
    bench.mq.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn while_the_broker_takes_nothing_it_is_not_the_messages_fault() {
    let (log, _guard) = testkit::logs::of_this_thread();
    let broker = Broker::memory();
    let memory = broker.memory.clone().unwrap();
    let bench = Bench::new(&broker).await;
    let mut arrivals = bench.receive().await;
    for number in 0..200 {
        bench.after(MOMENT, &number.to_string()).await;
    }
    memory.block("low on memory");
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(bench.scheduler.counters().undelivered, 0);
    assert!(!log.lines_with(&["WARN", "could not be moved on", "low on memory"]).is_empty());

    let begun = Instant::now();
    memory.unblock();
    let mut seen = std::collections::HashSet::new();
    while seen.len() < 200 {
        seen.insert(arrivals.whenever().await.into_payload());
    }
    // By then it has looked.
    assert!(begun.elapsed() < Duration::from_secs(10), "after {:?}", begun.elapsed());
    eventually("none is left", SOON, async || {
        bench.ready(DUE).await == 0 && bench.scheduler.consumer().unwrap().counters().in_flight == 0
    })
    .await;
    assert_eq!(memory.queue(&format!("{DUE}.dlq")).unwrap().len(), 0);
    bench.mq.close().await.unwrap();
}

// This client's own limit, which another scheduler may not have.
#[tokio::test(start_paused = true)]
async fn what_only_another_scheduler_can_publish_stays_and_holds_nobody_up() {
    let broker = Broker::memory();
    let mq = acemq::connect(&*broker.url).largest_body(1_000).await.unwrap();
    let small = mq.scheduler().await.unwrap();
    let other = broker.client().await;
    let scheduling = other.scheduler().moves(false).await.unwrap();
    other.declare_queue(&Queue::new("later").dead_letters()).await.unwrap();
    let mut arrivals = Arrivals::at(&other, "later").await;
    let large = "x".repeat(2_000);
    scheduling.after(MOMENT, "", "later", &*large).await.unwrap();
    for number in 0..100 {
        scheduling.after(2 * MOMENT, "", "later", &*number.to_string()).await.unwrap();
    }
    for number in 0..100 {
        assert_eq!(*arrivals.whenever().await.payload(), number.to_string());
    }
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(small.counters().delivered, 100);

    let large_enough = other.scheduler().await.unwrap();
    assert_eq!(arrivals.whenever().await.payload().len(), 2_000);
    eventually("it says so", SOON, async || large_enough.counters().delivered == 1).await;
    mq.close().await.unwrap();
    other.close().await.unwrap();
}
