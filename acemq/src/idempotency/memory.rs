//! Being written.
use super::{IdempotencyStore, Lease};
use crate::error::Result;
/// Being written.
#[derive(Debug, Default)]
pub struct MemoryIdempotencyStore {}
impl MemoryIdempotencyStore {
    /// Being written.
    #[must_use]
    pub fn new() -> Self {
        Self {}
    }
}
impl IdempotencyStore for MemoryIdempotencyStore {
    async fn claim(&self, _key: &str) -> Result<bool> {
        unimplemented!()
    }
    async fn is_confirmed(&self, _key: &str) -> Result<bool> {
        unimplemented!()
    }
    async fn confirm(&self, _lease: &Lease) -> Result<()> {
        unimplemented!()
    }
    async fn release(&self, _lease: &Lease) -> Result<()> {
        unimplemented!()
    }
}
