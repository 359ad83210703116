//! One queue, ordered by key within a process.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use acemq::{
    Decode, HandlerError, HeaderValue, Json, MemoryIdempotencyStore, Message, OnFailure,
    testing::MemoryBroker,
};
use bytes::Bytes;
use testkit::eventually;

use super::{Log, key_of, payload, send_all};
use crate::{
    consumer::bench::{Bench, SOON, settled},
    on_every_broker,
};

/// Panics at one payload.
struct Brittle;

impl Decode<String> for Brittle {
    fn accepts(&self, _content_type: Option<&str>) -> bool {
        true
    }

    async fn decode(&self, body: Bytes, content_type: Option<&str>) -> acemq::Result<String> {
        let payload: String = Json.decode(body, content_type).await?;
        assert_ne!(payload, "panics", "on purpose");
        Ok(payload)
    }
}

on_every_broker! {
    // promise: OR-1
    async fn messages_of_a_key_are_handled_in_order_while_other_keys_run_at_the_same_time(broker: Broker) {
        let bench = Bench::new(&broker).await;
        send_all(&bench.mq.publisher("", &*bench.queue), 10, 30).await;
        let log = Log::default();
        let handler = { let log = log.clone(); move |message| log.clone().handle(message) };
        let consumer = bench.mq.consumer::<String>(&*bench.queue).prefetch(100).concurrency(8);
        let consumer = consumer.ordered_by_header("x-key").start(handler).await.unwrap();
        settled(&consumer, 300).await;
        log.in_order(10, 30);
        let most = log.most_at_once();
        assert!((2..=8).contains(&most), "{most} at once");
        bench.mq.close().await.unwrap();
    }

    // promise: OR-1
    async fn a_key_is_made_of_the_payload_or_is_the_routing_key(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let exchange = testkit::unique("by_key");
        let topology = acemq::Topology::new()
            .exchange(acemq::Exchange::topic(&*exchange))
            .bind(&*bench.queue, &*exchange, "#");
        bench.mq.declare(&topology).await.unwrap();
        for by_payload in [true, false] {
            for number in 0..20 {
                for key in ["0", "1", "2"] {
                    let sent = bench.mq.publisher::<String>(&*exchange, key);
                    sent.send(&payload(key, number)).await.unwrap();
                }
            }
            let log = Log::default();
            let handler = { let log = log.clone(); move |message| log.clone().handle(message) };
            let builder = bench.mq.consumer::<String>(&*bench.queue).concurrency(3);
            let builder = if by_payload {
                builder.ordered_by(|payload: &String| key_of(payload).to_owned())
            } else {
                builder.ordered_by_routing_key()
            };
            let consumer = builder.start(handler).await.unwrap();
            settled(&consumer, 60).await;
            log.in_order(3, 20);
            assert!(log.most_at_once() > 1, "nothing ran at the same time");
            consumer.close().await.unwrap();
        }
        bench.mq.delete_exchange(&exchange).await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn a_message_without_a_key_is_a_dead_letter_that_says_so(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let publisher = bench.mq.publisher::<String>("", &*bench.queue);
        let text = payload("k", 0);
        publisher.send(&text).id("none").await.unwrap();
        let odd: [(&str, HeaderValue); 5] = [
            ("null", HeaderValue::Null),
            ("truth", true.into()),
            ("float", 1.5_f64.into()),
            ("list", vec![HeaderValue::from("k")].into()),
            ("table", acemq::Headers::new().into()),
        ];
        for (id, value) in odd {
            publisher.send(&text).id(id).header("x-key", value).await.unwrap();
        }
        // These are keys: the empty text, and integers of any width.
        publisher.send(&text).id("empty").header("x-key", "").await.unwrap();
        publisher.send(&text).id("integer").header("x-key", 7_i64).await.unwrap();

        let log = Log::default();
        let handler = { let log = log.clone(); move |message| log.clone().handle(message) };
        let consumer = bench.mq.consumer::<String>(&*bench.queue).concurrency(2);
        let consumer = consumer.ordered_by_header("x-key").start(handler).await.unwrap();
        eventually("all are settled", SOON, async || {
            let counters = consumer.counters();
            (counters.rejected, counters.acknowledged, counters.in_flight) == (6, 2, 0)
        })
        .await;
        bench.eventually_ready(&bench.dead_letters(), 6).await;
        let reasons = bench.mq.peek(bench.dead_letters()).reasons().await.unwrap().reasons;
        let reasons: Vec<_> = reasons.into_iter().map(|group| (group.count, group.reason.unwrap())).collect();
        let said = |why: &str| format!("it cannot be put in order: its header `x-key` {why}");
        assert_eq!(reasons, [(5, said("is neither text nor an integer")), (1, said("is missing"))]);
        bench.mq.close().await.unwrap();
    }

    async fn a_key_function_that_panics_costs_its_own_message_and_no_other(broker: Broker) {
        let bench = Bench::new(&broker).await;
        for payload in ["k:0", "panics", "k:1"] {
            bench.send(payload).await;
        }
        let log = Log::default();
        let handler = { let log = log.clone(); move |message| log.clone().handle(message) };
        let builder = bench.mq.consumer::<String>(&*bench.queue).ordered_by(|payload: &String| {
            assert_ne!(payload, "panics", "on purpose");
            key_of(payload).to_owned()
        });
        let consumer = builder.start(handler).await.unwrap();
        settled(&consumer, 2).await;
        let dead = bench.take(&bench.dead_letters()).await;
        let error = dead.envelope().error().unwrap();
        assert!(error.contains("making its key panicked"), "{error}");
        assert_eq!(log.numbers("k"), [0, 1]);
        bench.mq.close().await.unwrap();
    }

    async fn a_codec_that_panics_costs_its_own_message_and_no_other(broker: Broker) {
        let bench = Bench::new(&broker).await;
        for payload in ["k:0", "panics", "k:1"] {
            bench.send(payload).await;
        }
        let log = Log::default();
        let handler = { let log = log.clone(); move |message| log.clone().handle(message) };
        let builder = bench.mq.consumer::<String>(&*bench.queue).codec(Brittle);
        let builder = builder.ordered_by(|payload: &String| key_of(payload).to_owned());
        let consumer = builder.start(handler).await.unwrap();
        settled(&consumer, 2).await;
        let dead = bench.take(&bench.dead_letters()).await;
        let error = dead.envelope().error().unwrap();
        assert!(error.contains("the codec or store panicked"), "{error}");
        assert_eq!(log.numbers("k"), [0, 1]);
        assert!(consumer.halted().is_empty());
        bench.mq.close().await.unwrap();
    }

    async fn what_cannot_be_read_is_parked_and_the_next_has_its_turn(broker: Broker) {
        let bench = Bench::new(&broker).await;
        bench.send("k:0").await;
        let number = bench.mq.publisher::<u32>("", &*bench.queue);
        number.send(&7).header("x-key", "k").await.unwrap();
        bench.send("k:1").await;
        let log = Log::default();
        let handler = { let log = log.clone(); move |message| log.clone().handle(message) };
        let builder = bench.mq.consumer::<String>(&*bench.queue);
        let builder = builder.ordered_by(|payload: &String| key_of(payload).to_owned());
        let consumer = builder.start(handler).await.unwrap();
        settled(&consumer, 2).await;
        eventually("it is parked", SOON, async || consumer.counters().parked == 1).await;
        assert_eq!(log.numbers("k"), [0, 1]);
        bench.mq.close().await.unwrap();
    }

    // promise: OR-1
    async fn duplicates_are_left_out_and_the_order_stands(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let publisher = bench.mq.publisher::<String>("", &*bench.queue);
        for number in [0, 1, 0, 2, 1, 3] {
            let text = payload("0", number);
            publisher.send(&text).id(&*text).header("x-key", "0").await.unwrap();
        }
        let log = Log::default();
        let handler = { let log = log.clone(); move |message| log.clone().handle(message) };
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .concurrency(4)
            .idempotent(MemoryIdempotencyStore::new())
            .ordered_by_header("x-key")
            .start(handler)
            .await
            .unwrap();
        settled(&consumer, 6).await;
        assert_eq!(consumer.counters().duplicates, 2);
        log.in_order(1, 4);
        bench.mq.close().await.unwrap();
    }

    // promise: OR-1
    async fn a_message_that_somebody_else_is_handling_is_waited_for_in_its_place(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let store = MemoryIdempotencyStore::new();
        let publisher = bench.mq.publisher::<String>("", &*bench.queue);
        for number in 0..3 {
            let text = payload("0", number);
            publisher.send(&text).id(&*text).header("x-key", "0").await.unwrap();
        }
        use acemq::{Claim, IdempotencyStore as _};
        let held = store.try_claim(&format!("{}/0:0", bench.queue)).await.unwrap();
        let Claim::Owned(lease) = held else { panic!("{held:?}") };
        let log = Log::default();
        let handler = { let log = log.clone(); move |message| log.clone().handle(message) };
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .concurrency(4)
            .idempotent(store.clone())
            .in_progress_wait(Duration::from_millis(20))
            .ordered_by_header("x-key")
            .start(handler)
            .await
            .unwrap();
        eventually("it has been round", SOON, async || consumer.counters().in_progress > 2).await;
        assert_eq!(log.handled(), [""; 0], "something was handled before its turn");
        store.release(&lease).await.unwrap();
        settled(&consumer, 3).await;
        log.in_order(1, 3);
        bench.mq.close().await.unwrap();
    }

    // promise: OR-4
    async fn closing_while_messages_wait_behind_a_key_gives_them_back_in_order(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let publisher = bench.mq.publisher::<String>("", &*bench.queue);
        send_all(&publisher, 2, 10).await;
        let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
        let (go, gate) = tokio::sync::watch::channel(false);
        let handler = move |message: Message<String>| {
            let (begun, mut gate) = (begun.clone(), gate.clone());
            async move {
                let _ = begun.send(message.payload().clone());
                let _ = gate.wait_for(|open| *open).await;
                Ok::<_, HandlerError>(())
            }
        };
        let consumer = bench.mq.consumer::<String>(&*bench.queue).concurrency(4);
        let consumer = consumer.ordered_by_header("x-key").start(handler).await.unwrap();
        let mut first = [
            crate::consumer::bench::next(&mut begins).await,
            crate::consumer::bench::next(&mut begins).await,
        ];
        first.sort();
        assert_eq!(first, ["0:0", "1:0"]);
        let (closed, ()) = tokio::join!(consumer.close(), async {
            tokio::task::yield_now().await;
            go.send_replace(true);
        });
        closed.unwrap();
        assert!(begins.try_recv().is_err(), "something was begun while closing");
        assert_eq!(consumer.counters().acknowledged, 2);
        bench.eventually_ready(&bench.queue, 18).await;

        let log = Log::default();
        let handler = { let log = log.clone(); move |message| log.clone().handle(message) };
        let again = bench.mq.consumer::<String>(&*bench.queue).concurrency(4);
        let again = again.ordered_by_header("x-key").start(handler).await.unwrap();
        settled(&again, 18).await;
        for key in ["0", "1"] {
            assert_eq!(log.numbers(key), Vec::from_iter(1..10));
        }
        bench.mq.close().await.unwrap();
    }

    // promise: OR-4
    async fn a_consumer_that_is_dropped_loses_nothing_and_keeps_the_order(broker: Broker) {
        let bench = Bench::new(&broker).await;
        send_all(&bench.mq.publisher("", &*bench.queue), 4, 10).await;
        let log = Log::default();
        for polls in [0, 1, 3, 7, 20, 60] {
            let handler = { let log = log.clone(); move |message| log.clone().handle(message) };
            let builder = bench.mq.consumer::<String>(&*bench.queue).concurrency(4);
            let consumer = builder.ordered_by_header("x-key").start(handler).await.unwrap();
            for _ in 0..polls {
                tokio::task::yield_now().await;
            }
            drop(consumer);
            // What comes next would otherwise be given what is behind.
            bench.eventually_consumers(0).await;
        }
        let handler = { let log = log.clone(); move |message| log.clone().handle(message) };
        let builder = bench.mq.consumer::<String>(&*bench.queue).concurrency(4);
        let consumer = builder.ordered_by_header("x-key").start(handler).await.unwrap();
        eventually("everything was handled", SOON, async || {
            let all = (0..4).all(|key| log.numbers(&key.to_string()).contains(&9));
            all && consumer.counters().in_flight == 0 && bench.ready(&bench.queue).await == 0
        })
        .await;
        for key in 0..4 {
            // What was under way is handled again, and nothing before what it came after.
            let mut last = 0;
            for number in log.numbers(&key.to_string()) {
                assert!(number <= last + 1, "{:?}", log.numbers(&key.to_string()));
                last = last.max(number);
            }
        }
        bench.mq.close().await.unwrap();
    }
}

// promise: OR-1
#[tokio::test]
async fn after_a_lost_connection_a_message_does_not_run_beside_its_first_delivery() {
    let broker = MemoryBroker::new();
    let mq = acemq::connect(broker.url()).await.unwrap();
    mq.declare_queue(&acemq::Queue::new("orders").dead_letters()).await.unwrap();
    send_all(&mq.publisher("", "orders"), 1, 3).await;
    let log = Log::default();
    let (go, gate) = tokio::sync::watch::channel(false);
    let handler = {
        let log = log.clone();
        move |message: Message<String>| {
            let (log, mut gate) = (log.clone(), gate.clone());
            async move {
                log.begin(message.payload());
                let _ = gate.wait_for(|open| *open).await;
                tokio::task::yield_now().await;
                log.end(message.payload());
                Ok::<_, HandlerError>(())
            }
        }
    };
    let consumer = mq.consumer::<String>("orders").concurrency(4).ordered_by_header("x-key");
    let consumer = consumer.start(handler).await.unwrap();
    eventually("the first is handled", SOON, async || log.handled().len() == 1).await;
    broker.drop_connections();
    eventually("it is delivered again", SOON, async || {
        broker.queue("orders").is_some_and(|ready| ready.is_empty())
            && consumer.state() == acemq::ConsumerState::Receiving
    })
    .await;
    assert_eq!(log.handled().len(), 1, "it runs twice at once");
    go.send_replace(true);
    settled(&consumer, 3).await;
    assert_eq!(log.numbers("0"), [0, 0, 1, 2]);
    assert!(!log.0.lock().unwrap().overlapped, "it ran twice at once");
    mq.close().await.unwrap();
}

#[tokio::test]
async fn settings_that_cannot_go_together_are_refused() {
    let mq = acemq::connect(MemoryBroker::new().url()).await.unwrap();
    mq.declare_queue(&acemq::Queue::new("orders").dead_letters()).await.unwrap();
    let ordered = || mq.consumer::<String>("orders").ordered_by_header("x-key");
    let retries = acemq::RetryPolicy::fixed(2, Duration::from_secs(1));
    let cases = [
        (ordered().retry(retries), "overtakes"),
        (ordered().on_failure(OnFailure::retry_in_place(0, Duration::ZERO)), "at least 1"),
        (mq.consumer("orders").on_failure(OnFailure::skip()), "by what messages are ordered"),
    ];
    for (builder, said) in cases {
        let error = builder.start(async |_: Message<String>| Ok(())).await.unwrap_err();
        assert_eq!(error.kind(), acemq::ErrorKind::Config);
        assert!(error.to_string().contains(said), "{error}");
    }
    mq.close().await.unwrap();
}

// promise: OR-1
#[tokio::test(start_paused = true)]
async fn a_body_that_cannot_be_read_for_a_while_holds_up_what_is_behind_it() {
    /// Reads nothing before it is told to.
    #[derive(Clone)]
    struct Away(Arc<Mutex<bool>>);

    impl Decode<String> for Away {
        fn accepts(&self, _: Option<&str>) -> bool {
            true
        }

        async fn decode(&self, body: Bytes, _: Option<&str>) -> acemq::Result<String> {
            let text = String::from_utf8(body.to_vec()).unwrap().trim_matches('"').to_owned();
            if text == "k:0" && !*self.0.lock().unwrap() {
                return Err(acemq::Error::new(acemq::ErrorKind::Store, "the store is away"));
            }
            Ok(text)
        }
    }

    let mq = acemq::connect(MemoryBroker::new().url()).await.unwrap();
    mq.declare_queue(&acemq::Queue::new("orders").dead_letters()).await.unwrap();
    for payload in ["k:0", "k:1"] {
        mq.send_to_queue("orders", payload).await.unwrap();
    }
    let log = Log::default();
    let handler = {
        let log = log.clone();
        move |message| log.clone().handle(message)
    };
    let is_back = Arc::new(Mutex::new(false));
    let builder = mq.consumer::<String>("orders").codec(Away(Arc::clone(&is_back)));
    let builder = builder.ordered_by(|payload: &String| key_of(payload).to_owned());
    let consumer = builder.start(handler).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(log.handled(), [""; 0]);
    *is_back.lock().unwrap() = true;
    settled(&consumer, 2).await;
    assert_eq!(log.numbers("k"), [0, 1]);
    mq.close().await.unwrap();
}
