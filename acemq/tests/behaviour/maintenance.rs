//! Purges on a schedule, in milliseconds.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use acemq::{
    ClaimedRecord, ErrorKind, FailedRecord, IdempotencyStore, Maintenance, MemoryIdempotencyStore,
    MemoryOutboxStore, OutboxStore, Queue, RecordClaim, testing::MemoryBroker,
};
use tokio::time::{Instant, sleep};

use crate::support::stores::Minimal;

const HOUR: Duration = Duration::from_secs(3_600);

/// An outbox with that many records, all published now.
async fn published(mq: &acemq::Client, records: usize) -> MemoryOutboxStore {
    let outbox = MemoryOutboxStore::new();
    mq.declare_queue(&Queue::new("orders")).await.unwrap();
    for _ in 0..records {
        let record = mq.publisher::<String>("", "orders").record(&"o".to_owned()).await.unwrap();
        outbox.add(&record);
    }
    let relay = acemq::OutboxRelay::builder(mq, outbox.clone()).build();
    assert_eq!(relay.drain().await.unwrap(), records);
    outbox
}

// promise: OB-14
// promise: ID-12
// promise: BX-10
#[tokio::test(start_paused = true)]
async fn what_is_done_with_is_removed_on_a_schedule_and_nothing_before() {
    let mq = acemq::connect(MemoryBroker::new().url()).await.unwrap();
    let outbox = published(&mq, 30).await;
    let keys = MemoryIdempotencyStore::new();
    for n in 0..20 {
        keys.try_claim(&n.to_string()).await.unwrap();
    }
    let maintenance = Maintenance::builder(&mq)
        .outbox(outbox.clone(), 3 * HOUR)
        .idempotency(keys.clone())
        .every(HOUR)
        .start();
    sleep(Duration::from_secs(61)).await;
    // The first purge was too early for all of it.
    assert_eq!((maintenance.purged(), keys.size().await.unwrap()), (0, 20));
    sleep(2 * HOUR).await;
    assert_eq!((maintenance.purged(), keys.size().await.unwrap()), (20, 0));
    sleep(3 * HOUR).await;
    assert_eq!(maintenance.purged(), 50);
    maintenance.close().await.unwrap();
    maintenance.close().await.unwrap();
}

/// A store that fails, panics and hangs in turn.
#[derive(Clone, Default)]
struct Troubled(Arc<AtomicU32>);

impl OutboxStore for Troubled {
    async fn claim_batch(&self, _: usize, _: Duration) -> acemq::Result<Vec<ClaimedRecord>> {
        Ok(Vec::new())
    }

    async fn mark_published(&self, _: &[RecordClaim]) -> acemq::Result<()> {
        Ok(())
    }

    async fn mark_failed(&self, _: &[FailedRecord]) -> acemq::Result<()> {
        Ok(())
    }

    async fn purge_published(&self, _: Duration) -> acemq::Result<u64> {
        match self.0.fetch_add(1, Ordering::SeqCst) {
            0 => Err(acemq::Error::new(ErrorKind::Store, "the database is away")),
            1 => panic!("on purpose"),
            2 => std::future::pending().await,
            _ => Ok(7),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_purge_that_fails_panics_or_hangs_is_told_and_the_next_one_comes() {
    let mq = acemq::connect(MemoryBroker::new().url()).await.unwrap();
    let outbox = published(&mq, 30).await;
    let store = Troubled::default();
    let told = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&told);
    let maintenance = Maintenance::builder(&mq)
        .outbox(store.clone(), Duration::ZERO)
        .outbox(outbox, Duration::ZERO)
        .on_error(move |error| {
            assert_eq!(error.kind(), ErrorKind::Store);
            assert!(count.fetch_add(1, Ordering::SeqCst) > 0, "on purpose");
        })
        .start();
    sleep(Duration::from_secs(61)).await;
    // One store's trouble is not the other's.
    assert_eq!((told.load(Ordering::SeqCst), maintenance.purged()), (1, 30));
    sleep(5 * HOUR).await;
    assert_eq!(told.load(Ordering::SeqCst), 3);
    assert!(maintenance.purged() >= 37);
    maintenance.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_purge_says_so() {
    let mq = acemq::connect(MemoryBroker::new().url()).await.unwrap();
    let told = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&told);
    let maintenance = Maintenance::builder(&mq)
        .outbox(Minimal::default(), HOUR)
        .on_error(move |error| {
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            count.fetch_add(1, Ordering::SeqCst);
        })
        .start();
    sleep(Duration::from_secs(61)).await;
    assert_eq!(told.load(Ordering::SeqCst), 1);
    drop(maintenance);
}

// promise: OB-31
#[tokio::test(start_paused = true)]
async fn maintenance_ends_with_its_handle_and_with_the_client_also_in_the_middle_of_a_purge() {
    for by_client in [true, false] {
        let mq = acemq::connect(MemoryBroker::new().url()).await.unwrap();
        let store = Troubled(Arc::new(AtomicU32::new(2)));
        let maintenance = Maintenance::builder(&mq).outbox(store.clone(), HOUR).start();
        sleep(Duration::from_secs(61)).await;
        assert_eq!(store.0.load(Ordering::SeqCst), 3, "it hangs");
        let closing = Instant::now();
        if by_client {
            mq.close().await.unwrap();
        } else {
            maintenance.close().await.unwrap();
        }
        assert!(closing.elapsed() < Duration::from_secs(1));
        sleep(10 * HOUR).await;
        assert_eq!(store.0.load(Ordering::SeqCst), 3);
        // One that is started on a closed client does nothing.
        if by_client {
            let late = Maintenance::builder(&mq).outbox(store.clone(), HOUR).start();
            sleep(10 * HOUR).await;
            assert_eq!(store.0.load(Ordering::SeqCst), 3);
            drop(late);
        }
    }
}
