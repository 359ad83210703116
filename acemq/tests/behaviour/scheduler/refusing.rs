//! What cannot be scheduled is an error at once, and nothing waits for ever for it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use acemq::{ErrorKind, HeaderValue, RawBytes};
use bytes::Bytes;

use crate::{
    on_every_broker,
    scheduler::bench::{Bench, MOMENT},
    support::Broker,
};

const HOUR: Duration = Duration::from_secs(3_600);

/// The last second of the year 9999.
fn last_second() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(253_402_300_799)
}

on_every_broker! {
    async fn what_could_not_be_delivered_later_is_refused_now(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let scheduler = &bench.scheduler;
        let refuse = |kind: ErrorKind, text: &'static str| {
            move |error: acemq::Error| {
                assert_eq!(error.kind(), kind, "{error}");
                assert!(error.to_string().contains(text), "{error}");
                assert!(!error.may_have_been_published());
            }
        };
        // 256 bytes in 64 characters.
        let long = "\u{1F980}".repeat(64);
        let too_long = refuse(ErrorKind::TooLarge, "has 256 bytes; at most 255 are possible");
        for delay in [Duration::ZERO, HOUR] {
            scheduler.after(delay, &*long, "key", &1).await.map_err(too_long).unwrap_err();
            scheduler.after(delay, "", &*long, &1).await.map_err(too_long).unwrap_err();
            scheduler.after(delay, "", "key", &1).id(&*long).await.map_err(too_long).unwrap_err();
            let to = scheduler.to::<Bytes>("", "key").codec(RawBytes::of_type(&*long));
            to.after(delay, &Bytes::new()).await.map_err(too_long).unwrap_err();
            scheduler
                .after(delay, "", "", &1)
                .await
                .map_err(refuse(ErrorKind::Config, "neither an exchange nor a routing key"))
                .unwrap_err();
            scheduler
                .after(delay, "", "key", &1)
                .header("x-schedule-due-at", 7)
                .await
                .map_err(refuse(ErrorKind::Encode, "belongs to schedulers"))
                .unwrap_err();
            scheduler
                .after(delay, "", "key", &1)
                .header("x-acemq-id", "mine")
                .await
                .map_err(refuse(ErrorKind::Encode, "x-acemq-"))
                .unwrap_err();
            let error = scheduler.after(delay, "", "key", &f64::NAN).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Encode, "{error}");
        }
        // A frame holds it, and not with what is written on it while it waits.
        let large = HeaderValue::from("x".repeat(130_000));
        scheduler
            .after(HOUR, "", "key", &1)
            .header("x-large", large)
            .await
            .map_err(refuse(ErrorKind::TooLarge, "what comes to them on the way"))
            .unwrap_err();

        // 255 bytes are possible.
        let longest = "k".repeat(255);
        let error = scheduler.after(Duration::ZERO, "", &*longest, &1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unroutable, "{error}");
        assert_eq!(scheduler.counters().scheduled, 0);
        bench.mq.close().await.unwrap();
    }

    async fn what_is_due_at_once_and_reaches_no_queue_is_an_error_as_of_a_send(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let error = bench.scheduler.after(Duration::ZERO, "", "nobody", &1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unroutable);
        let past = SystemTime::now() - HOUR;
        let error = bench.scheduler.at(past, "nobody", "key", &1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        bench.mq.close().await.unwrap();
    }
}

#[tokio::test]
async fn times_up_to_the_year_9999_are_taken_and_later_ones_refused() {
    let broker = Broker::memory();
    let bench = Bench::new(&broker).await;
    let scheduler = &bench.scheduler;
    scheduler.at(last_second(), "", &*bench.queue, &1).await.unwrap();
    let until_then = last_second().duration_since(SystemTime::now()).unwrap();
    scheduler.after(until_then - HOUR, "", &*bench.queue, &1).await.unwrap();
    scheduler.after(100 * 8_766 * HOUR, "", &*bench.queue, &1).await.unwrap();
    assert_eq!(bench.ready("acemq.schedule.1h").await, 3);

    let second = Duration::from_secs(1);
    for error in [
        scheduler.at(last_second() + second, "", &*bench.queue, &1).await.unwrap_err(),
        scheduler.after(until_then + HOUR, "", &*bench.queue, &1).await.unwrap_err(),
        scheduler.after(Duration::MAX, "", &*bench.queue, &1).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Encode);
        assert!(error.to_string().contains("after the year 9999"), "{error}");
    }
    assert_eq!(scheduler.counters().scheduled, 3);
    bench.mq.close().await.unwrap();
}

#[tokio::test]
async fn a_future_that_is_dropped_before_it_began_schedules_nothing() {
    let broker = Broker::memory();
    let bench = Bench::new(&broker).await;
    drop(bench.scheduler.after(MOMENT, "", &*bench.queue, "o-1").into_future());
    drop(bench.scheduler.after(Duration::ZERO, "", &*bench.queue, "o-1").into_future());
    bench.after(Duration::ZERO, "o-2").await;
    let published = broker.memory.as_ref().unwrap().published();
    assert_eq!(published.len(), 1);
    bench.mq.close().await.unwrap();
}
