//! What goes on around messages that wait: restarts, closings, lost connections, several schedulers.

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use acemq::{Client, ErrorKind, Scheduler};
use testkit::{BrokerOptions, BrokerVersion, OwnBroker, eventually};
use tokio::time::timeout;

use crate::{
    consumer::{bench::SOON, recovering::Line},
    on_every_broker,
    scheduler::bench::{Arrivals, Bench, DUE, MOMENT},
    support::Broker,
};

const MANY: usize = 300;

/// Has many messages fall due at about the same time.
async fn schedule_many(bench: &Bench) {
    let scheduling = (0..MANY).map(|number| async move {
        bench.after(2 * MOMENT, &number.to_string()).await;
    });
    futures_util::future::join_all(scheduling).await;
}

/// Waits until all of them have arrived, and says how many came twice.
async fn all_arrive(arrivals: &mut Arrivals, mut seen: HashSet<String>) -> usize {
    let mut twice = 0;
    while seen.len() < MANY {
        twice += usize::from(!seen.insert(arrivals.next().await.into_payload()));
    }
    twice
}

async fn some_arrive(arrivals: &mut Arrivals) -> HashSet<String> {
    let mut seen = HashSet::new();
    while seen.len() < MANY / 10 {
        seen.insert(arrivals.next().await.into_payload());
    }
    seen
}

/// Waits until a scheduler has nothing in hand.
async fn at_rest(scheduler: &Scheduler) {
    let mover = scheduler.consumer().unwrap();
    eventually("it has nothing in hand", SOON, async || mover.counters().in_flight == 0).await;
}

on_every_broker! {
    // promise: SC-6
    async fn of_several_schedulers_one_may_close_in_the_middle_and_nothing_is_lost(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let other = broker.client().await;
        let second = other.scheduler().prefetch(10).await.unwrap();
        let mut arrivals = bench.receive().await;
        schedule_many(&bench).await;
        let seen = some_arrive(&mut arrivals).await;
        second.close().await.unwrap();
        let twice = all_arrive(&mut arrivals, seen).await;
        at_rest(&bench.scheduler).await;
        // On a shared broker others move them, too, and may end in any way.
        if broker.memory.is_some() {
            let (first, second) = (bench.scheduler.counters(), second.counters());
            assert_eq!(first.delivered + second.delivered, MANY as u64);
            assert_eq!((twice, arrivals.rest()), (0, Vec::new()));
        }
        other.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    // promise: SC-6
    async fn a_scheduler_that_is_dropped_in_the_middle_loses_nothing(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let mut arrivals = bench.receive().await;
        let other = broker.client().await;
        let second = other.scheduler().await.unwrap();
        schedule_many(&bench).await;
        let seen = some_arrive(&mut arrivals).await;
        drop(second);
        all_arrive(&mut arrivals, seen).await;
        other.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    // promise: SC-6
    async fn a_lost_connection_in_the_middle_loses_nothing(broker: Broker) {
        let bench = Bench::new(&broker).await;
        // What is moved is moved by way of the line that is cut.
        bench.scheduler.close().await.unwrap();
        let mut line = Line::to(&broker).await;
        let mq = acemq::connect(line.url()).await.unwrap();
        let scheduler = mq.scheduler().await.unwrap();
        let scheduling = broker.client().await;
        let mut arrivals = Arrivals::at(&scheduling, &bench.queue).await;
        let bench = Bench {
            scheduler: scheduling.scheduler().moves(false).await.unwrap(),
            mq: scheduling,
            queue: bench.queue,
        };
        schedule_many(&bench).await;
        let seen = some_arrive(&mut arrivals).await;
        line.cut(&mut scheduler.consumer().unwrap().states()).await;
        all_arrive(&mut arrivals, seen).await;
        // It goes on.
        let before = scheduler.counters();
        bench.after(MOMENT, "afterwards").await;
        while arrivals.next().await.payload() != "afterwards" {}
        if broker.memory.is_some() {
            eventually("it has moved it", SOON, async || {
                scheduler.counters().delivered > before.delivered
            })
            .await;
        }
        mq.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }
}

async fn survives_a_restart(version: BrokerVersion) {
    let bounded = timeout(Duration::from_secs(180), restarted(version));
    bounded.await.expect("it did not arrive");
}

async fn restarted(version: BrokerVersion) {
    let options = BrokerOptions { version, ..BrokerOptions::default() };
    let Some(mut server) = OwnBroker::start_with(options).await else { return };
    let broker = Broker::rabbitmq(Some(server.url())).unwrap();
    let bench = Bench::new(&broker).await;
    let mut arrivals = bench.receive().await;
    let (begun, wait) = (Instant::now(), Duration::from_secs(12));
    bench.after(wait, "soon").await;
    bench.after(Duration::from_secs(86_400), "tomorrow").await;

    server.restart().await;
    assert_eq!(arrivals.whenever().await.payload(), "soon");
    assert!(begun.elapsed() >= wait - Duration::from_secs(1), "after {:?}", begun.elapsed());
    assert_eq!(bench.ready("acemq.schedule.1h").await, 1);

    // Also one that comes out of the ladder while no scheduler is there.
    bench.scheduler.close().await.unwrap();
    let scheduling = bench.mq.scheduler().moves(false).await.unwrap();
    scheduling.after(MOMENT, "", &*bench.queue, "unmoved").await.unwrap();
    eventually("it is due", SOON, async || bench.ready(DUE).await >= 1).await;
    server.restart().await;
    let scheduler = again(&bench.mq).await;
    assert_eq!(arrivals.whenever().await.payload(), "unmoved");
    assert_eq!(bench.ready("acemq.schedule.1h").await, 1);
    scheduler.close().await.unwrap();
    bench.mq.close().await.unwrap();
}

/// A scheduler as soon as the connections are back.
async fn again(mq: &Client) -> Scheduler {
    let deadline = Instant::now() + 2 * SOON;
    loop {
        match mq.scheduler().await {
            Ok(scheduler) => return scheduler,
            Err(error) => assert!(error.is_transient() && Instant::now() < deadline, "{error}"),
        }
    }
}

// promise: SC-6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_rabbitmq_3_what_waits_survives_a_restart_and_is_not_delivered_early() {
    survives_a_restart(BrokerVersion::V3).await;
}

// promise: SC-6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_rabbitmq_4_what_waits_survives_a_restart_and_is_not_delivered_early() {
    survives_a_restart(BrokerVersion::V4).await;
}

// promise: SC-6
#[tokio::test(start_paused = true)]
async fn in_memory_what_waits_survives_a_restart_of_the_broker_and_of_its_scheduler() {
    let broker = Broker::memory();
    let bench = Bench::new(&broker).await;
    let day = Duration::from_secs(86_400);
    let begun = tokio::time::Instant::now();
    bench.after(day, "tomorrow").await;
    bench.scheduler.close().await.unwrap();
    tokio::time::sleep(day / 3).await;
    broker.memory.as_ref().unwrap().restart();
    tokio::time::sleep(day / 3).await;
    let _scheduler = again(&bench.mq).await;
    let mut arrivals = bench.receive().await;
    assert_eq!(arrivals.whenever().await.payload(), "tomorrow");
    let after = begun.elapsed();
    assert!(
        after + Duration::from_secs(1) >= day && after <= day + Duration::from_secs(1),
        "{after:?}"
    );
    bench.mq.close().await.unwrap();
}

#[tokio::test]
async fn queues_that_somebody_has_deleted_are_made_again() {
    let broker = Broker::memory();
    let bench = Bench::new(&broker).await;
    let mut arrivals = bench.receive().await;
    let mut states = bench.scheduler.consumer().unwrap().states();
    states.mark_unchanged();
    bench.mq.delete_queue(DUE).await.unwrap();
    states.changed().await.unwrap();
    bench.mq.delete_queue("acemq.schedule.1s").await.unwrap();
    bench.mq.delete_exchange("acemq.schedule").await.unwrap();
    bench.after(MOMENT, "o-1").await;
    assert_eq!(arrivals.next().await.payload(), "o-1");

    // One that a message has to go on to.
    bench.mq.delete_queue("acemq.schedule.1s").await.unwrap();
    let stranger = bench.mq.send_to_queue(DUE, "o-2");
    stranger
        .header("x-schedule-exchange", "")
        .header("x-schedule-routing-key", &*bench.queue)
        .header("x-schedule-due-at", millis(Duration::from_millis(1_900)))
        .await
        .unwrap();
    assert_eq!(arrivals.next().await.payload(), "o-2");
    bench.mq.close().await.unwrap();
}

/// The time in so long, in milliseconds since 1970.
fn millis(ahead: Duration) -> i64 {
    let due = std::time::SystemTime::now() + ahead;
    let since = due.duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

#[tokio::test]
async fn a_scheduler_that_is_closed_schedules_nothing_more_and_leaves_what_waits() {
    let broker = Broker::memory();
    let bench = Bench::new(&broker).await;
    let clone = bench.scheduler.clone();
    let to = bench.scheduler.to::<String>("", &*bench.queue);
    bench.after(MOMENT, "o-1").await;
    clone.close().await.unwrap();
    clone.close().await.unwrap();
    let error = bench.scheduler.after(MOMENT, "", &*bench.queue, "o-2").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert!(error.to_string().contains("the scheduler is closed"), "{error}");
    let error = to.after(Duration::ZERO, &"o-2".to_owned()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    eventually("it is due", SOON, async || bench.ready(DUE).await >= 1).await;
    let _next = bench.mq.scheduler().await.unwrap();
    let mut arrivals = bench.receive().await;
    assert_eq!(arrivals.next().await.payload(), "o-1");
    bench.mq.close().await.unwrap();
    assert_eq!(bench.mq.scheduler().await.unwrap_err().kind(), ErrorKind::Closed);
}
