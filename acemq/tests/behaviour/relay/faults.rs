//! The relay through faults and time, in milliseconds: nothing here needs a server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use acemq::{
    ClaimedRecord, Client, Envelope, ErrorKind, FailedRecord, HandlerError, MemoryOutboxStore,
    Message, OutboxRecord, OutboxRelay, OutboxSignal, OutboxStore, Queue, RecordClaim, RelayState,
    testing::MemoryBroker,
};
use futures_util::FutureExt as _;
use tokio::time::{Instant, sleep};

use crate::support::stores::{Faulty, Minimal};

const HOUR: Duration = Duration::from_secs(3_600);

pub(super) async fn connected(broker: &MemoryBroker) -> Client {
    let mq = acemq::connect(broker.url()).await.unwrap();
    mq.declare_queue(&Queue::new("orders")).await.unwrap();
    mq
}

pub(super) fn record(queue: &str) -> OutboxRecord {
    OutboxRecord::new("", queue, "text/plain", "o-1", &Envelope::new("order.placed")).unwrap()
}

pub(super) fn in_queue(broker: &MemoryBroker) -> usize {
    broker.queue("orders").unwrap().len()
}

pub(super) async fn pending(outbox: &impl OutboxStore) -> u64 {
    outbox.pending_count().await.unwrap()
}

// promise: OB-25
// promise: BX-1
// promise: BX-10
#[tokio::test(start_paused = true)]
async fn an_hour_without_a_broker_costs_no_attempt_and_then_everything_goes_out() {
    let (log, _guard) = testkit::logs::of_this_thread();
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let outbox = MemoryOutboxStore::new();
    broker.block("low on memory");
    let relay = OutboxRelay::builder(&mq, outbox.clone()).start();
    for _ in 0..250 {
        outbox.add(&record("orders"));
    }
    sleep(HOUR).await;
    let RelayState::Failing { reason } = relay.state() else { panic!("{:?}", relay.state()) };
    assert!(reason.contains("low on memory"), "{reason}");
    assert_eq!((relay.failed(), pending(&outbox).await), (0, 250));

    broker.unblock();
    sleep(Duration::from_secs(120)).await;

    assert_eq!((relay.failed(), pending(&outbox).await), (0, 0));
    assert_eq!(relay.state(), RelayState::Active);
    assert_eq!(log.lines_with(&["WARN", "a pass of the outbox relay failed"]).len(), 1);
    assert_eq!(log.lines_with(&["INFO", "the outbox relay goes on"]).len(), 1);
    let ids: std::collections::HashSet<_> = broker
        .queue("orders")
        .unwrap()
        .iter()
        .map(|m| m.message_id().unwrap().to_owned())
        .collect();
    assert_eq!(ids.len(), 250);
    relay.close().await.unwrap();
}

// promise: BX-1
// promise: OB-22
// promise: OB-29
#[tokio::test(start_paused = true)]
async fn an_hour_with_nobody_at_the_address_costs_no_attempt() {
    let outbox = MemoryOutboxStore::new();
    // Nothing listens there: every dial is refused.
    let nowhere = acemq::connect_lazy("amqp://guest:guest@127.0.0.1:1").unwrap();
    let relay = OutboxRelay::builder(&nowhere, outbox.clone()).start();
    for _ in 0..10 {
        outbox.add(&record("orders"));
    }
    sleep(HOUR).await;
    assert_eq!((relay.failed(), relay.published()), (0, 0));
    assert!(relay.is_running());
    relay.close().await.unwrap();
    nowhere.close().await.unwrap();

    for claimed in outbox.claim_batch(100, Duration::from_secs(1)).await.unwrap() {
        assert_eq!(claimed.attempts(), 0);
        outbox.give_back(&[claimed.claim().clone()]).await.unwrap();
    }
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    assert_eq!(OutboxRelay::builder(&mq, outbox).build().drain().await.unwrap(), 10);
}

// promise: OB-7
// promise: BX-10
#[tokio::test(start_paused = true)]
async fn a_record_nobody_receives_is_tried_ten_times_at_growing_intervals() {
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let outbox = MemoryOutboxStore::new();
    let relay = OutboxRelay::builder(&mq, outbox.clone()).start();
    outbox.add(&record("nobody"));

    sleep(Duration::from_secs(100)).await;
    // After 1, 2, 4, 8, 16 and 32 seconds, each within the poll interval.
    assert_eq!(relay.failed(), 7);
    sleep(24 * HOUR).await;

    assert_eq!(relay.failed(), 10);
    let stuck = outbox.stuck(10).await.unwrap();
    assert_eq!((stuck.len(), stuck[0].attempts), (1, 10));
    assert_eq!(pending(&outbox).await, 1);
    relay.close().await.unwrap();
}

// promise: OB-22
#[tokio::test(start_paused = true)]
async fn a_pass_that_fails_or_panics_is_not_the_end_of_the_relay() {
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let store = Faulty::new();
    store.faults.claims_that_panic.store(2, Ordering::SeqCst);
    store.faults.claims_that_fail.store(2, Ordering::SeqCst);
    let told = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&told);
    let relay = OutboxRelay::builder(&mq, store.clone())
        .on_error(move |error| {
            assert_eq!(error.kind(), ErrorKind::Store);
            // A callback that panics is not the end of it either.
            assert!(count.fetch_add(1, Ordering::SeqCst) > 0, "on purpose");
        })
        .start();
    store.inner.add(&record("orders"));

    sleep(Duration::from_secs(60)).await;

    assert_eq!(told.load(Ordering::SeqCst), 4);
    assert!(relay.is_running());
    assert_eq!((relay.published(), in_queue(&broker)), (1, 1));
    relay.close().await.unwrap();
}

// promise: OB-23
#[tokio::test(start_paused = true)]
async fn a_drain_raises_what_the_store_or_the_broker_raised() {
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let store = Faulty::new();
    store.inner.add(&record("orders"));
    let relay = OutboxRelay::builder(&mq, store.clone()).build();

    store.faults.claims_that_fail.store(1, Ordering::SeqCst);
    assert_eq!(relay.drain_once().await.unwrap_err().kind(), ErrorKind::Store);
    broker.block("low on memory");
    let error = relay.drain_once().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Blocked);
    assert_eq!((error.exchange(), error.routing_key()), (Some(""), Some("orders")));
    broker.unblock();
    // Given back at once, not after its lease.
    assert_eq!(relay.drain_once().await.unwrap(), 1);
    assert_eq!(relay.drain_once().await.unwrap(), 0);
}

/// A row that cannot be read, with a long reason.
struct Unreadable(MemoryOutboxStore);

impl OutboxStore for Unreadable {
    async fn claim_batch(&self, size: usize, lease: Duration) -> acemq::Result<Vec<ClaimedRecord>> {
        let claimed = self.0.claim_batch(size, lease).await?.into_iter();
        Ok(claimed
            .map(|record| {
                let reason = acemq::Error::new(ErrorKind::Decode, "ä".repeat(5_000));
                ClaimedRecord::new(record.claim().clone(), record.attempts(), Err(reason))
            })
            .collect())
    }

    async fn mark_published(&self, claims: &[RecordClaim]) -> acemq::Result<()> {
        self.0.mark_published(claims).await
    }

    async fn mark_failed(&self, failures: &[FailedRecord]) -> acemq::Result<()> {
        self.0.mark_failed(failures).await
    }
}

// promise: OB-15
#[tokio::test(start_paused = true)]
async fn a_row_that_cannot_be_read_keeps_its_reason_cut_on_a_character() {
    let mq = connected(&MemoryBroker::new()).await;
    let outbox = MemoryOutboxStore::new().max_attempts(1);
    outbox.add(&record("orders"));
    let relay = OutboxRelay::builder(&mq, Unreadable(outbox.clone())).build();
    assert_eq!(relay.drain_once().await.unwrap(), 0);
    let stuck = outbox.stuck(1).await.unwrap();
    assert_eq!(stuck[0].last_error, Some("ä".repeat(1_000)));
}

// promise: OB-27
#[tokio::test(start_paused = true)]
async fn an_armed_relay_looks_at_growing_intervals_until_the_commit() {
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let store = Faulty { signal: Some(OutboxSignal::new()), ..Faulty::new() };
    let relay = OutboxRelay::builder(&mq, store.clone()).poll(HOUR).start();
    sleep(Duration::from_secs(1)).await;

    let record = record("orders");
    store.signal.as_ref().unwrap().arm(record.id());
    sleep(Duration::from_millis(10)).await;
    // The commit: nobody says so, and the row is there.
    store.inner.add(&record);
    let committed = Instant::now();
    while in_queue(&broker) == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    assert!(committed.elapsed() <= Duration::from_millis(20), "{:?}", committed.elapsed());
    relay.close().await.unwrap();
}

// promise: OB-27
#[tokio::test(start_paused = true)]
async fn a_wake_after_the_commit_is_exact_and_without_it_the_poll_finds_the_row() {
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let store = Faulty { signal: Some(OutboxSignal::new()), ..Faulty::new() };
    let relay = OutboxRelay::builder(&mq, store.clone()).poll(Duration::from_secs(5)).start();
    sleep(Duration::from_secs(1)).await;

    store.inner.add(&record("orders"));
    store.signal.as_ref().unwrap().wake();
    sleep(Duration::from_millis(2)).await;
    assert_eq!(in_queue(&broker), 1);
    store.inner.add(&record("orders"));
    sleep(Duration::from_secs(5)).await;
    assert_eq!(in_queue(&broker), 2);
    relay.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn records_that_were_rolled_back_do_not_make_the_relay_spin() {
    let mq = connected(&MemoryBroker::new()).await;
    let store = Faulty { signal: Some(OutboxSignal::new()), ..Faulty::new() };
    let relay = OutboxRelay::builder(&mq, store.clone()).start();
    for n in 0..1_000 {
        store.signal.as_ref().unwrap().arm(&format!("rolled back {n}"));
    }
    sleep(Duration::from_secs(60)).await;
    let claims = store.faults.claims.load(Ordering::SeqCst);
    assert!((60..80).contains(&claims), "{claims} looks in a minute");
    relay.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hands_a_failing_record_out_again_at_once_does_not_make_the_relay_spin() {
    let mq = connected(&MemoryBroker::new()).await;
    let store = Minimal::default();
    store.lists().waiting.push_back(record("nobody"));
    let relay = OutboxRelay::builder(&mq, store.clone()).start();
    sleep(Duration::from_secs(60)).await;
    let tries = store.lists().failed.len();
    assert!((25..=61).contains(&tries), "{tries} tries in a minute");
    relay.close().await.unwrap();
}

// promise: OB-24
#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_while_a_batch_takes_longer() {
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let outbox = MemoryOutboxStore::new();
    outbox.add(&record("orders"));
    broker.block("low on memory");
    let relay = OutboxRelay::builder(&mq, outbox.clone()).lease(Duration::from_secs(3)).start();
    let other = outbox.clone();
    for _ in 0..25 {
        sleep(Duration::from_secs(1)).await;
        assert!(other.claim_batch(10, Duration::from_secs(1)).await.unwrap().is_empty());
    }
    broker.unblock();
    sleep(Duration::from_secs(1)).await;
    assert_eq!((relay.published(), in_queue(&broker)), (1, 1));
    relay.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_lost_its_claim_changes_nothing_about_what_the_other_one_did() {
    let slow_broker = MemoryBroker::new();
    let slow_mq = connected(&slow_broker).await;
    let slow_store = Faulty::new();
    slow_store.faults.no_renewals.store(1, Ordering::SeqCst);
    let outbox = slow_store.inner.clone();
    for _ in 0..5 {
        outbox.add(&record("orders"));
    }
    slow_broker.block("low on memory");
    let slow = OutboxRelay::builder(&slow_mq, slow_store).lease(Duration::from_secs(3)).build();
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let fast = OutboxRelay::builder(&mq, outbox.clone()).build();

    let mut slow_drain = Box::pin(slow.drain_once());
    assert!((&mut slow_drain).now_or_never().is_none());
    assert_eq!(fast.drain_once().await.unwrap(), 0);
    sleep(Duration::from_secs(4)).await;
    assert_eq!(fast.drain_once().await.unwrap(), 5);
    // The slow one finds that its publishes failed, and gives back what is no longer its own.
    assert_eq!(slow_drain.await.unwrap_err().kind(), ErrorKind::Blocked);

    assert_eq!(pending(&outbox).await, 0);
    assert_eq!(fast.drain_once().await.unwrap(), 0);
}

// promise: OB-5
#[tokio::test(start_paused = true)]
async fn a_relay_dropped_in_the_middle_of_a_batch_costs_its_lease_and_no_record() {
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let outbox = MemoryOutboxStore::new();
    for _ in 0..20 {
        outbox.add(&record("orders"));
    }
    broker.block("low on memory");
    let first = OutboxRelay::builder(&mq, outbox.clone()).lease(Duration::from_secs(60)).start();
    sleep(Duration::from_secs(1)).await;
    drop(first);
    broker.unblock();

    let second = OutboxRelay::builder(&mq, outbox.clone()).start();
    sleep(Duration::from_secs(50)).await;
    assert_eq!(second.published(), 0);
    sleep(Duration::from_secs(20)).await;
    assert_eq!((second.published(), pending(&outbox).await), (20, 0));
    second.close().await.unwrap();
}

// promise: OB-11
#[tokio::test(start_paused = true)]
async fn close_finishes_the_batch_in_hand_and_begins_no_other() {
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let outbox = MemoryOutboxStore::new();
    for _ in 0..50 {
        outbox.add(&record("orders"));
    }
    broker.block("low on memory");
    let relay = OutboxRelay::builder(&mq, outbox.clone()).batch(20).start();
    sleep(Duration::from_secs(1)).await;
    let unblock = async {
        sleep(Duration::from_secs(5)).await;
        broker.unblock();
    };
    let (closed, ()) = tokio::join!(relay.close(), unblock);
    closed.unwrap();
    assert_eq!((relay.published(), in_queue(&broker)), (20, 20));
    assert_eq!(pending(&outbox).await, 30);
    // The next batch, claimed meanwhile, is free.
    let rest = OutboxRelay::builder(&mq, outbox.clone()).build();
    assert_eq!(rest.drain().await.unwrap(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_outlasts_the_drain_timeout_is_cut_off() {
    let broker = MemoryBroker::new();
    let mq = acemq::connect(broker.url()).drain_timeout(Duration::from_secs(2)).await.unwrap();
    mq.declare_queue(&Queue::new("orders")).await.unwrap();
    let outbox = MemoryOutboxStore::new();
    outbox.add(&record("orders"));
    broker.block("low on memory");
    let relay = OutboxRelay::builder(&mq, outbox.clone()).start();
    sleep(Duration::from_secs(1)).await;
    let started = Instant::now();
    relay.close().await.unwrap();
    assert_eq!(started.elapsed(), Duration::from_secs(2));
    assert!(!relay.is_running());
}

#[tokio::test(start_paused = true)]
async fn closing_never_hangs_whenever_it_comes() {
    let mq = connected(&MemoryBroker::new()).await;
    let relay = || OutboxRelay::builder(&mq, MemoryOutboxStore::new());
    let started = Instant::now();
    // Before the start, twice, side by side.
    let built = relay().build();
    built.close().await.unwrap();
    built.start();
    assert!(!built.is_running());
    let running = relay().start();
    let (one, two) = tokio::join!(running.close(), running.close());
    one.unwrap();
    two.unwrap();
    running.close().await.unwrap();
    // Dropped before its task was ever polled, while the client closes.
    let dropped = relay().start();
    let closing = tokio::spawn({
        let mq = mq.clone();
        async move { mq.close().await }
    });
    drop(dropped);
    closing.await.unwrap().unwrap();
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
}

// promise: OB-31
#[tokio::test(start_paused = true)]
async fn closing_the_client_closes_relays_before_consumers_before_the_connections() {
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let outbox = MemoryOutboxStore::new();
    let relay = Arc::new(OutboxRelay::builder(&mq, outbox.clone()).start());
    let (seen, publisher) = (Arc::clone(&relay), mq.clone());
    let handled = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&handled);
    let consumer = mq
        .consumer::<String>("orders")
        .start(move |_: Message<String>| {
            let (relay, mq, count) = (Arc::clone(&seen), publisher.clone(), Arc::clone(&count));
            async move {
                // Ends only once the relay has, and still has a connection then.
                while relay.is_running() {
                    sleep(Duration::from_millis(10)).await;
                }
                mq.send_to_queue("answers", "done").await?;
                count.fetch_add(1, Ordering::SeqCst);
                Ok::<_, HandlerError>(())
            }
        })
        .await
        .unwrap();
    mq.declare_queue(&Queue::new("answers")).await.unwrap();
    mq.send_to_queue("orders", "o-1").await.unwrap();
    sleep(Duration::from_secs(1)).await;

    mq.close().await.unwrap();

    assert_eq!(handled.load(Ordering::SeqCst), 1);
    assert_eq!(consumer.counters().acknowledged, 1);
    assert_eq!(broker.queue("answers").unwrap().len(), 1);
    assert!(!relay.is_running());
}

// promise: OB-31
#[tokio::test(start_paused = true)]
async fn a_second_active_relay_is_said_in_the_log() {
    let (log, _guard) = testkit::logs::of_this_thread();
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let outbox = MemoryOutboxStore::new();
    outbox.add(&record("orders"));
    broker.block("low on memory");
    let first = OutboxRelay::builder(&mq, outbox.clone()).start();
    sleep(Duration::from_secs(1)).await;
    assert!(log.lines_with(&["another relay is active on this outbox"]).is_empty());
    let second = OutboxRelay::builder(&mq, outbox.clone()).start();
    sleep(Duration::from_secs(1)).await;
    let said = log.lines_with(&["WARN", "another relay is active on this outbox"]);
    assert_eq!(said.len(), 1, "{said:?}");
    drop((first, second));
}

#[tokio::test(start_paused = true)]
async fn a_relay_never_holds_more_than_two_batches() {
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let store = Faulty::new();
    for _ in 0..2_000 {
        store.inner.add(&record("orders"));
    }
    let relay = OutboxRelay::builder(&mq, store.clone()).batch(50).start();
    while pending(&store).await > 0 {
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(in_queue(&broker), 2_000);
    assert!(store.faults.most_in_hand.load(Ordering::SeqCst) <= 100);
    relay.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_relay_takes_no_more_bytes_at_once_than_it_may() {
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let outbox = MemoryOutboxStore::new();
    for size in [400, 400, 400, 5_000, 100] {
        let body = vec![b'x'; size];
        let envelope = Envelope::new("order.placed");
        let record = OutboxRecord::new("", "orders", "text/plain", body, &envelope);
        outbox.add(&record.unwrap());
    }
    let relay = OutboxRelay::builder(&mq, outbox.clone()).batch_bytes(1_000).build();
    for sent in [2, 1, 1, 1, 0] {
        assert_eq!(relay.drain_once().await.unwrap(), sent);
    }
    assert_eq!(in_queue(&broker), 5);
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_comes_back_is_noticed_at_once_not_after_the_pause() {
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let outbox = MemoryOutboxStore::new();
    outbox.add(&record("orders"));
    let relay = OutboxRelay::builder(&mq, outbox.clone()).poll(Duration::from_secs(5)).build();
    broker.block("low on memory");
    relay.start();
    // Long enough for the pauses between passes to have grown to half a minute.
    sleep(HOUR).await;
    broker.unblock();
    let free = Instant::now();
    while pending(&outbox).await > 0 {
        sleep(Duration::from_millis(10)).await;
    }
    assert!(free.elapsed() < Duration::from_secs(2), "{:?}", free.elapsed());
    relay.close().await.unwrap();
}

// promise: OB-24
#[tokio::test(start_paused = true)]
async fn a_batch_whose_lease_ran_out_before_its_turn_is_not_published_twice() {
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let outbox = MemoryOutboxStore::new();
    for _ in 0..2 {
        outbox.add(&record("orders"));
    }
    // The first relay publishes one record, and holds the next one meanwhile.
    mq.send_to_queue("orders", "the broker pauses only who has published").await.unwrap();
    broker.block("low on memory");
    let lease = Duration::from_secs(5);
    let slow = OutboxRelay::builder(&mq, outbox.clone()).batch(1).lease(lease).start();
    sleep(Duration::from_secs(6)).await;
    let other = connected(&broker).await;
    let quick = OutboxRelay::builder(&other, outbox.clone()).lease(lease).start();
    sleep(Duration::from_secs(6)).await;
    broker.unblock();
    sleep(Duration::from_secs(60)).await;

    assert_eq!(pending(&outbox).await, 0);
    assert_eq!(in_queue(&broker), 3);
    slow.close().await.unwrap();
    quick.close().await.unwrap();
}

/// A store whose first claim is never answered, like a database behind a cut cable.
#[derive(Clone)]
struct Silent {
    inner: MemoryOutboxStore,
    silent: Arc<AtomicU32>,
}

impl OutboxStore for Silent {
    async fn claim_batch(&self, size: usize, lease: Duration) -> acemq::Result<Vec<ClaimedRecord>> {
        if self.silent.swap(0, Ordering::SeqCst) > 0 {
            std::future::pending::<()>().await;
        }
        self.inner.claim_batch(size, lease).await
    }

    async fn mark_published(&self, claims: &[RecordClaim]) -> acemq::Result<()> {
        self.inner.mark_published(claims).await
    }

    async fn mark_failed(&self, failures: &[FailedRecord]) -> acemq::Result<()> {
        self.inner.mark_failed(failures).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_does_not_stop_the_relay_for_good() {
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let store = Silent { inner: MemoryOutboxStore::new(), silent: Arc::new(AtomicU32::new(1)) };
    store.inner.add(&record("orders"));
    let relay = OutboxRelay::builder(&mq, store).start();
    sleep(Duration::from_secs(120)).await;
    assert_eq!(in_queue(&broker), 1);
    relay.close().await.unwrap();
}
