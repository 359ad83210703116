//! What a relay asks of a store.

use std::{
    future::Future,
    time::{Duration, SystemTime},
};

use super::{OutboxRecord, OutboxSignal};
use crate::error::{Error, ErrorKind, Result};

/// One record's place in a claim: which record, and the token of this very claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecordClaim {
    id: String,
    token: String,
}

impl RecordClaim {
    /// A claim as a store hands it out; `token` is empty for a store without tokens.
    #[must_use]
    pub fn new(id: impl Into<String>, token: impl Into<String>) -> Self {
        Self { id: id.into(), token: token.into() }
    }

    /// The record's id, which is the message id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// This claim's own token.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }
}

/// A record that a relay holds under a lease.
#[derive(Debug)]
pub struct ClaimedRecord {
    claim: RecordClaim,
    attempts: u32,
    content: Result<OutboxRecord>,
}

impl ClaimedRecord {
    /// A record, and how many attempts at it have failed before. The content is an error for a
    /// row that cannot be read: that row fails with its reason, and the rest go out.
    #[must_use]
    pub fn new(claim: RecordClaim, attempts: u32, content: Result<OutboxRecord>) -> Self {
        Self { claim, attempts, content }
    }

    /// Which record, under which claim.
    #[must_use]
    pub fn claim(&self) -> &RecordClaim {
        &self.claim
    }

    /// How many attempts at it have failed before.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The record, or why the row cannot be read.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] for a row that is not what the table's contract says.
    pub fn content(&self) -> Result<&OutboxRecord, &Error> {
        self.content.as_ref()
    }

    pub(crate) fn into_parts(self) -> (RecordClaim, u32, Result<OutboxRecord>) {
        (self.claim, self.attempts, self.content)
    }
}

/// A record whose own fault it was: this attempt counts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FailedRecord {
    /// Which record, under which claim.
    pub claim: RecordClaim,
    /// Why, for whoever reads the table later. The store keeps at most 1,000 characters.
    pub reason: String,
    /// How long to leave it alone before the next attempt.
    pub retry_after: Duration,
}

impl FailedRecord {
    /// A failure as the relay reports it; `retry_after` is zero for "at once".
    #[must_use]
    pub fn new(claim: RecordClaim, reason: String, retry_after: Duration) -> Self {
        Self { claim, reason, retry_after }
    }
}

/// A record that has used up its attempts and waits for somebody to look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StuckRecord {
    /// The record's id, which is the message id.
    pub id: String,
    /// Where it was to go.
    pub exchange: String,
    /// Where it was to go.
    pub routing_key: String,
    /// How many attempts have failed.
    pub attempts: u32,
    /// Why the last one failed.
    pub last_error: Option<String>,
    /// When it was made.
    pub created_at: Option<SystemTime>,
}

impl StuckRecord {
    /// A stuck record as a store reports it.
    #[must_use]
    pub fn new(
        id: impl Into<String>,
        exchange: impl Into<String>,
        routing_key: impl Into<String>,
        attempts: u32,
    ) -> Self {
        Self {
            id: id.into(),
            exchange: exchange.into(),
            routing_key: routing_key.into(),
            attempts,
            last_error: None,
            created_at: None,
        }
    }
}

/// Where a relay takes records from.
///
/// Write a store of your own with [`claim_batch`](Self::claim_batch),
/// [`mark_published`](Self::mark_published) and [`mark_failed`](Self::mark_failed); the rest has
/// defaults. Adding is not part of the trait, since it belongs in a transaction whose type only
/// the store knows. Implementors may write these as `async fn`.
pub trait OutboxStore: Send + Sync + 'static {
    /// Takes at most `size` unpublished records, oldest first, for at least `lease`. Two relays
    /// never hold one record at once. A record that has used up its attempts is not handed out.
    fn claim_batch(
        &self,
        size: usize,
        lease: Duration,
    ) -> impl Future<Output = Result<Vec<ClaimedRecord>>> + Send;

    /// Records that these are at the broker. A fact, and so not fenced by the claims' tokens.
    fn mark_published(&self, claims: &[RecordClaim]) -> impl Future<Output = Result<()>> + Send;

    /// Counts an attempt for each, keeps the reason, and leaves the record alone for the failure's
    /// `retry_after`. Fenced: a claim that was lost changes nothing, and a published record stays
    /// published.
    fn mark_failed(&self, failures: &[FailedRecord]) -> impl Future<Output = Result<()>> + Send;

    /// Gives records back unharmed: it was not their fault. Fenced. By default their leases run
    /// out.
    fn give_back(&self, _claims: &[RecordClaim]) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Extends the claims to `lease` from now. Fenced. By default does nothing.
    fn renew(
        &self,
        _claims: &[RecordClaim],
        _lease: Duration,
    ) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// How many records are not published: waiting, claimed and exhausted ones.
    fn pending_count(&self) -> impl Future<Output = Result<u64>> + Send {
        async { Err(unsupported("count the pending records")) }
    }

    /// The records that have used up their attempts, oldest first, at most `limit`.
    fn stuck(&self, _limit: usize) -> impl Future<Output = Result<Vec<StuckRecord>>> + Send {
        async { Err(unsupported("list the stuck records")) }
    }

    /// Removes records that were published longer ago than `older_than`, and says how many. Never
    /// an unpublished one; nothing else deletes rows.
    fn purge_published(&self, _older_than: Duration) -> impl Future<Output = Result<u64>> + Send {
        async { Err(unsupported("purge the published records")) }
    }

    /// The other relays that hold a live claim on this store, by the name of their claims. Asked
    /// now and then, so that a second relay is said in the log.
    fn other_relays(&self) -> impl Future<Output = Result<Vec<String>>> + Send {
        async { Ok(Vec::new()) }
    }

    /// How the store tells its relay that records were added; by default the relay only polls.
    fn signal(&self) -> Option<OutboxSignal> {
        None
    }
}

fn unsupported(what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{what}: this outbox store does not do that"))
}
