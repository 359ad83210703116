//! Runs that failed somewhere on their way and are put back.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use testkit::eventually;

use super::{Bench, SOON, arrivals, shout};
use crate::{
    Client, HandlerError, Itinerary, Message,
    envelope::HeaderValue,
    on_every_broker,
    transport::{Delivery, Outgoing},
};

/// Puts a dead letter back as a replay does: to its queue, with its attempts counted anew.
async fn replay(mq: &Client, queue: &str, dead: Delivery) {
    let mut properties = dead.properties;
    properties.headers.remove("x-acemq-error");
    properties.headers.insert("x-acemq-attempt".to_owned(), 1.into());
    properties.headers.insert("acemq-replayed-from".to_owned(), format!("{queue}.dlq").into());
    properties.headers.insert("acemq-replay-count".to_owned(), 1.into());
    let message = Outgoing {
        exchange: String::new(),
        routing_key: queue.to_owned(),
        mandatory: true,
        properties,
        body: dead.body,
    };
    mq.publish(Arc::new(message)).await.unwrap();
}

on_every_broker! {
    // promise: PL-13
    async fn a_run_that_failed_at_the_second_step_goes_on_there_under_its_id(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b", "c"]).await;
        let (arrived, seen) = arrivals();
        let (works, runs) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let first = {
            let runs = Arc::clone(&runs);
            move |message: Message<String>| {
                runs.lock().unwrap().push("a".to_owned());
                shout(message)
            }
        };
        let second = {
            let (works, runs) = (Arc::clone(&works), Arc::clone(&runs));
            move |message: Message<String>| {
                let works = works.load(Ordering::SeqCst);
                let route = message.envelope().route().map(|route| route.run_id.clone());
                runs.lock().unwrap().push(format!("b {}", route.unwrap_or_default()));
                async move {
                    if works { Ok(Some(message.into_payload())) } else { Err(HandlerError::fatal("no")) }
                }
            }
        };
        let line = bench
            .mq
            .pipeline(&*bench.name)
            .step("a", first)
            .step("b", second)
            .last("c", arrived)
            .start()
            .await
            .unwrap();
        let run = line.send(&"o-1".to_owned()).await.unwrap().run_id;
        let (dead, _) = bench.take_dead("b").await;
        assert_eq!(dead.properties.headers["x-acemq-route-id"].as_str(), Some(&*run));

        works.store(true, Ordering::SeqCst);
        replay(&bench.mq, &bench.queue("b"), dead).await;
        eventually("it arrived", SOON, async || *seen.lock().unwrap() == ["O-1"]).await;
        let at_second = format!("b {run}");
        assert_eq!(*runs.lock().unwrap(), ["a", &*at_second, &*at_second]);
        line.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    // promise: PL-13
    async fn a_replayed_itinerary_goes_on_at_the_stop_that_failed(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b", "c", "end"]).await;
        bench.declare_elsewhere("c").await;
        let works = Arc::new(AtomicBool::new(false));
        let second = {
            let works = Arc::clone(&works);
            move |message: Message<String>| {
                let works = works.load(Ordering::SeqCst);
                async move { if works { shout(message).await } else { Err(HandlerError::fatal("no")) } }
            }
        };
        let (arrived, _) = arrivals();
        let line = bench
            .mq
            .pipeline(&*bench.name)
            .step("a", shout)
            .step("b", second)
            .last("end", arrived)
            .start()
            .await
            .unwrap();
        let mut slip = Itinerary::empty();
        for step in ["a", "b", "c"] {
            slip = slip.then(&*bench.name, step, step);
        }
        line.send(&"o-1".to_owned()).along(slip).await.unwrap();
        let (dead, _) = bench.take_dead("b").await;
        let HeaderValue::Text(slip) = &dead.properties.headers[Itinerary::HEADER] else {
            panic!("{dead:?}")
        };
        // It says how far it came.
        assert_eq!(Itinerary::parse(slip).unwrap().to_string(), "done: a, next: b -> c");

        works.store(true, Ordering::SeqCst);
        replay(&bench.mq, &bench.queue("b"), dead).await;
        let last = bench.take_at("c").await;
        let slip = last.properties.headers[Itinerary::HEADER].as_str().unwrap();
        assert_eq!(Itinerary::parse(slip).unwrap().to_string(), "done: a -> b, next: c");
        line.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }
}
