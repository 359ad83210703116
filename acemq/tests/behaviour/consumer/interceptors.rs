//! Consume interceptors.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use acemq::{
    Client, ConsumeContext, ConsumeInterceptor, HandlerError, Message, RetryPolicy, Settlement,
};
use testkit::eventually;

use crate::{
    consumer::bench::{Bench, SOON, recorder},
    on_every_broker,
    support::Broker,
};

/// What was seen at which attempt.
type Log = Arc<Mutex<Vec<(u32, String)>>>;

/// Writes down what it sees.
struct Watcher {
    name: &'static str,
    order: i32,
    log: Log,
}

impl Watcher {
    fn note(&self, message: &ConsumeContext, what: &str) {
        let attempt = message.envelope.attempt();
        self.log.lock().unwrap().push((attempt, format!("{} {what}", self.name)));
    }
}

impl ConsumeInterceptor for Watcher {
    fn order(&self) -> i32 {
        self.order
    }

    fn before_handle(&self, message: &mut ConsumeContext) -> Result<(), HandlerError> {
        self.note(message, "before");
        Ok(())
    }

    fn after_handle(&self, message: &ConsumeContext, settlement: Settlement) {
        self.note(message, &format!("after {settlement:?}"));
    }

    fn on_error(&self, message: &ConsumeContext, error: &str) {
        self.note(message, error);
    }
}

/// Decides over a message by its type.
struct Judge;

impl ConsumeInterceptor for Judge {
    fn before_handle(&self, message: &mut ConsumeContext) -> Result<(), HandlerError> {
        match message.envelope.message_type() {
            "transient" if message.envelope.attempt() == 1 => Err(HandlerError::transient("later")),
            "fatal" => Err(HandlerError::fatal("never")),
            "panic" => panic!("an interceptor's own fault"),
            "marked" => {
                message.envelope = message.envelope.clone().with_header("x-mark", "seen").unwrap();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn after_handle(&self, _message: &ConsumeContext, _settlement: Settlement) {
        panic!("an interceptor's own fault");
    }
}

async fn connect(broker: &Broker, interceptor: impl ConsumeInterceptor) -> Client {
    acemq::connect(&*broker.url).intercept_consume(interceptor).await.unwrap()
}

on_every_broker! {
    async fn they_run_in_order_on_the_way_in_and_backwards_on_the_way_out(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let log = Log::default();
        let watcher = |name, order| Watcher { name, order, log: Arc::clone(&log) };
        let mq = acemq::connect(&*broker.url)
            .intercept_consume(watcher("c", 0))
            .intercept_consume(watcher("d", 0))
            .intercept_consume(watcher("b", -1))
            .intercept_consume(watcher("a", -5))
            .await
            .unwrap();
        let consumer = mq
            .consumer::<String>(&*bench.queue)
            .retry(RetryPolicy::fixed(2, Duration::from_millis(10)))
            .start(|message: Message<String>| async move {
                match message.attempt() {
                    1 => Err(HandlerError::transient("oops")),
                    _ => Ok(()),
                }
            })
            .await
            .unwrap();
        bench.send("o-1").await;
        eventually("it is handled", SOON, async || consumer.counters().acknowledged == 1).await;
        mq.close().await.unwrap();

        let log = log.lock().unwrap();
        // The second attempt may begin before the first one's original is settled.
        let seen = |attempt| -> Vec<&str> {
            log.iter().filter(|(at, _)| *at == attempt).map(|(_, what)| what.as_str()).collect()
        };
        let before = ["a before", "b before", "c before", "d before"];
        let on_error = ["d", "c", "b", "a"].map(|name| format!("{name} oops"));
        let after = |settlement| ["d", "c", "b", "a"].map(|n| format!("{n} after {settlement}"));
        let first = [before.map(str::to_owned), on_error, after("Retried")].concat();
        assert_eq!(seen(1), first);
        assert_eq!(seen(2), [before.map(str::to_owned), after("Acknowledged")].concat());
    }

    async fn a_changed_envelope_reaches_the_handler_and_the_dead_letter(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let mq = connect(&broker, Judge).await;
        let handler = |message: Message<String>| async move {
            assert_eq!(message.header("x-mark").unwrap().as_str(), Some("seen"));
            Err::<(), _>(HandlerError::fatal("no"))
        };
        let _consumer = mq.consumer::<String>(&*bench.queue).start(handler).await.unwrap();
        bench.mq.send_to_queue(&bench.queue, "o-1").message_type("marked").await.unwrap();
        let dead = bench.take(&bench.dead_letters()).await;
        assert_eq!(dead.envelope().error(), Some("the handler rejected it: no"));
        assert_eq!(dead.header("x-mark").unwrap().as_str(), Some("seen"));
        mq.close().await.unwrap();
    }

    async fn a_refusal_is_a_failure_and_a_panic_is_fatal(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let mq = connect(&broker, Judge).await;
        let (record, mut seen) = recorder::<String>();
        let consumer = mq
            .consumer::<String>(&*bench.queue)
            .retry(RetryPolicy::fixed(3, Duration::from_millis(10)))
            .start(record)
            .await
            .unwrap();
        for message_type in ["transient", "fatal", "panic"] {
            let sent = bench.mq.send_to_queue(&bench.queue, "o-1").message_type(message_type);
            sent.await.unwrap();
        }
        for _ in 0..2 {
            let dead = bench.take(&bench.dead_letters()).await;
            let expected = match dead.envelope().message_type() {
                "fatal" => "an interceptor refused it: never",
                _ => "an interceptor refused it: it panicked",
            };
            assert_eq!(dead.envelope().error(), Some(expected));
        }
        eventually("all are settled", SOON, async || {
            let counters = consumer.counters();
            (counters.acknowledged, counters.rejected, counters.retried) == (1, 2, 1)
        })
        .await;
        mq.close().await.unwrap();
        let handled = seen.recv().await.unwrap();
        assert_eq!((handled.envelope().message_type(), handled.attempt()), ("transient", 2));
        assert!(seen.try_recv().is_err(), "the handler saw a message that was refused");
    }
}
