//! Being written.
use super::{BoxFuture, DialOptions, Link, Transport};
use crate::error::Result;
use std::sync::Arc;
#[derive(Debug)]
pub(crate) struct AmqpTransport {}
impl AmqpTransport {
    /// Parses `amqp://` and `amqps://` addresses.
    pub(crate) fn new(_url: &str) -> Result<Self> {
        unimplemented!()
    }
}
impl Transport for AmqpTransport {
    fn name(&self) -> &'static str {
        "amqp"
    }
    fn dial(&self, _options: DialOptions) -> BoxFuture<'_, Result<Arc<dyn Link>>> {
        unimplemented!()
    }
}
