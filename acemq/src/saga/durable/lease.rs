//! Holding an instance: renewing the lease while something runs, and writing under its fence.

use std::{
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::{SagaClaim, SagaStore, SagaWrite, StoredSaga, engine::Engine, held::Held};
use crate::{
    backoff::Backoff,
    error::{Error, ErrorKind, Result},
};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How long one question to the store may take.
const LONGEST_ANSWER: Duration = Duration::from_secs(30);

/// How long a store that is away is asked again to write what has happened.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    For(Duration),
    /// For as long as somebody waits for it.
    Unbounded,
}

impl Patience {
    /// Asks a store, and again while it is away.
    pub(super) async fn asks<T, F>(self, doing: &str, question: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let began = Instant::now();
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            match answer(doing, question()).await {
                Err(error) if error.is_transient() && !self.is_over(began) => {
                    tracing::debug!(%error, "{doing}: trying again");
                    backoff.pause().await;
                }
                answered => return answered,
            }
        }
    }

    fn is_over(self, began: Instant) -> bool {
        match self {
            Self::For(bound) => began.elapsed() >= bound,
            Self::Unbounded => false,
        }
    }
}

/// Why what has happened is not written.
pub(super) enum NotWritten {
    /// The store is away.
    Away(Error),
    /// It refuses that, and trying again does not help.
    Refused(Error),
}

impl NotWritten {
    pub(super) fn into_error(self) -> Error {
        match self {
            Self::Away(error) | Self::Refused(error) => error,
        }
    }
}

/// What became of a write whose answer was lost.
#[derive(PartialEq)]
pub(super) enum Landed {
    Yes,
    /// And the claim is still held.
    No,
    /// The claim was lost.
    Lost,
}

/// Waits for a store's answer, and not for ever.
pub(super) async fn answer<T>(doing: &str, question: impl Future<Output = Result<T>>) -> Result<T> {
    timeout(LONGEST_ANSWER, question).await.unwrap_or_else(|_| {
        let text = format!("{doing}: the saga store gave no answer within {LONGEST_ANSWER:?}");
        Err(Error::new(ErrorKind::Store, text))
    })
}

/// Counted for as long as it is there: something that has happened and is not written.
struct Unwritten<'a>(&'a AtomicUsize);

impl<'a> Unwritten<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Unwritten<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<S: SagaStore> Engine<S> {
    /// Runs something while the lease is renewed. `None` where it was lost, or may have been: what
    /// ran is dropped then, since another process may run it as well. `fenced` is whether what runs
    /// takes no effect by itself, and so is let to its end unless the lease is known to be lost.
    pub(super) async fn under_lease<T>(
        &self,
        held: &Held,
        fenced: bool,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let mut work = pin!(work);
        tokio::select! {
            biased;
            ended = &mut work => Some(ended),
            () = self.renew_until_lost(held, fenced) => None,
        }
    }

    async fn renew_until_lost(&self, held: &Held, fenced: bool) {
        let (claim, lease) = (&held.claim, self.settings.lease);
        let mut leased = held.leased;
        let mut next = leased + lease / 3;
        loop {
            // What is not fenced ends with its lease, whatever the store is doing.
            let bound = |at: Instant| if fenced { at } else { at.min(leased + lease) };
            sleep_until(bound(next)).await;
            let asked = Instant::now();
            if !fenced && asked >= leased + lease {
                return;
            }
            match timeout_at(bound(asked + lease / 3), self.store.renew(claim, lease)).await {
                Ok(Ok(true)) => leased = asked,
                Ok(Ok(false)) => return,
                Ok(Err(error)) => tracing::debug!(key = claim.key(), %error, "renewing failed"),
                Err(_) => tracing::debug!(key = claim.key(), "renewing took too long"),
            }
            next = Instant::now() + lease / 3;
        }
    }

    /// Writes where an instance stands; `false` where the claim was lost. A store that is away is
    /// asked again: nothing that has happened is forgotten for that. One that answers everything but
    /// this write for longer than a lease has refused it.
    ///
    /// # Errors
    /// A refusal, or a store that is away for longer than the patience.
    pub(super) async fn write(
        &self,
        held: &mut Held,
        write: &SagaWrite,
        patience: Patience,
    ) -> Result<bool, NotWritten> {
        let asked = Instant::now();
        let written = self.write_claimed(&held.claim, write, patience).await?;
        if written {
            held.leased = asked;
        }
        Ok(written)
    }

    async fn write_claimed(
        &self,
        claim: &SagaClaim,
        write: &SagaWrite,
        patience: Patience,
    ) -> Result<bool, NotWritten> {
        let lease = self.settings.lease;
        let began = Instant::now();
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut said = false;
        let mut refused_since = None;
        let mut unwritten = None;
        loop {
            let asked = Instant::now();
            let error = match answer("write a saga", self.store.write(claim, write)).await {
                Ok(true) => return Ok(true),
                // One that failed before may have been written all the same.
                Ok(false) if said => {
                    let landed = self.landed(claim, write, patience).await;
                    return Ok(landed.map_err(NotWritten::Away)? == Landed::Yes);
                }
                Ok(false) => return Ok(taken_over(claim)),
                Err(error) => error,
            };
            if !error.is_transient() {
                return Err(NotWritten::Refused(error));
            }
            if !std::mem::replace(&mut said, true) {
                tracing::warn!(
                    key = claim.key(), %error,
                    "a saga cannot be written; it is held, and tried again until the store is back"
                );
            }
            unwritten.get_or_insert_with(|| Unwritten::new(&self.unwritten));
            match self.landed(claim, write, Patience::For(Duration::ZERO)).await {
                Ok(Landed::Yes) => return Ok(true),
                Ok(Landed::Lost) => return Ok(taken_over(claim)),
                // A store that answers everything else is not away: it refuses this one.
                Ok(Landed::No) => {
                    unwritten = None;
                    let since = *refused_since.get_or_insert(asked);
                    if since.elapsed() >= lease || patience.is_over(began) {
                        return Err(NotWritten::Refused(error));
                    }
                }
                Err(_) => refused_since = None,
            }
            if patience.is_over(began) {
                return Err(NotWritten::Away(error));
            }
            backoff.pause().await;
        }
    }

    /// Whether a write whose answer was lost is there.
    pub(super) async fn landed(
        &self,
        claim: &SagaClaim,
        write: &SagaWrite,
        patience: Patience,
    ) -> Result<Landed> {
        // What is still under way has the row: whoever renews waits until it has ended, and whoever
        // only reads does not.
        let lease = self.settings.lease;
        let is_held = patience.asks("renew a claim", || self.store.renew(claim, lease)).await?;
        let found = patience.asks("look at a saga", || self.store.find(claim.key())).await?;
        let is_there = |stored: StoredSaga| {
            stored.state == write.state && stored.status == write.status && stored.claims == 0
        };
        Ok(match found.is_some_and(is_there) {
            true => Landed::Yes,
            false if is_held => Landed::No,
            false => Landed::Lost,
        })
    }
}

/// Says that a claim is lost, which is a write's `false`.
fn taken_over(claim: &SagaClaim) -> bool {
    tracing::warn!(
        key = claim.key(),
        "another process has taken over a saga: this one's lease ran out"
    );
    false
}
