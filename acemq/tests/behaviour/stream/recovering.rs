//! Lost connections, streams that were deleted, and messages that were removed.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use acemq::{
    ConsumerState, HandlerError, MemoryStreamCheckpoints, Message, Stream, StreamCheckpointStore,
    StreamConsumer, StreamGap, StreamOffset, StreamStop,
};
use testkit::{BrokerOptions, BrokerVersion, OwnBroker, eventually};
use tokio::sync::Semaphore;

use super::{Far, Log, handled_up_to, quiet, same, take};
use crate::{
    consumer::bench::{SOON, recorder},
    on_every_rabbitmq,
    support::Broker,
};

async fn receiving(consumer: &StreamConsumer) {
    let mut states = consumer.states();
    let receiving = states.wait_for(|state| *state == ConsumerState::Receiving);
    tokio::time::timeout(SOON, receiving).await.unwrap().unwrap();
}

on_every_rabbitmq! {
    // promise: BX-9
    async fn after_a_lost_connection_the_reader_goes_on_where_it_was(broker: Broker) {
        let mut far = Far::new(&broker).await;
        far.log.write(0..1_000).await;
        let gate = Arc::new(Semaphore::new(500));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let handler = {
            let (gate, seen) = (Arc::clone(&gate), Arc::clone(&seen));
            move |message: Message<u64>| {
                let (gate, seen) = (Arc::clone(&gate), Arc::clone(&seen));
                async move {
                    seen.lock().unwrap().push((message.stream_offset().unwrap(), *message.payload()));
                    gate.acquire().await?.forget();
                    Ok(())
                }
            }
        };
        let reader = far.reader().from(StreamOffset::First);
        let consumer = reader.start(handler).await.unwrap();
        handled_up_to(&consumer, 499).await;
        eventually("the next has begun", SOON, async || consumer.counters().in_flight == 1).await;

        far.cut(&consumer).await;
        far.proxy.restore().await;
        receiving(&consumer).await;
        gate.add_permits(10_000);
        handled_up_to(&consumer, 999).await;
        // Each once, in order; also the one that was being handled when the line was cut.
        assert_eq!(*seen.lock().unwrap(), same(0..1_000));
        assert_eq!((consumer.counters().handled, consumer.gap()), (1_000, None));
        far.mq.close().await.unwrap();
        far.log.mq.close().await.unwrap();
    }

    // promise: BX-9
    async fn a_reader_of_the_next_that_saw_nothing_misses_nothing_that_came_meanwhile(
        broker: Broker
    ) {
        let mut far = Far::new(&broker).await;
        far.log.write(0..3).await;
        for (n, from) in (1_u64..).zip([StreamOffset::Next, StreamOffset::Last]) {
            let old = 3 * n;
            let (record, mut seen) = recorder();
            let consumer = far.reader().from(from).start(record).await.unwrap();
            if from == StreamOffset::Last {
                // The last chunk, and nothing of it twice.
                handled_up_to(&consumer, old - 1).await;
            }
            far.cut(&consumer).await;
            far.log.write(old..old + 3).await;
            far.proxy.restore().await;
            receiving(&consumer).await;
            handled_up_to(&consumer, old + 2).await;
            quiet_from(&mut seen, old..old + 3).await;
            consumer.close().await.unwrap();
        }
        far.mq.close().await.unwrap();
        far.log.mq.close().await.unwrap();
    }

    async fn handlers_that_run_on_while_the_line_is_cut_are_neither_run_again_nor_lost(
        broker: Broker
    ) {
        let mut far = Far::new(&broker).await;
        far.log.write(0..50).await;
        let gate = Arc::new(Semaphore::new(0));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let handler = {
            let (gate, seen) = (Arc::clone(&gate), Arc::clone(&seen));
            move |message: Message<u64>| {
                let (gate, seen) = (Arc::clone(&gate), Arc::clone(&seen));
                async move {
                    seen.lock().unwrap().push(*message.payload());
                    if [0, 20].contains(message.payload()) {
                        gate.acquire().await?.forget();
                    }
                    Ok(())
                }
            }
        };
        let reader = far.reader().from(StreamOffset::First).prefetch(50).concurrency(3);
        let consumer = reader.start(handler).await.unwrap();
        // The others finish out of order, beyond the two that are held.
        eventually("all but two", SOON, async || consumer.counters().handled == 48).await;
        assert_eq!(consumer.last_handled_offset(), None);

        far.cut(&consumer).await;
        far.proxy.restore().await;
        receiving(&consumer).await;
        far.log.write(50..52).await;
        eventually("what came since", SOON, async || consumer.counters().handled == 50).await;
        gate.add_permits(2);
        handled_up_to(&consumer, 51).await;
        let mut seen = seen.lock().unwrap().clone();
        seen.sort_unstable();
        assert_eq!(seen, (0..52).collect::<Vec<_>>());
        far.mq.close().await.unwrap();
        far.log.mq.close().await.unwrap();
    }

    // promise: BX-9
    async fn a_stream_that_was_deleted_is_read_from_its_beginning_when_it_is_there_again(
        broker: Broker
    ) {
        let log = Log::new(&broker).await;
        log.write(0..5).await;
        let (record, mut seen) = recorder();
        let consumer = log.reader().from(StreamOffset::Offset(3)).start(record).await.unwrap();
        let (waits, mut unseen) = recorder();
        let waiting = log.reader().start(waits).await.unwrap();
        assert_eq!(take(&mut seen, 2).await, same(3..5));
        log.mq.delete_queue(&log.stream).await.unwrap();
        for consumer in [&consumer, &waiting] {
            let mut states = consumer.states();
            let lost = states
                .wait_for(|state| matches!(state, ConsumerState::Recovering { attempt: 2.., .. }));
            tokio::time::timeout(SOON, lost).await.unwrap().unwrap();
        }
        log.declare().await;
        log.write(0..2).await;
        assert_eq!(take(&mut seen, 2).await, same(0..2));
        assert_eq!(take(&mut unseen, 2).await, same(0..2));
        handled_up_to(&consumer, 1).await;
        log.mq.close().await.unwrap();
    }

    async fn a_reader_with_a_checkpoint_stops_where_its_stream_was_deleted(broker: Broker) {
        let log = Log::new(&broker).await;
        log.write(0..5).await;
        let checkpoints = MemoryStreamCheckpoints::new();
        let reader = || {
            let reader = log.reader().from(StreamOffset::First).reader("billing");
            reader.checkpoint(checkpoints.clone()).checkpoint_every(5, SOON)
        };
        let (record, _seen) = recorder();
        let consumer = reader().start(record).await.unwrap();
        eventually("it is saved", SOON, async || {
            checkpoints.load(&log.stream, "billing").await.unwrap() == Some(5)
        })
        .await;
        log.mq.delete_queue(&log.stream).await.unwrap();
        eventually("it stops", SOON, async || consumer.stopped_by().is_some()).await;
        let stop = consumer.stopped_by().unwrap();
        assert!(matches!(stop, StreamStop::MadeAnew { last_handled: Some(4), .. }), "{stop:?}");
        // Nothing saves the place again that is removed for the new stream.
        assert!(checkpoints.forget(&log.stream, "billing").await.unwrap());
        consumer.close().await.unwrap();
        assert_eq!(checkpoints.load(&log.stream, "billing").await.unwrap(), None);

        log.declare().await;
        log.write(0..2).await;
        let (record, mut seen) = recorder();
        let consumer = reader().start(record).await.unwrap();
        assert_eq!(take(&mut seen, 2).await, same(0..2));
        consumer.close().await.unwrap();
        log.mq.close().await.unwrap();
    }

    async fn a_stream_that_was_made_anew_behind_a_readers_back_is_found_out(broker: Broker) {
        let mut far = Far::new(&broker).await;
        far.log.write(0..5).await;
        // One that has grown beyond the reader's place, and one that has not.
        for (count, resumes) in [(9, true), (2, false)] {
            let (record, mut seen) = recorder();
            let consumer = far.reader().from(StreamOffset::Offset(2)).start(record).await.unwrap();
            assert_eq!(take(&mut seen, 3).await, same(2..5));
            handled_up_to(&consumer, 4).await;
            // It has seen nothing, and has a place all the same.
            let (waits, mut unseen) = recorder();
            let waiting = far.reader().start(waits).await.unwrap();
            far.cut(&consumer).await;
            far.log.mq.delete_queue(&far.log.stream).await.unwrap();
            far.log.declare().await;
            far.log.write(0..count).await;
            far.proxy.restore().await;
            // By another message at its place, or by none.
            assert_eq!(take(&mut seen, count).await, same(0..count), "{resumes}");
            assert_eq!(take(&mut unseen, count).await, same(0..count), "{resumes}");
            consumer.close().await.unwrap();
            waiting.close().await.unwrap();
            far.log.mq.delete_queue(&far.log.stream).await.unwrap();
            far.log.declare().await;
            far.log.write(0..5).await;
        }
        far.mq.close().await.unwrap();
        far.log.mq.close().await.unwrap();
    }

    async fn a_reader_with_a_checkpoint_stops_also_with_its_first_message_in_hand(broker: Broker) {
        let log = Log::new(&broker).await;
        log.write(0..2).await;
        let checkpoints = MemoryStreamCheckpoints::new();
        let gate = Arc::new(Semaphore::new(0));
        let held = Arc::clone(&gate);
        let handler = move |_: Message<u64>| {
            let held = Arc::clone(&held);
            async move {
                held.acquire().await?.forget();
                Ok(())
            }
        };
        let reader = log.reader().from(StreamOffset::First).reader("billing");
        let consumer = reader.checkpoint(checkpoints.clone()).start(handler).await.unwrap();
        eventually("it is in hand", SOON, async || consumer.counters().in_flight == 1).await;
        log.mq.delete_queue(&log.stream).await.unwrap();
        eventually("it stops", SOON, async || consumer.stopped_by().is_some()).await;
        let stop = consumer.stopped_by().unwrap();
        assert!(matches!(stop, StreamStop::MadeAnew { last_handled: None, .. }), "{stop:?}");
        gate.add_permits(1);
        consumer.close().await.unwrap();
        assert_eq!(checkpoints.load(&log.stream, "billing").await.unwrap(), None);
        log.mq.close().await.unwrap();
    }

    async fn what_handlers_of_the_old_stream_come_to_is_nothing_to_the_new_one(broker: Broker) {
        let mut far = Far::new(&broker).await;
        far.log.write(0..3).await;
        let gate = Arc::new(Semaphore::new(0));
        let (record, mut seen) = tokio::sync::mpsc::unbounded_channel();
        let held = Arc::clone(&gate);
        let runs = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let handler = move |message: Message<u64>| {
            let (held, record) = (Arc::clone(&held), record.clone());
            let first = runs.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
            async move {
                if first {
                    held.acquire().await?.forget();
                    return Err(HandlerError::fatal("of the old stream"));
                }
                let _ = record.send(message);
                Ok(())
            }
        };
        let consumer = far.reader().from(StreamOffset::First).start(handler).await.unwrap();
        eventually("it is in hand", SOON, async || consumer.counters().in_flight == 1).await;
        // Nothing is handled yet: the message in hand tells that it is another stream.
        far.cut(&consumer).await;
        far.log.mq.delete_queue(&far.log.stream).await.unwrap();
        far.log.declare().await;
        far.log.write(0..3).await;
        far.proxy.restore().await;
        let mut states = consumer.states();
        let anew = states.wait_for(|state| match state {
            ConsumerState::Recovering { reason, .. } => reason.contains("made anew"),
            _ => false,
        });
        tokio::time::timeout(SOON, anew).await.unwrap().unwrap();
        receiving(&consumer).await;
        gate.add_permits(1);
        assert_eq!(take(&mut seen, 3).await, same(0..3));
        handled_up_to(&consumer, 2).await;
        assert_eq!((consumer.stopped_by(), consumer.counters().skipped), (None, 0));
        far.mq.close().await.unwrap();
        far.log.mq.close().await.unwrap();
    }

    async fn what_the_stream_has_removed_before_it_was_read_is_reported(broker: Broker) {
        let (mq, stream) = (broker.client().await, broker.name("log"));
        let small = Stream::new(&*stream).max_length_bytes(20_000).segment_bytes(10_000);
        mq.declare_stream(&small).await.unwrap();
        let body = "x".repeat(1_000);
        let checkpoints = MemoryStreamCheckpoints::new();
        checkpoints.save(&stream, "late", 3).await.unwrap();
        let mut written = 0;
        let mut gaps = Vec::new();
        // The broker removes segments in its own time.
        eventually("the beginning is gone", SOON, async || {
            for _ in 0..20 {
                mq.send_to_queue(&stream, &body).await.unwrap();
                written += 1;
            }
            gaps.clear();
            for checkpoint in [false, true] {
                let (record, mut seen) = recorder::<String>();
                let reader = mq.stream_consumer::<String>(&*stream).from(StreamOffset::Offset(1));
                let reader = match checkpoint {
                    true => reader.reader("late").checkpoint(checkpoints.clone()),
                    false => reader,
                };
                let consumer = reader.start(record).await.unwrap();
                let first = tokio::time::timeout(SOON, seen.recv()).await.unwrap().unwrap();
                gaps.push((consumer.gap(), first.stream_offset().unwrap()));
                // Whatever it read is not saved, for the next time.
                drop(consumer);
            }
            gaps.iter().all(|(gap, _)| gap.is_some())
        })
        .await;
        let [(Some(by_offset), first), (Some(by_checkpoint), again)] = gaps[..] else {
            panic!("{gaps:?}")
        };
        let StreamGap { expected: 1, oldest, .. } = by_offset else { panic!("{by_offset:?}") };
        assert_eq!(oldest, first);
        let StreamGap { expected: 3, oldest, .. } = by_checkpoint else { panic!("{by_checkpoint:?}") };
        assert_eq!(oldest, again);
        assert!(oldest < written);
        mq.close().await.unwrap();
    }
}

/// What came is the newest of the stream, each once; a little of what was there may come first.
async fn quiet_from(
    seen: &mut tokio::sync::mpsc::UnboundedReceiver<Message<u64>>,
    newest: std::ops::Range<u64>,
) {
    let mut offsets = Vec::new();
    while let Ok(message) = seen.try_recv() {
        offsets.push(message.stream_offset().unwrap());
    }
    quiet(seen).await;
    assert!(offsets.is_sorted_by(|one, next| one + 1 == *next), "{offsets:?}");
    assert!(newest.clone().all(|offset| offsets.contains(&offset)), "{offsets:?}");
}

async fn survives_a_restart(version: BrokerVersion) {
    let options = BrokerOptions { version, ..BrokerOptions::default() };
    let Some(mut server) = OwnBroker::start_with(options).await else { return };
    let broker = Broker::rabbitmq(Some(server.url())).unwrap();
    let log = Log::new(&broker).await;
    log.write(0..3).await;
    let (record, mut seen) = recorder();
    let reading = log.reader().from(StreamOffset::First).start(record).await.unwrap();
    assert_eq!(take(&mut seen, 3).await, same(0..3));
    handled_up_to(&reading, 2).await;
    let (waits, mut unseen) = recorder();
    let waiting = log.reader().start(waits).await.unwrap();

    server.restart().await;
    eventually("it is published again", Duration::from_secs(90), async || {
        let log = log.mq.publisher::<u64>("", &*log.stream);
        log.send(&3).await.is_ok()
    })
    .await;
    let next = tokio::time::timeout(Duration::from_secs(90), seen.recv()).await.unwrap().unwrap();
    assert_eq!((next.stream_offset(), *next.payload()), (Some(3), 3));
    // The one that had seen nothing goes on from its start, and not from the stream's.
    let next = tokio::time::timeout(Duration::from_secs(90), unseen.recv()).await.unwrap().unwrap();
    assert_eq!((next.stream_offset(), *next.payload()), (Some(3), 3));
    for consumer in [&reading, &waiting] {
        assert_eq!((consumer.gap(), consumer.stopped_by()), (None, None));
    }
    log.mq.close().await.unwrap();
}

// promise: BX-9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_rabbitmq_3_loses_no_reader_its_place() {
    survives_a_restart(BrokerVersion::V3).await;
}

// promise: BX-9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_rabbitmq_4_loses_no_reader_its_place() {
    survives_a_restart(BrokerVersion::V4).await;
}
