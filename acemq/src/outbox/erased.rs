//! The object-safe twin of [`OutboxStore`], and the wrapper for a store chosen at run time.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    ClaimRequest, ClaimedRecord, Discard, FailedRecord, OutboxCounts, OutboxSignal, OutboxStore,
    RecordClaim, RelayLock, StuckRecord,
};
use crate::{error::Result, transport::BoxFuture};

/// [`OutboxStore`] with boxed futures, method for method.
pub(crate) trait ErasedOutboxStore: Send + Sync {
    fn claim_batch(
        &self,
        size: usize,
        lease: Duration,
    ) -> BoxFuture<'_, Result<Vec<ClaimedRecord>>>;
    fn claim(&self, request: ClaimRequest) -> BoxFuture<'_, Result<Vec<ClaimedRecord>>>;
    fn lead(&self, wait: Duration) -> BoxFuture<'_, Result<Option<RelayLock>>>;
    fn listen(&self) -> BoxFuture<'_, ()>;
    fn mark_published<'a>(&'a self, claims: &'a [RecordClaim]) -> BoxFuture<'a, Result<()>>;
    fn mark_failed<'a>(&'a self, failures: &'a [FailedRecord]) -> BoxFuture<'a, Result<()>>;
    fn give_back<'a>(&'a self, claims: &'a [RecordClaim]) -> BoxFuture<'a, Result<()>>;
    fn renew<'a>(&'a self, claims: &'a [RecordClaim], lease: Duration)
    -> BoxFuture<'a, Result<()>>;
    fn pending_count(&self) -> BoxFuture<'_, Result<u64>>;
    fn counts(&self) -> BoxFuture<'_, Result<OutboxCounts>>;
    fn stuck(&self, limit: usize) -> BoxFuture<'_, Result<Vec<StuckRecord>>>;
    fn retry<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool>>;
    fn retry_all(&self) -> BoxFuture<'_, Result<u64>>;
    fn discard<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Discard>>;
    fn purge_published(&self, older_than: Duration) -> BoxFuture<'_, Result<u64>>;
    fn other_relays(&self) -> BoxFuture<'_, Result<Vec<String>>>;
    fn signal(&self) -> Option<OutboxSignal>;
}

impl<S: OutboxStore> ErasedOutboxStore for S {
    fn claim_batch(
        &self,
        size: usize,
        lease: Duration,
    ) -> BoxFuture<'_, Result<Vec<ClaimedRecord>>> {
        Box::pin(OutboxStore::claim_batch(self, size, lease))
    }

    fn claim(&self, request: ClaimRequest) -> BoxFuture<'_, Result<Vec<ClaimedRecord>>> {
        Box::pin(OutboxStore::claim(self, request))
    }

    fn lead(&self, wait: Duration) -> BoxFuture<'_, Result<Option<RelayLock>>> {
        Box::pin(OutboxStore::lead(self, wait))
    }

    fn listen(&self) -> BoxFuture<'_, ()> {
        Box::pin(OutboxStore::listen(self))
    }

    fn mark_published<'a>(&'a self, claims: &'a [RecordClaim]) -> BoxFuture<'a, Result<()>> {
        Box::pin(OutboxStore::mark_published(self, claims))
    }

    fn mark_failed<'a>(&'a self, failures: &'a [FailedRecord]) -> BoxFuture<'a, Result<()>> {
        Box::pin(OutboxStore::mark_failed(self, failures))
    }

    fn give_back<'a>(&'a self, claims: &'a [RecordClaim]) -> BoxFuture<'a, Result<()>> {
        Box::pin(OutboxStore::give_back(self, claims))
    }

    fn renew<'a>(
        &'a self,
        claims: &'a [RecordClaim],
        lease: Duration,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(OutboxStore::renew(self, claims, lease))
    }

    fn pending_count(&self) -> BoxFuture<'_, Result<u64>> {
        Box::pin(OutboxStore::pending_count(self))
    }

    fn counts(&self) -> BoxFuture<'_, Result<OutboxCounts>> {
        Box::pin(OutboxStore::counts(self))
    }

    fn stuck(&self, limit: usize) -> BoxFuture<'_, Result<Vec<StuckRecord>>> {
        Box::pin(OutboxStore::stuck(self, limit))
    }

    fn retry<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool>> {
        Box::pin(OutboxStore::retry(self, id))
    }

    fn retry_all(&self) -> BoxFuture<'_, Result<u64>> {
        Box::pin(OutboxStore::retry_all(self))
    }

    fn discard<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Discard>> {
        Box::pin(OutboxStore::discard(self, id))
    }

    fn purge_published(&self, older_than: Duration) -> BoxFuture<'_, Result<u64>> {
        Box::pin(OutboxStore::purge_published(self, older_than))
    }

    fn other_relays(&self) -> BoxFuture<'_, Result<Vec<String>>> {
        Box::pin(OutboxStore::other_relays(self))
    }

    fn signal(&self) -> Option<OutboxSignal> {
        OutboxStore::signal(self)
    }
}

/// An outbox store chosen at run time, or shared by several relays. Cheap to clone.
#[derive(Clone)]
pub struct SharedOutboxStore(pub(crate) Arc<dyn ErasedOutboxStore>);

impl SharedOutboxStore {
    /// Wraps a store.
    pub fn new(store: impl OutboxStore) -> Self {
        Self(Arc::new(store))
    }
}

impl fmt::Debug for SharedOutboxStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedOutboxStore")
    }
}

impl OutboxStore for SharedOutboxStore {
    async fn claim_batch(&self, size: usize, lease: Duration) -> Result<Vec<ClaimedRecord>> {
        self.0.claim_batch(size, lease).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<ClaimedRecord>> {
        self.0.claim(request).await
    }

    async fn lead(&self, wait: Duration) -> Result<Option<RelayLock>> {
        self.0.lead(wait).await
    }

    async fn listen(&self) {
        self.0.listen().await;
    }

    async fn mark_published(&self, claims: &[RecordClaim]) -> Result<()> {
        self.0.mark_published(claims).await
    }

    async fn mark_failed(&self, failures: &[FailedRecord]) -> Result<()> {
        self.0.mark_failed(failures).await
    }

    async fn give_back(&self, claims: &[RecordClaim]) -> Result<()> {
        self.0.give_back(claims).await
    }

    async fn renew(&self, claims: &[RecordClaim], lease: Duration) -> Result<()> {
        self.0.renew(claims, lease).await
    }

    async fn pending_count(&self) -> Result<u64> {
        self.0.pending_count().await
    }

    async fn counts(&self) -> Result<OutboxCounts> {
        self.0.counts().await
    }

    async fn stuck(&self, limit: usize) -> Result<Vec<StuckRecord>> {
        self.0.stuck(limit).await
    }

    async fn retry(&self, id: &str) -> Result<bool> {
        self.0.retry(id).await
    }

    async fn retry_all(&self) -> Result<u64> {
        self.0.retry_all().await
    }

    async fn discard(&self, id: &str) -> Result<Discard> {
        self.0.discard(id).await
    }

    async fn purge_published(&self, older_than: Duration) -> Result<u64> {
        self.0.purge_published(older_than).await
    }

    async fn other_relays(&self) -> Result<Vec<String>> {
        self.0.other_relays().await
    }

    fn signal(&self) -> Option<OutboxSignal> {
        self.0.signal()
    }
}
