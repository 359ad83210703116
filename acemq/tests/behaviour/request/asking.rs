//! Asking, and what comes of it.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use acemq::{
    BoxError, ErrorKind, HandlerError, Message, PublishContext, PublishInterceptor, Queue,
    RetryPolicy, Text,
};
use futures_util::{
    FutureExt as _,
    future::{join_all, try_join_all},
};
use testkit::eventually;
use tokio::sync::Semaphore;

use crate::{
    consumer::bench::SOON,
    on_every_broker,
    request::bench::{Bench, VERY_LONG, gated, shout},
    support::Broker,
};

on_every_broker! {
    // promise: RR-1
    async fn every_request_is_answered_to_whoever_asked(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let responder = bench.shouter().await;
        let other_client = broker.client().await;
        let requesters =
            [bench.requester().await, bench.requester().await, other_client.requester().await.unwrap()];
        let asking = requesters.iter().enumerate().map(|(who, requester)| {
            let requests = bench.requests(requester);
            async move {
                try_join_all((0..200).map(async |number| {
                    let reply = requests.request(&format!("r-{who}-{number}")).await?;
                    assert_eq!(reply, format!("R-{who}-{number}"));
                    Ok::<_, acemq::Error>(())
                }))
                .await
                .unwrap();
            }
        });
        join_all(asking).await;
        for requester in &requesters {
            let counters = requester.counters();
            assert_eq!((counters.answered, counters.unmatched, counters.in_flight), (200, 0, 0));
        }
        assert_eq!(responder.counters().answered, 600);
        other_client.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn replies_find_their_requests_in_whatever_order_they_come(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let waiting = Arc::new(Mutex::new(Vec::new()));
        let handler = {
            let waiting = Arc::clone(&waiting);
            move |message: Message<String>| {
                let (let_go, gone) = tokio::sync::oneshot::channel::<()>();
                waiting.lock().unwrap().push(let_go);
                async move {
                    gone.await?;
                    shout(message).await
                }
            }
        };
        let builder = bench.mq.consumer::<String>(&*bench.queue).prefetch(50).concurrency(50);
        let _responder = builder.respond(handler).await.unwrap();
        let requester = bench.requester().await;
        let requests = bench.requests(&requester);
        let asking = try_join_all((0..50).map(async |number| {
            let reply = requests.request(&format!("r-{number}")).await?;
            assert_eq!(reply, format!("R-{number}"));
            Ok::<_, acemq::Error>(())
        }));
        let answering = async {
            eventually("all run", SOON, async || waiting.lock().unwrap().len() == 50).await;
            // The last one first.
            while let Some(let_go) = { waiting.lock().unwrap().pop() } {
                let_go.send(()).unwrap();
                tokio::task::yield_now().await;
            }
        };
        let (asked, ()) = tokio::join!(asking, answering);
        asked.unwrap();
        bench.mq.close().await.unwrap();
    }

    // promise: RR-1
    async fn a_timeout_says_that_the_work_may_have_happened_and_a_late_reply_is_counted(
        broker: Broker
    ) {
        let bench = Bench::new(&broker).await;
        let gate = Arc::new(Semaphore::new(0));
        let builder = bench.mq.consumer::<String>(&*bench.queue);
        let responder = builder.respond(gated(&gate)).await.unwrap();
        let requester = bench.requester().await;
        let requests = bench.requests(&requester);
        let payload = "r-1".to_owned();
        let request = requests.request(&payload).id("the-request");
        let error = request.timeout(Duration::from_millis(300)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(error.may_have_been_published() && error.is_transient());
        let text = error.to_string();
        assert!(text.contains("the-request") && text.contains("or done"), "{text}");

        gate.add_permits(1);
        eventually("the late reply is counted", SOON, async || {
            requester.counters().unmatched == 1
        })
        .await;
        let counters = requester.counters();
        assert_eq!((counters.timed_out, counters.answered, counters.in_flight), (1, 0, 0));
        assert_eq!(responder.counters().answered, 1);
        // Under the same id it may be sent again.
        gate.add_permits(1);
        let again = requests.request(&payload).id("the-request");
        assert_eq!(again.await.unwrap(), "R-1");
        bench.mq.close().await.unwrap();
    }

    // promise: RR-1
    async fn a_responder_s_failure_reaches_the_caller_at_once_in_its_own_words(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let handler = |message: Message<String>| {
            assert!(message.payload() != "panics at once", "no future");
            async move {
                match &**message.payload() {
                    "fatal" => Err(HandlerError::fatal("no such article")),
                    "transient" => Err(HandlerError::transient("the database is away")),
                    "panics" => panic!("out of range"),
                    _ => Ok("fine".to_owned()),
                }
            }
        };
        let builder = bench.mq.consumer::<String>(&*bench.queue);
        let responder = builder.respond(handler).await.unwrap();
        let requester = bench.requester().await;
        let requests = bench.requests(&requester);
        for (payload, reason) in [
            ("fatal", "no such article"),
            ("transient", "the database is away"),
            ("panics", "the handler panicked: out of range"),
            ("panics at once", "the handler panicked: no future"),
        ] {
            // It would wait for longer than the test runs.
            let error = requests.request(&payload.to_owned()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Responder, "{error}");
            assert!(!error.is_transient());
            let source = error.get_ref().unwrap().to_string();
            assert_eq!(source, reason);
            assert!(error.to_string().ends_with(&format!("the responder failed: {reason}")));
        }
        assert_eq!(requests.request(&"works".to_owned()).await.unwrap(), "fine");
        // Nothing is thrown away: each is where a person finds it.
        eventually("all are set aside", SOON, async || bench.ready(&bench.dead_letters()).await == 4)
            .await;
        assert_eq!((responder.counters().failed, responder.counters().answered), (4, 1));
        assert_eq!((requester.counters().failed, requester.counters().answered), (4, 1));
        bench.mq.close().await.unwrap();
    }

    async fn a_request_that_nobody_can_receive_fails_at_once(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let requester = bench.requester().await;
        let nobody = requester.to::<String, String>("", "nobody-responds-here");
        let error = nobody.request(&"r-1".to_owned()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unroutable);
        let nowhere = requester.to::<String, String>("no-such-exchange", "r");
        let error = nowhere.request(&"r-1".to_owned()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(requester.counters().in_flight, 0);
        bench.mq.close().await.unwrap();
    }

    async fn a_client_without_confirms_confirms_its_requests_all_the_same(broker: Broker) {
        let mq = acemq::connect(&*broker.url).without_confirms().await.unwrap();
        let requester = mq.requester().await.unwrap();
        let nobody = requester.to::<String, String>("", "nobody-responds-here");
        let error = nobody.request(&"r-1".to_owned()).timeout(VERY_LONG).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unroutable);
        mq.close().await.unwrap();
    }

    async fn payloads_that_do_not_fit_are_told_to_the_caller(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let _responder = bench.shouter().await;
        let requester = bench.requester().await;
        // The reply is no number.
        let number = requester.to::<String, u64>("", &*bench.queue);
        let error = number.request(&"r-1".to_owned()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Decode, "{error}");
        assert!(error.to_string().contains("its reply could not be read"), "{error}");
        // The request is no text.
        let list = requester.to::<Vec<u8>, String>("", &*bench.queue);
        let error = list.request(&vec![1, 2]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Responder, "{error}");
        assert!(error.to_string().contains("could not be decoded"), "{error}");
        // Neither is in the format that is read.
        let text = requester.to::<String, String>("", &*bench.queue).reply_codec(Text);
        let error = text.request(&"r-1".to_owned()).await.unwrap_err();
        assert!(error.to_string().contains("no codec here reads"), "{error}");

        let counters = requester.counters();
        assert_eq!((counters.failed, counters.answered, counters.in_flight), (3, 0, 0));
        bench.mq.close().await.unwrap();
    }

    async fn requests_and_replies_have_codecs_of_their_own(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let builder = bench.mq.consumer::<String>(&*bench.queue).codec(Text);
        let _responder = builder.respond_in(Text, shout).await.unwrap();
        let requester = bench.requester().await;
        let requests = bench.requests(&requester).codec(Text).reply_codec(Text);
        let reply = requests.request(&"r-1".to_owned()).message().await.unwrap();
        assert_eq!((&**reply.payload(), reply.content_type()), ("R-1", Some("text/plain")));
        bench.mq.close().await.unwrap();
    }

    async fn a_requester_that_is_closed_fails_all_that_wait_at_once(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let requester = bench.requester().await;
        let requests = bench.requests(&requester);
        let asking = join_all((0..50).map(|number| {
            let requests = requests.clone();
            async move { requests.request(&format!("r-{number}")).await }
        }));
        let closing = async {
            eventually("all are at the broker", SOON, async || {
                bench.ready(&bench.queue).await == 50
            })
            .await;
            requester.close().await.unwrap();
        };
        let (asked, ()) = tokio::join!(asking, closing);
        for error in asked {
            let error = error.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
            assert!(error.may_have_been_published(), "{error}");
        }
        let error = requests.request(&"r".to_owned()).await.unwrap_err();
        assert_eq!((error.kind(), error.may_have_been_published()), (ErrorKind::Closed, false));
        requester.close().await.unwrap();
        let queue = requester.reply_queue();
        assert_eq!(bench.mq.inspect_queue(&queue).await.unwrap(), None, "its queue is left");
        bench.mq.close().await.unwrap();
    }

    async fn closing_the_client_lets_a_handler_have_the_reply_that_it_waits_for(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let gate = Arc::new(Semaphore::new(0));
        let other_client = broker.client().await;
        let builder = other_client.consumer::<String>(&*bench.queue);
        let _responder = builder.respond(gated(&gate)).await.unwrap();

        let jobs = broker.name("jobs");
        bench.mq.declare_queue(&Queue::new(&*jobs)).await.unwrap();
        let requester = bench.requester().await;
        let requests = bench.requests(&requester);
        let consumer = bench
            .mq
            .consumer::<String>(&*jobs)
            .start(move |message: Message<String>| {
                let requests = requests.clone();
                async move {
                    requests.request(message.payload()).await?;
                    Ok(())
                }
            })
            .await
            .unwrap();
        bench.mq.send_to_queue(&jobs, "job").await.unwrap();
        eventually("it asks", SOON, async || requester.counters().in_flight == 1).await;
        let (closed, ()) = tokio::join!(bench.mq.close(), async { gate.add_permits(1) });
        closed.unwrap();
        assert_eq!(consumer.counters().acknowledged, 1);
        let error = requester.to::<String, String>("", "q").request(&"r".to_owned()).await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Closed);
        other_client.close().await.unwrap();
    }

    async fn a_request_that_is_given_up_at_any_await_leaves_nothing_behind(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let _responder = bench.shouter().await;
        let requester = bench.requester().await;
        let requests = bench.requests(&requester);
        let mut answered = 0;
        for polls in 0..60 {
            let payload = format!("r-{polls}");
            let mut request = Box::pin(requests.request(&payload).into_future());
            for _ in 0..polls {
                if (&mut request).now_or_never().is_some() {
                    answered += 1;
                    break;
                }
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
            drop(request);
            assert_eq!(requester.counters().in_flight, 0);
        }
        assert!(answered < 60, "none was given up");
        // All permits are there, and replies to nobody do no harm.
        let asked = try_join_all((0..1_500).map(|number| {
            let requests = requests.clone();
            async move { requests.request(&format!("r-{number}")).await }
        }));
        assert_eq!(asked.await.unwrap().len(), 1_500);
        bench.mq.close().await.unwrap();
    }

    async fn dropping_a_requester_gives_its_queue_up(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let requester = bench.requester().await;
        let (requests, queue) = (bench.requests(&requester), requester.reply_queue());
        drop(requester);
        assert!(bench.mq.inspect_queue(&queue).await.unwrap().is_some(), "requests keep it");
        drop(requests);
        eventually("it is gone", SOON, async || {
            bench.mq.inspect_queue(&queue).await.unwrap().is_none()
        })
        .await;
        bench.mq.close().await.unwrap();
    }

    async fn two_requests_under_one_id_do_not_wait_at_once(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let gate = Arc::new(Semaphore::new(0));
        let builder = bench.mq.consumer::<String>(&*bench.queue);
        let _responder = builder.respond(gated(&gate)).await.unwrap();
        let requester = bench.requester().await;
        let requests = bench.requests(&requester);
        let (one, two) = ("r-1".to_owned(), "r-2".to_owned());
        let first = requests.request(&one).id("same").into_future();
        let second = async {
            eventually("the first waits", SOON, async || requester.counters().in_flight == 1).await;
            let refused = requests.request(&two).id("same").await;
            gate.add_permits(1);
            refused.unwrap_err()
        };
        let (first, second) = tokio::join!(first, second);
        assert_eq!(first.unwrap(), "R-1");
        assert_eq!(second.kind(), ErrorKind::Conflict, "{second}");
        bench.mq.close().await.unwrap();
    }

    async fn ten_thousand_requests_are_in_flight_at_once_and_all_are_answered(broker: Broker) {
        const REQUESTS: usize = 10_000;
        let bench = Bench::new(&broker).await;
        let requester = bench.requester().await;
        let requests = bench.requests(&requester);
        let asking = try_join_all((0..REQUESTS).map(|number| {
            let requests = requests.clone();
            async move { requests.request(&format!("r-{number}")).await }
        }));
        let answering = async {
            eventually("all are in flight", SOON, async || {
                let waiting = requester.counters().in_flight == REQUESTS as u64;
                waiting && bench.ready(&bench.queue).await == REQUESTS as u64
            })
            .await;
            bench
                .mq
                .consumer::<String>(&*bench.queue)
                .prefetch(200)
                .concurrency(200)
                .respond(shout)
                .await
                .unwrap()
        };
        let (asked, responder) = tokio::join!(asking, answering);
        let wrong = asked.unwrap().into_iter().enumerate();
        let wrong = wrong.filter(|(number, reply)| *reply != format!("R-{number}"));
        assert_eq!(wrong.count(), 0);
        let counters = requester.counters();
        assert_eq!((counters.answered, counters.in_flight), (REQUESTS as u64, 0));
        assert_eq!(responder.counters().answered, REQUESTS as u64);
        bench.mq.close().await.unwrap();
    }

    async fn a_caller_waits_for_the_attempts_that_a_responder_s_policy_gives(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let runs = Arc::new(AtomicU64::new(0));
        let handler = {
            let runs = Arc::clone(&runs);
            move |message: Message<String>| {
                runs.fetch_add(1, Ordering::SeqCst);
                async move {
                    match (&**message.payload(), message.attempt()) {
                        ("never", _) | (_, 1) => Err(HandlerError::transient("not yet")),
                        _ => shout(message).await,
                    }
                }
            }
        };
        let policy = RetryPolicy::fixed(3, Duration::from_millis(20));
        let builder = bench.mq.consumer::<String>(&*bench.queue).retry(policy);
        let responder = builder.respond(handler).await.unwrap();
        let requester = bench.requester().await;
        let requests = bench.requests(&requester);
        assert_eq!(requests.request(&"r-1".to_owned()).await.unwrap(), "R-1");
        let error = requests.request(&"never".to_owned()).await.unwrap_err();
        assert!(error.to_string().ends_with("the responder failed: not yet"), "{error}");
        assert_eq!(runs.load(Ordering::SeqCst), 5);
        let counters = responder.counters();
        assert_eq!((counters.answered, counters.failed), (1, 1));
        bench.mq.close().await.unwrap();
    }
}

/// Says where each message was going, and to whom a reply.
struct Spy(Arc<Mutex<Vec<(String, bool)>>>);

impl PublishInterceptor for Spy {
    fn before_publish(&self, message: &mut PublishContext) -> Result<(), BoxError> {
        let asks = message.envelope.reply_to().is_some();
        self.0.lock().unwrap().push((message.routing_key.clone(), asks));
        Ok(())
    }
}

#[tokio::test]
async fn publish_interceptors_see_requests_and_no_replies() {
    let broker = Broker::memory();
    let seen = Arc::default();
    let connect = acemq::connect(&*broker.url).intercept_publish(Spy(Arc::clone(&seen)));
    let bench = Bench { queue: Bench::new(&broker).await.queue, mq: connect.await.unwrap() };
    let _responder = bench.shouter().await;
    let requester = bench.requester().await;
    bench.requests(&requester).request(&"r-1".to_owned()).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [(bench.queue.clone(), true)]);
    bench.mq.close().await.unwrap();
}

#[tokio::test]
async fn a_requester_without_any_time_and_one_of_a_closed_client_are_refused() {
    let bench = Bench::new(&Broker::memory()).await;
    let error = bench.mq.requester().timeout(Duration::ZERO).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    bench.mq.close().await.unwrap();
    assert_eq!(bench.mq.requester().await.unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test(start_paused = true)]
async fn the_timeout_is_thirty_seconds_unless_said_otherwise() {
    let bench = Bench::new(&Broker::memory()).await;
    let requester = bench.mq.requester().await.unwrap();
    let begun = tokio::time::Instant::now();
    let error = bench.requests(&requester).request(&"r-1".to_owned()).await.unwrap_err();
    assert_eq!((error.kind(), begun.elapsed().as_secs()), (ErrorKind::Timeout, 30));
    bench.mq.close().await.unwrap();
}
