//! The claim-check store of one process.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use uuid::Uuid;

use super::{ClaimCheckStore, key};
use crate::error::{Error, ErrorKind, Result};

/// Keeps payloads in this process: for tests and for trying things out, since no other process
/// can read them and they are gone when this one ends. Cheap to clone; clones share what they
/// hold, which grows until it is deleted.
///
/// ```
/// use acemq::{ClaimCheckStore as _, ErrorKind, MemoryClaimCheckStore};
/// use bytes::Bytes;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> acemq::Result<()> {
/// let store = MemoryClaimCheckStore::new();
/// let key = store.put(Bytes::from_static(b"a scan")).await?;
/// assert_eq!(store.get(&key).await?, "a scan");
/// store.delete(&key).await?;
/// assert_eq!(store.get(&key).await.unwrap_err().kind(), ErrorKind::NotFound);
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct MemoryClaimCheckStore {
    objects: Arc<Mutex<HashMap<String, Bytes>>>,
}

impl MemoryClaimCheckStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many payloads it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Bytes>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MemoryClaimCheckStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryClaimCheckStore").field("len", &self.len()).finish()
    }
}

impl ClaimCheckStore for MemoryClaimCheckStore {
    async fn put(&self, payload: Bytes) -> Result<String> {
        let key = Uuid::new_v4().to_string();
        self.lock().insert(key.clone(), payload);
        Ok(key)
    }

    async fn get(&self, key: &str) -> Result<Bytes> {
        key::check(key)?;
        self.lock().get(key).cloned().ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("get {key:?} out of memory: it is not there"))
        })
    }

    async fn delete(&self, key: &str) -> Result<()> {
        key::check(key)?;
        self.lock().remove(key);
        Ok(())
    }
}
