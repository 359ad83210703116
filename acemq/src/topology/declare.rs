//! Declaring, asking and deleting on a client.

use super::{
    Queue, Topology,
    objects::{Objects, binding, with_dead_letters},
    stream::{is_stream, warn_about_retention},
};
#[cfg(doc)]
use crate::error::{Error, ErrorKind};
use crate::{
    connection::Client,
    error::Result,
    retry::RetryPolicy,
    stream::require_streams,
    transport::{Link, QueueInfo, QueueSpec, Streams},
};

impl Client {
    /// Declares exchanges, queues and bindings, in this order; what exists in the same form stays
    /// as it is. Each declaration has a channel of its own, so that a refused one harms nobody.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] for what exists in another form, naming the argument and both
    /// values ([`Error::conflict`]); [`ErrorKind::NotFound`] for a binding to what does not
    /// exist; [`ErrorKind::Refused`] without the permission.
    ///
    /// # Cancellation
    /// Dropping the future leaves what was declared so far.
    pub async fn declare(&self, topology: &Topology) -> Result<()> {
        let link = self.consuming_link().await?;
        for exchange in &topology.exchanges {
            link.declare_exchange(&exchange.0).await?;
        }
        for queue in &topology.queues {
            declare_queue(self, &*link, queue).await?;
        }
        for binding in &topology.bindings {
            link.bind_queue(binding).await?;
            self.own_binding(binding);
        }
        Ok(())
    }

    /// Declares one queue and says its name and what is in it. A queue without a name gets one
    /// of its own.
    ///
    /// # Errors
    /// As [`declare`](Self::declare).
    pub async fn declare_queue(&self, queue: &Queue) -> Result<QueueInfo> {
        let link = self.consuming_link().await?;
        declare_queue(self, &*link, queue).await
    }

    /// What the broker says about a queue; `None` where there is none.
    ///
    /// # Errors
    /// What the connection meets.
    pub async fn inspect_queue(&self, queue: &str) -> Result<Option<QueueInfo>> {
        self.consuming_link().await?.inspect_queue(queue).await
    }

    /// Whether an exchange exists.
    ///
    /// # Errors
    /// What the connection meets.
    pub async fn exchange_exists(&self, exchange: &str) -> Result<bool> {
        self.consuming_link().await?.exchange_exists(exchange).await
    }

    /// Removes a binding; one that does not exist is no error.
    ///
    /// # Errors
    /// What the connection meets.
    pub async fn unbind(&self, queue: &str, exchange: &str, routing_key: &str) -> Result<()> {
        let binding = binding(queue, exchange, routing_key);
        self.disown_binding(&binding);
        self.consuming_link().await?.unbind_queue(&binding).await
    }

    /// Deletes a queue with its messages; one that does not exist is no error.
    ///
    /// # Errors
    /// What the connection meets.
    pub async fn delete_queue(&self, queue: &str) -> Result<()> {
        self.disown_queue(queue);
        self.consuming_link().await?.delete_queue(queue).await
    }

    /// Deletes an exchange; one that does not exist is no error.
    ///
    /// # Errors
    /// What the connection meets.
    pub async fn delete_exchange(&self, exchange: &str) -> Result<()> {
        self.consuming_link().await?.delete_exchange(exchange).await
    }

    /// Removes the messages that are ready in a queue and says how many there were.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for a queue that does not exist.
    pub async fn purge_queue(&self, queue: &str) -> Result<u64> {
        self.consuming_link().await?.purge_queue(queue).await
    }
}

async fn declare_queue(client: &Client, link: &dyn Link, queue: &Queue) -> Result<QueueInfo> {
    let (before, after) = Objects::beside(queue)?;
    before.declare(link).await?;
    let mut spec = with_dead_letters(queue);
    if (spec.exclusive || spec.auto_delete) && spec.name.is_empty() {
        // A name of the broker's own making cannot be declared again after a lost connection.
        spec.name = format!("{}.{}", client.options().client_name, uuid::Uuid::new_v4());
    }
    if is_stream(&spec) {
        require_streams(client, link, Streams::Known, "declare", &spec.name)?;
    }
    warn_about_delivery_limit(&spec);
    warn_about_retention(&spec);
    let info = link.declare_queue(&spec).await?;
    after.declare(link).await?;
    if spec.exclusive || spec.auto_delete {
        client.own_queue(spec);
    }
    Ok(info)
}

/// A broker does not tell what a queue was declared with, so this is said where it is known: at the
/// declaration.
fn warn_about_delivery_limit(spec: &QueueSpec) {
    let argument = |name| spec.arguments.get(name);
    let is_quorum = argument("x-queue-type").and_then(|value| value.as_str()) == Some("quorum");
    if is_quorum && argument("x-dead-letter-exchange").is_none() {
        tracing::warn!(
            queue = %spec.name,
            "this quorum queue has no dead-letter target: a message that comes back more often \
             than its delivery limit (20 by default from RabbitMQ 4.0) is dropped; declare it \
             with `dead_letters()`"
        );
    }
}

/// Declares what every consumer needs beside its queue: where failed messages go, and where they
/// wait.
pub(crate) async fn declare_for_consumer(
    link: &dyn Link,
    queue: &str,
    policy: &RetryPolicy,
) -> Result<()> {
    let mut objects = Objects::set_aside(queue);
    objects.add(Objects::waiting(queue, policy));
    objects.declare(link).await
}
