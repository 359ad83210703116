//! Being written.
use super::{BoxFuture, DialOptions, Link, Transport};
use crate::error::Result;
use std::sync::Arc;
#[derive(Debug)]
pub(crate) struct MemoryTransport {}
impl MemoryTransport {
    pub(crate) fn new(_name: &str) -> Result<Self> {
        unimplemented!()
    }
}
impl Transport for MemoryTransport {
    fn name(&self) -> &'static str {
        "memory"
    }
    fn dial(&self, _options: DialOptions) -> BoxFuture<'_, Result<Arc<dyn Link>>> {
        unimplemented!()
    }
}
