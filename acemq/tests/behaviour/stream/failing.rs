//! Messages that fail: nothing is published for them, and nothing behind them is lost.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use acemq::{
    ConsumeContext, ConsumeInterceptor, ConsumerState, HandlerError, Message, OnFailure,
    Settlement, StreamConsumer, StreamOffset, StreamStop,
};
use testkit::eventually;

use super::{Log, handled_up_to, same, take};
use crate::{
    consumer::bench::{SOON, recorder},
    on_every_rabbitmq,
};

const MOMENT: Duration = Duration::from_millis(10);

/// The numbers and attempts that a handler has seen.
type Seen = Arc<Mutex<Vec<(u64, u32)>>>;

/// A handler that fails at one number, in that way.
fn failing_at(
    number: u64,
    fail: fn() -> HandlerError,
) -> (
    impl Fn(Message<u64>) -> std::future::Ready<Result<(), HandlerError>> + Send + Sync + 'static,
    Seen,
) {
    let seen = Seen::default();
    let record = Arc::clone(&seen);
    let handler = move |message: Message<u64>| {
        record.lock().unwrap().push((*message.payload(), message.attempt()));
        let fails = *message.payload() == number;
        std::future::ready(if fails { Err(fail()) } else { Ok(()) })
    };
    (handler, seen)
}

fn not_now() -> HandlerError {
    HandlerError::transient("not now")
}

async fn stopped(consumer: &StreamConsumer) -> StreamStop {
    let halted = |state: &ConsumerState| matches!(state, ConsumerState::Halted { .. });
    tokio::time::timeout(SOON, consumer.states().wait_for(halted)).await.unwrap().unwrap();
    consumer.stopped_by().unwrap()
}

/// Writes down what becomes of messages.
#[derive(Clone, Default)]
struct Watcher(Arc<Mutex<Vec<String>>>);

impl ConsumeInterceptor for Watcher {
    fn after_handle(&self, message: &ConsumeContext, settlement: Settlement) {
        let body = String::from_utf8_lossy(&message.body).into_owned();
        self.0.lock().unwrap().push(format!("{body} {settlement:?}"));
    }

    fn on_error(&self, _: &ConsumeContext, error: &str) {
        self.0.lock().unwrap().push(error.to_owned());
    }
}

on_every_rabbitmq! {
    async fn interceptors_see_what_is_read_and_what_becomes_of_it(broker: Broker) {
        let log = Log::new(&broker).await;
        log.write(0..3).await;
        let watcher = Watcher::default();
        let mq = acemq::connect(&*broker.url).intercept_consume(watcher.clone()).await.unwrap();
        let (handler, _) = failing_at(1, not_now);
        let reader = mq.stream_consumer::<u64>(&*log.stream).from(StreamOffset::First);
        let consumer = reader.on_failure(OnFailure::skip()).start(handler).await.unwrap();
        handled_up_to(&consumer, 2).await;
        mq.close().await.unwrap();
        let seen = watcher.0.lock().unwrap().clone();
        assert_eq!(seen, ["0 Acknowledged", "not now", "1 Acknowledged", "2 Acknowledged"]);
        log.mq.close().await.unwrap();
    }

    async fn a_failure_stops_the_consumer_which_says_why_and_leaves_the_message_as_it_is(
        broker: Broker
    ) {
        let log = Log::new(&broker).await;
        log.write(0..10).await;
        let (handler, seen) = failing_at(3, not_now);
        let consumer = log.reader().from(StreamOffset::First).start(handler).await.unwrap();
        let stop = stopped(&consumer).await;
        let StreamStop::Failed { offset, attempts, reason, message_id, .. } = &stop else {
            panic!("{stop:?}")
        };
        assert_eq!((*offset, *attempts, &**reason), (3, 1, "not now"));
        assert!(!message_id.is_empty());
        assert_eq!(consumer.last_handled_offset(), Some(2));
        assert_eq!((consumer.counters().handled, consumer.counters().skipped), (3, 0));
        assert_eq!(seen.lock().unwrap().len(), 4, "begun behind a failure");
        let state = consumer.state();
        let ConsumerState::Halted { message_id: id, attempts: 1, reason } = &state else {
            panic!("{state:?}")
        };
        assert_eq!(id, message_id);
        assert!(reason.contains("offset 3"), "{reason}");
        consumer.close().await.unwrap();
        assert_eq!(consumer.state(), ConsumerState::Closed);
        assert_eq!(consumer.stopped_by(), Some(stop));

        // Whoever begins there has it first.
        let (record, mut seen) = recorder();
        let consumer = log.reader().from(StreamOffset::Offset(3)).start(record).await.unwrap();
        assert_eq!(take(&mut seen, 7).await, same(3..10));
        consumer.close().await.unwrap();
        assert_eq!(log.everything(10).await, same(0..10), "a copy was appended");
        log.mq.close().await.unwrap();
    }

    async fn a_failure_that_is_skipped_is_counted_and_the_offset_goes_on(broker: Broker) {
        let log = Log::new(&broker).await;
        log.write(0..10).await;
        let (handler, _) = failing_at(3, not_now);
        let reader = log.reader().from(StreamOffset::First).on_failure(OnFailure::skip());
        let consumer = reader.start(handler).await.unwrap();
        handled_up_to(&consumer, 9).await;
        assert_eq!((consumer.counters().handled, consumer.counters().skipped), (9, 1));
        assert_eq!((consumer.stopped_by(), consumer.state()), (None, ConsumerState::Receiving));
        consumer.close().await.unwrap();
        assert_eq!(log.everything(10).await, same(0..10), "a copy was appended");
        for suffix in [".dlq", ".parked"] {
            let queue = format!("{}{suffix}", log.stream);
            assert_eq!(log.mq.inspect_queue(&queue).await.unwrap(), None);
        }
        log.mq.close().await.unwrap();
    }

    async fn a_failure_is_tried_again_in_its_place_and_never_published(broker: Broker) {
        let log = Log::new(&broker).await;
        log.write(0..3).await;
        let (handler, seen) = failing_at(1, not_now);
        let in_place = OnFailure::retry_in_place(3, MOMENT).then_skip();
        let reader = log.reader().from(StreamOffset::First).on_failure(in_place);
        let consumer = reader.start(handler).await.unwrap();
        handled_up_to(&consumer, 2).await;
        assert_eq!(*seen.lock().unwrap(), [(0, 1), (1, 1), (1, 2), (1, 3), (2, 1)]);
        assert_eq!((consumer.counters().retried, consumer.counters().skipped), (2, 1));
        consumer.close().await.unwrap();

        let (handler, seen) = failing_at(1, not_now);
        let reader = log.reader().from(StreamOffset::First);
        let reader = reader.on_failure(OnFailure::retry_in_place(2, MOMENT));
        let consumer = reader.start(handler).await.unwrap();
        let stop = stopped(&consumer).await;
        assert!(matches!(stop, StreamStop::Failed { offset: 1, attempts: 2, .. }), "{stop:?}");
        assert_eq!(*seen.lock().unwrap(), [(0, 1), (1, 1), (1, 2)]);
        consumer.close().await.unwrap();
        assert_eq!(log.everything(3).await, same(0..3), "a copy was appended");
        log.mq.close().await.unwrap();
    }

    async fn what_is_beyond_help_is_not_tried_again(broker: Broker) {
        let log = Log::new(&broker).await;
        log.write(0..2).await;
        let (handler, seen) = failing_at(0, || HandlerError::fatal("never"));
        let reader = log.reader().from(StreamOffset::First);
        let reader = reader.on_failure(OnFailure::retry_in_place(5, MOMENT));
        let consumer = reader.start(handler).await.unwrap();
        let stop = stopped(&consumer).await;
        assert!(matches!(stop, StreamStop::Failed { offset: 0, attempts: 1, .. }), "{stop:?}");
        assert_eq!(*seen.lock().unwrap(), [(0, 1)]);
        log.mq.close().await.unwrap();
    }

    async fn a_message_that_cannot_be_read_stops_or_is_skipped_as_any_other(broker: Broker) {
        let log = Log::new(&broker).await;
        log.write(0..1).await;
        log.mq.publisher::<String>("", &*log.stream).send(&"no number".to_owned()).await.unwrap();
        log.write(2..3).await;
        let (record, _seen) = recorder::<u64>();
        let reader = log.reader().from(StreamOffset::First).on_failure(OnFailure::skip());
        let consumer = reader.start(record).await.unwrap();
        handled_up_to(&consumer, 2).await;
        assert_eq!((consumer.counters().handled, consumer.counters().skipped), (2, 1));
        consumer.close().await.unwrap();

        let (record, _seen) = recorder::<u64>();
        let reader = log.reader().from(StreamOffset::First);
        let reader = reader.on_failure(OnFailure::retry_in_place(3, MOMENT));
        let consumer = reader.start(record).await.unwrap();
        let stop = stopped(&consumer).await;
        let StreamStop::Failed { offset: 1, attempts: 1, reason, .. } = stop else {
            panic!("{stop:?}")
        };
        assert!(reason.contains("could not be decoded"), "{reason}");
        log.mq.close().await.unwrap();
    }

    async fn a_handler_that_panics_or_runs_too_long_has_failed(broker: Broker) {
        let log = Log::new(&broker).await;
        log.write(0..3).await;
        let first = Arc::new(AtomicBool::new(true));
        let handler = move |message: Message<u64>| {
            let first = first.swap(false, Ordering::SeqCst);
            assert!(!first, "on purpose");
            async move {
                if *message.payload() == 1 {
                    std::future::pending::<()>().await;
                }
                Ok(())
            }
        };
        let reader = log.reader().from(StreamOffset::First).handler_timeout(MOMENT);
        let consumer = reader.on_failure(OnFailure::skip()).start(handler).await.unwrap();
        handled_up_to(&consumer, 2).await;
        assert_eq!((consumer.counters().handled, consumer.counters().skipped), (1, 2));
        log.mq.close().await.unwrap();
    }

    async fn other_handlers_finish_when_one_stops_the_consumer(broker: Broker) {
        let log = Log::new(&broker).await;
        log.write(0..4).await;
        let gate = Arc::new(tokio::sync::Semaphore::new(0));
        let handler = {
            let gate = Arc::clone(&gate);
            move |message: Message<u64>| {
                let gate = Arc::clone(&gate);
                async move {
                    if *message.payload() == 1 {
                        return Err(not_now());
                    }
                    gate.acquire().await?.forget();
                    Ok(())
                }
            }
        };
        let reader = log.reader().from(StreamOffset::First).concurrency(3);
        let consumer = reader.start(handler).await.unwrap();
        eventually("one has failed", SOON, async || consumer.stopped_by().is_some()).await;
        gate.add_permits(10);
        stopped(&consumer).await;
        // 2 is done with as well, and comes again to whoever begins where this one stopped.
        assert_eq!(consumer.last_handled_offset(), Some(0));
        assert_eq!(consumer.counters().handled, 2, "{:?}", consumer.counters());
        log.mq.close().await.unwrap();
    }
}
