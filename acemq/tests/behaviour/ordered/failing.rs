//! A failure where order matters: nothing overtakes it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use acemq::{Ack, HandlerError, Message, OnFailure, Queue, testing::MemoryBroker};
use testkit::eventually;

use super::{Log, payload, send_all};
use crate::{
    consumer::bench::{Bench, SOON, settled},
    on_every_broker,
};

const MOMENT: Duration = Duration::from_millis(10);

/// Fails every attempt at one message until it is mended.
#[derive(Clone)]
struct Fails {
    log: Log,
    at: &'static str,
    mended: Arc<AtomicBool>,
}

impl Fails {
    fn at(at: &'static str) -> Self {
        Self { log: Log::default(), at, mended: Arc::default() }
    }

    fn mend(&self) {
        self.mended.store(true, Ordering::SeqCst);
    }

    async fn handle(self, message: Message<String>) -> Result<(), HandlerError> {
        let fails = message.payload() == self.at && !self.mended.load(Ordering::SeqCst);
        self.log.handle(message).await?;
        if fails { Err(HandlerError::transient("out of stock")) } else { Ok(()) }
    }

    fn handler(
        &self,
    ) -> impl Fn(
        Message<String>,
    ) -> futures_util::future::BoxFuture<'static, Result<(), HandlerError>>
    + Send
    + Sync
    + 'static {
        let fails = self.clone();
        move |message| Box::pin(fails.clone().handle(message))
    }
}

on_every_broker! {
    // promise: OR-2
    async fn a_key_that_failed_halts_and_the_others_go_on_until_it_is_resumed(broker: Broker) {
        let bench = Bench::new(&broker).await;
        send_all(&bench.mq.publisher("", &*bench.queue), 3, 5).await;
        let fails = Fails::at("1:2");
        let consumer = bench.mq.consumer::<String>(&*bench.queue).concurrency(4);
        let consumer = consumer.ordered_by_header("x-key").start(fails.handler()).await.unwrap();
        eventually("the others are done", SOON, async || consumer.counters().acknowledged == 12).await;
        eventually("all of the key is held", SOON, async || {
            consumer.halted().first().is_some_and(|halted| halted.held == 3)
        })
        .await;
        let halted = consumer.halted();
        assert_eq!((halted.len(), &*halted[0].key, halted[0].attempts), (1, "1", 1));
        assert_eq!(halted[0].reason, "out of stock");
        assert!(!halted[0].message_id.is_empty());
        assert_eq!(fails.log.numbers("1"), [0, 1, 2]);

        assert!(!consumer.resume_key("2"));
        assert!(consumer.resume_key("1"));
        eventually("it halts again", SOON, async || fails.log.numbers("1").len() == 4).await;
        eventually("it is listed", SOON, async || !consumer.halted().is_empty()).await;
        fails.mend();
        assert!(consumer.resume_key("1"));
        settled(&consumer, 15).await;
        assert_eq!(fails.log.numbers("1"), [0, 1, 2, 2, 2, 3, 4]);
        assert!(consumer.halted().is_empty());
        assert_eq!(bench.ready(&bench.dead_letters()).await, 0);
        bench.mq.close().await.unwrap();
    }

    // promise: OR-2
    async fn a_message_is_tried_again_in_its_place_and_then_stops_its_key(broker: Broker) {
        let bench = Bench::new(&broker).await;
        send_all(&bench.mq.publisher("", &*bench.queue), 2, 3).await;
        let attempts = Arc::new(std::sync::Mutex::new(Vec::new()));
        let fails = Fails::at("0:1");
        let handler = {
            let (attempts, handler) = (Arc::clone(&attempts), fails.handler());
            move |message: Message<String>| {
                if message.payload() == "0:1" {
                    attempts.lock().unwrap().push(message.attempt());
                }
                handler(message)
            }
        };
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .concurrency(2)
            .ordered_by_header("x-key")
            .on_failure(OnFailure::retry_in_place(3, MOMENT))
            .start(handler)
            .await
            .unwrap();
        eventually("it halts", SOON, async || !consumer.halted().is_empty()).await;
        assert_eq!(*attempts.lock().unwrap(), [1, 2, 3]);
        assert_eq!(consumer.halted()[0].attempts, 3);
        assert_eq!(consumer.counters().retried, 2);
        fails.mend();
        assert!(consumer.resume_key("0"));
        settled(&consumer, 6).await;
        assert_eq!(fails.log.numbers("0"), [0, 1, 1, 1, 1, 2]);
        bench.mq.close().await.unwrap();
    }

    // promise: OR-2
    async fn a_message_that_is_skipped_is_a_dead_letter_and_the_next_has_its_turn(broker: Broker) {
        let bench = Bench::new(&broker).await;
        send_all(&bench.mq.publisher("", &*bench.queue), 1, 4).await;
        let fails = Fails::at("0:1");
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .concurrency(4)
            .ordered_by_header("x-key")
            .on_failure(OnFailure::retry_in_place(2, MOMENT).then_skip())
            .start(fails.handler())
            .await
            .unwrap();
        settled(&consumer, 3).await;
        assert_eq!(fails.log.numbers("0"), [0, 1, 1, 2, 3]);
        assert_eq!(consumer.counters().dead_lettered, 1);
        assert!(consumer.halted().is_empty());
        let dead = bench.take(&bench.dead_letters()).await;
        assert_eq!(dead.envelope().error(), Some("exhausted 2 attempts: out of stock"));
        assert_eq!((dead.attempt(), &dead.body()[..]), (2, &b"\"0:1\""[..]));
        bench.mq.close().await.unwrap();
    }

    // promise: OR-2
    async fn a_handler_that_panics_has_failed(broker: Broker) {
        let bench = Bench::new(&broker).await;
        send_all(&bench.mq.publisher("", &*bench.queue), 2, 3).await;
        let log = Log::default();
        let handler = {
            let log = log.clone();
            move |message: Message<String>| {
                let log = log.clone();
                async move {
                    assert_ne!(message.payload(), "0:1", "on purpose");
                    log.handle(message).await
                }
            }
        };
        let consumer = bench.mq.consumer::<String>(&*bench.queue).concurrency(2);
        let consumer = consumer.ordered_by_header("x-key").start(handler).await.unwrap();
        eventually("the other key is done", SOON, async || consumer.counters().acknowledged == 4).await;
        eventually("it halts", SOON, async || !consumer.halted().is_empty()).await;
        assert!(consumer.halted()[0].reason.contains("the handler panicked: "));
        assert_eq!(log.numbers("0"), [0]);
        bench.mq.close().await.unwrap();
    }

    async fn what_the_handler_sets_aside_itself_stops_nothing(broker: Broker) {
        let bench = Bench::new(&broker).await;
        send_all(&bench.mq.publisher("", &*bench.queue), 1, 4).await;
        let log = Log::default();
        let handler = {
            let log = log.clone();
            move |message: Message<String>| {
                let log = log.clone();
                async move {
                    let payload = message.payload().clone();
                    log.handle(message).await?;
                    match &*payload {
                        "0:0" => Err(HandlerError::fatal("no such customer")),
                        "0:1" => Ok(Ack::reject("a test order")),
                        "0:2" => Ok(Ack::park("ask a person")),
                        _ => Ok(Ack::accept()),
                    }
                }
            }
        };
        let consumer = bench.mq.consumer::<String>(&*bench.queue);
        let consumer = consumer.ordered_by_header("x-key").start(handler).await.unwrap();
        settled(&consumer, 1).await;
        log.in_order(1, 4);
        assert_eq!((consumer.counters().rejected, consumer.counters().parked), (2, 1));
        bench.mq.close().await.unwrap();
    }

    // promise: OR-4
    async fn a_halted_key_goes_back_whole_and_in_order_when_the_consumer_closes(broker: Broker) {
        let bench = Bench::new(&broker).await;
        send_all(&bench.mq.publisher("", &*bench.queue), 2, 6).await;
        let fails = Fails::at("0:2");
        let start = async || {
            let builder = bench.mq.consumer::<String>(&*bench.queue).concurrency(4);
            builder.ordered_by_header("x-key").start(fails.handler()).await.unwrap()
        };
        let consumer = start().await;
        eventually("the other key is done", SOON, async || consumer.counters().acknowledged == 8).await;
        eventually("it halts", SOON, async || !consumer.halted().is_empty()).await;
        consumer.close().await.unwrap();
        assert!(consumer.halted().is_empty() && !consumer.resume_key("0"));
        bench.eventually_ready(&bench.queue, 4).await;
        fails.mend();
        let again = start().await;
        settled(&again, 4).await;
        assert_eq!(fails.log.numbers("0"), [0, 1, 2, 2, 3, 4, 5]);
        bench.mq.close().await.unwrap();
    }

    // promise: OR-2
    async fn a_message_that_cannot_be_set_aside_is_not_overtaken(broker: Broker) {
        let bench = Bench::new(&broker).await;
        bench.mq.delete_queue(&bench.dead_letters()).await.unwrap();
        send_all(&bench.mq.publisher("", &*bench.queue), 1, 3).await;
        let fails = Fails::at("0:1");
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .concurrency(4)
            .declare(false)
            .ordered_by_header("x-key")
            .on_failure(OnFailure::skip())
            .start(fails.handler())
            .await
            .unwrap();
        eventually("the copy failed twice", SOON, async || consumer.counters().copies_failed == 2).await;
        assert_eq!(fails.log.numbers("0"), [0, 1]);
        bench.mq.declare_queue(&Queue::new(bench.dead_letters()).classic()).await.unwrap();
        settled(&consumer, 2).await;
        assert_eq!(fails.log.numbers("0"), [0, 1, 2]);
        assert_eq!((consumer.counters().dead_lettered, consumer.counters().returned), (1, 0));
        bench.mq.close().await.unwrap();
    }

    // promise: OR-4
    async fn closing_does_not_wait_for_the_next_attempt(broker: Broker) {
        let bench = Bench::new(&broker).await;
        send_all(&bench.mq.publisher("", &*bench.queue), 1, 3).await;
        let fails = Fails::at("0:0");
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .ordered_by_header("x-key")
            .on_failure(OnFailure::retry_in_place(5, Duration::from_secs(3_600)))
            .start(fails.handler())
            .await
            .unwrap();
        eventually("it has failed", SOON, async || consumer.counters().retried == 1).await;
        let begun = Instant::now();
        consumer.close().await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(15));
        bench.eventually_ready(&bench.queue, 3).await;
        let messages = bench.mq.peek(&*bench.queue).messages().await.unwrap();
        let left: Vec<_> = messages.iter().map(|message| &message.body()[..]).collect();
        assert_eq!(left, [b"\"0:0\"", b"\"0:1\"", b"\"0:2\""]);
        assert_eq!(messages[0].envelope().attempt(), 1);
        bench.mq.close().await.unwrap();
    }
}

// promise: OR-2
#[tokio::test]
async fn a_lost_connection_has_a_halted_key_tried_again() {
    let broker = MemoryBroker::new();
    let mq = acemq::connect(broker.url()).await.unwrap();
    mq.declare_queue(&Queue::new("orders").dead_letters()).await.unwrap();
    let publisher = mq.publisher::<String>("", "orders");
    send_all(&publisher, 1, 3).await;
    let fails = Fails::at("0:1");
    let consumer = mq.consumer::<String>("orders").ordered_by_header("x-key");
    let consumer = consumer.start(fails.handler()).await.unwrap();
    eventually("it halts", SOON, async || !consumer.halted().is_empty()).await;
    fails.mend();
    broker.drop_connections();
    settled(&consumer, 3).await;
    assert_eq!(fails.log.numbers("0"), [0, 1, 1, 2]);
    assert!(consumer.halted().is_empty());
    publisher.send(&payload("0", 3)).header("x-key", "0").await.unwrap();
    settled(&consumer, 4).await;
    mq.close().await.unwrap();
}
