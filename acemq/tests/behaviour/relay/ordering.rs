//! Relays that keep an order.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use acemq::{
    ClaimRequest, ClaimedRecord, Client, ErrorKind, FailedRecord, MemoryOutboxStore, OutboxRecord,
    OutboxRelay, OutboxStore, Queue, RecordClaim, RelayLock,
    RelayOrder::{PerKey, Relaxed, Strict},
    RelayState,
    testing::MemoryBroker,
};
use testkit::{eventually, unique};
use tokio::{sync::Notify, time::sleep};

use super::faults::{connected, in_queue, pending};
use crate::{
    on_every_broker,
    support::{
        stores::{Faulty, Minimal},
        wire::take,
    },
};

const SOON: Duration = Duration::from_secs(20);

/// A record whose payload says its place.
async fn numbered(mq: &Client, queue: &str, number: usize) -> OutboxRecord {
    mq.publisher::<String>("", queue).record(&format!("{number:04}")).await.unwrap()
}

/// The payloads in a queue of the memory broker, in order.
fn payloads(broker: &MemoryBroker, queue: &str) -> Vec<String> {
    let messages = broker.queue(queue).unwrap();
    messages.iter().map(|m| String::from_utf8(m.body().to_vec()).unwrap()).collect()
}

on_every_broker! {
    // promise: BX-5
    // promise: OB-12
    async fn records_of_a_key_go_out_in_order_and_those_of_others_beside_them(broker: Broker) {
        for order in [PerKey, Strict] {
            let mq = broker.client().await;
            let queues = [unique("one"), unique("two"), unique("three")];
            let outbox = MemoryOutboxStore::new();
            for queue in &queues {
                mq.declare_queue(&Queue::new(&**queue).classic()).await.unwrap();
            }
            for number in 0..60 {
                outbox.add(&numbered(&mq, &queues[number % 3], number).await);
            }
            let relay = OutboxRelay::builder(&mq, outbox.clone()).batch(8).order(order).start();
            eventually("all is out", SOON, async || outbox.pending_count().await.unwrap() == 0)
                .await;
            relay.close().await.unwrap();
            for (queue, first) in queues.iter().zip(0..) {
                let sent: Vec<_> = take(&broker, queue).await;
                let sent: Vec<_> = sent.iter().map(|m| String::from_utf8_lossy(&m.body)).collect();
                let made: Vec<_> =
                    (first..60).step_by(3).map(|n: usize| format!("\"{n:04}\"")).collect();
                assert_eq!(sent, made, "{order:?}");
                mq.delete_queue(queue).await.unwrap();
            }
            mq.close().await.unwrap();
        }
    }
}

// promise: OB-10
#[tokio::test(start_paused = true)]
async fn a_record_that_failed_is_overtaken_only_where_no_order_is_kept() {
    for (order, late_queue, other_queue) in [
        (Relaxed, ["2", "0"], vec!["1", "3"]),
        (PerKey, ["0", "2"], vec!["1", "3"]),
        (Strict, ["0", "2"], vec![]),
    ] {
        let broker = MemoryBroker::new();
        let mq = connected(&broker).await;
        let outbox = MemoryOutboxStore::new();
        outbox.add(&numbered(&mq, "late", 0).await);
        outbox.add(&numbered(&mq, "orders", 1).await);
        let relay = OutboxRelay::builder(&mq, outbox.clone()).order(order).start();
        // The first one finds no queue, once; then there is one.
        sleep(Duration::from_millis(100)).await;
        assert_eq!(relay.failed(), 1, "{order:?}");
        mq.declare_queue(&Queue::new("late")).await.unwrap();
        outbox.add(&numbered(&mq, "late", 2).await);
        outbox.add(&numbered(&mq, "orders", 3).await);
        sleep(Duration::from_millis(100)).await;
        let place = |number: &str| format!("\"{number:0>4}\"");
        let expected: Vec<_> = other_queue.into_iter().map(place).collect();
        assert_eq!(payloads(&broker, "orders"), expected, "{order:?}");
        sleep(Duration::from_secs(5)).await;
        assert_eq!(payloads(&broker, "late"), late_queue.map(place), "{order:?}");
        assert_eq!((in_queue(&broker), pending(&outbox).await), (2, 0), "{order:?}");
        relay.close().await.unwrap();
    }
}

// promise: OB-10
#[tokio::test(start_paused = true)]
async fn an_exhausted_record_holds_its_key_until_it_is_retried_or_discarded() {
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let outbox = MemoryOutboxStore::new().max_attempts(1);
    let records = [
        numbered(&mq, "late", 0).await,
        numbered(&mq, "late", 1).await,
        numbered(&mq, "late", 2).await,
    ];
    records.iter().for_each(|record| outbox.add(record));
    let relay = OutboxRelay::builder(&mq, outbox.clone()).order(PerKey).start();
    sleep(Duration::from_secs(3_600)).await;
    assert_eq!((relay.failed(), pending(&outbox).await), (1, 3));

    // The next one takes its place, and fails in turn.
    assert_eq!(outbox.discard(records[0].id()).await.unwrap(), acemq::Discard::Removed);
    sleep(Duration::from_secs(5)).await;
    assert_eq!((relay.failed(), pending(&outbox).await), (2, 2));

    mq.declare_queue(&Queue::new("late")).await.unwrap();
    assert_eq!(outbox.retry_all().await.unwrap(), 1);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(payloads(&broker, "late"), ["\"0001\"", "\"0002\""]);
    relay.close().await.unwrap();
}

// promise: BX-5
#[tokio::test(start_paused = true)]
async fn what_may_have_been_published_goes_out_again_before_what_is_behind_it() {
    for order in [PerKey, Strict] {
        let broker = MemoryBroker::new();
        let mq = connected(&broker).await;
        let outbox = MemoryOutboxStore::new();
        for number in 0..10 {
            outbox.add(&numbered(&mq, "orders", number).await);
        }
        mq.send_to_queue("orders", "the broker pauses only who has published").await.unwrap();
        broker.block("low on memory");
        let relay = OutboxRelay::builder(&mq, outbox.clone()).order(order).start();
        sleep(Duration::from_secs(1)).await;
        // Written, or waiting to be, and never confirmed.
        broker.drop_connections();
        sleep(Duration::from_secs(1)).await;
        broker.unblock();
        sleep(Duration::from_secs(60)).await;
        let sent = payloads(&broker, "orders");
        assert!(sent[1..].is_sorted(), "{order:?}: {sent:?}");
        assert_eq!(pending(&outbox).await, 0);
        relay.close().await.unwrap();
    }
}

// promise: BX-5
#[tokio::test(start_paused = true)]
async fn a_relay_stands_by_until_the_active_one_ends() {
    let (log, _guard) = testkit::logs::of_this_thread();
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let outbox = MemoryOutboxStore::new();
    let first = OutboxRelay::builder(&mq, outbox.clone()).order(PerKey).start();
    sleep(Duration::from_millis(10)).await;
    let second = OutboxRelay::builder(&mq, outbox.clone()).order(Strict).start();
    for number in 0..5 {
        outbox.add(&numbered(&mq, "orders", number).await);
    }
    sleep(Duration::from_secs(60)).await;
    assert_eq!((first.published(), second.published()), (5, 0));
    assert_eq!((first.state(), second.state()), (RelayState::Active, RelayState::StandingBy));
    assert_eq!(log.lines_with(&["INFO", "standing by"]).len(), 1);
    // On demand there is nothing to do beside the active one.
    assert_eq!(
        OutboxRelay::builder(&mq, outbox.clone()).order(PerKey).build().drain().await.unwrap(),
        0
    );

    first.close().await.unwrap();
    for number in 5..10 {
        outbox.add(&numbered(&mq, "orders", number).await);
    }
    sleep(Duration::from_secs(2)).await;
    assert_eq!(second.published(), 5);
    assert_eq!((first.state(), second.state()), (RelayState::Stopped, RelayState::Active));
    assert!(payloads(&broker, "orders").is_sorted());
    let closing = tokio::time::Instant::now();
    second.close().await.unwrap();
    assert!(closing.elapsed() < Duration::from_secs(1));
    let drained = OutboxRelay::builder(&mq, outbox.clone()).order(PerKey).build();
    assert_eq!(drained.drain_once().await.unwrap(), 0);
}

// promise: OB-27
#[tokio::test(start_paused = true)]
async fn a_relay_that_stands_by_leaves_the_wake_ups_to_the_active_one() {
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let outbox = MemoryOutboxStore::new();
    let never = Duration::from_secs(3_600);
    let relay = || OutboxRelay::builder(&mq, outbox.clone()).order(PerKey).poll(never).start();
    let (first, second) = (relay(), relay());
    for number in 0..20 {
        sleep(Duration::from_secs(7)).await;
        outbox.add(&numbered(&mq, "orders", number).await);
        sleep(Duration::from_millis(10)).await;
        assert_eq!(in_queue(&broker), number + 1);
    }
    drop((first, second));
}

/// What the active relay held when it died stays its own until the lease has run out: it may be on
/// its way.
// promise: OB-5
#[tokio::test(start_paused = true)]
async fn a_relay_that_dies_is_followed_by_another_once_its_lease_has_run_out() {
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let outbox = MemoryOutboxStore::new();
    for number in 0..5 {
        outbox.add(&numbered(&mq, "orders", number).await);
    }
    broker.block("low on memory");
    let first = OutboxRelay::builder(&mq, outbox.clone()).order(Strict).start();
    let second = OutboxRelay::builder(&mq, outbox.clone()).order(Strict).start();
    sleep(Duration::from_secs(1)).await;
    drop(first);
    broker.unblock();
    sleep(Duration::from_secs(50)).await;
    assert_eq!(second.published(), 0);
    sleep(Duration::from_secs(15)).await;
    assert_eq!(second.published(), 5);
    assert!(payloads(&broker, "orders").is_sorted());
    second.close().await.unwrap();
}

/// A store whose lock the test takes away.
#[derive(Clone)]
struct Losing {
    inner: Faulty,
    lose: Arc<Notify>,
    leads: Arc<AtomicU32>,
}

impl Losing {
    fn new() -> Self {
        Self { inner: Faulty::new(), lose: Arc::default(), leads: Arc::default() }
    }
}

impl OutboxStore for Losing {
    async fn claim_batch(&self, size: usize, lease: Duration) -> acemq::Result<Vec<ClaimedRecord>> {
        self.inner.claim_batch(size, lease).await
    }

    async fn claim(&self, request: ClaimRequest) -> acemq::Result<Vec<ClaimedRecord>> {
        self.inner.inner.claim(request).await
    }

    async fn lead(&self, _: Duration) -> acemq::Result<Option<RelayLock>> {
        if self.leads.fetch_add(1, Ordering::SeqCst) > 0 {
            return Ok(None);
        }
        let lose = Arc::clone(&self.lose);
        Ok(Some(RelayLock::new(async move { lose.notified().await })))
    }

    async fn mark_published(&self, claims: &[RecordClaim]) -> acemq::Result<()> {
        self.inner.mark_published(claims).await
    }

    async fn mark_failed(&self, failures: &[FailedRecord]) -> acemq::Result<()> {
        self.inner.inner.mark_failed(failures).await
    }

    async fn give_back(&self, claims: &[RecordClaim]) -> acemq::Result<()> {
        self.inner.inner.give_back(claims).await
    }

    async fn renew(&self, claims: &[RecordClaim], lease: Duration) -> acemq::Result<()> {
        self.inner.renew(claims, lease).await
    }
}

// promise: BX-5
#[tokio::test(start_paused = true)]
async fn a_relay_whose_lock_is_lost_publishes_nothing_more() {
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let store = Losing::new();
    for number in 0..5 {
        store.inner.inner.add(&numbered(&mq, "orders", number).await);
    }
    broker.block("low on memory");
    let relay = OutboxRelay::builder(&mq, store.clone()).order(Strict).start();
    sleep(Duration::from_secs(1)).await;
    store.lose.notify_one();
    sleep(Duration::from_secs(1)).await;
    broker.unblock();
    sleep(Duration::from_secs(120)).await;
    // The one that was on its way, and no other; the rest is free.
    assert_eq!((in_queue(&broker), relay.published()), (1, 1));
    let free = store.inner.inner.claim_batch(10, Duration::from_secs(1)).await.unwrap();
    assert_eq!(free.len(), 4);
    relay.close().await.unwrap();
}

// promise: OB-22
#[tokio::test(start_paused = true)]
async fn a_relay_that_has_to_stand_by_marks_what_it_has_published() {
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let store = Losing::new();
    for number in 0..5 {
        store.inner.inner.add(&numbered(&mq, "orders", number).await);
    }
    // The database restarts: the marks fail, and another relay has the lock first.
    store.inner.faults.marks_that_fail.store(1, Ordering::SeqCst);
    let relay = OutboxRelay::builder(&mq, store.clone()).order(Strict).start();
    eventually("everything is published", SOON, async || relay.published() == 5).await;
    store.lose.notify_one();
    // Before its lease runs out, and the other one publishes everything again.
    sleep(Duration::from_secs(30)).await;
    assert_eq!(pending(&store.inner).await, 0);
    relay.close().await.unwrap();
}

// promise: BX-4
#[tokio::test(start_paused = true)]
async fn a_relay_whose_claims_are_not_renewed_stops_before_they_run_out() {
    let broker = MemoryBroker::new();
    let mq =
        acemq::connect(broker.url()).blocked_timeout(Duration::from_secs(3_600)).await.unwrap();
    mq.declare_queue(&Queue::new("orders")).await.unwrap();
    let store = Losing::new();
    store.inner.faults.no_renewals.store(1, Ordering::SeqCst);
    for number in 0..5 {
        store.inner.inner.add(&numbered(&mq, "orders", number).await);
    }
    // The broker has paused this connection, so that the first record is not even written.
    mq.send_to_queue("orders", "the broker pauses only who has published").await.unwrap();
    broker.block("low on memory");
    let told = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&told);
    let relay = OutboxRelay::builder(&mq, store.clone())
        .order(Strict)
        .on_error(move |error| {
            assert!(error.to_string().contains("the claims ran out"), "{error}");
            count.fetch_add(1, Ordering::SeqCst);
        })
        .start();
    sleep(Duration::from_secs(59)).await;
    assert_eq!(told.load(Ordering::SeqCst), 0);
    // Before it tries again.
    sleep(Duration::from_millis(1_300)).await;
    assert_eq!((told.load(Ordering::SeqCst), relay.published()), (1, 0));
    // Another relay may take them now, and this one has let go of them.
    let free = store.inner.inner.claim_batch(10, Duration::from_secs(1)).await.unwrap();
    assert_eq!(free.len(), 5);
    drop(relay);
}

// promise: OB-23
#[tokio::test(start_paused = true)]
async fn a_drain_in_order_that_failed_lets_the_next_one_in() {
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let outbox = MemoryOutboxStore::new();
    for number in 0..3 {
        outbox.add(&numbered(&mq, "orders", number).await);
    }
    let relay = OutboxRelay::builder(&mq, outbox).order(PerKey).batch(1).build();
    broker.block("low on memory");
    assert_eq!(relay.drain_once().await.unwrap_err().kind(), ErrorKind::Blocked);
    broker.unblock();
    assert_eq!(relay.drain_once().await.unwrap(), 1);
    assert_eq!(relay.drain().await.unwrap(), 2);
}

// promise: OB-28
#[tokio::test(start_paused = true)]
async fn a_store_without_a_lock_refuses_the_ordered_modes_and_says_so() {
    let mq = connected(&MemoryBroker::new()).await;
    let told = Arc::new(AtomicU32::new(0));
    for order in [PerKey, Strict] {
        let store = Minimal::default();
        let record = numbered(&mq, "orders", 0).await;
        store.lists().waiting.push_back(record);
        let builder = OutboxRelay::builder(&mq, store.clone()).order(order);
        let error = builder.build().drain_once().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("the one active relay"), "{error}");

        let count = Arc::clone(&told);
        let relay = OutboxRelay::builder(&mq, store.clone())
            .order(order)
            .on_error(move |error| {
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                count.fetch_add(1, Ordering::SeqCst);
            })
            .start();
        sleep(Duration::from_secs(10)).await;
        assert!(told.swap(0, Ordering::SeqCst) > 0);
        assert_eq!(store.lists().claimed.len(), 0);
        relay.close().await.unwrap();
    }
}

/// Claims that hold a record which cannot be read.
struct Unreadable(MemoryOutboxStore, String);

impl OutboxStore for Unreadable {
    async fn claim_batch(&self, size: usize, lease: Duration) -> acemq::Result<Vec<ClaimedRecord>> {
        self.claim(ClaimRequest::new(size, lease)).await
    }

    async fn claim(&self, request: ClaimRequest) -> acemq::Result<Vec<ClaimedRecord>> {
        let claimed = self.0.claim(request).await?.into_iter();
        let spoilt = |record: ClaimedRecord| {
            if record.claim().id() != self.1 {
                return record;
            }
            let reason = acemq::Error::new(ErrorKind::Decode, "not JSON");
            ClaimedRecord::new(record.claim().clone(), record.attempts(), Err(reason))
        };
        Ok(claimed.map(spoilt).collect())
    }

    async fn lead(&self, wait: Duration) -> acemq::Result<Option<RelayLock>> {
        self.0.lead(wait).await
    }

    async fn mark_published(&self, claims: &[RecordClaim]) -> acemq::Result<()> {
        self.0.mark_published(claims).await
    }

    async fn mark_failed(&self, failures: &[FailedRecord]) -> acemq::Result<()> {
        self.0.mark_failed(failures).await
    }

    async fn give_back(&self, claims: &[RecordClaim]) -> acemq::Result<()> {
        self.0.give_back(claims).await
    }
}

// promise: OB-10
#[tokio::test(start_paused = true)]
async fn a_row_that_cannot_be_read_holds_up_its_key_like_any_other() {
    for (order, went_out) in [(PerKey, vec!["\"0000\"", "\"0003\""]), (Strict, vec!["\"0000\""])] {
        let broker = MemoryBroker::new();
        let mq = connected(&broker).await;
        mq.declare_queue(&Queue::new("other")).await.unwrap();
        let outbox = MemoryOutboxStore::new().max_attempts(1);
        let mut ids = Vec::new();
        for (number, queue) in ["orders", "orders", "orders", "other"].iter().enumerate() {
            let record = numbered(&mq, queue, number).await;
            ids.push(record.id().to_owned());
            outbox.add(&record);
        }
        let store = Unreadable(outbox.clone(), ids[1].clone());
        let relay = OutboxRelay::builder(&mq, store).order(order).start();
        sleep(Duration::from_secs(60)).await;
        let mut sent = payloads(&broker, "orders");
        sent.extend(payloads(&broker, "other"));
        assert_eq!(sent, went_out, "{order:?}");
        assert_eq!(relay.failed(), 1);
        relay.close().await.unwrap();
    }
}
