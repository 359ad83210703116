//! The saga store of one process, for tests.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use uuid::Uuid;

use super::{
    ClaimedSaga, NewSaga, SagaClaim, SagaNext, SagaQuery, SagaStatus, SagaStore, SagaWrite,
    StoredSaga,
};
use crate::{clock::Clock, error::Result, outbox::MemoryOutboxStore};

/// Longer than any process lives.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Instances of durable sagas in this process's memory, for tests: they end with the process, which
/// is what a durable saga is there to survive. Leases, due times and fences are those of the SQL
/// stores, and its time is tokio's clock, so that a paused clock moves them. Clones share their
/// instances.
///
/// It takes part in no database transaction, and so offers no way to pretend:
///
/// ```compile_fail,E0277
/// # use acemq::{DurableSaga, MemorySagaStore};
/// # struct Transaction;
/// # async fn example(saga: DurableSaga<u32, u32, MemorySagaStore>, transaction: &mut Transaction) {
/// // promise: SG-6
/// saga.begin(transaction, "o-1", &1).await.unwrap();
/// # }
/// ```
#[derive(Clone)]
pub struct MemorySagaStore {
    clock: Clock,
    outbox: Option<MemoryOutboxStore>,
    rows: Arc<Mutex<BTreeMap<String, Row>>>,
}

struct Row {
    saga: StoredSaga,
    token: Option<String>,
}

impl MemorySagaStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self { clock: Clock::start(), outbox: None, rows: Arc::default() }
    }

    /// Where the messages of steps go, which is what steps that send messages need.
    #[must_use]
    pub fn outbox(mut self, outbox: MemoryOutboxStore) -> Self {
        self.outbox = Some(outbox);
        self
    }

    fn rows(&self) -> MutexGuard<'_, BTreeMap<String, Row>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(row: &mut Row, now: SystemTime, lease: Duration) -> ClaimedSaga {
        let token = Uuid::new_v4().to_string();
        row.token = Some(token.clone());
        row.saga.claims += 1;
        row.saga.version += 1;
        row.saga.due_at = Some(after(now, lease));
        ClaimedSaga { claim: SagaClaim::new(row.saga.key.as_str(), token), stored: row.read(now) }
    }

    fn put(&self, row: &mut Row, write: &SagaWrite, now: SystemTime) {
        row.saga.status = write.status;
        row.saga.state.clone_from(&write.state);
        row.saga.version += 1;
        row.saga.claims = 0;
        row.saga.updated_at = now;
        (row.token, row.saga.due_at) = match write.next {
            SagaNext::After(wait) => (None, Some(after(now, wait))),
            SagaNext::Keep(lease) => (row.token.take(), Some(after(now, lease))),
            SagaNext::Never => (None, None),
        };
        let outbox = self.outbox.iter();
        outbox.for_each(|outbox| write.records.iter().for_each(|record| outbox.add(record)));
    }
}

impl Row {
    fn is_held(&self, now: SystemTime) -> bool {
        self.token.is_some() && self.saga.due_at.is_some_and(|until| until > now)
    }

    fn is_due(&self, steps: &str, now: SystemTime) -> bool {
        self.saga.steps == steps && self.saga.due_at.is_some_and(|due| due <= now)
    }

    fn is_held_by(&self, claim: &SagaClaim) -> bool {
        self.token.as_deref() == Some(claim.token())
    }

    fn read(&self, now: SystemTime) -> StoredSaga {
        StoredSaga { is_held: self.is_held(now), read_at: now, ..self.saga.clone() }
    }
}

impl Default for MemorySagaStore {
    fn default() -> Self {
        Self::new()
    }
}

/// A time so much later, however much that is.
fn after(now: SystemTime, wait: Duration) -> SystemTime {
    now + wait.min(FOR_EVER)
}

impl fmt::Debug for MemorySagaStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemorySagaStore")
            .field("instances", &self.rows().len())
            .field("sends", &self.outbox.is_some())
            .finish_non_exhaustive()
    }
}

impl SagaStore for MemorySagaStore {
    async fn insert(&self, new: &NewSaga, lease: Duration) -> Result<Option<ClaimedSaga>> {
        let now = self.clock.now();
        let mut rows = self.rows();
        if rows.contains_key(&new.key) {
            return Ok(None);
        }
        let token = Uuid::new_v4().to_string();
        let saga = StoredSaga {
            key: new.key.clone(),
            saga: new.saga.clone(),
            steps: new.steps.clone(),
            status: SagaStatus::Running,
            state: new.state.clone(),
            version: 1,
            claims: 0,
            is_held: true,
            due_at: Some(after(now, lease)),
            deadline_at: new.deadline.map(|deadline| after(now, deadline)),
            created_at: now,
            updated_at: now,
            read_at: now,
        };
        let claimed = ClaimedSaga {
            claim: SagaClaim::new(new.key.as_str(), token.as_str()),
            stored: saga.clone(),
        };
        rows.insert(new.key.clone(), Row { saga, token: Some(token) });
        Ok(Some(claimed))
    }

    async fn claim_due(
        &self,
        saga: &str,
        steps: &str,
        most: usize,
        lease: Duration,
    ) -> Result<Vec<ClaimedSaga>> {
        let now = self.clock.now();
        let mut rows = self.rows();
        let mut due: Vec<&mut Row> = rows
            .values_mut()
            .filter(|row| row.saga.saga == saga && row.is_due(steps, now))
            .collect();
        due.sort_by_key(|row| row.saga.due_at);
        Ok(due.into_iter().take(most).map(|row| Self::take(row, now, lease)).collect())
    }

    async fn claim(&self, key: &str, steps: &str, lease: Duration) -> Result<Option<ClaimedSaga>> {
        let now = self.clock.now();
        let mut rows = self.rows();
        let due = rows.get_mut(key).filter(|row| row.is_due(steps, now));
        Ok(due.map(|row| Self::take(row, now, lease)))
    }

    async fn write(&self, claim: &SagaClaim, write: &SagaWrite) -> Result<bool> {
        let now = self.clock.now();
        let mut rows = self.rows();
        let Some(row) = rows.get_mut(claim.key()).filter(|row| row.is_held_by(claim)) else {
            return Ok(false);
        };
        self.put(row, write, now);
        Ok(true)
    }

    async fn renew(&self, claim: &SagaClaim, lease: Duration) -> Result<bool> {
        let now = self.clock.now();
        let mut rows = self.rows();
        let held = rows.get_mut(claim.key()).filter(|row| row.is_held_by(claim));
        Ok(held.map(|row| row.saga.due_at = Some(after(now, lease))).is_some())
    }

    async fn change(&self, read: &StoredSaga, write: &SagaWrite) -> Result<bool> {
        let now = self.clock.now();
        let mut rows = self.rows();
        let unchanged = |row: &&mut Row| row.saga.version == read.version && !row.is_held(now);
        let Some(row) = rows.get_mut(&read.key).filter(unchanged) else { return Ok(false) };
        self.put(row, write, now);
        Ok(true)
    }

    async fn find(&self, key: &str) -> Result<Option<StoredSaga>> {
        let now = self.clock.now();
        Ok(self.rows().get(key).map(|row| row.read(now)))
    }

    async fn list(&self, query: &SagaQuery) -> Result<Vec<StoredSaga>> {
        let now = self.clock.now();
        let rows = self.rows();
        let mut found: Vec<StoredSaga> = rows
            .values()
            .filter(|row| row.saga.saga == query.saga && row.saga.status == query.status)
            .filter(|row| row.saga.updated_at + query.unchanged_for <= now)
            .map(|row| row.read(now))
            .collect();
        found.sort_by_key(|saga| saga.updated_at);
        found.truncate(query.limit);
        Ok(found)
    }

    async fn with_other_steps(
        &self,
        saga: &str,
        steps: &str,
        most: usize,
    ) -> Result<Vec<StoredSaga>> {
        let now = self.clock.now();
        let rows = self.rows();
        let others = rows.values().filter(|row| {
            row.saga.saga == saga && row.saga.steps != steps && row.saga.due_at.is_some()
        });
        Ok(others.take(most).map(|row| row.read(now)).collect())
    }

    async fn purge_finished(&self, older_than: Duration) -> Result<u64> {
        let now = self.clock.now();
        let mut rows = self.rows();
        let before = rows.len();
        rows.retain(|_, row| {
            let is_done =
                matches!(row.saga.status, SagaStatus::Completed | SagaStatus::Compensated);
            !is_done || row.saga.updated_at + older_than > now
        });
        Ok((before - rows.len()) as u64)
    }

    fn sends(&self) -> bool {
        self.outbox.is_some()
    }
}
