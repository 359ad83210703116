//! Claim check: large payloads go to a store, and a key travels in their place.
//!
//! A broker keeps every message in memory or in its journal, copies it to each bound queue and
//! refuses what is too large. [`ClaimCheck`] wraps a codec: a body that is large is put into a
//! [`ClaimCheckStore`] and the message carries its key; a small one travels as it is. A consumer
//! with the same codec and store reads both, and messages from before there was a claim check.
//!
//! Nothing here deletes what was put: only the application knows when the last consumer has read
//! a message, also one that waits among the dead letters. See [`ClaimCheck`] for what to do about
//! it.

mod codec;
mod erased;
mod file;
mod frame;
mod key;
mod memory;
#[cfg(feature = "object-store")]
mod object;
#[cfg(test)]
mod tests;

use std::future::Future;

use bytes::Bytes;

#[cfg(feature = "object-store")]
pub use self::object::ObjectClaimCheckStore;
pub use self::{
    codec::ClaimCheck, erased::SharedClaimCheckStore, file::FileClaimCheckStore,
    memory::MemoryClaimCheckStore,
};
use crate::{
    counted::counted,
    error::{Error, ErrorKind, Result},
};

/// The largest object that a store takes and gives, in bytes, unless set otherwise: 1 GiB. It is
/// held in memory as a whole.
const DEFAULT_LARGEST_OBJECT: u64 = 1024 * 1024 * 1024;

/// Keeps payloads for [`ClaimCheck`].
///
/// Implementors may write the methods as `async fn`. What is put is never changed, and must be
/// readable by every consumer from the moment on that `put` returns.
///
/// A key has 1 to 128 ASCII letters, digits, `.`, `_` or `-` and begins with a letter or digit: it
/// comes back in messages, which anybody may have written, and must not be able to lead out of
/// the place that objects are in. [`ClaimCheck`] refuses all others before it asks the store.
///
/// ```
/// use acemq::{ClaimCheckStore, Error, ErrorKind, Result};
/// use bytes::Bytes;
///
/// /// Keeps payloads in a table of the application's.
/// struct Table;
/// # impl Table {
/// #     async fn insert(&self, _payload: Bytes) -> Result<i64> { Ok(7) }
/// #     async fn select(&self, _key: &str) -> Result<Option<Bytes>> { Ok(None) }
/// #     async fn remove(&self, _key: &str) -> Result<()> { Ok(()) }
/// # }
///
/// impl ClaimCheckStore for Table {
///     async fn put(&self, payload: Bytes) -> Result<String> {
///         Ok(self.insert(payload).await?.to_string())
///     }
///
///     async fn get(&self, key: &str) -> Result<Bytes> {
///         let row = self.select(key).await?; // an error here is transient: tried again
///         row.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("find row {key}")))
///     }
///
///     async fn delete(&self, key: &str) -> Result<()> {
///         self.remove(key).await
///     }
/// }
/// ```
pub trait ClaimCheckStore: Send + Sync + 'static {
    /// Keeps a payload and gives the key that [`get`](Self::get) finds it by: a new one each time.
    ///
    /// # Errors
    /// A transient one is tried again, which may leave an object that nothing refers to.
    ///
    /// # Cancel safety
    /// Dropping the future may leave an object, or part of one, that nothing refers to.
    fn put(&self, payload: Bytes) -> impl Future<Output = Result<String>> + Send;

    /// Gives what was put under a key.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where the store can tell that it does not hold the object: the
    /// message that refers to it is parked. [`ErrorKind::TooLarge`] where it is larger than the
    /// store gives. Anything else means that it could not be read now, and is tried again.
    fn get(&self, key: &str) -> impl Future<Output = Result<Bytes>> + Send;

    /// Removes an object. Removing one that is not there is no error.
    ///
    /// # Errors
    /// Where the store could not be asked or refused.
    fn delete(&self, key: &str) -> impl Future<Output = Result<()>> + Send;
}

/// A payload or an object over the limit of its store.
fn too_large(action: &str, bytes: u64, limit: u64) -> Error {
    Error::new(
        ErrorKind::TooLarge,
        format!(
            "{action}: it has {}, and this store is set to take and give {limit}; raise \
             `largest_object` if the memory is there",
            counted(bytes, "byte")
        ),
    )
}

/// An empty buffer for that many bytes, or an error where there is no memory for them.
fn buffer(action: &str, bytes: u64) -> Result<Vec<u8>> {
    let mut buffer = Vec::new();
    let reserved = usize::try_from(bytes).ok().map(|bytes| buffer.try_reserve_exact(bytes));
    match reserved {
        Some(Ok(())) => Ok(buffer),
        Some(Err(_)) | None => Err(Error::new(
            ErrorKind::TooLarge,
            format!("{action}: there is no memory for its {}", counted(bytes, "byte")),
        )),
    }
}
