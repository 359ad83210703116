//! The idempotency store of one process.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use uuid::Uuid;

use super::{Claim, DEFAULT_LEASE, DEFAULT_RETENTION, IdempotencyStore, Lease};
use crate::{
    clock::Clock,
    error::{Error, ErrorKind, Result},
};

const DEFAULT_CAPACITY: usize = 100_000;
/// The longest key in bytes: the SQL stores' column is that wide, and a test against this store
/// must not be kinder than production.
const MAX_KEY: usize = 255;
/// A lease or retention of nothing would let everybody own everything.
const SHORTEST: Duration = Duration::from_millis(1);

/// Remembers handled messages in this process: for tests, and for a single consumer process that
/// may forget on a restart. Cheap to clone; clones share what they remember.
///
/// A claim is a lease of five minutes, a confirmation is remembered for a day, and at most
/// 100,000 keys are held: beyond that the oldest confirmations are forgotten and counted by
/// [`evictions`](Self::evictions). Time is tokio's clock, so that a paused clock moves leases.
///
/// ```
/// use std::time::Duration;
/// use acemq::{Claim, IdempotencyStore, MemoryIdempotencyStore};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> acemq::Result<()> {
/// let store = MemoryIdempotencyStore::new().retention(Duration::from_secs(3_600));
/// let Claim::Owned(lease) = store.try_claim("order-1").await? else { panic!("a new key") };
/// store.confirm(&lease).await?;
/// assert_eq!(store.try_claim("order-1").await?, Claim::AlreadyConfirmed);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemoryIdempotencyStore {
    lease: Duration,
    retention: Duration,
    capacity: usize,
    clock: Clock,
    keys: Arc<Mutex<Keys>>,
}

#[derive(Default)]
struct Keys {
    entries: HashMap<Arc<str>, Entry>,
    /// The same keys by when they expire, claims and confirmations apart: the first of each is
    /// the one to sweep or evict.
    claims: BTreeSet<(SystemTime, Arc<str>)>,
    confirmations: BTreeSet<(SystemTime, Arc<str>)>,
    evictions: u64,
}

struct Entry {
    /// Whose claim it is; `None` once confirmed.
    token: Option<String>,
    expires_at: SystemTime,
}

impl MemoryIdempotencyStore {
    /// An empty store with the defaults.
    #[must_use]
    pub fn new() -> Self {
        Self {
            lease: DEFAULT_LEASE,
            retention: DEFAULT_RETENTION,
            capacity: DEFAULT_CAPACITY,
            clock: Clock::start(),
            keys: Arc::default(),
        }
    }

    /// How long a claim is held before another consumer may take it over. Never longer than the
    /// retention; 5 minutes unless set.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(SHORTEST);
        self
    }

    /// How long a confirmation is remembered; 24 hours unless set.
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention.max(SHORTEST);
        self
    }

    /// The most keys that are held at once, at least one; 100,000 unless set.
    #[must_use]
    pub fn capacity(mut self, capacity: usize) -> Self {
        self.capacity = capacity.max(1);
        self
    }

    /// How many live keys were forgotten because the store was full. Each may have let a
    /// duplicate through: a number that grows asks for a larger capacity or another store.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.keys().evictions
    }

    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held_for(&self) -> Duration {
        self.lease.min(self.retention)
    }
}

impl Default for MemoryIdempotencyStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryIdempotencyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryIdempotencyStore")
            .field("lease", &self.held_for())
            .field("retention", &self.retention)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

impl IdempotencyStore for MemoryIdempotencyStore {
    async fn claim(&self, key: &str) -> Result<bool> {
        Ok(matches!(self.try_claim(key).await?, Claim::Owned(_)))
    }

    async fn is_confirmed(&self, key: &str) -> Result<bool> {
        let now = self.clock.now();
        Ok(self.keys().live(key, now).is_some_and(|entry| entry.token.is_none()))
    }

    async fn confirm(&self, lease: &Lease) -> Result<()> {
        let now = self.clock.now();
        let mut keys = self.keys();
        keys.make_room(lease.key(), now, self.capacity);
        keys.put(lease.key(), None, now + self.retention);
        Ok(())
    }

    async fn release(&self, lease: &Lease) -> Result<()> {
        let mut keys = self.keys();
        if keys.is_held_by(lease) {
            keys.remove(lease.key());
        }
        Ok(())
    }

    async fn try_claim(&self, key: &str) -> Result<Claim> {
        check_key(key)?;
        let now = self.clock.now();
        let token = Uuid::new_v4().to_string();
        let mut keys = self.keys();
        match keys.live(key, now) {
            Some(Entry { token: None, .. }) => return Ok(Claim::AlreadyConfirmed),
            Some(_) => return Ok(Claim::InProgress),
            None => {}
        }
        if keys.entries.get(key).is_some_and(|expired| expired.token.is_some()) {
            tracing::warn!(key, "took over an expired claim: its holder died or was too slow");
        }
        keys.make_room(key, now, self.capacity);
        keys.put(key, Some(token.clone()), now + self.held_for());
        Ok(Claim::Owned(Lease::new(key, token)))
    }

    async fn renew(&self, lease: &Lease) -> Result<bool> {
        let now = self.clock.now();
        let mut keys = self.keys();
        // An expired claim that nobody took over is still its holder's.
        let held = keys.is_held_by(lease);
        if held {
            keys.put(lease.key(), Some(lease.token().to_owned()), now + self.held_for());
        }
        Ok(held)
    }

    fn lease(&self) -> Option<Duration> {
        Some(self.held_for())
    }

    fn retention(&self) -> Option<Duration> {
        Some(self.retention)
    }

    async fn purge_expired(&self) -> Result<u64> {
        let now = self.clock.now();
        Ok(self.keys().sweep(now))
    }

    async fn size(&self) -> Result<u64> {
        Ok(self.keys().entries.len() as u64)
    }
}

impl Keys {
    fn live(&self, key: &str, now: SystemTime) -> Option<&Entry> {
        self.entries.get(key).filter(|entry| entry.expires_at > now)
    }

    fn is_held_by(&self, lease: &Lease) -> bool {
        self.entries
            .get(lease.key())
            .is_some_and(|entry| entry.token.as_deref() == Some(lease.token()))
    }

    fn put(&mut self, key: &str, token: Option<String>, expires_at: SystemTime) {
        let key = self.remove(key).unwrap_or_else(|| Arc::from(key));
        let index = if token.is_some() { &mut self.claims } else { &mut self.confirmations };
        index.insert((expires_at, Arc::clone(&key)));
        self.entries.insert(key, Entry { token, expires_at });
    }

    fn remove(&mut self, key: &str) -> Option<Arc<str>> {
        let (key, entry) = self.entries.remove_entry(key)?;
        let index = if entry.token.is_some() { &mut self.claims } else { &mut self.confirmations };
        let place = (entry.expires_at, key);
        index.remove(&place);
        Some(place.1)
    }

    /// Makes sure that one more key fits: expired ones go from half the capacity on, live ones
    /// only at the limit.
    fn make_room(&mut self, key: &str, now: SystemTime, capacity: usize) {
        if self.entries.contains_key(key) {
            return;
        }
        if self.entries.len() >= capacity / 2 {
            self.sweep(now);
        }
        while self.entries.len() >= capacity {
            // Forgetting a confirmation lets a late duplicate through; forgetting a claim lets
            // two handlers run side by side, which is worse.
            let oldest = self.confirmations.first().or_else(|| self.claims.first());
            let Some((_, oldest)) = oldest.cloned() else { return };
            self.remove(&oldest);
            self.evictions += 1;
        }
    }

    fn sweep(&mut self, now: SystemTime) -> u64 {
        let mut swept = 0;
        for index in [&mut self.claims, &mut self.confirmations] {
            while index.first().is_some_and(|(expires_at, _)| *expires_at <= now) {
                if let Some((_, key)) = index.pop_first() {
                    self.entries.remove(&key);
                    swept += 1;
                }
            }
        }
        swept
    }
}

fn check_key(key: &str) -> Result<()> {
    let (kind, fault) = if key.is_empty() {
        (ErrorKind::Config, "it is empty; give every message an id".to_owned())
    } else if key.len() > MAX_KEY {
        let fault = format!(
            "it has {} bytes, and at most {MAX_KEY} fit; use a shorter key or a hash of it",
            key.len()
        );
        (ErrorKind::TooLarge, fault)
    } else if key.contains('\0') {
        (
            ErrorKind::Encode,
            "it holds U+0000, which no text column can; use a hash of it".to_owned(),
        )
    } else {
        return Ok(());
    };
    Err(Error::new(kind, format!("use an idempotency key: {fault}")))
}

#[cfg(test)]
mod tests;
