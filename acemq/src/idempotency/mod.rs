//! Recognising a message that was handled before.
//!
//! A broker delivers at least once. A consumer with an [`IdempotencyStore`] claims a message's
//! key before its handler runs, confirms it afterwards, and gives it up when the handler fails:
//! a second delivery of a confirmed key is acknowledged without running the handler. A claim is a
//! lease: a consumer that dies in its handler costs a delay of at most the lease.

mod erased;
mod memory;

use std::{future::Future, time::Duration};

pub use self::{erased::SharedIdempotencyStore, memory::MemoryIdempotencyStore};
use crate::error::{Error, ErrorKind, Result};

/// How long a claim is held before another consumer may take it over, unless set otherwise.
const DEFAULT_LEASE: Duration = Duration::from_secs(5 * 60);

/// How long a confirmation is remembered, unless set otherwise.
const DEFAULT_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);

/// The answer to [`IdempotencyStore::try_claim`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "these three are all there is to a claim")]
pub enum Claim {
    /// The caller owns the key: do the work, then confirm or release with this lease.
    Owned(Lease),
    /// The work was done before: this is a duplicate.
    AlreadyConfirmed,
    /// Somebody else holds a live claim: not a duplicate, ask again later.
    InProgress,
}

/// The proof of one claim.
///
/// The token tells this claim from any other on the same key, so that a holder that lost its
/// lease gives up nobody else's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    key: String,
    token: String,
}

impl Lease {
    /// A lease as a store hands it out; `token` is empty for a store without tokens.
    #[must_use]
    pub fn new(key: impl Into<String>, token: impl Into<String>) -> Self {
        Self { key: key.into(), token: token.into() }
    }

    /// The key that is claimed.
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

/// Remembers which messages have been handled.
///
/// Write a store of your own with [`claim`](Self::claim), [`is_confirmed`](Self::is_confirmed),
/// [`confirm`](Self::confirm) and [`release`](Self::release); the rest has defaults. Implementors
/// may write these as `async fn`.
///
/// A failure that is not a duplicate (a lock timeout, a lost connection) must be an error, never
/// an answer: the consumer then keeps the message and asks again.
pub trait IdempotencyStore: Send + Sync + 'static {
    /// Takes ownership of a key if nobody has it: `true` when the caller now owns it. `false`
    /// does not tell a duplicate from a claim in progress: consumers call
    /// [`try_claim`](Self::try_claim).
    fn claim(&self, key: &str) -> impl Future<Output = Result<bool>> + Send;

    /// Whether the work for a key is known to be done. A pure read.
    fn is_confirmed(&self, key: &str) -> impl Future<Output = Result<bool>> + Send;

    /// Records that the work is done. A fact, and so not fenced: it holds even if the lease was
    /// lost meanwhile, and doing it twice is harmless.
    fn confirm(&self, lease: &Lease) -> impl Future<Output = Result<()>> + Send;

    /// Records of several keys at once that the work is done: a consumer hands over together what
    /// its handlers finish at the same time. All of them or an error; the default calls
    /// [`confirm`](Self::confirm) for each.
    fn confirm_batch(&self, leases: &[Lease]) -> impl Future<Output = Result<()>> + Send {
        async move {
            for lease in leases {
                self.confirm(lease).await?;
            }
            Ok(())
        }
    }

    /// Gives up a claim so that the message can be handled again. Only its own claim: one that
    /// another holder took over, or a confirmation, stays.
    fn release(&self, lease: &Lease) -> impl Future<Output = Result<()>> + Send;

    /// Takes ownership of a key and says why not if it cannot. The default is made of
    /// [`claim`](Self::claim) and [`is_confirmed`](Self::is_confirmed).
    fn try_claim(&self, key: &str) -> impl Future<Output = Result<Claim>> + Send {
        async move {
            if self.claim(key).await? {
                Ok(Claim::Owned(Lease::new(key, "")))
            } else if self.is_confirmed(key).await? {
                Ok(Claim::AlreadyConfirmed)
            } else {
                Ok(Claim::InProgress)
            }
        }
    }

    /// Extends a claim by another lease while its holder works; `false` when it was lost.
    fn renew(&self, _lease: &Lease) -> impl Future<Output = Result<bool>> + Send {
        async { Ok(true) }
    }

    /// Whether the store can be used, asked once when a consumer starts. The default says yes.
    ///
    /// # Errors
    /// What is wrong with it: a table that is missing, say. The start fails where the error is
    /// not transient; a store that is merely away is waited for.
    fn check(&self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// How long a claim is held; `None` where the store does not say, and then nobody renews.
    fn lease(&self) -> Option<Duration> {
        None
    }

    /// How long a confirmation is remembered; `None` where the store does not say.
    fn retention(&self) -> Option<Duration> {
        None
    }

    /// Removes confirmations past their retention and claims past their lease, and says how many.
    /// Nothing on the way of a message deletes: schedule this, hourly is ample.
    fn purge_expired(&self) -> impl Future<Output = Result<u64>> + Send {
        async { Err(unsupported("purge expired keys")) }
    }

    /// How many keys the store holds, expired ones included.
    fn size(&self) -> impl Future<Output = Result<u64>> + Send {
        async { Err(unsupported("count the keys")) }
    }
}

fn unsupported(what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{what}: this idempotency store does not do that"))
}
