//! What interceptors, metrics and the log see where order matters.

use std::{
    cell::Cell,
    sync::{Arc, Mutex},
    time::Duration,
};

use acemq::{
    ConsumeContext, ConsumeInterceptor, HandlerError, Message, OnFailure, Queue, Settlement,
    testing::MemoryBroker,
};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use testkit::eventually;

use super::{partitions_of, send_all};
use crate::{
    consumer::bench::{Bench, SOON, settled},
    on_every_broker,
    support::Broker,
};

const MOMENT: Duration = Duration::from_millis(10);

/// Writes down what it sees, and marks the envelope.
#[derive(Clone, Default)]
struct Watcher(Arc<Mutex<Vec<String>>>);

impl Watcher {
    fn note(&self, message: &ConsumeContext, what: &str) {
        self.0.lock().unwrap().push(format!("{} {what}", message.envelope.attempt()));
    }

    fn seen(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl ConsumeInterceptor for Watcher {
    fn before_handle(&self, message: &mut ConsumeContext) -> Result<(), HandlerError> {
        self.note(message, "before");
        let marks = message.envelope.headers().get("x-marks").and_then(|marks| marks.as_i64());
        message.envelope =
            message.envelope.clone().with_header("x-marks", marks.unwrap_or(0) + 1).unwrap();
        Ok(())
    }

    fn after_handle(&self, message: &ConsumeContext, settlement: Settlement) {
        self.note(message, &format!("after {settlement:?}"));
    }

    fn on_error(&self, message: &ConsumeContext, error: &str) {
        self.note(message, error);
    }
}

/// How many keys or partitions have halted, as the gauge says.
struct Halted {
    snapshotter: Snapshotter,
    /// A snapshot has what was added since the last one.
    sum: Cell<f64>,
}

impl Halted {
    fn of(recorder: &DebuggingRecorder) -> Self {
        Self { snapshotter: recorder.snapshotter(), sum: Cell::new(0.0) }
    }

    async fn are(&self, count: f64) {
        let what = format!("{count} have halted");
        eventually(&what, SOON, async || {
            for (key, _, _, value) in self.snapshotter.snapshot().into_vec() {
                if let DebugValue::Gauge(value) = value
                    && key.key().name() == "acemq.consume.halted"
                {
                    self.sum.set(self.sum.get() + value.into_inner());
                }
            }
            self.sum.get() == count
        })
        .await;
    }
}

/// Fails at what is not fine.
async fn fails_unless_fine(message: Message<String>) -> Result<(), HandlerError> {
    if message.payload() == "fine" { Ok(()) } else { Err(HandlerError::transient("out of stock")) }
}

on_every_broker! {
    // promise: OR-2
    async fn interceptors_see_each_attempt_in_place_and_the_halt_at_its_end(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let watcher = Watcher::default();
        let mq = acemq::connect(&*broker.url).intercept_consume(watcher.clone()).await.unwrap();
        let marks = Arc::new(Mutex::new(Vec::new()));
        let handler = {
            let marks = Arc::clone(&marks);
            move |message: Message<String>| {
                marks.lock().unwrap().push(message.header("x-marks").unwrap().as_i64().unwrap());
                // One attempt after the resuming comes to an end.
                let last = marks.lock().unwrap().len() == 4;
                async move {
                    if last { Ok(()) } else { Err(HandlerError::transient("out of stock")) }
                }
            }
        };
        let consumer = mq
            .consumer::<String>(&*bench.queue)
            .ordered_by_header("x-key")
            .on_failure(OnFailure::retry_in_place(3, MOMENT))
            .start(handler)
            .await
            .unwrap();
        send_all(&bench.mq.publisher("", &*bench.queue), 1, 1).await;
        eventually("it halts", SOON, async || consumer.counters().halted == 1).await;
        assert!(consumer.resume_key("0"));
        settled(&consumer, 1).await;
        assert_eq!(
            watcher.seen(),
            [
                "1 before", "1 out of stock", "1 after Retried",
                "2 before", "2 out of stock", "2 after Retried",
                "3 before", "3 out of stock", "3 after Halted",
                "1 before", "1 after Acknowledged",
            ]
        );
        // Each attempt begins with the envelope that the last one left, as a copy does; after a halt it
        // is the message as it came.
        assert_eq!(*marks.lock().unwrap(), [1, 2, 3, 1]);
        mq.close().await.unwrap();
    }
}

// promise: OR-2
#[tokio::test]
async fn attempts_in_place_and_halts_are_counted_as_any_other() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let bench = Bench::new(&Broker::memory()).await;
    let consumer = bench
        .mq
        .consumer::<String>(&*bench.queue)
        .ordered_by_routing_key()
        .on_failure(OnFailure::retry_in_place(3, MOMENT))
        .start(fails_unless_fine)
        .await
        .unwrap();
    for payload in ["fine", "fails"] {
        bench.mq.send_to_queue(&bench.queue, payload).message_type("t").await.unwrap();
    }
    eventually("it halts", SOON, async || consumer.counters().halted == 1).await;
    let counters = consumer.counters();
    assert_eq!((counters.acknowledged, counters.retried, counters.returned), (1, 2, 0));

    let metrics = snapshotter.snapshot().into_vec();
    let of = |name: &str, outcome: Option<&str>| {
        let found = metrics.iter().find(|(key, _, _, _)| {
            key.key().name() == name
                && key.key().labels().find(|label| label.key() == "outcome").map(|l| l.value())
                    == outcome
        });
        match found.map(|(_, _, _, value)| value) {
            Some(DebugValue::Counter(count)) => *count as usize,
            Some(DebugValue::Histogram(values)) => values.len(),
            Some(DebugValue::Gauge(value)) => value.into_inner() as usize,
            None => 0,
        }
    };
    for name in ["acemq.consume.total", "acemq.consume.duration"] {
        for (outcome, count) in [("acked", 1), ("retried", 2), ("failed", 1), ("dead_lettered", 0)]
        {
            assert_eq!(of(name, Some(outcome)), count, "{name} {outcome}");
        }
    }
    assert_eq!(of("acemq.consume.attempts", None), 4);
    assert_eq!(of("acemq.messages.retried.total", None), 2);
    assert_eq!(of("acemq.consume.in.flight", None), 0);
    bench.mq.close().await.unwrap();
}

#[tokio::test]
async fn each_attempt_in_place_is_a_span_with_its_own_outcome() {
    let bench = Bench::new(&Broker::memory()).await;
    let (log, _guard) = testkit::logs::of_this_thread();
    let consumer = bench
        .mq
        .consumer::<String>(&*bench.queue)
        .ordered_by_routing_key()
        .on_failure(OnFailure::retry_in_place(2, MOMENT))
        .start(fails_unless_fine)
        .await
        .unwrap();
    bench.send("fails").await;
    eventually("it halts", SOON, async || consumer.counters().halted == 1).await;
    for (attempt, outcome) in
        [("attempt=1", r#"outcome="retried""#), ("attempt=2", r#"outcome="failed""#)]
    {
        let lines = log.lines_with(&["consume{", attempt, outcome, "close"]);
        assert_eq!(lines.len(), 1, "{log:?}");
    }
    assert_eq!(log.lines_with(&["consume{", "attempt=2", "until somebody resumes it"]).len(), 1);
    bench.mq.close().await.unwrap();
}

// promise: OR-2
#[tokio::test]
async fn keys_that_have_halted_are_gauged_until_they_are_resumed_or_their_consumer_ends() {
    let recorder = DebuggingRecorder::new();
    let gauge = Halted::of(&recorder);
    let _recording = metrics::set_default_local_recorder(&recorder);
    let broker = MemoryBroker::new();
    let mq = acemq::connect(broker.url()).await.unwrap();
    mq.declare_queue(&Queue::new("orders").dead_letters()).await.unwrap();
    let start = async || {
        let consumer = mq.consumer::<String>("orders").ordered_by_header("x-key");
        consumer.start(fails_unless_fine).await.unwrap()
    };
    let consumer = start().await;
    let publisher = mq.publisher::<String>("", "orders");
    send_all(&publisher, 3, 2).await;
    gauge.are(3.0).await;
    assert_eq!(consumer.halted().len(), 3);
    assert!(consumer.resume_key("1"));
    eventually("it halts again", SOON, async || consumer.counters().halted == 4).await;
    gauge.are(3.0).await;
    // What goes back with its channel has halted no more, until it comes again.
    broker.drop_connections();
    eventually("they halt again", SOON, async || consumer.counters().halted == 7).await;
    gauge.are(3.0).await;
    consumer.close().await.unwrap();
    gauge.are(0.0).await;
    let again = start().await;
    gauge.are(3.0).await;
    drop(again);
    gauge.are(0.0).await;
    mq.close().await.unwrap();
}

// promise: OR-2
#[tokio::test]
async fn partitions_that_have_halted_are_gauged_until_they_are_resumed_or_their_consumer_ends() {
    let recorder = DebuggingRecorder::new();
    let gauge = Halted::of(&recorder);
    let _recording = metrics::set_default_local_recorder(&recorder);
    let broker = Broker::memory();
    let mq = broker.client().await;
    let orders = mq.partitions(partitions_of(&broker, "orders", 2), 2).await.unwrap();
    let publisher = orders.publisher::<String>();
    for key in ["a", "order-1"] {
        publisher.send(key, &"fails".to_owned()).await.unwrap();
    }
    let start = async || orders.consumer::<String>().start(fails_unless_fine).await.unwrap();
    let consumer = start().await;
    let halted = async |count| {
        eventually("they halt", SOON, async || consumer.halted().len() == count).await;
    };
    halted(2).await;
    gauge.are(2.0).await;
    assert!(consumer.resume(0).await.unwrap());
    halted(2).await;
    assert_eq!(consumer.counters().halted, 3);
    gauge.are(2.0).await;
    consumer.close().await.unwrap();
    gauge.are(0.0).await;
    let again = start().await;
    gauge.are(2.0).await;
    drop(again);
    gauge.are(0.0).await;
    mq.close().await.unwrap();
}
