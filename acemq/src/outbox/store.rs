//! What a relay asks of a store.

use std::{
    future::Future,
    time::{Duration, SystemTime},
};

use super::{ClaimRequest, OutboxRecord, OutboxSignal, RelayLock};
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

/// How many unpublished records there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutboxCounts {
    /// Those that wait for a relay, or until they are due again.
    pub waiting: u64,
    /// Those that a relay holds.
    pub claimed: u64,
    /// Those that have used up their attempts.
    pub exhausted: u64,
    /// How long ago the oldest of all was made, by the store's clock.
    pub oldest: Option<Duration>,
}

impl OutboxCounts {
    /// Counts as a store reports them.
    #[must_use]
    pub fn new(waiting: u64, claimed: u64, exhausted: u64, oldest: Option<Duration>) -> Self {
        Self { waiting, claimed, exhausted, oldest }
    }

    /// All of them.
    #[must_use]
    pub fn pending(&self) -> u64 {
        self.waiting + self.claimed + self.exhausted
    }
}

/// What became of the wish to discard a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "a record that a relay holds is not discarded"]
pub enum Discard {
    /// It is gone, and will not be published.
    Removed,
    /// A relay holds it, and may be publishing it now: nothing was changed. Ask again later.
    Claimed,
    /// There is no unpublished record of that id.
    NotFound,
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

    /// Takes records as the request says: the relay's way in. By default
    /// [`claim_batch`](Self::claim_batch), whatever the bodies' size, and in no kept order.
    ///
    /// In a kept order, records come with nothing missing before them: of each key
    /// ([`PerKey`](crate::RelayOrder::PerKey)) or of the table
    /// ([`Strict`](crate::RelayOrder::Strict)) the oldest unpublished ones, up to the first that
    /// is claimed, not due or exhausted.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for an order that the store cannot keep.
    fn claim(
        &self,
        request: ClaimRequest,
    ) -> impl Future<Output = Result<Vec<ClaimedRecord>>> + Send {
        async move {
            if request.order.is_kept() {
                return Err(unsupported("claim records in a kept order"));
            }
            self.claim_batch(request.records, request.lease).await
        }
    }

    /// The lock of the one active relay, or nothing when another relay has had it for `wait`.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] by default, which rules out the ordered modes.
    fn lead(&self, _wait: Duration) -> impl Future<Output = Result<Option<RelayLock>>> + Send {
        async { Err(unsupported("be the one active relay, as the ordered modes have to")) }
    }

    /// Runs beside a started relay and wakes the store's [signal](Self::signal) when it hears of
    /// records from elsewhere. By default there is nothing to listen to. Polling goes on.
    fn listen(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Records that these are at the broker. A fact, and so not fenced by the claims' tokens.
    /// After a failure it is called again with the same.
    fn mark_published(&self, claims: &[RecordClaim]) -> impl Future<Output = Result<()>> + Send;

    /// Counts an attempt for each, keeps the reason, and leaves the record alone for the failure's
    /// `retry_after`. Fenced: a claim that was lost changes nothing, and a published record stays
    /// published. After a failure it is called again with the same.
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

    /// How many records are not published, by what they wait for.
    fn counts(&self) -> impl Future<Output = Result<OutboxCounts>> + Send {
        async { Err(unsupported("count the records")) }
    }

    /// The records that have used up their attempts, oldest first, at most `limit`.
    fn stuck(&self, _limit: usize) -> impl Future<Output = Result<Vec<StuckRecord>>> + Send {
        async { Err(unsupported("list the stuck records")) }
    }

    /// Gives a record that has used up its attempts new ones, due at once, and says whether it was
    /// one. The reason of its last failure stays until the next.
    fn retry(&self, _id: &str) -> impl Future<Output = Result<bool>> + Send {
        async { Err(unsupported("retry an exhausted record")) }
    }

    /// Gives all records that have used up their attempts new ones, due at once, and says how many
    /// they were.
    fn retry_all(&self) -> impl Future<Output = Result<u64>> + Send {
        async { Err(unsupported("retry the exhausted records")) }
    }

    /// Removes a record that is not published, exhausted or not, unless a relay holds it.
    fn discard(&self, _id: &str) -> impl Future<Output = Result<Discard>> + Send {
        async { Err(unsupported("discard a record")) }
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
