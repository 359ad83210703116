//! A relay whose store is away when it would write down what became of the records.

use std::{sync::atomic::Ordering, time::Duration};

use acemq::{ErrorKind, MemoryOutboxStore, OutboxRelay, OutboxStore, testing::MemoryBroker};
use tokio::time::{Instant, sleep};

use super::faults::{connected, in_queue, pending, record};
use crate::support::stores::Faulty;

// promise: OB-22
#[tokio::test(start_paused = true)]
async fn what_was_published_is_marked_after_an_outage_of_the_store_and_goes_out_once() {
    let (log, _guard) = testkit::logs::of_this_thread();
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let store = Faulty::new();
    for _ in 0..300 {
        store.inner.add(&record("orders"));
    }
    // A failed pass asks once; the pauses grow to half a minute: some ten minutes in all.
    store.faults.marks_that_fail.store(25, Ordering::SeqCst);
    let lease = Duration::from_secs(3_600);
    let relay = OutboxRelay::builder(&mq, store.clone()).lease(lease).start();
    sleep(Duration::from_secs(120)).await;
    assert!(in_queue(&broker) <= 100, "more was published before the marks");
    sleep(Duration::from_secs(1_200)).await;

    assert_eq!((in_queue(&broker), pending(&store).await), (300, 0));
    assert_eq!((relay.published(), relay.failed()), (300, 0));
    assert_eq!(log.lines_with(&["WARN", "a pass of the outbox relay failed"]).len(), 1);
    assert_eq!(log.lines_with(&["INFO", "the outbox relay goes on"]).len(), 1);
    relay.close().await.unwrap();
}

// promise: OB-22
#[tokio::test(start_paused = true)]
async fn a_failure_that_could_not_be_written_is_counted_once_when_the_store_is_back() {
    let mq = connected(&MemoryBroker::new()).await;
    let store = Faulty::new();
    store.inner.add(&record("nobody"));
    store.faults.failures_that_fail.store(3, Ordering::SeqCst);
    let relay = OutboxRelay::builder(&mq, store.clone()).build();
    for _ in 0..3 {
        assert_eq!(relay.drain_once().await.unwrap_err().kind(), ErrorKind::Store);
    }
    assert_eq!(relay.drain_once().await.unwrap(), 0);
    assert_eq!(relay.failed(), 1);
    sleep(Duration::from_secs(2)).await;
    let claimed = store.claim_batch(1, Duration::from_secs(1)).await.unwrap();
    assert_eq!(claimed[0].attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_takes_back_what_a_relay_holds_does_not_stop_it() {
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let store = Faulty::new();
    store.inner.add(&record("orders"));
    store.faults.returns_that_fail.store(u32::MAX, Ordering::SeqCst);
    let relay = OutboxRelay::builder(&mq, store.clone()).lease(Duration::from_secs(10)).start();
    broker.block("low on memory");
    sleep(Duration::from_secs(60)).await;
    broker.unblock();
    sleep(Duration::from_secs(120)).await;
    assert_eq!((relay.published(), pending(&store).await), (1, 0));
    relay.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_was_dropped_while_it_marked_leaves_that_to_the_next() {
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let store = Faulty::new();
    store.inner.add(&record("orders"));
    store.faults.marks_that_hang.store(1, Ordering::SeqCst);
    let relay = OutboxRelay::builder(&mq, store.clone()).build();
    let drained = tokio::time::timeout(Duration::from_secs(1), relay.drain_once()).await;
    drained.unwrap_err();
    assert_eq!((in_queue(&broker), pending(&store).await), (1, 1));
    assert_eq!(relay.drain_once().await.unwrap(), 0);
    assert_eq!((in_queue(&broker), pending(&store).await), (1, 0));
}

// promise: OB-22
#[tokio::test(start_paused = true)]
async fn nobody_else_gets_what_was_published_while_a_mark_hangs() {
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let store = Faulty::new();
    for _ in 0..30 {
        store.inner.add(&record("orders"));
    }
    store.faults.marks_that_hang.store(1, Ordering::SeqCst);
    let lease = Duration::from_secs(10);
    let relay = OutboxRelay::builder(&mq, store.clone()).lease(lease).batch(10).start();
    sleep(Duration::from_secs(1)).await;
    let other = OutboxRelay::builder(&mq, store.inner.clone()).start();
    sleep(Duration::from_secs(60)).await;

    assert_eq!((in_queue(&broker), pending(&store).await), (30, 0));
    assert_eq!(relay.published() + other.published(), 30);
    relay.close().await.unwrap();
    other.close().await.unwrap();
}

// promise: OB-11
#[tokio::test(start_paused = true)]
async fn close_goes_on_marking_for_as_long_as_it_may_take() {
    for (marks_that_fail, marked, may_take) in [(3, true, 10), (u32::MAX, false, 21)] {
        let broker = MemoryBroker::new();
        let mq = connected(&broker).await;
        let store = Faulty::new();
        store.inner.add(&record("orders"));
        store.faults.marks_that_fail.store(marks_that_fail, Ordering::SeqCst);
        for started in [false, true] {
            let relay = OutboxRelay::builder(&mq, store.clone()).build();
            if started {
                relay.start();
                sleep(Duration::from_millis(100)).await;
            } else {
                relay.drain_once().await.unwrap_err();
            }
            let closing = Instant::now();
            relay.close().await.unwrap();
            assert!(closing.elapsed() < Duration::from_secs(may_take), "{:?}", closing.elapsed());
            assert!(!relay.is_running());
            assert_eq!(pending(&store).await == 0, marked);
        }
        assert_eq!(in_queue(&broker), 1);
    }
}

// promise: OB-31
#[tokio::test(start_paused = true)]
async fn closing_the_client_ends_a_relay_whose_store_is_away() {
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let store = Faulty::new();
    store.inner.add(&record("orders"));
    store.faults.marks_that_fail.store(u32::MAX, Ordering::SeqCst);
    let relay = OutboxRelay::builder(&mq, store.clone()).start();
    sleep(Duration::from_secs(1)).await;
    mq.close().await.unwrap();
    sleep(Duration::from_secs(60)).await;
    assert!(!relay.is_running());
}

// promise: BX-4
#[tokio::test(start_paused = true)]
async fn a_batch_claimed_ahead_is_free_again_while_the_marks_wait() {
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let store = Faulty::new();
    for _ in 0..20 {
        store.inner.add(&record("orders"));
    }
    store.faults.marks_that_fail.store(u32::MAX, Ordering::SeqCst);
    let relay = OutboxRelay::builder(&mq, store.clone()).batch(10).start();
    sleep(Duration::from_secs(5)).await;
    let other: MemoryOutboxStore = store.inner.clone();
    assert_eq!(other.claim_batch(100, Duration::from_secs(1)).await.unwrap().len(), 10);
    drop(relay);
}
