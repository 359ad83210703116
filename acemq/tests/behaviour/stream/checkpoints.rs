//! Readers that go on behind their checkpoint.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use acemq::{
    ConsumerState, Error, ErrorKind, HandlerError, MemoryStreamCheckpoints, Message, OnFailure,
    Result, StreamCheckpointStore, StreamOffset,
};
use testkit::eventually;
use tokio::sync::{Notify, Semaphore};

use super::{Log, done, handled_up_to, quiet, same, take};
use crate::{
    consumer::bench::{SOON, recorder},
    on_every_rabbitmq,
};

const READER: &str = "billing";
const NEVER: Duration = Duration::from_secs(3_600);
const MOMENT: Duration = Duration::from_millis(20);

/// A store that fails while it is told to.
#[derive(Clone, Default)]
struct Faulty {
    inner: MemoryStreamCheckpoints,
    fails: Arc<AtomicBool>,
}

impl Faulty {
    fn check(&self) -> Result<()> {
        match self.fails.load(Ordering::SeqCst) {
            true => Err(Error::new(ErrorKind::Store, "it is away")),
            false => Ok(()),
        }
    }
}

impl StreamCheckpointStore for Faulty {
    async fn load(&self, stream: &str, reader: &str) -> Result<Option<u64>> {
        self.check()?;
        self.inner.load(stream, reader).await
    }

    async fn load_or_insert(&self, stream: &str, reader: &str, next: u64) -> Result<u64> {
        self.check()?;
        self.inner.load_or_insert(stream, reader, next).await
    }

    async fn save(&self, stream: &str, reader: &str, next: u64) -> Result<()> {
        self.check()?;
        self.inner.save(stream, reader, next).await
    }

    async fn forget(&self, stream: &str, reader: &str) -> Result<bool> {
        self.inner.forget(stream, reader).await
    }
}

/// A store whose saves begin, and end when they may.
#[derive(Clone)]
struct Slow {
    inner: MemoryStreamCheckpoints,
    begun: Arc<Notify>,
    may_end: Arc<Semaphore>,
}

impl StreamCheckpointStore for Slow {
    async fn load(&self, stream: &str, reader: &str) -> Result<Option<u64>> {
        self.inner.load(stream, reader).await
    }

    async fn load_or_insert(&self, stream: &str, reader: &str, next: u64) -> Result<u64> {
        self.inner.load_or_insert(stream, reader, next).await
    }

    async fn save(&self, stream: &str, reader: &str, next: u64) -> Result<()> {
        self.begun.notify_one();
        let _permit = self.may_end.acquire().await;
        self.inner.save(stream, reader, next).await
    }

    async fn forget(&self, stream: &str, reader: &str) -> Result<bool> {
        self.inner.forget(stream, reader).await
    }
}

on_every_rabbitmq! {
    async fn a_reader_that_was_closed_goes_on_with_the_next_message(broker: Broker) {
        let log = Log::new(&broker).await;
        let checkpoints = MemoryStreamCheckpoints::new();
        let reader = || {
            let reader = log.reader().from(StreamOffset::First).reader(READER);
            // Nothing is saved before the close.
            reader.checkpoint(checkpoints.clone()).checkpoint_every(10_000, NEVER)
        };
        for n in 0..3 {
            log.write(10 * n..10 * n + 10).await;
            let (record, mut seen) = recorder();
            let consumer = reader().start(record).await.unwrap();
            assert_eq!(consumer.last_handled_offset(), (10 * n).checked_sub(1));
            assert_eq!(take(&mut seen, 10).await, same(10 * n..10 * n + 10));
            handled_up_to(&consumer, 10 * n + 9).await;
            consumer.close().await.unwrap();
            quiet(&mut seen).await;
            let saved = checkpoints.load(&log.stream, READER).await.unwrap();
            assert_eq!(saved, Some(10 * n + 10));
        }
        // Another reader has a place of its own.
        let (record, mut seen) = recorder();
        let other = reader().reader("audit").start(record).await.unwrap();
        assert_eq!(take(&mut seen, 30).await, same(0..30));
        drop(other);
        log.mq.close().await.unwrap();
    }

    async fn a_reader_that_died_sees_again_only_what_was_not_saved(broker: Broker) {
        const EVERY: u64 = 10;
        let log = Log::new(&broker).await;
        log.write(0..55).await;
        let checkpoints = MemoryStreamCheckpoints::new();
        let reader = || {
            let reader = log.reader().from(StreamOffset::First).reader(READER);
            reader.checkpoint(checkpoints.clone()).checkpoint_every(EVERY, NEVER)
        };
        let (record, mut seen) = recorder();
        let consumer = reader().start(record).await.unwrap();
        assert_eq!(take(&mut seen, 55).await, same(0..55));
        eventually("most is saved", SOON, async || {
            let saved = checkpoints.load(&log.stream, READER).await.unwrap();
            saved.is_some_and(|saved| saved + EVERY >= 50)
        })
        .await;
        drop(consumer);
        eventually("its handler is gone", SOON, async || seen.is_closed()).await;
        let saved = checkpoints.load(&log.stream, READER).await.unwrap().unwrap();

        let (record, mut seen) = recorder();
        let consumer = reader().start(record).await.unwrap();
        assert_eq!(take(&mut seen, 55 - saved).await, same(saved..55));
        consumer.close().await.unwrap();
        log.mq.close().await.unwrap();
    }

    // promise: BX-9
    async fn a_reader_of_what_is_yet_to_come_has_its_place_from_its_start_on(broker: Broker) {
        let log = Log::new(&broker).await;
        log.write(0..3).await;
        for (n, from) in [StreamOffset::Next, StreamOffset::Last].into_iter().enumerate() {
            let checkpoints = MemoryStreamCheckpoints::new();
            let reader = || log.reader().from(from).reader(READER).checkpoint(checkpoints.clone());
            let written = 3 + 3 * n as u64;
            let consumer = reader().start(|_: Message<u64>| std::future::pending()).await.unwrap();
            let place = checkpoints.load(&log.stream, READER).await.unwrap().unwrap();
            match from {
                StreamOffset::Next => assert_eq!(place, written),
                _ => assert!(place < written, "{place}"),
            }
            log.write(written..written + 3).await;
            eventually("one is in hand", SOON, async || consumer.counters().in_flight == 1).await;
            drop(consumer);

            // It died with its first message in hand, and nothing is lost.
            let (record, mut seen) = recorder();
            let consumer = reader().start(record).await.unwrap();
            let expected = same(place..written + 3);
            assert_eq!(take(&mut seen, expected.len() as u64).await, expected);
            consumer.close().await.unwrap();
        }
        log.mq.close().await.unwrap();
    }

    async fn a_place_that_is_being_saved_at_the_close_is_saved(broker: Broker) {
        let log = Log::new(&broker).await;
        log.write(0..1).await;
        let store = Slow {
            inner: MemoryStreamCheckpoints::new(),
            begun: Arc::default(),
            may_end: Arc::new(Semaphore::new(0)),
        };
        let reader = log.reader().from(StreamOffset::First).reader(READER);
        let reader = reader.checkpoint(store.clone()).checkpoint_every(1, NEVER);
        let consumer = reader.start(|_: Message<u64>| done()).await.unwrap();
        store.begun.notified().await;
        let (closed, ()) = tokio::join!(consumer.close(), async {
            eventually("all but the save has ended", SOON, async || {
                consumer.counters().in_flight == 0
            })
            .await;
            tokio::time::sleep(3 * MOMENT).await;
            store.may_end.add_permits(1);
        });
        closed.unwrap();
        assert_eq!(store.inner.load(&log.stream, READER).await.unwrap(), Some(1));
        log.mq.close().await.unwrap();
    }

    async fn what_is_saved_is_never_beyond_what_is_unfinished(broker: Broker) {
        let log = Log::new(&broker).await;
        log.write(0..50).await;
        let checkpoints = MemoryStreamCheckpoints::new();
        let gate = Arc::new(Semaphore::new(0));
        let handler = {
            let gate = Arc::clone(&gate);
            move |message: Message<u64>| {
                let gate = Arc::clone(&gate);
                async move {
                    if *message.payload() == 5 {
                        gate.acquire().await?.forget();
                    }
                    Ok(())
                }
            }
        };
        let reader = || {
            let reader = log.reader().from(StreamOffset::First).reader(READER).prefetch(50);
            reader.checkpoint(checkpoints.clone()).checkpoint_every(1, MOMENT)
        };
        let consumer = reader().concurrency(4).start(handler).await.unwrap();
        eventually("all but one", SOON, async || consumer.counters().handled == 49).await;
        eventually("it is saved", SOON, async || {
            checkpoints.load(&log.stream, READER).await.unwrap() == Some(5)
        })
        .await;
        tokio::time::sleep(3 * MOMENT).await;
        assert_eq!(checkpoints.load(&log.stream, READER).await.unwrap(), Some(5));
        // It dies, and what it held is not lost.
        drop(consumer);
        let (record, mut seen) = recorder();
        let consumer = reader().start(record).await.unwrap();
        assert_eq!(take(&mut seen, 45).await, same(5..50));
        consumer.close().await.unwrap();
        log.mq.close().await.unwrap();
    }

    async fn a_failure_that_stops_is_what_the_next_start_begins_with(broker: Broker) {
        let log = Log::new(&broker).await;
        log.write(0..5).await;
        let checkpoints = MemoryStreamCheckpoints::new();
        let reader = || {
            log.reader().from(StreamOffset::First).reader(READER).checkpoint(checkpoints.clone())
        };
        let handler = |message: Message<u64>| {
            let fails = *message.payload() == 2;
            std::future::ready(if fails { Err(HandlerError::transient("no")) } else { Ok(()) })
        };
        let consumer = reader().start(handler).await.unwrap();
        let mut states = consumer.states();
        let halted = states.wait_for(|state| matches!(state, ConsumerState::Halted { .. }));
        tokio::time::timeout(SOON, halted).await.unwrap().unwrap();
        assert_eq!(checkpoints.load(&log.stream, READER).await.unwrap(), Some(2));

        let skipping = reader().on_failure(OnFailure::skip()).start(handler).await.unwrap();
        handled_up_to(&skipping, 4).await;
        assert_eq!((skipping.counters().handled, skipping.counters().skipped), (2, 1));
        skipping.close().await.unwrap();
        assert_eq!(checkpoints.load(&log.stream, READER).await.unwrap(), Some(5));
        log.mq.close().await.unwrap();
    }

    async fn while_the_store_is_away_the_stream_is_read_on_and_the_place_is_saved_later(
        broker: Broker
    ) {
        let log = Log::new(&broker).await;
        let store = Faulty::default();
        let reader = || {
            let reader = log.reader().from(StreamOffset::First).reader(READER);
            reader.checkpoint(store.clone()).checkpoint_every(1, MOMENT)
        };
        store.fails.store(true, Ordering::SeqCst);
        let error = reader().start(|_: Message<u64>| done()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Store, "{error}");

        store.fails.store(false, Ordering::SeqCst);
        let consumer = reader().start(|_: Message<u64>| done()).await.unwrap();
        store.fails.store(true, Ordering::SeqCst);
        log.write(0..5).await;
        handled_up_to(&consumer, 4).await;
        assert_eq!(store.inner.load(&log.stream, READER).await.unwrap(), None);
        store.fails.store(false, Ordering::SeqCst);
        eventually("it is saved", SOON, async || {
            store.inner.load(&log.stream, READER).await.unwrap() == Some(5)
        })
        .await;
        log.mq.close().await.unwrap();
    }
}
