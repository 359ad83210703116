//! How a scheduler is set up.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use acemq::{
    BoxError, ErrorKind, PublishContext, PublishInterceptor, Queue, Receipt, testing::MemoryBroker,
};

use crate::{
    on_every_broker,
    scheduler::bench::{Arrivals, Bench, DUE, MOMENT},
    support::Broker,
};

on_every_broker! {
    async fn one_that_moves_nothing_schedules_and_leaves_the_rest_to_others(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let mut arrivals = bench.receive().await;
        let other = broker.client().await;
        let scheduler = other.scheduler().moves(false).await.unwrap();
        assert!(scheduler.consumer().is_none());
        scheduler.after(MOMENT, "", &*bench.queue, "o-1").await.unwrap();
        assert_eq!(arrivals.next().await.payload(), "o-1");
        let counters = scheduler.counters();
        assert_eq!((counters.scheduled, counters.delivered, counters.hops), (1, 0, 0));
        scheduler.close().await.unwrap();
        other.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn what_others_have_declared_is_used_where_it_may_not_declare(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let mut arrivals = bench.receive().await;
        let other = broker.client().await;
        for moves in [true, false] {
            let scheduler = other.scheduler().declare(false).moves(moves).await.unwrap();
            scheduler.after(MOMENT, "", &*bench.queue, "o-1").await.unwrap();
            assert_eq!(arrivals.next().await.payload(), "o-1");
        }
        other.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_scheduler_declares_its_queues_unless_it_is_not_to() {
    let broker = MemoryBroker::new();
    let mq = acemq::connect(broker.url()).await.unwrap();
    let names = || broker.queues().into_iter().map(|queue| queue.name).collect::<Vec<_>>();
    let error = mq.scheduler().declare(false).await.unwrap_err();
    assert_eq!((error.kind(), error.queue()), (ErrorKind::NotFound, Some(DUE)));
    let scheduling = mq.scheduler().declare(false).moves(false).await.unwrap();
    assert!(names().is_empty());
    let error = scheduling.after(MOMENT, "", "orders", &1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(names().is_empty());

    drop(mq.scheduler().moves(false).await.unwrap());
    let ladder =
        ["10m", "10s", "1h", "1m", "1s", "due"].map(|rung| format!("acemq.schedule.{rung}"));
    assert_eq!(names(), ladder);
    scheduling.after(MOMENT, "", "orders", &1).await.unwrap();
    mq.scheduler().await.unwrap().close().await.unwrap();
    let [.., due] = &ladder;
    let set_aside = [".dlq", ".parked"].map(|suffix| format!("{due}{suffix}"));
    assert_eq!(names(), [&ladder[..], &set_aside[..]].concat());
    mq.close().await.unwrap();
}

#[tokio::test]
async fn a_waiting_queue_in_another_form_and_a_prefetch_of_nothing_are_refused() {
    let broker = MemoryBroker::new();
    let mq = acemq::connect(broker.url()).await.unwrap();
    let other = Queue::new("acemq.schedule.1m").classic().message_ttl(Duration::from_secs(61));
    mq.declare_queue(&other).await.unwrap();
    for moves in [true, false] {
        let error = mq.scheduler().moves(moves).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.to_string().contains("acemq.schedule.1m"), "{error}");
    }
    mq.delete_queue("acemq.schedule.1m").await.unwrap();
    let error = mq.scheduler().prefetch(0).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    mq.close().await.unwrap();
}

/// Writes down what it sees, and puts a header on.
struct Stamp(Arc<Mutex<Vec<String>>>);

impl PublishInterceptor for Stamp {
    fn before_publish(&self, message: &mut PublishContext) -> Result<(), BoxError> {
        let PublishContext { exchange, routing_key, envelope, .. } = message;
        let seen = format!("{exchange}/{routing_key}/{}", envelope.message_type());
        self.0.lock().unwrap().push(seen);
        message.envelope = message.envelope.clone().with_header("x-stamp", "seen")?;
        Ok(())
    }

    fn after_confirm(&self, message: &PublishContext, _: &Receipt) {
        self.0.lock().unwrap().push(format!("{} is safe", message.envelope.message_type()));
    }
}

#[tokio::test]
async fn a_publish_interceptor_sees_a_message_once_when_it_is_scheduled() {
    let broker = Broker::memory();
    let bench = Bench::new(&broker).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mq = acemq::connect(&*broker.url)
        .intercept_publish(Stamp(Arc::clone(&seen)))
        .without_confirms()
        .await
        .unwrap();
    // This one moves it as well.
    bench.scheduler.close().await.unwrap();
    let scheduler = mq.scheduler().await.unwrap();
    let mut arrivals = Arrivals::at(&bench.mq, &bench.queue).await;
    let receipt =
        scheduler.after(MOMENT, "", &*bench.queue, "o-1").message_type("t").await.unwrap();
    assert!(receipt.confirmed, "whatever the client does otherwise");
    let message = arrivals.next().await;
    assert_eq!(message.header("x-stamp"), Some(&"seen".into()));
    let expected = [format!("/{}/t", bench.queue), "t is safe".to_owned()];
    assert_eq!(*seen.lock().unwrap(), expected);
    mq.close().await.unwrap();
    bench.mq.close().await.unwrap();
}
