//! Hours and years in milliseconds: the memory broker under a paused clock.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use crate::{
    scheduler::bench::{Bench, DUE},
    support::Broker,
};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// Where the messages went that were published, and how often.
fn ways(broker: &Broker) -> BTreeMap<String, usize> {
    let mut ways = BTreeMap::new();
    for message in broker.memory.as_ref().unwrap().published() {
        *ways.entry(message.routing_key().to_owned()).or_default() += 1;
    }
    ways
}

// promise: SC-3
// promise: BX-10
#[tokio::test(start_paused = true)]
async fn a_four_hour_delay_is_four_hops_of_an_hour_under_one_id() {
    let real = Instant::now();
    let broker = Broker::memory();
    let bench = Bench::new(&broker).await;
    let mut arrivals = bench.receive().await;
    let begun = tokio::time::Instant::now();
    // What it takes to schedule it must not make it three hours and three quarters.
    let delay = 4 * HOUR + Duration::from_millis(900);
    let message = bench.scheduler.after(delay, "", &*bench.queue, "o-1");
    message.id("o-1").correlation_id("c-1").await.unwrap();
    let message = arrivals.whenever().await;
    assert_eq!((message.id(), message.envelope().correlation_id()), ("o-1", "c-1"));
    assert_eq!(begun.elapsed().as_secs() / 60, 4 * 60);
    let expected = BTreeMap::from([("acemq.schedule.1h".to_owned(), 4), (bench.queue.clone(), 1)]);
    assert_eq!(ways(&broker), expected);
    let counters = bench.scheduler.counters();
    assert_eq!((counters.scheduled, counters.hops, counters.delivered), (1, 3, 1));
    assert!(real.elapsed() < Duration::from_secs(10), "it took {:?}", real.elapsed());
    bench.mq.close().await.unwrap();
}

// promise: SC-1
// promise: SC-2
// promise: BX-10
#[tokio::test(start_paused = true)]
async fn whatever_the_delays_each_message_comes_within_a_second_of_its_time() {
    let broker = Broker::memory();
    let bench = Bench::new(&broker).await;
    let mut arrivals = bench.receive().await;
    let begun = tokio::time::Instant::now();
    let mut delays: Vec<u64> = (0..500)
        .map(|n: u64| n.pow(3) * 7 % 10_000_000)
        .chain([86_400_000, 3_600_000, 7_300, 1_000, 999, 0])
        .collect();
    for delay in &delays {
        bench.after(Duration::from_millis(*delay), &delay.to_string()).await;
    }
    for _ in &delays {
        let due = Duration::from_millis(arrivals.whenever().await.payload().parse().unwrap());
        let after = begun.elapsed();
        assert!(after + SECOND >= due && after <= due + SECOND, "{due:?}: after {after:?}");
    }
    delays.sort_unstable();
    assert_eq!(bench.scheduler.counters().delivered, delays.len() as u64);
    bench.mq.close().await.unwrap();
}

// promise: SC-3
// promise: BX-10
#[tokio::test(start_paused = true)]
async fn a_year_passes_in_no_time_and_costs_nothing_meanwhile() {
    let real = Instant::now();
    let broker = Broker::memory();
    let bench = Bench::new(&broker).await;
    let year = 365 * 24 * HOUR;
    let begun = tokio::time::Instant::now();
    bench.after(year, "happy birthday").await;
    tokio::time::sleep(year / 2 + HOUR / 2).await;
    let memory = broker.memory.as_ref().unwrap();
    assert_eq!(memory.queue("acemq.schedule.1h").unwrap().len(), 1);
    assert_eq!(memory.queue(DUE).unwrap().len(), 0);
    assert_eq!(bench.scheduler.consumer().unwrap().counters().in_flight, 0);
    let mut arrivals = bench.receive().await;
    assert_eq!(arrivals.whenever().await.payload(), "happy birthday");
    let off = begun.elapsed().abs_diff(year);
    assert!(off <= SECOND, "{off:?}");
    assert!(real.elapsed() < Duration::from_secs(60), "it took {:?}", real.elapsed());
    bench.mq.close().await.unwrap();
}
