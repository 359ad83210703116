//! What a durable saga asks of a store.

use std::{
    future::Future,
    time::{Duration, SystemTime},
};

use super::SagaStatus;
use crate::{
    error::{Error, ErrorKind, Result},
    outbox::OutboxRecord,
};

/// Keeps the instances of durable sagas: where each stands, and who is at it.
///
/// What an instance has done is text to the store, and the engine's affair. The store's is that an
/// instance has one holder at a time: a claim is a lease with a token of its own, and a write under
/// a token that is not the row's any more changes nothing. All times are the store's own clock's.
///
/// `acemq_sql::SqlSagaStore` is one on PostgreSQL, MariaDB and SQLite, and
/// [`MemorySagaStore`](super::MemorySagaStore) one for tests. Implementors may write its functions
/// as `async fn`. Each may be dropped at any await.
pub trait SagaStore: Send + Sync + 'static {
    /// Writes an instance that is new, held by the caller for `lease`. `None` where one of that key
    /// is there, which is left as it is.
    fn insert(
        &self,
        new: &NewSaga,
        lease: Duration,
    ) -> impl Future<Output = Result<Option<ClaimedSaga>>> + Send;

    /// Takes instances of a saga with that list of steps which are due, the longest due first, at
    /// most so many. An instance is due when its due time is past, whoever had it. Never waits for
    /// what somebody else is about to take.
    fn claim_due(
        &self,
        saga: &str,
        steps: &str,
        most: usize,
        lease: Duration,
    ) -> impl Future<Output = Result<Vec<ClaimedSaga>>> + Send;

    /// Takes that instance, if it has that list of steps and is due.
    fn claim(
        &self,
        key: &str,
        steps: &str,
        lease: Duration,
    ) -> impl Future<Output = Result<Option<ClaimedSaga>>> + Send;

    /// Writes where an instance stands, and the records with it: all or nothing. Fenced: `false`
    /// where the claim was lost, and then nothing has changed. Sets its claims back to zero.
    fn write(
        &self,
        claim: &SagaClaim,
        write: &SagaWrite,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Extends a claim by another lease; `false` when it was lost. It waits for a write under that
    /// claim that is still under way, also for one whose caller has gone: what is read after it is
    /// what became of that.
    fn renew(
        &self,
        claim: &SagaClaim,
        lease: Duration,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// Writes an instance that nobody holds and that has not changed since it was read: `false`
    /// where somebody does or it has.
    fn change(
        &self,
        read: &StoredSaga,
        write: &SagaWrite,
    ) -> impl Future<Output = Result<bool>> + Send;

    /// An instance as it is stored.
    fn find(&self, key: &str) -> impl Future<Output = Result<Option<StoredSaga>>> + Send;

    /// Instances as they are stored, those first that have not changed for the longest time.
    fn list(&self, query: &SagaQuery) -> impl Future<Output = Result<Vec<StoredSaga>>> + Send;

    /// Instances of a saga that go on and have another list of steps, in no order, at most so many. A
    /// row that cannot be read keeps none of the others from being found.
    fn with_other_steps(
        &self,
        saga: &str,
        steps: &str,
        most: usize,
    ) -> impl Future<Output = Result<Vec<StoredSaga>>> + Send;

    /// Removes instances that were completed or compensated longer ago than `older_than`, and says
    /// how many. Never one that goes on or is unresolved; nothing else deletes rows.
    fn purge_finished(&self, _older_than: Duration) -> impl Future<Output = Result<u64>> + Send {
        async { Err(unsupported("purge the finished sagas")) }
    }

    /// Whether the store can be used, asked when a worker starts. The default says yes.
    ///
    /// # Errors
    /// What is wrong with it: a table that is missing, say.
    fn check(&self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Whether [`write`](Self::write) takes records, for which the store needs an outbox. Asked when
    /// a saga with a step that sends messages is built.
    fn sends(&self) -> bool {
        false
    }
}

/// An instance about to be written for the first time.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NewSaga {
    /// `<saga>/<id>`, at most 255 bytes.
    pub key: String,
    /// The saga's name.
    pub saga: String,
    /// What its list of steps is recognised by: 64 characters.
    pub steps: String,
    /// Its state: JSON text.
    pub state: String,
    /// How long it may take, from now on.
    pub deadline: Option<Duration>,
}

/// One claim on an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SagaClaim {
    key: String,
    token: String,
}

impl SagaClaim {
    /// A claim as a store hands it out.
    #[must_use]
    pub fn new(key: impl Into<String>, token: impl Into<String>) -> Self {
        Self { key: key.into(), token: token.into() }
    }

    /// The instance's key.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// This claim's own token.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }
}

/// An instance that the caller holds.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a claim and what it is on")]
pub struct ClaimedSaga {
    /// By which claim.
    pub claim: SagaClaim,
    /// What it is.
    pub stored: StoredSaga,
}

/// An instance as a store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "the columns of the table")]
pub struct StoredSaga {
    /// `<saga>/<id>`.
    pub key: String,
    /// The saga's name.
    pub saga: String,
    /// What its list of steps is recognised by.
    pub steps: String,
    /// Where it stands.
    pub status: SagaStatus,
    /// What it has done: JSON text.
    pub state: String,
    /// Higher after each change.
    pub version: i64,
    /// How often it was claimed since its state was written.
    pub claims: u32,
    /// Whether somebody holds it.
    pub is_held: bool,
    /// From when on it may be taken: until then it waits, or somebody holds it. `None` when it is
    /// over.
    pub due_at: Option<SystemTime>,
    /// Until when it is to have gone forward.
    pub deadline_at: Option<SystemTime>,
    /// When it was begun.
    pub created_at: SystemTime,
    /// When it was last written.
    pub updated_at: SystemTime,
    /// When it was read.
    pub read_at: SystemTime,
}

/// A change of an instance.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SagaWrite {
    /// Where it stands.
    pub status: SagaStatus,
    /// What it has done: JSON text.
    pub state: String,
    /// What becomes of the claim.
    pub next: SagaNext,
    /// Messages that go out if and when this is written.
    pub records: Vec<OutboxRecord>,
}

/// What becomes of a claim when an instance is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "it goes on, waits or is over")]
pub enum SagaNext {
    /// Nobody's, and due after so long.
    After(Duration),
    /// Still the holder's, for so long from now on.
    Keep(Duration),
    /// Nobody's, and never due: it is over.
    Never,
}

impl NewSaga {
    /// An instance without a deadline, as a saga makes it: for tests of stores.
    #[must_use]
    pub fn new(
        key: impl Into<String>,
        saga: impl Into<String>,
        steps: impl Into<String>,
        state: impl Into<String>,
    ) -> Self {
        let (key, saga, steps) = (key.into(), saga.into(), steps.into());
        Self { key, saga, steps, state: state.into(), deadline: None }
    }
}

impl SagaWrite {
    /// A change without messages, as a saga makes it: for tests of stores.
    #[must_use]
    pub fn new(status: SagaStatus, state: impl Into<String>, next: SagaNext) -> Self {
        Self { status, state: state.into(), next, records: Vec::new() }
    }
}

/// Which instances are listed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SagaQuery {
    /// Of that saga.
    pub saga: String,
    /// That stand there.
    pub status: SagaStatus,
    /// That have not changed for so long.
    pub unchanged_for: Duration,
    /// At most so many.
    pub limit: usize,
}

impl SagaQuery {
    /// All of a saga that stand there, at most 100.
    #[must_use]
    pub fn new(saga: impl Into<String>, status: SagaStatus) -> Self {
        Self { saga: saga.into(), status, unchanged_for: Duration::ZERO, limit: 100 }
    }
}

fn unsupported(what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{what}: this saga store does not do that"))
}
