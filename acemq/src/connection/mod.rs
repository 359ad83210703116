//! The client: connect, recover, close.
//!
//! A [`Client`] keeps two broker connections. One consumes and settles and never publishes; the
//! other publishes, for the application and for the library. Under a memory or disk alarm
//! RabbitMQ stops reading from a connection that has published, and acks on it would wait for
//! the end of an alarm that only consuming can end.

mod close;
mod connect;
mod flight;
mod keeper;
mod publish;
mod state;

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use tokio::{sync::Semaphore, time::Instant};

use self::keeper::LinkKeeper;
pub(crate) use self::{
    close::{Owned, Stop},
    connect::Options,
    flight::Flight,
    publish::{InFlight, Patience},
};
pub use self::{
    connect::{Connect, connect, connect_lazy},
    state::{ConnectionState, StateWatch},
};
use crate::{
    clock::Clock,
    consume::ConsumeInterceptor,
    error::Result,
    publish::PublishInterceptor,
    telemetry::PublishMeters,
    transport::{BindingSpec, Link, QueueSpec, Transport},
};

/// A connection to a broker, from [`connect`]. Cheap to clone; all clones are the same client.
///
/// What it starts (consumers, relays) is closed by [`Client::close`]. A client that is dropped
/// without it closes its connections at once; what was in flight is not waited for.
#[derive(Clone)]
pub struct Client(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    transport: Arc<dyn Transport>,
    options: Options,
    origin: String,
    clock: Clock,
    publishing: LinkKeeper,
    consuming: LinkKeeper,
    permits: Arc<Semaphore>,
    publish_interceptors: Vec<Arc<dyn PublishInterceptor>>,
    consume_interceptors: Vec<Arc<dyn ConsumeInterceptor>>,
    publish_meters: PublishMeters,
    owned: Mutex<Owned>,
}

impl Client {
    /// Follows the state of the connection that publishes.
    #[must_use]
    pub fn publishing(&self) -> StateWatch {
        self.0.publishing.watch()
    }

    /// Follows the state of the connection that consumes.
    #[must_use]
    pub fn consuming(&self) -> StateWatch {
        self.0.consuming.watch()
    }

    /// Who this client is, as it stands on messages: `client@host`.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.0.origin
    }

    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }

    pub(crate) fn clock(&self) -> Clock {
        self.0.clock
    }

    pub(crate) fn transport_name(&self) -> &'static str {
        self.0.transport.name()
    }

    pub(crate) fn publish_meters(&self) -> &PublishMeters {
        &self.0.publish_meters
    }

    pub(crate) fn publish_interceptors(&self) -> &[Arc<dyn PublishInterceptor>] {
        &self.0.publish_interceptors
    }

    pub(crate) fn consume_interceptors(&self) -> &[Arc<dyn ConsumeInterceptor>] {
        &self.0.consume_interceptors
    }

    /// The consuming connection's live link, waited for within the connect timeout.
    pub(crate) async fn consuming_link(&self) -> Result<Arc<dyn Link>> {
        self.0.consuming.link(Instant::now() + self.options().connect_timeout).await
    }

    /// The publishing connection's live link, waited for within the connect timeout.
    pub(crate) async fn publishing_link(&self) -> Result<Arc<dyn Link>> {
        self.0.publishing.link(Instant::now() + self.options().connect_timeout).await
    }

    /// The headers of a message may not be larger than this, where it is known already.
    pub(crate) fn frame_max(&self) -> Option<usize> {
        self.0.publishing.current().map(|link| link.limits().frame_max)
    }

    /// Declares a queue again that the broker deletes by itself, if this client has declared it.
    pub(crate) async fn restore_queue(&self, link: &dyn Link, name: &str) -> Result<()> {
        self.0.consuming.restore(link, name).await
    }

    pub(crate) fn own_queue(&self, queue: QueueSpec) {
        self.0.consuming.own_queue(queue);
    }

    pub(crate) fn own_binding(&self, binding: &BindingSpec) {
        self.0.consuming.own_binding(binding);
    }

    pub(crate) fn disown_binding(&self, binding: &BindingSpec) {
        self.0.consuming.disown_binding(binding);
    }

    pub(crate) fn disown_queue(&self, name: &str) {
        self.0.consuming.disown_queue(name);
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("transport", &self.0.transport)
            .field("origin", &self.0.origin)
            .field("publishing", &self.publishing().current())
            .field("consuming", &self.consuming().current())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
