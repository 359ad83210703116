//! What a consumer says about itself: metrics and log.

use std::{collections::BTreeMap, time::Duration};

use acemq::{
    Ack, Claim, HandlerError, IdempotencyStore, MemoryIdempotencyStore, Message, Queue, RetryPolicy,
};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use crate::{
    consumer::bench::{Bench, recorder},
    consumer::spy::{Call, Spy},
    support::Broker,
};

/// Waits for a condition by letting the other tasks run.
async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    testkit::eventually(what, Duration::from_secs(30), async || condition()).await;
}

// One thread, so that a recorder of the test's own sees all and nothing else.
#[tokio::test]
async fn every_delivery_is_counted_under_the_familys_names_and_outcomes() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let broker = Broker::memory();
    let bench = Bench::new(&broker).await;
    let store = MemoryIdempotencyStore::new();
    let key = format!("{}/in-progress", bench.queue);
    let Claim::Owned(theirs) = store.try_claim(&key).await.unwrap() else { panic!("a new key") };
    let consumer = bench
        .mq
        .consumer::<String>(&*bench.queue)
        .retry(RetryPolicy::fixed(2, Duration::from_millis(5)))
        .in_progress_wait(Duration::from_millis(5))
        .idempotent(store.clone())
        .start(|message: Message<String>| async move {
            match message.payload().as_str() {
                "accept" => Ok(Ack::accept()),
                "reject" => Ok(Ack::reject("no")),
                "park" => Ok(Ack::park("no")),
                _ => Err(HandlerError::transient("no")),
            }
        })
        .await
        .unwrap();
    for payload in ["accept", "reject", "park", "fail"] {
        bench.mq.send_to_queue(&bench.queue, payload).message_type("t").await.unwrap();
    }
    until("they are settled", || consumer.counters().dead_lettered == 1).await;
    let again = bench.mq.send_to_queue(&bench.queue, "accept").message_type("t");
    again.id("in-progress").await.unwrap();
    until("it goes round", || consumer.counters().in_progress >= 1).await;
    store.confirm(&theirs).await.unwrap();
    until("it is a duplicate", || consumer.counters().duplicates == 1).await;
    let in_progress = consumer.counters().in_progress;
    consumer.close().await.unwrap();

    let mut values = BTreeMap::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let mut labels: Vec<String> = key
            .key()
            .labels()
            .filter(|label| label.value() != bench.queue || label.key() != "queue")
            .map(|label| format!("{}={}", label.key(), label.value()))
            .collect();
        labels.sort();
        let name = format!("{} {}", key.key().name(), labels.join(" "));
        let value = match value {
            DebugValue::Counter(count) => count as f64,
            DebugValue::Gauge(value) => value.into_inner(),
            DebugValue::Histogram(values) => values.len() as f64,
        };
        values.insert(name.trim_end().to_owned(), value);
    }
    values.retain(|name, _| !name.starts_with("acemq.publish"));
    // Of five messages, with the retry and the rounds of the last.
    let deliveries = 6.0 + in_progress as f64;
    let mut expected = BTreeMap::new();
    for (outcome, count) in [
        ("acked", 2.0),
        ("rejected", 1.0),
        ("parked", 1.0),
        ("retried", 1.0),
        ("dead_lettered", 1.0),
        ("in_progress", in_progress as f64),
    ] {
        for name in ["acemq.consume.total", "acemq.consume.duration"] {
            let labels = format!("message.type=t outcome={outcome} transport=memory");
            expected.insert(format!("{name} {labels}"), count);
        }
    }
    for (name, count) in [
        ("acemq.consume.attempts", deliveries),
        ("acemq.consume.in.flight", 0.0),
        ("acemq.messages.retried.total", 1.0),
        ("acemq.messages.dead.lettered.total outcome=dead_lettered", 2.0),
        ("acemq.messages.dead.lettered.total outcome=parked", 1.0),
    ] {
        expected.insert(name.to_owned(), count);
    }
    assert_eq!(values, expected);
}

// promise: RT-3
#[tokio::test]
async fn copies_that_do_not_land_are_counted_by_the_queue_they_were_for() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let broker = Broker::memory();
    let bench = Bench::new(&broker).await;
    let wait = Duration::from_secs(5);
    let policy = RetryPolicy::fixed(2, wait).wait_in_broker_from(wait);
    let consumer = bench
        .mq
        .consumer::<String>(&*bench.queue)
        .declare(false)
        .retry(policy)
        .start(|message: Message<String>| async move {
            match message.payload().as_str() {
                "reject" => Ok(Ack::reject("no")),
                _ => Err(HandlerError::transient("no")),
            }
        })
        .await
        .unwrap();
    bench.mq.delete_queue(&bench.dead_letters()).await.unwrap();
    bench.send("reject").await;
    bench.send("retry").await;
    until("both went back", || consumer.counters().returned >= 2).await;

    let metrics = snapshotter.snapshot().into_vec();
    let count = |name: &str, tag: &str, value: &str| {
        metrics.iter().any(|(key, _, _, counted)| {
            key.key().name() == name
                && key.key().labels().any(|label| (label.key(), label.value()) == (tag, value))
                && matches!(counted, DebugValue::Counter(1..))
        })
    };
    assert!(count("acemq.messages.set.aside.failed", "target", &bench.dead_letters()));
    assert!(count("acemq.retry.rung.missing", "rung", &format!("{}.retry.5s", bench.queue)));
}

// promise: BX-7
#[tokio::test]
async fn deliveries_that_wait_for_a_store_that_is_down_are_gauged() {
    let recorder_of_metrics = DebuggingRecorder::new();
    let snapshotter = recorder_of_metrics.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder_of_metrics);
    let waiting = || {
        let metrics = snapshotter.snapshot().into_vec().into_iter();
        metrics.filter_map(|(key, _, _, value)| match value {
            DebugValue::Gauge(value) if key.key().name() == "acemq.consume.waiting.for.store" => {
                Some(value.into_inner())
            }
            _ => None,
        })
    };
    let bench = Bench::new(&Broker::memory()).await;
    let spy = Spy::on(MemoryIdempotencyStore::new());
    spy.fail(&[Call::Claim]);
    let builder = bench.mq.consumer::<String>(&*bench.queue).concurrency(2);
    let consumer = builder.idempotent(spy.clone()).start(recorder::<String>().0).await.unwrap();
    for _ in 0..2 {
        bench.send("o-1").await;
    }
    until("both wait", || waiting().next() == Some(2.0)).await;
    spy.fail(&[]);
    until("none waits", || waiting().next() == Some(0.0)).await;
    drop(consumer);
}

// promise: ID-21
#[tokio::test]
async fn a_retention_shorter_than_the_retry_ladder_is_warned_about() {
    let broker = Broker::memory();
    let bench = Bench::new(&broker).await;
    let (log, _guard) = testkit::logs::of_this_thread();
    let hour = Duration::from_secs(3_600);
    for (retention, warned) in [(4 * hour, false), (2 * hour, true)] {
        let store = MemoryIdempotencyStore::new().retention(retention);
        let builder = bench.mq.consumer::<String>(&*bench.queue).idempotent(store);
        let policy = RetryPolicy::fixed(4, hour);
        let _consumer = builder.retry(policy).start(recorder().0).await.unwrap();
        assert_eq!(!log.lines_with(&["WARN", "forgets confirmations"]).is_empty(), warned);
    }
}

// promise: ID-15
#[tokio::test(start_paused = true)]
async fn taking_over_an_expired_claim_is_warned_about() {
    let broker = Broker::memory();
    let bench = Bench::new(&broker).await;
    let (log, _guard) = testkit::logs::of_this_thread();
    let store = MemoryIdempotencyStore::new();
    let key = format!("{}/id-1", bench.queue);
    store.try_claim(&key).await.unwrap();
    let (record, mut seen) = recorder::<String>();
    let builder = bench.mq.consumer::<String>(&*bench.queue).idempotent(store);
    let _consumer = builder.start(record).await.unwrap();
    bench.mq.send_to_queue(&bench.queue, "o-1").id("id-1").await.unwrap();
    seen.recv().await.unwrap();
    assert_eq!(log.lines_with(&["WARN", "took over an expired claim"]).len(), 1);
}

#[tokio::test]
async fn a_quorum_queue_without_a_dead_letter_target_is_warned_about() {
    let broker = Broker::memory();
    let mq = acemq::connect(&*broker.url).await.unwrap();
    let (log, _guard) = testkit::logs::of_this_thread();
    let target = Queue::new("wired").argument("x-dead-letter-exchange", "acemq.dlx");
    for queue in [Queue::new("safe").dead_letters(), Queue::new("classic").classic(), target] {
        mq.declare_queue(&queue).await.unwrap();
    }
    assert!(log.lines_with(&["dead-letter target"]).is_empty());
    mq.declare_queue(&Queue::new("bare")).await.unwrap();
    assert_eq!(log.lines_with(&["WARN", "dead-letter target"]).len(), 1);
}

#[tokio::test]
async fn a_handler_runs_in_a_span_that_names_its_message_and_ends_with_the_outcome() {
    let broker = Broker::memory();
    let bench = Bench::new(&broker).await;
    let (log, _guard) = testkit::logs::of_this_thread();
    let builder = bench.mq.consumer::<String>(&*bench.queue);
    let consumer = builder.start(recorder().0).await.unwrap();
    let sent = bench.mq.send_to_queue(&bench.queue, "o-1").message_type("order.placed");
    sent.id("id-1").await.unwrap();
    until("it is handled", || consumer.counters().acknowledged == 1).await;
    consumer.close().await.unwrap();
    let queue = format!("queue={}", bench.queue);
    let named = [&*queue, r#"message_id="id-1""#, r#"message_type="order.placed""#, "attempt=1"];
    let ended = [&named[..], &["consume{", r#"outcome="acked""#, "close"]].concat();
    assert_eq!(log.lines_with(&ended).len(), 1, "{log:?}");
}
