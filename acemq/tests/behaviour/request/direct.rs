//! Replies without a queue.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use acemq::{ErrorKind, HandlerError, Message, RetryPolicy};
use futures_util::future::{join_all, try_join_all};
use testkit::{Proxy, eventually};
use tokio::sync::Semaphore;

use crate::{
    consumer::bench::{self as consuming, SOON},
    request::bench::{Bench, VERY_LONG, gated, shout},
    support::Broker,
};

/// Runs a body on every RabbitMQ there is.
async fn on_rabbitmq<F: Future<Output = ()>>(body: impl Fn(Broker) -> F) {
    for (_, url) in testkit::brokers() {
        let broker = Broker::rabbitmq(Some(url)).unwrap();
        broker.run(&body).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_come_without_a_queue_and_the_header_is_not_written() {
    on_rabbitmq(async |broker| {
        let bench = Bench::new(&broker).await;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let handler = {
            let seen = Arc::clone(&seen);
            move |message: Message<String>| {
                let address = message.envelope().reply_to().unwrap().to_owned();
                let header = message.header("acemq-reply-to").is_some();
                seen.lock().unwrap().push((address, header));
                async move {
                    match (&**message.payload(), message.attempt()) {
                        ("again", 1) => Err(HandlerError::transient("not yet")),
                        ("fails", _) => Err(HandlerError::fatal("no such article")),
                        ("large", _) => Ok("a".repeat(300_000)),
                        _ => shout(message).await,
                    }
                }
            }
        };
        let policy = RetryPolicy::fixed(2, Duration::from_millis(10));
        let builder = bench.mq.consumer::<String>(&*bench.queue).retry(policy).concurrency(8);
        let responder = builder.respond(handler).await.unwrap();
        let starting = bench.mq.requester().timeout(VERY_LONG).direct_reply_to();
        let requester = starting.await.unwrap();
        let requests = bench.requests(&requester);

        // Among messages that are returned on the same channel.
        let asking = try_join_all((0..200).map(async |number| {
            let unroutable = bench.mq.send_to_queue("nobody-is-here", "m").await.unwrap_err();
            assert_eq!(unroutable.kind(), ErrorKind::Unroutable);
            let reply = requests.request(&format!("r-{number}")).await?;
            assert_eq!(reply, format!("R-{number}"));
            Ok::<_, acemq::Error>(())
        }));
        asking.await.unwrap();
        assert_eq!(requests.request(&"large".to_owned()).await.unwrap().len(), 300_000);
        // Its address stays with its retry.
        assert_eq!(requests.request(&"again".to_owned()).await.unwrap(), "AGAIN");
        let error = requests.request(&"fails".to_owned()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Responder);

        for (address, header) in &*seen.lock().unwrap() {
            assert!(address.starts_with("amq.rabbitmq.reply-to."), "{address}");
            assert!(!header);
        }
        let counters = requester.counters();
        assert_eq!((counters.answered, counters.unmatched, counters.in_flight), (202, 0, 0));
        assert_eq!((responder.counters().answered, responder.counters().undelivered), (202, 0));
        bench.mq.close().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_has_one_requester_without_a_queue_at_a_time() {
    on_rabbitmq(async |broker| {
        let bench = Bench::new(&broker).await;
        let _responder = bench.shouter().await;
        let first = bench.mq.requester().direct_reply_to().await.unwrap();
        let error = bench.mq.requester().direct_reply_to().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        first.close().await.unwrap();
        let second = bench.mq.requester().direct_reply_to().await.unwrap();
        // One with a queue beside it.
        let other = bench.requester().await;
        for requester in [&second, &other] {
            let requests = bench.requests(requester);
            assert_eq!(requests.request(&"r-1".to_owned()).await.unwrap(), "R-1");
        }
        bench.mq.close().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_fails_what_is_in_flight_at_once_and_the_next_request_is_answered() {
    on_rabbitmq(async |broker| {
        let bench = Bench::new(&broker).await;
        let gate = Arc::new(Semaphore::new(0));
        let builder = bench.mq.consumer::<String>(&*bench.queue).concurrency(4);
        let _responder = builder.respond(gated(&gate)).await.unwrap();
        let mut proxy = Proxy::in_front_of(&broker.url).await;
        let mq = acemq::connect(proxy.url_for(&broker.url)).await.unwrap();
        let requester = mq.requester().timeout(VERY_LONG).direct_reply_to().await.unwrap();
        let requests = bench.requests(&requester);
        let asking = join_all((0..4).map(|number| {
            let requests = requests.clone();
            async move { requests.request(&format!("r-{number}")).await }
        }));
        let cutting = async {
            eventually("all wait", SOON, async || requester.counters().in_flight == 4).await;
            eventually("all run", SOON, async || bench.ready(&bench.queue).await == 0).await;
            proxy.cut().await;
        };
        let (asked, ()) = tokio::join!(asking, cutting);
        for error in asked {
            let error = error.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
            assert!(error.may_have_been_published(), "{error}");
        }
        proxy.restore().await;
        gate.add_permits(100);
        let after = requests.request(&"after".to_owned()).timeout(SOON).await;
        assert_eq!(after.unwrap(), "AFTER");
        mq.close().await.unwrap();
        bench.mq.close().await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_to_nobody_without_a_queue_is_not_noticed_and_its_request_is_done_with() {
    on_rabbitmq(async |broker| {
        let bench = Bench::new(&broker).await;
        let (gate, runs) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicU64::new(0)));
        let handler = {
            let (gate, runs) = (Arc::clone(&gate), Arc::clone(&runs));
            move |message: Message<String>| {
                runs.fetch_add(1, Ordering::SeqCst);
                let gate = Arc::clone(&gate);
                async move {
                    gate.acquire().await?.forget();
                    shout(message).await
                }
            }
        };
        let builder = bench.mq.consumer::<String>(&*bench.queue);
        let responder = builder.respond(handler).await.unwrap();
        let other_client = broker.client().await;
        let requester = other_client.requester().direct_reply_to().await.unwrap();
        let requests = bench.requests(&requester);
        let request = "r-1".to_owned();
        let closing = async {
            eventually("it runs", SOON, async || runs.load(Ordering::SeqCst) == 1).await;
            requester.close().await.unwrap();
            other_client.close().await.unwrap();
            gate.add_permits(1);
        };
        let (asked, ()) = tokio::join!(requests.request(&request).into_future(), closing);
        assert_eq!(asked.unwrap_err().kind(), ErrorKind::Closed);
        consuming::settled(responder.consumer(), 1).await;
        assert_eq!(bench.ready(&bench.dead_letters()).await, 0);
        bench.mq.close().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn the_memory_broker_has_no_direct_reply_to_and_says_so() {
    let bench = Bench::new(&Broker::memory()).await;
    let error = bench.mq.requester().direct_reply_to().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    bench.mq.close().await.unwrap();
}
