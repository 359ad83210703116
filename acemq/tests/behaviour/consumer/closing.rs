//! Closing and dropping.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use acemq::{
    ConsumerState, ErrorKind, HandlerError, IdempotencyStore, MemoryIdempotencyStore, Message,
    RetryPolicy,
};
use testkit::{Proxy, eventually};
use tokio::sync::Semaphore;

use crate::{
    consumer::bench::{Bench, SOON, next, recorder},
    on_every_broker,
    support::Broker,
};

const VERY_LONG: Duration = Duration::from_secs(1_000);

/// A handler that waits for a permit and writes down what it finished.
#[derive(Clone)]
struct Slow {
    permits: Arc<Semaphore>,
    finished: Arc<Mutex<HashSet<String>>>,
}

impl Slow {
    fn new() -> Self {
        Self { permits: Arc::new(Semaphore::new(0)), finished: Arc::default() }
    }

    async fn handle(self, message: Message<String>) -> Result<(), HandlerError> {
        self.permits.acquire().await?.forget();
        self.finished.lock().unwrap().insert(message.id().to_owned());
        Ok(())
    }
}

/// Sets a flag when it is dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

on_every_broker! {
    async fn closing_finishes_what_runs_and_hands_the_rest_back_once(broker: Broker) {
        let bench = Bench::new(&broker).await;
        for _ in 0..100 {
            bench.send("o-1").await;
        }
        let slow = Slow::new();
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .prefetch(100)
            .concurrency(2)
            .start({
                let slow = slow.clone();
                move |message| slow.clone().handle(message)
            })
            .await
            .unwrap();
        eventually("two run", SOON, async || consumer.counters().in_flight == 2).await;
        bench.eventually_ready(&bench.queue, 0).await;

        let closing = consumer.close();
        let finish = async {
            // What no handler has begun does not wait for those that run.
            bench.eventually_ready(&bench.queue, 98).await;
            slow.permits.add_permits(100);
        };
        let (closed, ()) = tokio::join!(closing, finish);
        closed.unwrap();

        assert_eq!(consumer.state(), ConsumerState::Closed);
        let finished = slow.finished.lock().unwrap().clone();
        assert_eq!((finished.len(), consumer.counters().acknowledged), (2, 2));
        assert_eq!(bench.ready(&bench.queue).await, 98);
        let (record, mut seen) = recorder::<String>();
        let rest = bench.mq.consumer::<String>(&*bench.queue).start(record).await.unwrap();
        for _ in 0..98 {
            let message = next(&mut seen).await;
            assert!(!finished.contains(message.id()), "handled and handed back");
            assert_eq!(message.attempt(), 1);
        }
        rest.close().await.unwrap();
        assert!(seen.try_recv().is_err(), "handed back twice");
        bench.mq.close().await.unwrap();
    }

    async fn acknowledgements_right_before_the_close_are_not_lost(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let payloads: Vec<String> = (0..500).map(|n| n.to_string()).collect();
        bench.mq.publisher::<String>("", &*bench.queue).send_all(&payloads).await.unwrap();
        let (record, mut seen) = recorder::<String>();
        let builder = bench.mq.consumer::<String>(&*bench.queue).prefetch(100).concurrency(100);
        let consumer = builder.start(record).await.unwrap();
        let mut handled = HashSet::new();
        for _ in 0..200 {
            handled.insert(next(&mut seen).await.id().to_owned());
        }
        consumer.close().await.unwrap();
        while let Ok(message) = seen.try_recv() {
            handled.insert(message.id().to_owned());
        }

        let (record, mut seen) = recorder::<String>();
        let rest = bench.mq.consumer::<String>(&*bench.queue).start(record).await.unwrap();
        for _ in handled.len()..payloads.len() {
            let message = next(&mut seen).await;
            assert!(!handled.contains(message.id()), "an acknowledgement was lost");
        }
        rest.close().await.unwrap();
        bench.mq.close().await.unwrap();
        assert_eq!(Bench::new(&broker).await.ready(&bench.queue).await, 0);
    }

    async fn a_handler_past_the_bound_is_stopped_and_its_message_and_claim_go_back(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let bound = Duration::from_millis(300);
        let mq = acemq::connect(&*broker.url).drain_timeout(bound).await.unwrap();
        let store = MemoryIdempotencyStore::new();
        let stopped = Arc::new(AtomicBool::new(false));
        let handler = {
            let stopped = Arc::clone(&stopped);
            move |_: Message<String>| {
                let flag = Flag(Arc::clone(&stopped));
                async move {
                    tokio::time::sleep(VERY_LONG).await;
                    drop(flag);
                    Ok::<_, HandlerError>(())
                }
            }
        };
        let builder = mq.consumer::<String>(&*bench.queue).idempotent(store.clone());
        let consumer = builder.start(handler).await.unwrap();
        bench.send("o-1").await;
        eventually("it runs", SOON, async || consumer.counters().in_flight == 1).await;

        let begun = Instant::now();
        let error = consumer.close().await.unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(10), "the bound was not kept");
        assert_eq!((error.kind(), error.queue()), (ErrorKind::Timeout, Some(&*bench.queue)));
        assert!(error.to_string().contains("1 handler was still running"), "{error}");
        assert!(stopped.load(Ordering::SeqCst), "the handler still runs");
        assert_eq!(consumer.state(), ConsumerState::Closed);
        assert_eq!(store.size().await.unwrap(), 0, "the claim was kept");
        assert_eq!(bench.take(&bench.queue).await.attempt(), 1);
        bench.mq.close().await.unwrap();
    }

    async fn closing_twice_and_closing_the_client_afterwards_is_no_error(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let builder = bench.mq.consumer::<String>(&*bench.queue);
        let consumer = builder.start(recorder().0).await.unwrap();
        let (first, second) = tokio::join!(consumer.close(), consumer.close());
        first.unwrap();
        second.unwrap();
        consumer.close().await.unwrap();
        bench.mq.close().await.unwrap();
        bench.mq.close().await.unwrap();
        let builder = bench.mq.consumer::<String>(&*bench.queue);
        assert_eq!(builder.start(recorder().0).await.unwrap_err().kind(), ErrorKind::Closed);
    }

    async fn dropping_a_consumer_stops_its_handlers_and_gives_the_messages_back(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let stopped = Arc::new(AtomicBool::new(false));
        let handler = {
            let stopped = Arc::clone(&stopped);
            move |_: Message<String>| {
                let flag = Flag(Arc::clone(&stopped));
                async move {
                    tokio::time::sleep(VERY_LONG).await;
                    drop(flag);
                    Ok::<_, HandlerError>(())
                }
            }
        };
        let consumer = bench.mq.consumer::<String>(&*bench.queue).start(handler).await.unwrap();
        for _ in 0..3 {
            bench.send("o-1").await;
        }
        eventually("one runs", SOON, async || consumer.counters().in_flight == 1).await;
        drop(consumer);
        eventually("it is stopped", SOON, async || stopped.load(Ordering::SeqCst)).await;
        bench.eventually_ready(&bench.queue, 3).await;
        bench.mq.close().await.unwrap();
    }

    async fn a_dropped_consumer_begins_nothing_of_what_waited(broker: Broker) {
        let bench = Bench::new(&broker).await;
        for _ in 0..10 {
            bench.send("o-1").await;
        }
        let begun = Arc::new(AtomicUsize::new(0));
        let handler = {
            let begun = Arc::clone(&begun);
            move |_: Message<String>| {
                begun.fetch_add(1, Ordering::SeqCst);
                async move {
                    tokio::time::sleep(VERY_LONG).await;
                    Ok::<_, HandlerError>(())
                }
            }
        };
        let consumer = bench.mq.consumer::<String>(&*bench.queue).start(handler).await.unwrap();
        eventually("one runs", SOON, async || consumer.counters().in_flight == 1).await;
        bench.eventually_ready(&bench.queue, 0).await;
        drop(consumer);
        bench.eventually_ready(&bench.queue, 10).await;
        assert_eq!(begun.load(Ordering::SeqCst), 1);
        bench.mq.close().await.unwrap();
    }

    async fn dropping_a_consumer_does_not_double_a_message_that_waits_for_its_retry(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let policy = RetryPolicy::fixed(2, VERY_LONG).wait_in_broker_from(Duration::ZERO);
        let (record, mut seen) = recorder::<String>();
        let handler = move |message: Message<String>| {
            let recorded = record(message);
            async move {
                recorded.await?;
                Err::<(), _>(HandlerError::transient("not yet"))
            }
        };
        let builder = bench.mq.consumer::<String>(&*bench.queue).retry(policy);
        let consumer = builder.start(handler).await.unwrap();
        bench.send("o-1").await;
        next(&mut seen).await;
        drop(consumer);
        bench.eventually_ready(&bench.queue, 1).await;
        assert_eq!(bench.take(&bench.queue).await.attempt(), 1);
        assert_eq!(bench.ready(&bench.queue).await, 0);
        bench.mq.close().await.unwrap();
    }

    async fn a_start_that_is_dropped_leaves_no_consumer(broker: Broker) {
        let bench = Bench::new(&broker).await;
        for step in 0..20 {
            let start = bench.mq.consumer::<String>(&*bench.queue).start(recorder().0);
            let _ = tokio::time::timeout(Duration::from_micros(300 * step), start).await;
        }
        let consumers = async || {
            bench.mq.inspect_queue(&bench.queue).await.unwrap().unwrap().consumers == 0
        };
        eventually("no consumer is left", SOON, consumers).await;
        bench.mq.close().await.unwrap();
    }

    async fn nothing_is_left_running_after_a_close(broker: Broker) {
        let bench = Bench::new(&broker).await;
        bench.mq.close().await.unwrap();
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        eventually("the first client has ended", SOON, async || tasks() <= 1).await;
        let before = tasks();

        let mq = acemq::connect(&*broker.url).await.unwrap();
        let (record, mut seen) = recorder::<String>();
        let builder = mq.consumer::<String>(&*bench.queue).idempotent(MemoryIdempotencyStore::new());
        let consumer = builder.start(record).await.unwrap();
        mq.send_to_queue(&bench.queue, "o-1").await.unwrap();
        next(&mut seen).await;
        mq.close().await.unwrap();
        drop(consumer);

        eventually("all tasks have ended", SOON, async || tasks() <= before).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_while_the_broker_is_away_keeps_its_bound() {
    for (_, url) in testkit::brokers() {
        for stalled in [false, true] {
            let broker = Broker::rabbitmq(Some(url.clone())).unwrap();
            broker.run(async |broker| closes_without_a_broker(broker, stalled).await).await;
        }
    }
}

async fn closes_without_a_broker(broker: Broker, stalled: bool) {
    let bench = Bench::new(&broker).await;
    let mut proxy = Proxy::in_front_of(&broker.url).await;
    let mq = acemq::connect(proxy.url_for(&broker.url))
        .drain_timeout(Duration::from_secs(1))
        .connect_timeout(Duration::from_secs(2))
        .await
        .unwrap();
    let slow = Slow::new();
    let handler = {
        let slow = slow.clone();
        move |message| slow.clone().handle(message)
    };
    let consumer = mq.consumer::<String>(&*bench.queue).start(handler).await.unwrap();
    bench.send("o-1").await;
    eventually("it runs", SOON, async || consumer.counters().in_flight == 1).await;
    if stalled {
        proxy.stall();
    } else {
        proxy.cut().await;
    }
    let begun = Instant::now();
    // Whether the handler counts as stranded is not the point here.
    let _ = mq.close().await;
    assert!(begun.elapsed() < Duration::from_secs(12), "it took {:?}", begun.elapsed());
    assert_eq!(consumer.state(), ConsumerState::Closed);
    proxy.cut().await;
    bench.eventually_ready(&bench.queue, 1).await;
    bench.mq.close().await.unwrap();
}

// In one thread, where the handler that ends runs on before the reader learns of the closing.
#[tokio::test]
async fn nothing_is_begun_once_close_is_called() {
    let bench = Bench::new(&Broker::memory()).await;
    let (begun, finish) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let handler = {
        let (begun, finish) = (Arc::clone(&begun), Arc::clone(&finish));
        move |_: Message<String>| {
            let (begun, finish) = (Arc::clone(&begun), Arc::clone(&finish));
            async move {
                begun.add_permits(1);
                finish.acquire().await?.forget();
                Ok(())
            }
        }
    };
    let consumer = bench.mq.consumer::<String>(&*bench.queue).start(handler).await.unwrap();
    for order in ["o-1", "o-2"] {
        bench.send(order).await;
    }
    begun.acquire().await.unwrap().forget();
    bench.eventually_ready(&bench.queue, 0).await;
    finish.add_permits(1);
    consumer.close().await.unwrap();
    assert_eq!(begun.available_permits(), 0);
    bench.eventually_ready(&bench.queue, 1).await;
}
