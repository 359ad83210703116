//! Hours in milliseconds: the memory broker and the in-memory stores under a paused clock.

use std::time::{Duration, Instant};

use acemq::{Claim, HandlerError, IdempotencyStore, MemoryIdempotencyStore, Message, RetryPolicy};

use crate::{
    consumer::bench::{Bench, recorder},
    support::Broker,
};

const HOUR: Duration = Duration::from_secs(3_600);

/// The whole test has to be done by then, on the clock that is not paused.
fn in_no_time(begun: Instant) {
    assert!(begun.elapsed() < Duration::from_secs(10), "it took {:?}", begun.elapsed());
}

// promise: BX-10
// promise: RT-1
#[tokio::test(start_paused = true)]
async fn a_ladder_of_hours_is_climbed_in_no_time_and_each_wait_is_exact() {
    let real = Instant::now();
    let broker = Broker::memory();
    let bench = Bench::new(&broker).await;
    let (record, mut seen) = recorder::<String>();
    let handler = move |message: Message<String>| {
        drop(record(message));
        std::future::ready(Err::<(), _>(HandlerError::transient("not yet")))
    };
    let policy = RetryPolicy::exponential(5, HOUR, 6 * HOUR);
    let builder = bench.mq.consumer::<String>(&*bench.queue).retry(policy);
    let consumer = builder.start(handler).await.unwrap();
    let begun = tokio::time::Instant::now();
    bench.send("o-1").await;

    let mut at = Vec::new();
    for attempt in 1..=5 {
        let message = seen.recv().await.unwrap();
        assert_eq!(message.attempt(), attempt);
        at.push(begun.elapsed().as_secs() / 60);
        let age = message.age();
        assert!(age + Duration::from_secs(1) >= begun.elapsed(), "the age stood still");
    }
    // After 1, 2, 4 and 6 hours.
    assert_eq!(at, [0, 60, 180, 420, 780]);
    while consumer.counters().dead_lettered == 0 {
        tokio::task::yield_now().await;
    }
    let rungs: Vec<String> = broker
        .memory
        .unwrap()
        .queues()
        .into_iter()
        .filter_map(|queue| queue.name.split_once(".retry.").map(|(_, wait)| wait.to_owned()))
        .collect();
    assert_eq!(rungs, ["1h", "2h", "4h", "6h"]);
    in_no_time(real);
}

// promise: BX-10
#[tokio::test(start_paused = true)]
async fn a_restart_of_the_broker_in_the_middle_of_a_four_hour_wait_does_not_shorten_it() {
    let real = Instant::now();
    let broker = Broker::memory();
    let bench = Bench::new(&broker).await;
    let (record, mut seen) = recorder::<String>();
    let handler = move |message: Message<String>| {
        drop(record(message));
        std::future::ready(Err::<(), _>(HandlerError::transient("not yet")))
    };
    let builder = bench.mq.consumer::<String>(&*bench.queue).retry(RetryPolicy::fixed(2, 4 * HOUR));
    let _consumer = builder.start(handler).await.unwrap();
    bench.send("o-1").await;
    seen.recv().await.unwrap();
    let failed = tokio::time::Instant::now();
    tokio::time::sleep(HOUR).await;
    broker.memory.unwrap().restart();
    assert_eq!(seen.recv().await.unwrap().attempt(), 2);
    assert_eq!(failed.elapsed().as_secs() / 60, 4 * 60);
    in_no_time(real);
}

// promise: BX-10
// promise: ID-18
#[tokio::test(start_paused = true)]
async fn a_five_minute_lease_and_a_day_of_retention_pass_in_no_time() {
    let real = Instant::now();
    let broker = Broker::memory();
    let bench = Bench::new(&broker).await;
    let store = MemoryIdempotencyStore::new();
    let key = format!("{}/id-1", bench.queue);
    assert!(matches!(store.try_claim(&key).await.unwrap(), Claim::Owned(_)));
    let (record, mut seen) = recorder::<String>();
    let builder = bench.mq.consumer::<String>(&*bench.queue).idempotent(store);
    let consumer = builder.start(record).await.unwrap();
    let send = async || {
        bench.mq.send_to_queue(&bench.queue, "o-1").id("id-1").await.unwrap();
    };

    let begun = tokio::time::Instant::now();
    send().await;
    seen.recv().await.unwrap();
    assert_eq!(begun.elapsed().as_secs() / 60, 5, "the lease");
    assert!((295..=301).contains(&consumer.counters().in_progress), "once a second");

    send().await;
    tokio::time::sleep(23 * HOUR).await;
    send().await;
    tokio::time::sleep(HOUR / 2).await;
    assert_eq!(consumer.counters().duplicates, 2, "the retention");
    tokio::time::sleep(HOUR).await;
    send().await;
    seen.recv().await.unwrap();
    in_no_time(real);
}

// promise: BX-10
#[tokio::test(start_paused = true)]
async fn a_message_is_given_up_after_two_days_in_no_time() {
    let real = Instant::now();
    let broker = Broker::memory();
    let bench = Bench::new(&broker).await;
    let policy = RetryPolicy::fixed(1_000, HOUR).give_up_after(48 * HOUR);
    let builder = bench.mq.consumer::<String>(&*bench.queue).retry(policy);
    let handler = |_: Message<String>| async { Err::<(), _>(HandlerError::transient("no")) };
    let consumer = builder.start(handler).await.unwrap();
    bench.send("o-1").await;
    while consumer.counters().dead_lettered == 0 {
        tokio::time::sleep(HOUR).await;
    }
    assert_eq!(bench.take(&bench.dead_letters()).await.attempt(), 49);
    in_no_time(real);
}
