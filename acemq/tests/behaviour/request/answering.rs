//! Answering: replies that arrive, and replies that do not.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use acemq::{ErrorKind, HandlerError, MemoryIdempotencyStore, Message, Queue, RetryPolicy};
use testkit::eventually;
use tokio::sync::Semaphore;

use crate::{
    consumer::bench::{self as consuming, SOON},
    on_every_broker,
    request::bench::{Bench, VERY_LONG, gated, shout},
    support::Broker,
};

/// A handler that counts how often it runs.
fn counting(
    runs: &Arc<AtomicU64>,
) -> impl Fn(Message<String>) -> std::future::Ready<Result<String, HandlerError>> + Send + Sync + 'static
{
    let runs = Arc::clone(runs);
    move |message| {
        runs.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok(message.payload().to_uppercase()))
    }
}

/// The reason on the one message that is in the dead-letter queue.
async fn reason(bench: &Bench) -> String {
    eventually("it is set aside", SOON, async || bench.ready(&bench.dead_letters()).await == 1)
        .await;
    let taking = consuming::Bench { mq: bench.mq.clone(), queue: bench.queue.clone() };
    let message = taking.take(&bench.dead_letters()).await;
    message.envelope().error().unwrap().to_owned()
}

on_every_broker! {
    async fn a_responder_that_closes_finishes_and_answers_what_it_began(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let gate = Arc::new(Semaphore::new(0));
        let other_client = broker.client().await;
        let builder = other_client.consumer::<String>(&*bench.queue).concurrency(2);
        let responder = builder.respond(gated(&gate)).await.unwrap();
        let requester = bench.requester().await;
        let requests = bench.requests(&requester);
        let payloads: Vec<_> = (0..5).map(|number| format!("r-{number}")).collect();
        let mut asking: Vec<_> = payloads.iter().map(|r| requests.request(r).into_future()).collect();
        let closing = async {
            let counters = || responder.consumer().counters();
            eventually("two run", SOON, async || counters().in_flight == 2).await;
            let finish = async {
                eventually("the rest is back", SOON, async || bench.ready(&bench.queue).await == 3)
                    .await;
                gate.add_permits(2);
            };
            let (closed, ()) = tokio::join!(responder.close(), finish);
            closed.unwrap();
            assert_eq!(responder.counters().answered, 2);
            bench.shouter().await
        };
        let (replies, _successor) =
            tokio::join!(futures_util::future::try_join_all(asking.drain(..)), closing);
        assert_eq!(replies.unwrap(), ["R-0", "R-1", "R-2", "R-3", "R-4"]);
        other_client.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn a_request_without_a_reply_address_is_set_aside_and_not_handled(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let runs = Arc::default();
        let builder = bench.mq.consumer::<String>(&*bench.queue);
        let responder = builder.respond(counting(&runs)).await.unwrap();
        bench.mq.publisher("", &*bench.queue).send(&"r-1".to_owned()).id("no-address").await.unwrap();
        assert_eq!(
            reason(&bench).await,
            "request no-address carries neither the acemq-reply-to header nor a reply-to property, \
             so there is nowhere to reply"
        );
        assert_eq!((responder.counters().unanswerable, runs.load(Ordering::SeqCst)), (1, 0));
        assert_eq!(responder.counters().failed, 0);
        bench.mq.close().await.unwrap();
    }

    async fn a_request_whose_reply_queue_is_gone_is_kept_and_not_handled_twice(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let runs = Arc::default();
        let policy = RetryPolicy::fixed(5, Duration::from_millis(10));
        let builder = bench.mq.consumer::<String>(&*bench.queue).retry(policy);
        let responder = builder.respond(counting(&runs)).await.unwrap();
        let publisher = bench.mq.publisher::<String>("", &*bench.queue);
        publisher.send(&"r-1".to_owned()).reply_to("nobody-waits-here").await.unwrap();
        let reason = reason(&bench).await;
        assert!(reason.starts_with("its reply reached no queue: "), "{reason}");
        assert!(reason.contains("nobody-waits-here"), "{reason}");
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        let counters = responder.counters();
        assert_eq!((counters.undelivered, counters.answered, counters.failed), (1, 0, 0));
        bench.mq.close().await.unwrap();
    }

    async fn a_reply_address_that_can_not_be_written_sets_its_request_aside(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let responder = bench.shouter().await;
        let requester = bench.requester().await;
        let publisher = bench.mq.publisher::<String>("", &*bench.queue);
        // As a header, since the property would not hold it.
        let payload = "r-1".to_owned();
        let request = publisher.send(&payload).header("acemq-reply-to", "q".repeat(300));
        request.await.unwrap();
        let reason = reason(&bench).await;
        assert!(reason.starts_with("its reply could not be sent: "), "{reason}");
        assert_eq!(responder.counters().answered, 0);
        assert_eq!(bench.requests(&requester).request(&"r-2".to_owned()).await.unwrap(), "R-2");
        bench.mq.close().await.unwrap();
    }

    async fn a_handler_that_runs_too_long_and_a_reply_that_is_too_large_are_told(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let mq = acemq::connect(&*broker.url).largest_body(1_000).await.unwrap();
        let handler = |message: Message<String>| async move {
            if message.payload() == "slow" {
                tokio::time::sleep(VERY_LONG).await;
            }
            Ok("a".repeat(2_000))
        };
        let builder = mq.consumer::<String>(&*bench.queue);
        let builder = builder.handler_timeout(Duration::from_millis(50));
        let responder = builder.respond(handler).await.unwrap();
        let requester = bench.requester().await;
        let requests = bench.requests(&requester);
        let error = requests.request(&"slow".to_owned()).await.unwrap_err();
        assert!(error.to_string().contains("the handler ran longer than 50ms"), "{error}");
        let error = requests.request(&"large".to_owned()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Responder);
        assert!(error.to_string().contains("its reply could not be sent"), "{error}");
        assert_eq!((responder.counters().failed, responder.counters().answered), (2, 0));
        mq.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn an_idempotent_responder_answers_a_request_once(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let runs = Arc::default();
        let builder = bench.mq.consumer::<String>(&*bench.queue);
        let builder = builder.idempotent(MemoryIdempotencyStore::new());
        let responder = builder.respond(counting(&runs)).await.unwrap();
        let replies = broker.name("replies");
        bench.mq.declare_queue(&Queue::new(&*replies)).await.unwrap();
        let publisher = bench.mq.publisher::<String>("", &*bench.queue);
        for _ in 0..2 {
            publisher.send(&"r-1".to_owned()).id("once").reply_to(&*replies).await.unwrap();
        }
        let consumer = responder.consumer();
        consuming::settled(consumer, 2).await;
        assert_eq!((consumer.counters().duplicates, responder.counters().answered), (1, 1));
        assert_eq!((bench.ready(&replies).await, runs.load(Ordering::SeqCst)), (1, 1));
        bench.mq.close().await.unwrap();
    }

    async fn a_responder_s_reason_is_cut_to_what_a_person_reads(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let handler =
            |_: Message<String>| async { Err::<(), _>(HandlerError::fatal("é".repeat(200_000))) };
        let _responder = bench.mq.consumer::<String>(&*bench.queue).respond(handler).await.unwrap();
        let requester = bench.requester().await;
        let error = bench.requests(&requester).request(&"r-1".to_owned()).await.unwrap_err();
        let source = error.get_ref().unwrap().to_string();
        assert_eq!(source, "é".repeat(1_000));
        bench.mq.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_broker_is_away_a_reply_is_held_and_its_handler_not_run_again() {
    let broker = Broker::memory();
    let memory = broker.memory.clone().unwrap();
    let mq = acemq::connect(&*broker.url)
        .blocked_timeout(Duration::from_millis(10))
        .confirm_timeout(Duration::from_millis(10))
        .await
        .unwrap();
    let bench = Bench { queue: Bench::new(&broker).await.queue, mq };
    let (runs, gate) = (Arc::new(AtomicU64::new(0)), Arc::new(Semaphore::new(0)));
    let handler = {
        let (runs, gate) = (Arc::clone(&runs), Arc::clone(&gate));
        move |message: Message<String>| {
            runs.fetch_add(1, Ordering::SeqCst);
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await?.forget();
                shout(message).await
            }
        }
    };
    let responder = bench.mq.consumer::<String>(&*bench.queue).respond(handler).await.unwrap();
    let requester = bench.requester().await;
    let requests = bench.requests(&requester);
    let outage = async {
        eventually("it runs", SOON, async || runs.load(Ordering::SeqCst) == 1).await;
        memory.block("low on memory");
        gate.add_permits(1);
        // Many attempts at sending the reply.
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!((runs.load(Ordering::SeqCst), responder.counters().undelivered), (1, 0));
        memory.unblock();
    };
    let request = "r-1".to_owned();
    let (reply, ()) = tokio::join!(requests.request(&request).into_future(), outage);
    assert_eq!(reply.unwrap(), "R-1");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    consuming::settled(responder.consumer(), 1).await;
    assert_eq!(responder.counters().answered, 1);
    bench.mq.close().await.unwrap();
}
