//! What the library reports through the `metrics` facade: names, tags and outcomes as the whole
//! family has them, so that one dashboard serves every language.
//!
//! Keys are made once per publisher and consumer, and looked up in the recorder of the moment:
//! without a recorder a report costs next to nothing, and one that is installed late still sees
//! everything from then on.

mod gauged;
mod schedule;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use metrics::{Key, Label, Level, Metadata, SharedString, Unit, with_recorder};

pub(crate) use self::gauged::Gauged;
pub(crate) use self::schedule::{ScheduleMeter, ScheduleOutcome};

const PUBLISH_DURATION: &str = "acemq.publish.duration";
const PUBLISH_TOTAL: &str = "acemq.publish.total";
const CONSUME_DURATION: &str = "acemq.consume.duration";
const CONSUME_TOTAL: &str = "acemq.consume.total";
const CONSUME_ATTEMPTS: &str = "acemq.consume.attempts";
const CONSUME_IN_FLIGHT: &str = "acemq.consume.in.flight";
const CONSUME_WAITING_FOR_STORE: &str = "acemq.consume.waiting.for.store";
const CONSUME_HALTED: &str = "acemq.consume.halted";
const RETRIED_TOTAL: &str = "acemq.messages.retried.total";
const DEAD_LETTERED_TOTAL: &str = "acemq.messages.dead.lettered.total";
const SET_ASIDE_FAILED: &str = "acemq.messages.set.aside.failed";
const REQUEST_DURATION: &str = "acemq.request.duration";
const REQUEST_TOTAL: &str = "acemq.request.total";
const RUNG_MISSING: &str = "acemq.retry.rung.missing";
const PIPELINE_RUN_DURATION: &str = "acemq.pipeline.run.duration";
const PIPELINE_RUN_TOTAL: &str = "acemq.pipeline.run.total";
const OUTBOX_TOTAL: &str = "acemq.outbox.total";
const OUTBOX_LAG: &str = "acemq.outbox.lag";

static METADATA: Metadata<'static> = Metadata::new("acemq", Level::INFO, Some("acemq"));

/// Message types come from whoever publishes; beyond this many per consumer they share a series.
const MAX_MESSAGE_TYPES: usize = 100;

/// Routing keys may hold anything, ids too; beyond this many targets a client's new ones share a
/// series.
const MAX_TARGETS: usize = 1_000;
const OTHER: &str = "other";

/// Describes every metric to the installed recorder, with its unit. Call it once, after
/// installing the recorder.
pub fn describe_metrics() {
    let counters = [
        (PUBLISH_TOTAL, "messages sent, by outcome"),
        (CONSUME_TOTAL, "deliveries settled, by outcome"),
        (RETRIED_TOTAL, "messages sent on to their next attempt"),
        (DEAD_LETTERED_TOTAL, "messages set aside in a dead-letter or parking queue"),
        (SET_ASIDE_FAILED, "copies to a dead-letter or parking queue that did not land"),
        (RUNG_MISSING, "retries that found their waiting queue missing"),
        (PIPELINE_RUN_TOTAL, "pipeline runs that ended, by outcome"),
        (OUTBOX_TOTAL, "outbox records published or failed"),
        (REQUEST_TOTAL, "requests that have come to their end, by outcome"),
        (schedule::TOTAL, "what schedulers did with messages, by outcome"),
    ];
    let seconds = [
        (PUBLISH_DURATION, "time from the call of send to the broker's verdict"),
        (CONSUME_DURATION, "time from delivery to settlement"),
        (REQUEST_DURATION, "time from the call of a request to its reply, or to its failure"),
        (PIPELINE_RUN_DURATION, "time from the sending into a pipeline to the end of the run"),
        (OUTBOX_LAG, "time from the making of an outbox record to its confirm"),
        (schedule::LAG, "time from when a scheduled message was due to its delivery"),
    ];
    let gauges = [
        (CONSUME_IN_FLIGHT, "deliveries taken and not yet settled"),
        (CONSUME_WAITING_FOR_STORE, "deliveries that wait for an idempotency store that is down"),
        (CONSUME_HALTED, "keys and partitions that have halted and that nobody has resumed"),
    ];
    with_recorder(|recorder| {
        for (name, text) in counters {
            recorder.describe_counter(name.into(), Some(Unit::Count), text.into());
        }
        for (name, text) in gauges {
            recorder.describe_gauge(name.into(), Some(Unit::Count), text.into());
        }
        for (name, text) in seconds {
            recorder.describe_histogram(name.into(), Some(Unit::Seconds), text.into());
        }
        recorder.describe_histogram(
            CONSUME_ATTEMPTS.into(),
            Some(Unit::Count),
            "which attempt it was that began".into(),
        );
    });
}

/// What became of a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PublishOutcome {
    Confirmed,
    Published,
    Unroutable,
    Failed,
    Refused,
}

impl PublishOutcome {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Confirmed, "confirmed"),
        (Self::Published, "published"),
        (Self::Unroutable, "unroutable"),
        (Self::Failed, "failed"),
        (Self::Refused, "refused"),
    ];
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestOutcome {
    Answered,
    TimedOut,
    Failed,
}

impl RequestOutcome {
    const ALL: [(Self, &'static str); 3] =
        [(Self::Answered, "answered"), (Self::TimedOut, "timed_out"), (Self::Failed, "failed")];
}

/// What became of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConsumeOutcome {
    Acked,
    Retried,
    Rejected,
    DeadLettered,
    Parked,
    InProgress,
    Failed,
}

impl ConsumeOutcome {
    const ALL: [(Self, &'static str); 7] = [
        (Self::Acked, "acked"),
        (Self::Retried, "retried"),
        (Self::Rejected, "rejected"),
        (Self::DeadLettered, "dead_lettered"),
        (Self::Parked, "parked"),
        (Self::InProgress, "in_progress"),
        (Self::Failed, "failed"),
    ];

    /// As it stands in metrics and spans.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// A counter and a timer for one outcome.
#[derive(Clone, Debug)]
struct OutcomeKeys {
    total: Key,
    duration: Key,
}

impl OutcomeKeys {
    fn new(
        (total, duration): (&'static str, &'static str),
        labels: &[Label],
        outcome: &'static str,
    ) -> Self {
        let mut labels = labels.to_vec();
        labels.push(Label::from_static_parts("outcome", outcome));
        Self {
            total: Key::from_parts(total, labels.clone()),
            duration: Key::from_parts(duration, labels),
        }
    }

    fn record(&self, took: Duration) {
        count(&self.total);
        observe(&self.duration, took.as_secs_f64());
    }
}

/// Reports the publishes of one message type to one target.
#[derive(Clone, Debug)]
pub(crate) struct PublishMeter(Arc<[OutcomeKeys; 5]>);

impl PublishMeter {
    fn new(target: &PublishTarget, transport: &'static str) -> Self {
        let labels = [
            label("exchange", &target.exchange),
            label("routing.key", &target.routing_key),
            label("message.type", &target.message_type),
            Label::from_static_parts("transport", transport),
        ];
        let names = (PUBLISH_TOTAL, PUBLISH_DURATION);
        Self(Arc::new(
            PublishOutcome::ALL.map(|(_, outcome)| OutcomeKeys::new(names, &labels, outcome)),
        ))
    }

    pub(crate) fn record(&self, outcome: PublishOutcome, took: Duration) {
        self.0[outcome as usize].record(took);
    }
}

/// Reports the requests of one message type under one routing key.
#[derive(Clone, Debug)]
pub(crate) struct RequestMeter(Arc<[OutcomeKeys; 3]>);

impl RequestMeter {
    fn new(target: &PublishTarget) -> Self {
        let labels = [
            label("routing.key", &target.routing_key),
            label("message.type", &target.message_type),
        ];
        let names = (REQUEST_TOTAL, REQUEST_DURATION);
        Self(Arc::new(
            RequestOutcome::ALL.map(|(_, outcome)| OutcomeKeys::new(names, &labels, outcome)),
        ))
    }

    pub(crate) fn record(&self, outcome: RequestOutcome, took: Duration) {
        self.0[outcome as usize].record(took);
    }
}

/// What the publishes of one series have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct PublishTarget {
    exchange: String,
    routing_key: String,
    message_type: String,
}

impl PublishTarget {
    fn new(exchange: &str, routing_key: &str, message_type: &str) -> Self {
        Self {
            exchange: exchange.to_owned(),
            routing_key: routing_key.to_owned(),
            message_type: message_type.to_owned(),
        }
    }
}

/// The publish and request meters of one client.
#[derive(Debug)]
pub(crate) struct PublishMeters {
    transport: &'static str,
    known: Mutex<HashMap<PublishTarget, PublishMeter>>,
    requests: Mutex<HashMap<PublishTarget, RequestMeter>>,
}

impl PublishMeters {
    pub(crate) fn new(transport: &'static str) -> Self {
        Self { transport, known: Mutex::default(), requests: Mutex::default() }
    }

    pub(crate) fn of(&self, exchange: &str, routing_key: &str, message_type: &str) -> PublishMeter {
        let target = PublishTarget::new(exchange, routing_key, message_type);
        find_or_make(&self.known, target, |target| PublishMeter::new(target, self.transport))
    }

    /// The meter of requests, which do not tell exchanges apart.
    pub(crate) fn of_requests(&self, routing_key: &str, message_type: &str) -> RequestMeter {
        let target = PublishTarget::new("", routing_key, message_type);
        find_or_make(&self.requests, target, RequestMeter::new)
    }
}

fn find_or_make<M: Clone>(
    known: &Mutex<HashMap<PublishTarget, M>>,
    mut target: PublishTarget,
    make: impl FnOnce(&PublishTarget) -> M,
) -> M {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if known.len() >= MAX_TARGETS && !known.contains_key(&target) {
        target = PublishTarget::new(OTHER, OTHER, OTHER);
    }
    known.entry(target.clone()).or_insert_with(|| make(&target)).clone()
}

/// Reports the deliveries of one consumer.
#[derive(Debug)]
pub(crate) struct ConsumeMeter {
    queue: SharedString,
    transport: &'static str,
    by_type: Mutex<HashMap<String, Arc<[OutcomeKeys; 7]>>>,
    attempts: Key,
    in_flight: Key,
    waiting_for_store: Key,
    halted: Key,
    retried: Key,
    dead_lettered: Key,
    parked: Key,
}

impl ConsumeMeter {
    pub(crate) fn new(queue: &str, transport: &'static str) -> Self {
        let queue = shared(queue);
        let of_queue = Label::new("queue", queue.clone());
        let set_aside = |outcome| {
            Key::from_parts(
                DEAD_LETTERED_TOTAL,
                vec![of_queue.clone(), Label::from_static_parts("outcome", outcome)],
            )
        };
        Self {
            transport,
            by_type: Mutex::default(),
            attempts: Key::from_parts(CONSUME_ATTEMPTS, vec![of_queue.clone()]),
            in_flight: Key::from_parts(CONSUME_IN_FLIGHT, vec![of_queue.clone()]),
            waiting_for_store: Key::from_parts(CONSUME_WAITING_FOR_STORE, vec![of_queue.clone()]),
            halted: Key::from_parts(CONSUME_HALTED, vec![of_queue.clone()]),
            retried: Key::from_parts(RETRIED_TOTAL, vec![of_queue.clone()]),
            dead_lettered: set_aside("dead_lettered"),
            parked: set_aside("parked"),
            queue,
        }
    }

    pub(crate) fn taken(&self) {
        raise(&self.in_flight);
    }

    pub(crate) fn attempted(&self, attempt: u32) {
        observe(&self.attempts, f64::from(attempt));
    }

    pub(crate) fn settled(&self, message_type: &str, outcome: ConsumeOutcome, took: Duration) {
        self.keys(message_type)[outcome as usize].record(took);
        match outcome {
            ConsumeOutcome::Retried => count(&self.retried),
            ConsumeOutcome::DeadLettered | ConsumeOutcome::Rejected => count(&self.dead_lettered),
            ConsumeOutcome::Parked => count(&self.parked),
            ConsumeOutcome::Acked | ConsumeOutcome::InProgress | ConsumeOutcome::Failed => {}
        }
    }

    pub(crate) fn let_go(&self) {
        lower(&self.in_flight);
    }

    pub(crate) fn waits_for_store(&self) {
        raise(&self.waiting_for_store);
    }

    pub(crate) fn waits_no_more(&self) {
        lower(&self.waiting_for_store);
    }

    /// A key or a partition has halted, until this is dropped.
    pub(crate) fn halted(&self) -> Gauged {
        Gauged::new(&self.halted)
    }

    pub(crate) fn set_aside_failed(&self, target: &str) {
        self.count_rare(SET_ASIDE_FAILED, "target", target);
    }

    pub(crate) fn rung_missing(&self, rung: &str) {
        self.count_rare(RUNG_MISSING, "rung", rung);
    }

    fn count_rare(&self, name: &'static str, label_name: &'static str, value: &str) {
        let labels = vec![Label::new("queue", self.queue.clone()), label(label_name, value)];
        count(&Key::from_parts(name, labels));
    }

    fn keys(&self, message_type: &str) -> Arc<[OutcomeKeys; 7]> {
        let mut by_type = self.by_type.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(keys) = by_type.get(message_type) {
            return Arc::clone(keys);
        }
        let message_type = if by_type.len() < MAX_MESSAGE_TYPES { message_type } else { OTHER };
        let labels = [
            Label::new("queue", self.queue.clone()),
            label("message.type", message_type),
            Label::from_static_parts("transport", self.transport),
        ];
        let names = (CONSUME_TOTAL, CONSUME_DURATION);
        let keys = Arc::new(
            ConsumeOutcome::ALL.map(|(_, outcome)| OutcomeKeys::new(names, &labels, outcome)),
        );
        by_type.insert(message_type.to_owned(), Arc::clone(&keys));
        keys
    }
}

/// How a run through a pipeline ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunOutcome {
    Completed,
    EndedEarly,
}

impl RunOutcome {
    const ALL: [(Self, &'static str); 2] =
        [(Self::Completed, "completed"), (Self::EndedEarly, "ended_early")];

    /// As it stands in metrics and in the log.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// Reports the runs that end at one step of a pipeline.
#[derive(Debug)]
pub(crate) struct PipelineMeter([OutcomeKeys; 2]);

impl PipelineMeter {
    pub(crate) fn new(pipeline: &str, step: &str) -> Self {
        let labels = [label("pipeline", pipeline), label("step", step)];
        let names = (PIPELINE_RUN_TOTAL, PIPELINE_RUN_DURATION);
        Self(RunOutcome::ALL.map(|(_, outcome)| OutcomeKeys::new(names, &labels, outcome)))
    }

    pub(crate) fn ended(&self, outcome: RunOutcome, age: Duration) {
        self.0[outcome as usize].record(age);
    }
}

/// Reports the records of one relay.
#[derive(Debug)]
pub(crate) struct OutboxMeter {
    published: Key,
    failed: Key,
    lag: Key,
}

impl OutboxMeter {
    pub(crate) fn new() -> Self {
        let total = |outcome| {
            Key::from_parts(OUTBOX_TOTAL, vec![Label::from_static_parts("outcome", outcome)])
        };
        Self {
            published: total("published"),
            failed: total("failed"),
            lag: Key::from_name(OUTBOX_LAG),
        }
    }

    pub(crate) fn published(&self, lag: Duration) {
        count(&self.published);
        observe(&self.lag, lag.as_secs_f64());
    }

    pub(crate) fn failed(&self) {
        count(&self.failed);
    }
}

fn count(key: &Key) {
    with_recorder(|recorder| recorder.register_counter(key, &METADATA).increment(1));
}

fn observe(key: &Key, value: f64) {
    with_recorder(|recorder| recorder.register_histogram(key, &METADATA).record(value));
}

fn raise(key: &Key) {
    with_recorder(|recorder| recorder.register_gauge(key, &METADATA).increment(1.0));
}

fn lower(key: &Key) {
    with_recorder(|recorder| recorder.register_gauge(key, &METADATA).decrement(1.0));
}

fn label(name: &'static str, value: &str) -> Label {
    Label::new(name, shared(value))
}

fn shared(text: &str) -> SharedString {
    SharedString::from_shared(Arc::from(text))
}
