//! Outbox stores that misbehave, and one that does the least.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use acemq::{
    ClaimedRecord, Error, ErrorKind, FailedRecord, MemoryOutboxStore, OutboxRecord, OutboxSignal,
    OutboxStore, RecordClaim, Result,
};

/// A store of a user's own, with the three methods that have to be there.
#[derive(Clone, Default)]
pub(crate) struct Minimal(Arc<Mutex<Lists>>);

#[derive(Default)]
pub(crate) struct Lists {
    pub(crate) waiting: VecDeque<OutboxRecord>,
    pub(crate) claimed: Vec<OutboxRecord>,
    pub(crate) published: Vec<String>,
    pub(crate) failed: Vec<String>,
}

impl Minimal {
    pub(crate) fn lists(&self) -> std::sync::MutexGuard<'_, Lists> {
        self.0.lock().unwrap()
    }
}

impl OutboxStore for Minimal {
    async fn claim_batch(&self, size: usize, _: Duration) -> Result<Vec<ClaimedRecord>> {
        let mut lists = self.lists();
        let count = size.min(lists.waiting.len());
        let taken: Vec<OutboxRecord> = lists.waiting.drain(..count).collect();
        lists.claimed.extend(taken.iter().cloned());
        let claimed = taken
            .into_iter()
            .map(|record| ClaimedRecord::new(RecordClaim::new(record.id(), ""), 0, Ok(record)));
        Ok(claimed.collect())
    }

    async fn mark_published(&self, claims: &[RecordClaim]) -> Result<()> {
        self.lists().published.extend(claims.iter().map(|claim| claim.id().to_owned()));
        Ok(())
    }

    async fn mark_failed(&self, failures: &[FailedRecord]) -> Result<()> {
        let mut lists = self.lists();
        for failure in failures {
            lists.failed.push(failure.reason.clone());
            // At once, whatever the relay asked for: it must not spin on it.
            let again = lists.claimed.iter().find(|r| r.id() == failure.claim.id()).cloned();
            lists.waiting.extend(again);
        }
        Ok(())
    }
}

/// What goes wrong at a store, counted down to zero.
#[derive(Default)]
pub(crate) struct Faults {
    pub(crate) claims_that_fail: AtomicU32,
    pub(crate) claims_that_panic: AtomicU32,
    pub(crate) marks_that_fail: AtomicU32,
    pub(crate) marks_that_hang: AtomicU32,
    pub(crate) failures_that_fail: AtomicU32,
    pub(crate) returns_that_fail: AtomicU32,
    pub(crate) no_renewals: AtomicU32,
    /// How often the relay asked for records.
    pub(crate) claims: AtomicU32,
    /// The most records that were in the relay's hands at once.
    pub(crate) most_in_hand: AtomicUsize,
    in_hand: AtomicUsize,
}

/// A store in memory with faults.
#[derive(Clone)]
pub(crate) struct Faulty {
    pub(crate) inner: MemoryOutboxStore,
    pub(crate) faults: Arc<Faults>,
    pub(crate) signal: Option<OutboxSignal>,
}

impl Faulty {
    pub(crate) fn new() -> Self {
        Self { inner: MemoryOutboxStore::new(), faults: Arc::default(), signal: None }
    }

    fn let_go(&self, count: usize) {
        self.faults.in_hand.fetch_sub(count, Ordering::SeqCst);
    }
}

fn due(count: &AtomicU32) -> bool {
    count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

fn broken(what: &str) -> Error {
    Error::new(ErrorKind::Store, format!("{what}: the database is away"))
}

impl OutboxStore for Faulty {
    async fn claim_batch(&self, size: usize, lease: Duration) -> Result<Vec<ClaimedRecord>> {
        self.faults.claims.fetch_add(1, Ordering::SeqCst);
        assert!(!due(&self.faults.claims_that_panic), "on purpose");
        if due(&self.faults.claims_that_fail) {
            return Err(broken("claim"));
        }
        let claimed = self.inner.claim_batch(size, lease).await?;
        let in_hand = self.faults.in_hand.fetch_add(claimed.len(), Ordering::SeqCst);
        self.faults.most_in_hand.fetch_max(in_hand + claimed.len(), Ordering::SeqCst);
        Ok(claimed)
    }

    async fn mark_published(&self, claims: &[RecordClaim]) -> Result<()> {
        if due(&self.faults.marks_that_hang) {
            std::future::pending::<()>().await;
        }
        if due(&self.faults.marks_that_fail) {
            return Err(broken("mark"));
        }
        self.let_go(claims.len());
        self.inner.mark_published(claims).await
    }

    async fn mark_failed(&self, failures: &[FailedRecord]) -> Result<()> {
        if due(&self.faults.failures_that_fail) {
            return Err(broken("mark failed"));
        }
        self.let_go(failures.len());
        self.inner.mark_failed(failures).await
    }

    async fn give_back(&self, claims: &[RecordClaim]) -> Result<()> {
        if due(&self.faults.returns_that_fail) {
            return Err(broken("give back"));
        }
        self.let_go(claims.len());
        self.inner.give_back(claims).await
    }

    async fn renew(&self, claims: &[RecordClaim], lease: Duration) -> Result<()> {
        if self.faults.no_renewals.load(Ordering::SeqCst) > 0 {
            return Err(broken("renew"));
        }
        self.inner.renew(claims, lease).await
    }

    async fn pending_count(&self) -> Result<u64> {
        self.inner.pending_count().await
    }

    async fn other_relays(&self) -> Result<Vec<String>> {
        self.inner.other_relays().await
    }

    fn signal(&self) -> Option<OutboxSignal> {
        self.signal.clone()
    }
}
