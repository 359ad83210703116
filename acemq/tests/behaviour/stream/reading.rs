//! Where a reader begins, and what it is given.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use acemq::{ConsumerState, ErrorKind, Message, RawBytes, StreamOffset};
use testkit::eventually;
use tokio::sync::{Notify, Semaphore};

use super::{Log, handled_up_to, quiet, same, take};
use crate::{
    consumer::bench::{SOON, next, recorder},
    on_every_rabbitmq,
};

on_every_rabbitmq! {
    async fn a_reader_begins_at_the_first_the_next_or_an_offset(broker: Broker) {
        let log = Log::new(&broker).await;
        log.write(0..100).await;
        for (from, first) in [
            (StreamOffset::First, 0),
            (StreamOffset::Offset(0), 0),
            // In the middle of a chunk: what is before it in there does not come.
            (StreamOffset::Offset(45), 45),
            (StreamOffset::Offset(99), 99),
        ] {
            let (record, mut seen) = recorder();
            let consumer = log.reader().from(from).start(record).await.unwrap();
            assert_eq!(take(&mut seen, 100 - first).await, same(first..100), "{from:?}");
            quiet(&mut seen).await;
            handled_up_to(&consumer, 99).await;
            assert_eq!((consumer.counters().handled, consumer.gap()), (100 - first, None));
            consumer.close().await.unwrap();
        }
        let (record, mut seen) = recorder();
        let consumer = log.reader().start(record).await.unwrap();
        log.write(100..103).await;
        assert_eq!(take(&mut seen, 3).await, same(100..103));
        consumer.close().await.unwrap();

        let (record, mut seen) = recorder();
        let consumer = log.reader().from(StreamOffset::Last).start(record).await.unwrap();
        let (mut offset, _) = take(&mut seen, 1).await[0];
        assert!(offset >= 100, "{offset}");
        while offset < 102 {
            offset += 1;
            assert_eq!(take(&mut seen, 1).await, [(offset, offset)]);
        }
        consumer.close().await.unwrap();
        log.mq.close().await.unwrap();
    }

    async fn a_reader_begins_at_a_time(broker: Broker) {
        let log = Log::new(&broker).await;
        let minute = Duration::from_secs(60);
        log.write(0..3).await;
        let (record, mut seen) = recorder();
        let past = StreamOffset::Time(SystemTime::now() - minute);
        let consumer = log.reader().from(past).start(record).await.unwrap();
        assert_eq!(take(&mut seen, 3).await, same(0..3));
        consumer.close().await.unwrap();

        let (record, mut seen) = recorder();
        let future = StreamOffset::Time(SystemTime::now() + minute);
        let consumer = log.reader().from(future).start(record).await.unwrap();
        quiet(&mut seen).await;
        log.write(3..4).await;
        assert_eq!(take(&mut seen, 1).await, same(3..4));
        consumer.close().await.unwrap();
        log.mq.close().await.unwrap();
    }

    async fn an_offset_past_the_end_is_waited_for(broker: Broker) {
        let log = Log::new(&broker).await;
        log.write(0..3).await;
        let (record, mut seen) = recorder();
        let consumer = log.reader().from(StreamOffset::Offset(5)).start(record).await.unwrap();
        quiet(&mut seen).await;
        assert_eq!(consumer.state(), ConsumerState::Receiving);
        log.write(3..7).await;
        assert_eq!(take(&mut seen, 2).await, same(5..7));
        assert_eq!(consumer.gap(), None);
        log.mq.close().await.unwrap();
    }

    async fn the_first_reader_of_an_empty_stream_waits_whatever_it_begins_with(broker: Broker) {
        let log = Log::new(&broker).await;
        let mut readers = Vec::new();
        for from in [StreamOffset::First, StreamOffset::Last, StreamOffset::Next] {
            let (record, seen) = recorder();
            readers.push((log.reader().from(from).start(record).await.unwrap(), seen));
        }
        log.write(0..2).await;
        for (consumer, seen) in &mut readers {
            assert_eq!(take(seen, 2).await, same(0..2));
            handled_up_to(consumer, 1).await;
        }
        log.mq.close().await.unwrap();
    }

    async fn an_empty_body_arrives_as_no_bytes(broker: Broker) {
        let log = Log::new(&broker).await;
        let bytes = log.mq.publisher::<Vec<u8>>("", &*log.stream).codec(RawBytes::default());
        bytes.send(&Vec::new()).await.unwrap();
        let (record, mut seen) = recorder::<bytes::Bytes>();
        let reader = log.mq.stream_consumer::<bytes::Bytes>(&*log.stream).codec(RawBytes::default());
        let consumer = reader.from(StreamOffset::First).start(record).await.unwrap();
        assert!(next(&mut seen).await.payload().is_empty());
        consumer.close().await.unwrap();
        log.mq.close().await.unwrap();
    }

    async fn more_than_the_prefetch_flows_and_handlers_run_as_many_as_they_may(broker: Broker) {
        const AT_ONCE: usize = 4;
        let log = Log::new(&broker).await;
        log.write(0..300).await;
        let running = Arc::new(AtomicUsize::new(0));
        let most = Arc::new(AtomicUsize::new(0));
        let gate = Arc::new(Semaphore::new(0));
        let handler = {
            let (running, most, gate) = (running, Arc::clone(&most), Arc::clone(&gate));
            move |_: Message<u64>| {
                let (running, most, gate) = (running.clone(), most.clone(), gate.clone());
                async move {
                    most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    gate.acquire().await?.forget();
                    running.fetch_sub(1, Ordering::SeqCst);
                    Ok(())
                }
            }
        };
        let reader = log.reader().from(StreamOffset::First).prefetch(10).concurrency(AT_ONCE);
        let consumer = reader.start(handler).await.unwrap();
        eventually("as many run as may", SOON, async || {
            consumer.counters().in_flight == AT_ONCE as u64
        })
        .await;
        assert_eq!(consumer.last_handled_offset(), None);
        gate.add_permits(1_000);
        handled_up_to(&consumer, 299).await;
        assert_eq!(most.load(Ordering::SeqCst), AT_ONCE);
        log.mq.close().await.unwrap();
    }

    async fn closing_waits_for_the_handler_that_runs_and_begins_no_other(broker: Broker) {
        let log = Log::new(&broker).await;
        log.write(0..5).await;
        let (begun, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let handler = {
            let (begun, finish) = (Arc::clone(&begun), Arc::clone(&finish));
            move |_: Message<u64>| {
                let (begun, finish) = (Arc::clone(&begun), Arc::clone(&finish));
                async move {
                    begun.notify_one();
                    finish.notified().await;
                    Ok(())
                }
            }
        };
        let consumer = log.reader().from(StreamOffset::First).start(handler).await.unwrap();
        begun.notified().await;
        let (closed, ()) = tokio::join!(consumer.close(), async {
            tokio::task::yield_now().await;
            finish.notify_one();
        });
        closed.unwrap();
        assert_eq!(consumer.state(), ConsumerState::Closed);
        assert_eq!((consumer.last_handled_offset(), consumer.counters().handled), (Some(0), 1));
        log.mq.close().await.unwrap();
    }

    async fn a_handler_that_outlives_the_bound_is_stopped_and_its_message_comes_again(
        broker: Broker
    ) {
        let log = Log::new(&broker).await;
        let mq = acemq::connect(&*broker.url).drain_timeout(Duration::from_millis(100));
        let mq = mq.await.unwrap();
        log.write(0..1).await;
        let begun = Arc::new(Notify::new());
        let handler = {
            let begun = Arc::clone(&begun);
            move |_: Message<u64>| {
                begun.notify_one();
                std::future::pending()
            }
        };
        let reader = mq.stream_consumer::<u64>(&*log.stream).from(StreamOffset::First);
        let consumer = reader.start(handler).await.unwrap();
        begun.notified().await;
        let error = mq.close().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert_eq!((consumer.state(), consumer.last_handled_offset()), (ConsumerState::Closed, None));
        assert_eq!(log.everything(1).await, same(0..1));
        log.mq.close().await.unwrap();
    }

    async fn a_consumer_that_is_dropped_reads_no_more(broker: Broker) {
        let log = Log::new(&broker).await;
        let (record, mut seen) = recorder();
        let consumer = log.reader().start(record).await.unwrap();
        log.write(0..1).await;
        assert_eq!(take(&mut seen, 1).await, same(0..1));
        drop(consumer);
        eventually("its handler is gone", SOON, async || seen.is_closed()).await;
        log.write(1..2).await;
        log.mq.close().await.unwrap();
    }
}
