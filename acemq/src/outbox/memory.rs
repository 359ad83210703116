//! The outbox of one process, for tests.

mod rows;

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use uuid::Uuid;

use self::rows::{Row, Rows};
use super::{
    ClaimRequest, ClaimedRecord, Discard, FailedRecord, OutboxCounts, OutboxRecord, OutboxSignal,
    OutboxStore, RecordClaim, RelayLock, StuckRecord,
};
use crate::{clock::Clock, error::Result};

const DEFAULT_MAX_ATTEMPTS: u32 = 10;
const MAX_REASON_CHARS: usize = 1_000;

/// An outbox in this process's memory: the whole pattern with no server. Leases, attempts and
/// waits are those of the SQL stores, and its time is tokio's clock, so that a paused clock moves
/// them. Clones share their records; each is another relay's way in.
///
/// It cannot take part in a database transaction, and so offers no way to pretend:
///
/// ```
/// use acemq::{Envelope, MemoryOutboxStore, OutboxRecord, OutboxStore};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> acemq::Result<()> {
/// let outbox = MemoryOutboxStore::new();
/// let envelope = Envelope::new("order.placed");
/// outbox.add(&OutboxRecord::new("orders", "order.placed", "text/plain", "o-1", &envelope)?);
/// assert_eq!(outbox.pending_count().await?, 1);
/// # Ok(()) }
/// ```
///
/// ```compile_fail,E0061
/// # use acemq::{MemoryOutboxStore, OutboxRecord};
/// # struct Transaction;
/// # fn example(transaction: &mut Transaction, record: &OutboxRecord) {
/// // promise: OB-30
/// MemoryOutboxStore::new().add(transaction, record);
/// # }
/// ```
pub struct MemoryOutboxStore {
    name: String,
    max_attempts: u32,
    clock: Clock,
    signal: OutboxSignal,
    rows: Arc<Mutex<Rows>>,
    /// Whose guard the one active relay has.
    active: Arc<tokio::sync::Mutex<()>>,
}

impl MemoryOutboxStore {
    /// An empty outbox.
    #[must_use]
    pub fn new() -> Self {
        Self {
            name: new_name(),
            max_attempts: DEFAULT_MAX_ATTEMPTS,
            clock: Clock::start(),
            signal: OutboxSignal::new(),
            rows: Arc::default(),
            active: Arc::default(),
        }
    }

    /// How many failures a record may have before it is left for somebody to look at, at least
    /// one; 10 unless set.
    #[must_use]
    pub fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.max_attempts = max_attempts.max(1);
        self
    }

    /// Adds a record, visible to the relay at once. A record whose id is there already changes
    /// nothing.
    pub fn add(&self, record: &OutboxRecord) {
        {
            let mut rows = self.rows();
            if rows.by_id.contains_key(record.id()) {
                return;
            }
            rows.waiting.insert((record.created_at(), record.id().to_owned()));
            let row = Row {
                record: record.clone(),
                attempts: 0,
                last_error: None,
                published_at: None,
                locked_by: None,
                locked_until: None,
            };
            rows.by_id.insert(record.id().to_owned(), row);
        }
        self.signal.wake();
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryOutboxStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Clone for MemoryOutboxStore {
    /// Another way to the same records, under a name of its own: two relays on two clones are two
    /// relays.
    fn clone(&self) -> Self {
        Self {
            name: new_name(),
            max_attempts: self.max_attempts,
            clock: self.clock,
            signal: self.signal.clone(),
            rows: Arc::clone(&self.rows),
            active: Arc::clone(&self.active),
        }
    }
}

impl fmt::Debug for MemoryOutboxStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryOutboxStore")
            .field("name", &self.name)
            .field("max_attempts", &self.max_attempts)
            .finish_non_exhaustive()
    }
}

impl OutboxStore for MemoryOutboxStore {
    async fn claim_batch(&self, size: usize, lease: Duration) -> Result<Vec<ClaimedRecord>> {
        self.claim(ClaimRequest::new(size, lease)).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<ClaimedRecord>> {
        let now = self.clock.now();
        let token = format!("{}/{}", self.name, Uuid::new_v4().simple());
        let mut rows = self.rows();
        let mut bytes = 0;
        let mut claimed = Vec::new();
        for id in rows.on_offer(request, now) {
            let Some(row) = rows.by_id.get_mut(&id) else { continue };
            bytes += row.record.body().len() as u64;
            if bytes > request.bytes && !claimed.is_empty() {
                break;
            }
            row.locked_by = Some(token.clone());
            row.locked_until = Some(now + request.lease);
            claimed.push(ClaimedRecord::new(
                RecordClaim::new(id, token.as_str()),
                row.attempts,
                Ok(row.record.clone()),
            ));
        }
        Ok(claimed)
    }

    async fn lead(&self, wait: Duration) -> Result<Option<RelayLock>> {
        let active = Arc::clone(&self.active).lock_owned();
        let Ok(guard) = tokio::time::timeout(wait, active).await else { return Ok(None) };
        Ok(Some(RelayLock::new(async move {
            let _guard = guard;
            std::future::pending().await
        })))
    }

    async fn mark_published(&self, claims: &[RecordClaim]) -> Result<()> {
        let now = self.clock.now();
        let mut rows = self.rows();
        for claim in claims {
            let Some(row) = rows.by_id.get_mut(claim.id()) else { continue };
            row.published_at.get_or_insert(now);
            row.unlock();
            let place = row.place();
            rows.waiting.remove(&place);
            rows.exhausted.remove(&place);
        }
        Ok(())
    }

    async fn mark_failed(&self, failures: &[FailedRecord]) -> Result<()> {
        let now = self.clock.now();
        let mut rows = self.rows();
        for failure in failures {
            let Some(row) = rows.held(&failure.claim) else { continue };
            row.attempts = row.attempts.saturating_add(1);
            row.last_error = Some(failure.reason.chars().take(MAX_REASON_CHARS).collect());
            row.locked_by = None;
            row.locked_until = Some(now + failure.retry_after);
            if row.attempts >= self.max_attempts {
                let place = row.place();
                rows.waiting.remove(&place);
                rows.exhausted.insert(place);
            }
        }
        Ok(())
    }

    async fn give_back(&self, claims: &[RecordClaim]) -> Result<()> {
        let mut rows = self.rows();
        for claim in claims {
            if let Some(row) = rows.held(claim) {
                row.unlock();
            }
        }
        Ok(())
    }

    async fn renew(&self, claims: &[RecordClaim], lease: Duration) -> Result<()> {
        let now = self.clock.now();
        let mut rows = self.rows();
        for claim in claims {
            if let Some(row) = rows.held(claim) {
                row.locked_until = Some(now + lease);
            }
        }
        Ok(())
    }

    async fn pending_count(&self) -> Result<u64> {
        let rows = self.rows();
        Ok((rows.waiting.len() + rows.exhausted.len()) as u64)
    }

    async fn counts(&self) -> Result<OutboxCounts> {
        let now = self.clock.now();
        let rows = self.rows();
        let claimed = rows.waiting.iter().filter_map(|(_, id)| rows.by_id.get(id));
        let claimed = claimed.filter(|row| row.is_claimed(now)).count() as u64;
        let oldest = [rows.waiting.first(), rows.exhausted.first()].into_iter().flatten().min();
        Ok(OutboxCounts {
            waiting: rows.waiting.len() as u64 - claimed,
            claimed,
            exhausted: rows.exhausted.len() as u64,
            oldest: oldest.map(|(made, _)| now.duration_since(*made).unwrap_or_default()),
        })
    }

    async fn stuck(&self, limit: usize) -> Result<Vec<StuckRecord>> {
        let rows = self.rows();
        let stuck = rows.exhausted.iter().filter_map(|(_, id)| rows.by_id.get(id)).map(|row| {
            let record = &row.record;
            let mut stuck = StuckRecord::new(
                record.id(),
                record.exchange(),
                record.routing_key(),
                row.attempts,
            );
            stuck.last_error.clone_from(&row.last_error);
            stuck.created_at = Some(record.created_at());
            stuck
        });
        Ok(stuck.take(limit).collect())
    }

    async fn retry(&self, id: &str) -> Result<bool> {
        let retried = self.rows().retry(id);
        self.signal.wake();
        Ok(retried)
    }

    async fn retry_all(&self) -> Result<u64> {
        let retried = {
            let mut rows = self.rows();
            let ids: Vec<String> = rows.exhausted.iter().map(|(_, id)| id.clone()).collect();
            ids.iter().filter(|id| rows.retry(id)).count() as u64
        };
        self.signal.wake();
        Ok(retried)
    }

    async fn discard(&self, id: &str) -> Result<Discard> {
        let now = self.clock.now();
        let mut rows = self.rows();
        let place = match rows.by_id.get(id).filter(|row| row.published_at.is_none()) {
            None => return Ok(Discard::NotFound),
            Some(row) if row.is_claimed(now) => return Ok(Discard::Claimed),
            Some(row) => row.place(),
        };
        rows.waiting.remove(&place);
        rows.exhausted.remove(&place);
        rows.by_id.remove(id);
        Ok(Discard::Removed)
    }

    async fn purge_published(&self, older_than: Duration) -> Result<u64> {
        let now = self.clock.now();
        let mut rows = self.rows();
        let before = rows.by_id.len();
        rows.by_id.retain(|_, row| {
            row.published_at.is_none_or(|at| {
                // A clock that was set back has no age to offer.
                now.duration_since(at).unwrap_or_default() < older_than
            })
        });
        Ok((before - rows.by_id.len()) as u64)
    }

    async fn other_relays(&self) -> Result<Vec<String>> {
        let now = self.clock.now();
        let rows = self.rows();
        let holders: BTreeSet<&str> = rows
            .by_id
            .values()
            .filter(|row| row.published_at.is_none() && !row.is_free(now))
            .filter_map(|row| row.locked_by.as_deref()?.split('/').next())
            .filter(|name| *name != self.name)
            .collect();
        Ok(holders.into_iter().map(str::to_owned).collect())
    }

    fn signal(&self) -> Option<OutboxSignal> {
        Some(self.signal.clone())
    }
}

fn new_name() -> String {
    format!("memory-{:08x}", fastrand::u32(..))
}

#[cfg(test)]
mod tests;
