//! RabbitMQ over AMQP 0-9-1, by way of lapin.
//!
//! lapin speaks the protocol; what it leaves open is decided here: a dial that can be abandoned
//! (`dial`, `wire`), and channels of our own past lapin for all that carries messages (`switch`): one
//! for publishing, on which returns find their own publish and a refused message does not hurt its
//! neighbours (`publish`, `window`), and one for each subscription, which does not lose
//! acknowledgements when it closes (`consume`). lapin's own recovery stays off: a link ends once.

mod address;
mod assembly;
mod consume;
mod convert;
mod declare;
mod decode;
mod dial;
mod direct;
mod encode;
mod error;
mod exchanges;
mod limits;
mod link;
mod publish;
mod switch;
mod window;
mod wire;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use self::address::Address;
use super::{BoxFuture, DialOptions, Link, Transport};
use crate::error::Result;

/// A broker behind an `amqp://` or `amqps://` address.
#[derive(Debug)]
pub(crate) struct AmqpTransport {
    address: Address,
}

impl AmqpTransport {
    /// Parses an address; see [`Address::parse`] for what it may say.
    ///
    /// # Errors
    /// `Config`, without the password.
    pub(crate) fn new(url: &str) -> Result<Self> {
        Ok(Self { address: Address::parse(url)? })
    }
}

impl Transport for AmqpTransport {
    fn name(&self) -> &'static str {
        "amqp"
    }

    fn dial(&self, options: DialOptions) -> BoxFuture<'_, Result<Arc<dyn Link>>> {
        Box::pin(dial::dial(&self.address, options))
    }
}
