//! Starting, and running handlers.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use acemq::{ErrorKind, HandlerError, Message, Queue, RawBytes, RetryPolicy};
use bytes::Bytes;
use testkit::eventually;
use tokio::sync::{Barrier, Semaphore};
use tracing_subscriber::layer::SubscriberExt as _;

use crate::{
    consumer::bench::{AnyBytes, Bench, SOON, next, recorder, settled},
    on_every_broker,
    support::Broker,
};

/// Longer than any test runs.
const VERY_LONG: Duration = Duration::from_secs(1_000);

/// How long one handler waits for another one.
const A_WHILE: Duration = Duration::from_secs(5);

on_every_broker! {
    async fn as_many_handlers_run_at_once_as_asked_for_whatever_the_number_of_cores(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let all_here = Arc::new(Barrier::new(32));
        let handler = move |_: Message<String>| {
            let all_here = Arc::clone(&all_here);
            async move {
                all_here.wait().await;
                Ok::<_, HandlerError>(())
            }
        };
        let builder = bench.mq.consumer::<String>(&*bench.queue).prefetch(32).concurrency(32);
        let consumer = builder.start(handler).await.unwrap();
        for _ in 0..32 {
            bench.send("o-1").await;
        }
        settled(&consumer, 32).await;
        bench.mq.close().await.unwrap();
    }

    async fn handlers_that_never_wait_run_side_by_side_as_well(broker: Broker) {
        let bench = Bench::new(&broker).await;
        for _ in 0..2 {
            bench.send("o-1").await;
        }
        let (here, met) = (Arc::new((Mutex::new(0), Condvar::new())), Arc::new(AtomicUsize::new(0)));
        let handler = {
            let met = Arc::clone(&met);
            move |_: Message<String>| {
                let (here, met) = (Arc::clone(&here), Arc::clone(&met));
                async move {
                    // Keeps its thread, as a long calculation does.
                    let (count, came) = &*here;
                    let mut count = count.lock().unwrap();
                    *count += 1;
                    came.notify_all();
                    let (_count, waited) =
                        came.wait_timeout_while(count, A_WHILE, |count| *count < 2).unwrap();
                    met.fetch_add(usize::from(!waited.timed_out()), Ordering::SeqCst);
                    Ok::<_, HandlerError>(())
                }
            }
        };
        let builder = bench.mq.consumer::<String>(&*bench.queue).concurrency(2);
        let consumer = builder.start(handler).await.unwrap();
        settled(&consumer, 2).await;
        assert_eq!(met.load(Ordering::SeqCst), 2);
        bench.mq.close().await.unwrap();
    }

    async fn no_more_is_taken_than_the_prefetch_and_in_flight_falls_after_settling(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let finish = Arc::new(Semaphore::new(0));
        let handler = {
            let finish = Arc::clone(&finish);
            move |_: Message<String>| {
                let finish = Arc::clone(&finish);
                async move {
                    finish.acquire().await?.forget();
                    Ok::<_, HandlerError>(())
                }
            }
        };
        let builder = bench.mq.consumer::<String>(&*bench.queue).prefetch(3).concurrency(10);
        let consumer = builder.start(handler).await.unwrap();
        for _ in 0..10 {
            bench.send("o-1").await;
        }
        eventually("three run", SOON, async || consumer.counters().in_flight == 3).await;
        bench.eventually_ready(&bench.queue, 7).await;
        assert_eq!(consumer.counters().in_flight, 3);

        finish.add_permits(10);
        settled(&consumer, 10).await;
        eventually("none is in flight", SOON, async || consumer.counters().in_flight == 0).await;
        bench.mq.close().await.unwrap();
    }

    async fn a_message_that_waits_for_its_retry_occupies_no_handler(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let (record, mut seen) = recorder::<String>();
        let handler = move |message: Message<String>| {
            let fails = message.payload() == "fails";
            let record = record.clone();
            async move {
                if fails { Err(HandlerError::transient("not yet")) } else { record(message).await }
            }
        };
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .prefetch(2)
            .retry(RetryPolicy::fixed(2, VERY_LONG).wait_in_broker_from(Duration::ZERO))
            .start(handler)
            .await
            .unwrap();
        bench.send("fails").await;
        bench.send("works").await;
        assert_eq!(next(&mut seen).await.payload(), "works");

        // Closing does not wait for it: it goes on to its next attempt at once.
        consumer.close().await.unwrap();
        assert_eq!(bench.take(&bench.queue).await.attempt(), 2);
        bench.mq.close().await.unwrap();
    }

    async fn a_handler_that_panics_fails_its_own_message_and_nothing_else(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let (record, mut seen) = recorder::<String>();
        let handler = move |message: Message<String>| {
            // Before the future is there, and inside of it.
            assert!(message.payload() != "at once", "no future");
            let record = record.clone();
            async move {
                assert!(message.payload() != "later", "in the future");
                record(message).await
            }
        };
        let consumer = bench.mq.consumer::<String>(&*bench.queue).start(handler).await.unwrap();
        for payload in ["at once", "later", "works"] {
            bench.send(payload).await;
        }
        assert_eq!(next(&mut seen).await.payload(), "works");
        eventually("both are set aside", SOON, async || consumer.counters().dead_lettered == 2).await;
        for panicked in ["no future", "in the future"] {
            let message = bench.take(&bench.dead_letters()).await;
            assert_eq!(
                message.envelope().error().unwrap(),
                format!("exhausted 1 attempt: the handler panicked: {panicked}")
            );
        }
        bench.mq.close().await.unwrap();
    }

    async fn a_handler_that_runs_too_long_is_stopped_and_has_failed(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let handler = |message: Message<String>| async move {
            if message.attempt() == 1 {
                tokio::time::sleep(VERY_LONG).await;
            }
            Ok::<_, HandlerError>(())
        };
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .handler_timeout(Duration::from_millis(50))
            .retry(RetryPolicy::fixed(2, Duration::from_millis(10)))
            .start(handler)
            .await
            .unwrap();
        bench.send("o-1").await;
        settled(&consumer, 1).await;
        assert_eq!(consumer.counters().retried, 1);
        bench.mq.close().await.unwrap();
    }

    async fn a_hundred_undecodable_messages_do_not_keep_a_good_one_waiting(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let json = RawBytes::of_type("application/json");
        let bad = bench.mq.publisher::<Bytes>("", &*bench.queue).codec(json);
        let bodies = vec![Bytes::from_static(b"{\"order\": "); 100];
        bad.send_all(&bodies).await.unwrap();
        bench.send("good").await;

        let (record, mut seen) = recorder::<String>();
        let builder = bench.mq.consumer::<String>(&*bench.queue);
        let consumer = builder.start(record).await.unwrap();

        assert_eq!(next(&mut seen).await.payload(), "good");
        eventually("all are parked", SOON, async || consumer.counters().parked == 100).await;
        bench.eventually_ready(&bench.parked(), 100).await;
        bench.mq.close().await.unwrap();
    }

    async fn an_empty_body_is_a_body(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let publisher = bench.mq.publisher::<Bytes>("", &*bench.queue).codec(RawBytes::default());
        publisher.send(&Bytes::new()).await.unwrap();
        let (record, mut seen) = recorder::<Bytes>();
        let builder = bench.mq.consumer::<Bytes>(&*bench.queue).codec(AnyBytes);
        let _consumer = builder.start(record).await.unwrap();
        assert!(next(&mut seen).await.into_payload().is_empty());
        bench.mq.close().await.unwrap();
    }

    async fn a_consumer_of_a_missing_queue_does_not_start(broker: Broker) {
        let mq = acemq::connect(&*broker.url).await.unwrap();
        let queue = broker.name("missing");
        let error = mq.consumer::<String>(&*queue).start(recorder().0).await.unwrap_err();
        assert_eq!((error.kind(), error.queue()), (ErrorKind::NotFound, Some(&*queue)));
        mq.close().await.unwrap();
    }

    async fn a_consumer_whose_dead_letter_queue_has_another_form_does_not_start(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let dead_letters = bench.dead_letters();
        bench.mq.delete_queue(&dead_letters).await.unwrap();
        let other = Queue::new(&*dead_letters).classic().message_ttl(Duration::from_secs(60));
        bench.mq.declare_queue(&other).await.unwrap();
        let builder = bench.mq.consumer::<String>(&*bench.queue);
        let error = builder.start(recorder().0).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert_eq!(error.conflict().unwrap().argument, "x-message-ttl");
        bench.mq.close().await.unwrap();
    }
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_before_anything_is_asked_of_the_broker() {
    let broker = Broker::memory();
    let mq = acemq::connect(&*broker.url).await.unwrap();
    let refused = [
        mq.consumer::<String>(""),
        mq.consumer("q").prefetch(0),
        mq.consumer("q").concurrency(0),
        mq.consumer("q").retry(RetryPolicy::none().multiplier(0.5)),
        mq.consumer("q").retry(RetryPolicy::none().jitter(1.5)),
        mq.consumer("q").retry(RetryPolicy::exponential(
            40,
            Duration::from_secs(1),
            Duration::from_secs(60 * 60 * 24 * 60),
        )),
    ];
    for builder in refused {
        let error = builder.start(recorder().0).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    }
    assert!(broker.memory.unwrap().queues().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn handlers_that_keep_their_thread_do_not_cost_the_connection() {
    const MESSAGES: u64 = 8;
    for (_, url) in testkit::brokers() {
        let broker = Broker::rabbitmq(Some(url)).unwrap();
        broker
            .run(async |broker| {
                let bench = Bench::new(&broker).await;
                for _ in 0..MESSAGES {
                    bench.send("o-1").await;
                }
                let mq = acemq::connect(format!("{}?heartbeat=1", broker.url)).await.unwrap();
                let handler = |message: Message<String>| async move {
                    std::thread::sleep(Duration::from_millis(400));
                    if message.redelivered() {
                        return Err(HandlerError::fatal("the connection was lost"));
                    }
                    Ok::<_, HandlerError>(())
                };
                let consumer = mq.consumer::<String>(&*bench.queue).start(handler).await.unwrap();
                settled(&consumer, MESSAGES).await;
                mq.close().await.unwrap();
                bench.mq.close().await.unwrap();
            })
            .await;
    }
}

/// Panics the first time that a span is told something.
struct Panics(AtomicBool);

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Panics {
    fn on_record(
        &self,
        _: &tracing::span::Id,
        _: &tracing::span::Record<'_>,
        _: tracing_subscriber::layer::Context<'_, S>,
    ) {
        assert!(self.0.swap(true, Ordering::SeqCst), "as asked for");
    }
}

// In one thread, whose subscriber is the test's own.
#[tokio::test]
async fn a_panic_after_a_handler_lets_no_more_handlers_run_at_once() {
    let subscriber = tracing_subscriber::registry().with(Panics(AtomicBool::new(false)));
    let _guard = testkit::logs::to_this_thread(subscriber);
    let bench = Bench::new(&Broker::memory()).await;
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let handler = {
        let most = Arc::clone(&most);
        move |message: Message<String>| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            async move {
                if message.payload() == "fails" {
                    return Err(HandlerError::fatal("no"));
                }
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                running.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        }
    };
    let consumer = bench.mq.consumer::<String>(&*bench.queue).start(handler).await.unwrap();
    bench.send("fails").await;
    bench.eventually_ready(&bench.dead_letters(), 1).await;
    for _ in 0..10 {
        bench.send("o-1").await;
    }
    settled(&consumer, 10).await;
    assert_eq!(most.load(Ordering::SeqCst), 1);
    bench.mq.close().await.unwrap();
}
