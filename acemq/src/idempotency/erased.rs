//! The object-safe twin of [`IdempotencyStore`], and the wrapper for a store chosen at run time.

use std::{fmt, sync::Arc, time::Duration};

use super::{Claim, IdempotencyStore, Lease};
use crate::{error::Result, transport::BoxFuture};

/// [`IdempotencyStore`] with boxed futures, method for method.
pub(crate) trait ErasedIdempotencyStore: Send + Sync {
    fn claim<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<bool>>;
    fn is_confirmed<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<bool>>;
    fn confirm<'a>(&'a self, lease: &'a Lease) -> BoxFuture<'a, Result<()>>;
    fn confirm_batch<'a>(&'a self, leases: &'a [Lease]) -> BoxFuture<'a, Result<()>>;
    fn release<'a>(&'a self, lease: &'a Lease) -> BoxFuture<'a, Result<()>>;
    fn try_claim<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Claim>>;
    fn renew<'a>(&'a self, lease: &'a Lease) -> BoxFuture<'a, Result<bool>>;
    fn check(&self) -> BoxFuture<'_, Result<()>>;
    fn lease(&self) -> Option<Duration>;
    fn retention(&self) -> Option<Duration>;
    fn purge_expired(&self) -> BoxFuture<'_, Result<u64>>;
    fn size(&self) -> BoxFuture<'_, Result<u64>>;
}

impl<S: IdempotencyStore> ErasedIdempotencyStore for S {
    fn claim<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<bool>> {
        Box::pin(IdempotencyStore::claim(self, key))
    }

    fn is_confirmed<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<bool>> {
        Box::pin(IdempotencyStore::is_confirmed(self, key))
    }

    fn confirm<'a>(&'a self, lease: &'a Lease) -> BoxFuture<'a, Result<()>> {
        Box::pin(IdempotencyStore::confirm(self, lease))
    }

    fn confirm_batch<'a>(&'a self, leases: &'a [Lease]) -> BoxFuture<'a, Result<()>> {
        Box::pin(IdempotencyStore::confirm_batch(self, leases))
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> BoxFuture<'a, Result<()>> {
        Box::pin(IdempotencyStore::release(self, lease))
    }

    fn try_claim<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(IdempotencyStore::try_claim(self, key))
    }

    fn renew<'a>(&'a self, lease: &'a Lease) -> BoxFuture<'a, Result<bool>> {
        Box::pin(IdempotencyStore::renew(self, lease))
    }

    fn check(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(IdempotencyStore::check(self))
    }

    fn lease(&self) -> Option<Duration> {
        IdempotencyStore::lease(self)
    }

    fn retention(&self) -> Option<Duration> {
        IdempotencyStore::retention(self)
    }

    fn purge_expired(&self) -> BoxFuture<'_, Result<u64>> {
        Box::pin(IdempotencyStore::purge_expired(self))
    }

    fn size(&self) -> BoxFuture<'_, Result<u64>> {
        Box::pin(IdempotencyStore::size(self))
    }
}

/// An idempotency store chosen at run time, or shared by several consumers. Cheap to clone.
///
/// ```
/// use acemq::{MemoryIdempotencyStore, SharedIdempotencyStore};
///
/// let store = SharedIdempotencyStore::new(MemoryIdempotencyStore::new());
/// let same = store.clone();
/// # drop((store, same));
/// ```
#[derive(Clone)]
pub struct SharedIdempotencyStore(pub(crate) Arc<dyn ErasedIdempotencyStore>);

impl SharedIdempotencyStore {
    /// Wraps a store.
    pub fn new(store: impl IdempotencyStore) -> Self {
        Self(Arc::new(store))
    }
}

impl fmt::Debug for SharedIdempotencyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedIdempotencyStore")
    }
}

impl IdempotencyStore for SharedIdempotencyStore {
    async fn claim(&self, key: &str) -> Result<bool> {
        self.0.claim(key).await
    }

    async fn is_confirmed(&self, key: &str) -> Result<bool> {
        self.0.is_confirmed(key).await
    }

    async fn confirm(&self, lease: &Lease) -> Result<()> {
        self.0.confirm(lease).await
    }

    async fn confirm_batch(&self, leases: &[Lease]) -> Result<()> {
        self.0.confirm_batch(leases).await
    }

    async fn release(&self, lease: &Lease) -> Result<()> {
        self.0.release(lease).await
    }

    async fn try_claim(&self, key: &str) -> Result<Claim> {
        self.0.try_claim(key).await
    }

    async fn renew(&self, lease: &Lease) -> Result<bool> {
        self.0.renew(lease).await
    }

    async fn check(&self) -> Result<()> {
        self.0.check().await
    }

    fn lease(&self) -> Option<Duration> {
        self.0.lease()
    }

    fn retention(&self) -> Option<Duration> {
        self.0.retention()
    }

    async fn purge_expired(&self) -> Result<u64> {
        self.0.purge_expired().await
    }

    async fn size(&self) -> Result<u64> {
        self.0.size().await
    }
}
