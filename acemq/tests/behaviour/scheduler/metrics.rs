//! What is reported about scheduled messages.

use std::{collections::BTreeMap, time::Duration};

use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use crate::{scheduler::bench::Bench, support::Broker};

#[tokio::test(start_paused = true)]
async fn what_schedulers_do_is_counted_and_how_late_they_are_is_timed() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _local = metrics::set_default_local_recorder(&recorder);
    let broker = Broker::memory();
    let bench = Bench::new(&broker).await;
    let scheduler = &bench.scheduler;
    let mut arrivals = bench.receive().await;
    let seconds = Duration::from_secs;
    scheduler.after(seconds(0), "", &*bench.queue, "at once").await.unwrap();
    scheduler.after(seconds(13), "", &*bench.queue, "three hops more").await.unwrap();
    scheduler.after(seconds(15), "nobody", "key", "never").await.unwrap();
    arrivals.whenever().await;
    arrivals.whenever().await;
    tokio::time::sleep(seconds(14)).await;

    let mut values = BTreeMap::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let key = key.key();
        if !key.name().starts_with("acemq.schedule.") {
            continue;
        }
        let labels = key.labels().map(|label| format!(" {}={}", label.key(), label.value()));
        let count = match value {
            DebugValue::Counter(count) => count,
            DebugValue::Histogram(lags) => {
                assert!(lags.iter().all(|lag| lag.into_inner() < 1.0), "{lags:?}");
                lags.len() as u64
            }
            DebugValue::Gauge(_) => panic!("{key}"),
        };
        values.insert(format!("{}{}", key.name(), labels.collect::<String>()), count);
    }
    let counters = scheduler.counters();
    let expected = [
        ("acemq.schedule.lag", 2),
        ("acemq.schedule.total outcome=delivered", counters.delivered),
        ("acemq.schedule.total outcome=hopped", counters.hops),
        ("acemq.schedule.total outcome=scheduled", counters.scheduled),
        ("acemq.schedule.total outcome=undelivered", counters.undelivered),
    ];
    assert_eq!(values, expected.map(|(name, count)| (name.to_owned(), count)).into());
    assert_eq!((counters.scheduled, counters.delivered), (3, 2));
    // At 15 s, and at 25 s.
    assert_eq!(counters.undelivered, 2);
    assert!((7..=10).contains(&counters.hops), "{counters:?}");
    bench.mq.close().await.unwrap();
}
