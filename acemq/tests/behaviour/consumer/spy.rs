//! An idempotency store that writes down what it is asked, and fails when it is told to.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use acemq::{Claim, Error, ErrorKind, IdempotencyStore, Lease, MemoryIdempotencyStore, Result};

/// What a store was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Call {
    Claim,
    /// Asked whether it can be used.
    Check,
    Confirm,
    /// Several confirmations at once, noted under the first key.
    ConfirmBatch,
    Release,
    Renew,
    /// Not the store's: a handler ran.
    Handle,
}

#[derive(Clone)]
pub(crate) struct Spy {
    store: MemoryIdempotencyStore,
    calls: Arc<Mutex<Vec<(Call, String)>>>,
    failing: Arc<Mutex<Vec<Call>>>,
    refusing: Arc<Mutex<Vec<Call>>>,
    panicking: Arc<Mutex<Vec<Call>>>,
    confirm_takes: Duration,
}

impl Spy {
    pub(crate) fn on(store: MemoryIdempotencyStore) -> Self {
        Self {
            store,
            calls: Arc::default(),
            failing: Arc::default(),
            refusing: Arc::default(),
            panicking: Arc::default(),
            confirm_takes: Duration::ZERO,
        }
    }

    /// How long a confirmation takes to be written.
    pub(crate) fn confirm_takes(mut self, time: Duration) -> Self {
        self.confirm_takes = time;
        self
    }

    /// From now on these calls fail.
    pub(crate) fn fail(&self, calls: &[Call]) {
        *self.failing.lock().unwrap() = calls.to_vec();
    }

    /// From now on these calls fail for good.
    pub(crate) fn refuse(&self, calls: &[Call]) {
        *self.refusing.lock().unwrap() = calls.to_vec();
    }

    /// From now on these calls panic.
    pub(crate) fn panic(&self, calls: &[Call]) {
        *self.panicking.lock().unwrap() = calls.to_vec();
    }

    /// Writes down that a handler ran.
    pub(crate) fn handled(&self, id: &str) {
        self.calls.lock().unwrap().push((Call::Handle, id.to_owned()));
    }

    /// What was asked so far, without the check at the start and the renewals.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let calls = self.calls.lock().unwrap();
        let told = |call: &Call| !matches!(call, Call::Check | Call::Renew);
        calls.iter().map(|(call, _)| *call).filter(told).collect()
    }

    pub(crate) fn count(&self, call: Call) -> usize {
        self.calls.lock().unwrap().iter().filter(|(made, _)| *made == call).count()
    }

    /// The keys that were claimed, each once.
    pub(crate) fn keys(&self) -> Vec<String> {
        let calls = self.calls.lock().unwrap();
        let mut keys: Vec<String> = calls
            .iter()
            .filter(|(call, _)| *call == Call::Claim)
            .map(|(_, key)| key.clone())
            .collect();
        keys.dedup();
        keys
    }

    fn note(&self, call: Call, key: &str) -> Result<()> {
        self.calls.lock().unwrap().push((call, key.to_owned()));
        let panics = self.panicking.lock().unwrap().contains(&call);
        assert!(!panics, "on purpose");
        if self.failing.lock().unwrap().contains(&call) {
            return Err(Error::new(ErrorKind::Store, "ask the store: it is down"));
        }
        if self.refusing.lock().unwrap().contains(&call) {
            return Err(Error::new(ErrorKind::NotFound, "ask the store: it has no table"));
        }
        Ok(())
    }
}

impl IdempotencyStore for Spy {
    async fn claim(&self, key: &str) -> Result<bool> {
        Ok(matches!(self.try_claim(key).await?, Claim::Owned(_)))
    }

    async fn is_confirmed(&self, key: &str) -> Result<bool> {
        self.store.is_confirmed(key).await
    }

    async fn try_claim(&self, key: &str) -> Result<Claim> {
        self.note(Call::Claim, key)?;
        self.store.try_claim(key).await
    }

    async fn confirm(&self, lease: &Lease) -> Result<()> {
        self.note(Call::Confirm, lease.key())?;
        tokio::time::sleep(self.confirm_takes).await;
        self.store.confirm(lease).await
    }

    async fn confirm_batch(&self, leases: &[Lease]) -> Result<()> {
        self.note(Call::ConfirmBatch, leases[0].key())?;
        tokio::time::sleep(self.confirm_takes).await;
        self.store.confirm_batch(leases).await
    }

    async fn check(&self) -> Result<()> {
        self.note(Call::Check, "")
    }

    async fn release(&self, lease: &Lease) -> Result<()> {
        self.note(Call::Release, lease.key())?;
        self.store.release(lease).await
    }

    async fn renew(&self, lease: &Lease) -> Result<bool> {
        self.note(Call::Renew, lease.key())?;
        self.store.renew(lease).await
    }

    fn lease(&self) -> Option<Duration> {
        IdempotencyStore::lease(&self.store)
    }

    fn retention(&self) -> Option<Duration> {
        IdempotencyStore::retention(&self.store)
    }
}
