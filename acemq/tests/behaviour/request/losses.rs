//! Reply queues and connections that are lost.

use std::{sync::Arc, time::Duration};

use acemq::{ConsumerState, ErrorKind};
use testkit::eventually;
use tokio::sync::Semaphore;

use crate::{
    consumer::{bench::SOON, recovering::Line},
    on_every_broker,
    request::bench::{Bench, gated},
};

on_every_broker! {
    async fn a_reply_queue_that_somebody_deleted_is_made_again(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let gate = Arc::new(Semaphore::new(0));
        let builder = bench.mq.consumer::<String>(&*bench.queue).concurrency(2);
        let responder = builder.respond(gated(&gate)).await.unwrap();
        let requester = bench.requester().await;
        let (requests, queue) = (bench.requests(&requester), requester.reply_queue());
        let request = "before".to_owned();
        let deleting = async {
            let consumer = responder.consumer();
            eventually("it runs", SOON, async || consumer.counters().in_flight == 1).await;
            bench.mq.delete_queue(&queue).await.unwrap();
            eventually("it is there again", SOON, async || {
                bench.mq.inspect_queue(&queue).await.unwrap().is_some_and(|q| q.consumers == 1)
            })
            .await;
            gate.add_permits(2);
        };
        // What was in flight finds its way, because the queue has its old name.
        let (reply, ()) = tokio::join!(requests.request(&request).into_future(), deleting);
        assert_eq!(reply.unwrap(), "BEFORE");
        assert_eq!(requests.request(&"after".to_owned()).await.unwrap(), "AFTER");
        assert_eq!(requester.reply_queue(), queue);
        bench.mq.close().await.unwrap();
    }

    async fn a_reply_that_went_with_its_queue_is_missed_and_the_timeout_says_why(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let requester = bench.requester().await;
        let (requests, queue) = (bench.requests(&requester), requester.reply_queue());
        let request = "lost".to_owned();
        let request = requests.request(&request).timeout(Duration::from_secs(1));
        let deleting = async {
            eventually("it is at the broker", SOON, async || bench.ready(&bench.queue).await == 1)
                .await;
            bench.mq.delete_queue(&queue).await.unwrap();
        };
        let (missed, ()) = tokio::join!(request.into_future(), deleting);
        let error = missed.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert!(error.to_string().contains("the reply queue was lost meanwhile"), "{error}");
        bench.mq.close().await.unwrap();
    }

    async fn a_requester_survives_a_lost_connection(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let gate = Arc::new(Semaphore::new(0));
        let builder = bench.mq.consumer::<String>(&*bench.queue).concurrency(4);
        let _responder = builder.respond(gated(&gate)).await.unwrap();
        let mut line = Line::to(&broker).await;
        let mq = acemq::connect(line.url()).await.unwrap();
        let requester = mq.requester().timeout(SOON).await.unwrap();
        let requests = bench.requests(&requester);
        // One that says when the connection is lost, and back.
        let other = broker.name("other");
        mq.declare_queue(&acemq::Queue::new(&*other)).await.unwrap();
        let witness = mq
            .consumer::<String>(&*other)
            .start(async |_: acemq::Message<String>| Ok(()))
            .await
            .unwrap();

        let request = "in flight".to_owned();
        let losing = async {
            eventually("it waits", SOON, async || requester.counters().in_flight == 1).await;
            let consumed = || async { bench.ready(&bench.queue).await == 0 };
            eventually("it was taken", SOON, async || consumed().await).await;
            let mut states = witness.states();
            line.cut(&mut states).await;
            let back = states.wait_for(|state| *state == ConsumerState::Receiving);
            tokio::time::timeout(SOON, back).await.unwrap().unwrap();
            gate.add_permits(100);
            // Whether or not the first one's reply found the queue, the next one's does.
            eventually("it is answered", SOON, async || {
                requests.request(&"after".to_owned()).await.is_ok_and(|reply| reply == "AFTER")
            })
            .await;
        };
        let first = requests.request(&request).timeout(Duration::from_secs(20));
        let (first, ()) = tokio::join!(first.into_future(), losing);
        match first {
            Ok(reply) => assert_eq!(reply, "IN FLIGHT"),
            Err(error) => {
                assert!(error.may_have_been_published(), "{error}");
                assert!(matches!(error.kind(), ErrorKind::Lost | ErrorKind::Timeout), "{error}");
            }
        }
        assert_eq!(requester.counters().in_flight, 0);
        mq.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn requests_wait_for_a_connection_that_is_away_and_say_that_nothing_was_sent(
        broker: Broker
    ) {
        // The memory broker is never away.
        if broker.memory.is_some() {
            return;
        }
        let bench = Bench::new(&broker).await;
        let _responder = bench.shouter().await;
        let mut proxy = testkit::Proxy::in_front_of(&broker.url).await;
        let mq = acemq::connect(proxy.url_for(&broker.url)).await.unwrap();
        let requester = mq.requester().timeout(SOON).await.unwrap();
        let requests = bench.requests(&requester);
        proxy.cut().await;
        // What is handed to a link that does not know yet that it is cut may have been sent.
        for mut states in [mq.consuming(), mq.publishing()] {
            while states.current() == acemq::ConnectionState::Connected {
                states.changed().await;
            }
        }
        let request = "r-1".to_owned();
        let error = requests.request(&request).timeout(Duration::from_millis(300)).await;
        let error = error.unwrap_err();
        assert_eq!((error.kind(), error.may_have_been_published()), (ErrorKind::Timeout, false));
        assert!(error.to_string().contains("it was not sent"), "{error}");

        let restoring = async { proxy.restore().await };
        let (reply, _) = tokio::join!(requests.request(&request).into_future(), restoring);
        assert_eq!(reply.unwrap(), "R-1");
        mq.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }
}
