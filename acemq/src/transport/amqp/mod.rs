//! RabbitMQ over AMQP 0-9-1, by way of lapin.
//!
//! lapin speaks the protocol; what it leaves open is decided here: a dial that can be abandoned
//! (`dial`, `wire`), TLS as we set it up (`socket`), and channels of our own past lapin for all that carries messages (`switch`): one
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
mod socket;
mod switch;
mod window;
mod wire;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use self::{address::Address, dial::Target};
use super::{BoxFuture, DialOptions, Link, Transport};
use crate::{error::Result, security::Access};

/// A broker behind one or several `amqp://` or `amqps://` addresses.
#[derive(Debug)]
pub(crate) struct AmqpTransport {
    target: Target,
}

impl AmqpTransport {
    /// At one address and with nothing set.
    #[cfg(test)]
    pub(crate) fn new(url: &str) -> Result<Self> {
        Self::at([url], Access::default())
    }

    /// Parses addresses; see [`Address::parse`] for what they may say.
    ///
    /// # Errors
    /// `Config`, without the password.
    pub(crate) fn at<'a>(urls: impl IntoIterator<Item = &'a str>, access: Access) -> Result<Self> {
        let addresses: Result<_> = urls.into_iter().map(Address::parse).collect();
        Ok(Self { target: Target::new(addresses?, access)? })
    }
}

impl Transport for AmqpTransport {
    fn name(&self) -> &'static str {
        "amqp"
    }

    fn dial(&self, options: DialOptions) -> BoxFuture<'_, Result<Arc<dyn Link>>> {
        Box::pin(dial::dial(&self.target, options))
    }
}
