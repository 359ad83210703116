//! The claim around a handler: taken before it, renewed while it runs, confirmed or given up
//! after it.

use std::{
    collections::HashSet,
    panic::AssertUnwindSafe,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures_util::FutureExt as _;

use super::{confirmations::Confirmations, outage::Outage, runtime::Core};
use crate::{
    error::{Error, ErrorKind, Result},
    idempotency::{Claim, IdempotencyStore, Lease, SharedIdempotencyStore},
    transport::Settler,
};

/// How long the store may take for an answer: a connection to a database that fell silent would
/// otherwise hold the message and its handler's place for good.
pub(super) const LONGEST_ANSWER: Duration = Duration::from_secs(30);

const SHORTEST_RENEWAL: Duration = Duration::from_millis(1);

/// One consumer's use of its idempotency store.
#[derive(Debug)]
pub(super) struct Idempotency {
    store: SharedIdempotencyStore,
    confirmations: Confirmations,
    /// Keys whose handler ran here and whose confirmation is still being written: whatever the
    /// store says of them, the handler does not run again.
    unconfirmed: Mutex<HashSet<String>>,
}

impl Idempotency {
    pub(super) fn new(store: SharedIdempotencyStore) -> Self {
        Self { store, confirmations: Confirmations::new(), unconfirmed: Mutex::default() }
    }

    pub(super) async fn check(&self) -> Result<()> {
        answer(|| self.store.check()).await
    }

    pub(super) fn retention(&self) -> Option<Duration> {
        self.store.retention()
    }

    /// Claims a key. While the store is down the delivery stays in hand and the claim is tried
    /// again; `None` once the consumer closes or the delivery's channel has ended.
    pub(super) async fn claim(
        &self,
        core: &Core,
        key: &str,
        settler: &dyn Settler,
    ) -> Option<Claim> {
        let ask = || async {
            if self.unconfirmed().contains(key) {
                return Ok(Claim::InProgress);
            }
            answer(|| self.store.try_claim(key)).await
        };
        let claim = core.wait_for_store(Some(settler), ask).await?;
        // The handler may have ended while the store was asked, which knows only that its lease has
        // run out.
        let has_run = matches!(claim, Claim::Owned(_)) && self.unconfirmed().contains(key);
        Some(if has_run { Claim::InProgress } else { claim })
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

    /// Records that the handler ran. While the store is down this is tried again, until the
    /// consumer is stopped: then `false`.
    pub(super) async fn confirm(&self, core: &Core, lease: &Lease) -> bool {
        // From here on a redelivery does not run the handler, also where the store is so slow
        // that the lease runs out meanwhile.
        let _unconfirmed = Unconfirmed::new(self, lease.key());
        let mut outage = Outage::of(core);
        loop {
            let confirmed = self.confirmations.confirm(&self.store, lease).await;
            let Err(error) = confirmed else { return true };
            tracing::warn!(
                key = lease.key(), %error,
                "the handler ran, and the idempotency store could not record it; trying again"
            );
            tokio::select! {
                () = core.abort.cancelled() => return false,
                () = outage.pause(&error) => {}
            }
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
pub(crate) async fn answer<T, F>(ask: impl FnOnce() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let failed = |how: &str| Error::new(ErrorKind::Store, format!("ask the store: {how}"));
    let asked = AssertUnwindSafe(async { ask().await }).catch_unwind();
    match tokio::time::timeout(LONGEST_ANSWER, asked).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(failed("it panicked")),
        Err(_) => Err(failed(&format!("no answer within {LONGEST_ANSWER:?}"))),
    }
}
