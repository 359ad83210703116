//! The claim around a handler: taken before it, renewed while it runs, confirmed or given up
//! after it.

use std::{
    collections::HashSet,
    panic::AssertUnwindSafe,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures_util::FutureExt as _;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use crate::{
    error::{Error, ErrorKind, Result},
    idempotency::{Claim, IdempotencyStore, Lease, SharedIdempotencyStore},
    transport::Settler,
};

/// The longest key that a store has to hold, in bytes.
const MAX_KEY: usize = 255;

/// The pauses between questions to a store that is down: doubling between these.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How long the store may take for an answer: a connection to a database that fell silent would
/// otherwise hold the message and its handler's place for good.
const LONGEST_ANSWER: Duration = Duration::from_secs(30);

const SHORTEST_RENEWAL: Duration = Duration::from_millis(1);

/// Whose key an id is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyScope {
    /// `queue/id`: consumers of different queues never suppress each other.
    Queue,
    /// The bare id, as the other libraries of the family store it.
    Family,
}

/// One consumer's use of its idempotency store.
#[derive(Debug)]
pub(super) struct Idempotency {
    store: SharedIdempotencyStore,
    scope: KeyScope,
    /// Keys whose handler ran here and whose confirmation is still being written: whatever the
    /// store says of them, the handler does not run again.
    unconfirmed: Mutex<HashSet<String>>,
}

impl Idempotency {
    pub(super) fn new(store: SharedIdempotencyStore, scope: KeyScope) -> Self {
        Self { store, scope, unconfirmed: Mutex::default() }
    }

    pub(super) fn retention(&self) -> Option<Duration> {
        self.store.retention()
    }

    pub(super) fn key(&self, queue: &str, id: &str) -> String {
        let key = match self.scope {
            KeyScope::Queue => format!("{queue}/{id}"),
            KeyScope::Family => id.to_owned(),
        };
        // PostgreSQL's text has no U+0000, and an id may hold anything.
        if key.len() <= MAX_KEY && !key.contains('\0') {
            return key;
        }
        Sha256::digest(key.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Claims a key. While the store is down the delivery stays in hand and the claim is tried
    /// again; `None` once the consumer closes or the delivery's channel has ended.
    pub(super) async fn claim(
        &self,
        key: &str,
        closing: &CancellationToken,
        settler: &dyn Settler,
    ) -> Option<Claim> {
        if self.unconfirmed().contains(key) {
            return Some(Claim::InProgress);
        }
        let mut pause = FIRST_PAUSE;
        loop {
            match answer(|| self.store.try_claim(key)).await {
                Ok(claim) => return Some(claim),
                Err(error) => {
                    tracing::warn!(key, %error, "the idempotency store is down; the message waits");
                }
            }
            tokio::select! {
                () = closing.cancelled() => return None,
                () = tokio::time::sleep(pause) => {}
            }
            if !settler.is_open() {
                return None;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Runs a handler under its claim: the lease is renewed at a third of its length.
    pub(super) async fn hold<T>(&self, lease: &Lease, work: impl Future<Output = T>) -> T {
        let Some(length) = self.store.lease().filter(|length| !length.is_zero()) else {
            return work.await;
        };
        let renewals = async || -> std::convert::Infallible {
            let mut every = tokio::time::interval((length / 3).max(SHORTEST_RENEWAL));
            every.tick().await;
            loop {
                every.tick().await;
                match answer(|| self.store.renew(lease)).await {
                    Ok(true) => {}
                    Ok(false) => {
                        tracing::warn!(
                            key = lease.key(),
                            "the claim was lost while the handler runs; another consumer may \
                             handle the message as well"
                        );
                        return std::future::pending().await;
                    }
                    Err(error) => {
                        tracing::warn!(key = lease.key(), %error, "the claim was not renewed");
                    }
                }
            }
        };
        tokio::select! {
            biased;
            done = work => done,
            never = renewals() => match never {},
        }
    }

    /// Records that the handler ran. While the store is down this is tried again, until `abort`:
    /// then `false`.
    pub(super) async fn confirm(&self, lease: &Lease, abort: &CancellationToken) -> bool {
        // From here on a redelivery does not run the handler, also where the store is so slow
        // that the lease runs out meanwhile.
        let _unconfirmed = Unconfirmed::new(self, lease.key());
        match answer(|| self.store.confirm(lease)).await {
            Ok(()) => true,
            Err(error) => self.confirm_again(lease, abort, error).await,
        }
    }

    async fn confirm_again(
        &self,
        lease: &Lease,
        abort: &CancellationToken,
        mut error: Error,
    ) -> bool {
        let mut pause = FIRST_PAUSE;
        loop {
            tracing::warn!(
                key = lease.key(), %error,
                "the handler ran, and the idempotency store could not record it; trying again"
            );
            tokio::select! {
                () = abort.cancelled() => return false,
                () = tokio::time::sleep(pause) => {}
            }
            match answer(|| self.store.confirm(lease)).await {
                Ok(()) => return true,
                Err(again) => error = again,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Gives a claim up, so that the next attempt does not meet it. A failure is logged: the lease
    /// runs out by itself.
    pub(super) async fn release(&self, lease: &Lease) {
        let released: Result<()> = answer(|| self.store.release(lease)).await;
        if let Err(error) = released {
            tracing::warn!(
                key = lease.key(), %error,
                "the claim was not given up; the next attempt waits until its lease runs out"
            );
        }
    }

    fn unconfirmed(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.unconfirmed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A key is among the unconfirmed ones until this is dropped.
struct Unconfirmed<'a>(&'a Idempotency, &'a str);

impl<'a> Unconfirmed<'a> {
    fn new(idempotency: &'a Idempotency, key: &'a str) -> Self {
        idempotency.unconfirmed().insert(key.to_owned());
        Self(idempotency, key)
    }
}

impl Drop for Unconfirmed<'_> {
    fn drop(&mut self) {
        self.0.unconfirmed().remove(self.1);
    }
}

/// The store's answer, or an error if it does not come. A store of the user's own that panics is
/// a store that failed.
async fn answer<T, F>(ask: impl FnOnce() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let failed = |how: &str| Error::new(ErrorKind::Store, format!("use an idempotency key: {how}"));
    let asked = AssertUnwindSafe(async { ask().await }).catch_unwind();
    match tokio::time::timeout(LONGEST_ANSWER, asked).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(failed("the store panicked")),
        Err(_) => Err(failed(&format!("no answer within {LONGEST_ANSWER:?}"))),
    }
}
