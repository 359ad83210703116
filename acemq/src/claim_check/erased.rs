//! The object-safe twin of [`ClaimCheckStore`], and the wrapper for a store chosen at run time.

use std::{fmt, sync::Arc};

use bytes::Bytes;

use super::ClaimCheckStore;
use crate::{error::Result, transport::BoxFuture};

/// [`ClaimCheckStore`] with boxed futures, method for method.
trait ErasedClaimCheckStore: Send + Sync {
    fn put(&self, payload: Bytes) -> BoxFuture<'_, Result<String>>;
    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Bytes>>;
    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<()>>;
}

impl<S: ClaimCheckStore> ErasedClaimCheckStore for S {
    fn put(&self, payload: Bytes) -> BoxFuture<'_, Result<String>> {
        Box::pin(ClaimCheckStore::put(self, payload))
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Bytes>> {
        Box::pin(ClaimCheckStore::get(self, key))
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(ClaimCheckStore::delete(self, key))
    }
}

/// A claim-check store chosen at run time, or shared by several codecs. Cheap to clone.
///
/// ```
/// use acemq::{ClaimCheck, FileClaimCheckStore, Json, MemoryClaimCheckStore, SharedClaimCheckStore};
///
/// let directory: Option<&str> = None; // from the settings, say
/// let store = match directory {
///     Some(directory) => SharedClaimCheckStore::new(FileClaimCheckStore::new(directory)),
///     None => SharedClaimCheckStore::new(MemoryClaimCheckStore::new()),
/// };
/// let codec = ClaimCheck::new(Json, store.clone());
/// # drop(codec);
/// ```
#[derive(Clone)]
pub struct SharedClaimCheckStore(Arc<dyn ErasedClaimCheckStore>);

impl SharedClaimCheckStore {
    /// Wraps a store.
    pub fn new(store: impl ClaimCheckStore) -> Self {
        Self(Arc::new(store))
    }
}

impl fmt::Debug for SharedClaimCheckStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedClaimCheckStore")
    }
}

impl ClaimCheckStore for SharedClaimCheckStore {
    async fn put(&self, payload: Bytes) -> Result<String> {
        self.0.put(payload).await
    }

    async fn get(&self, key: &str) -> Result<Bytes> {
        self.0.get(key).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.0.delete(key).await
    }
}
