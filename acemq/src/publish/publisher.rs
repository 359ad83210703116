//! A publisher: where messages of one type go, and how.

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use bytes::Bytes;

use super::{
    PublishContext,
    batch::SendBatch,
    draft::{Draft, expiration},
    record::MakeRecord,
    send::{Prepared, SendMessage, SendOptions},
};
use crate::{
    codec::{Encode, Json},
    connection::Client,
    envelope::Envelope,
    error::{Error, Result},
    telemetry::PublishMeter,
    transport::{BoxFuture, Outgoing},
};

/// Sends messages of type `T` to one exchange under one routing key. From [`Client::publisher`].
/// Cheap to clone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> acemq::Result<()> {
/// use acemq::{Exchange, Queue, Topology};
///
/// #[derive(serde::Serialize)]
/// struct OrderPlaced {
///     order: String,
/// }
///
/// let mq = acemq::connect("memory://publisher-example").await?;
/// # mq.declare(&Topology::new().exchange(Exchange::topic("orders"))
/// #     .queue(Queue::new("orders.new")).bind("orders.new", "orders", "order.*")).await?;
/// let placed = mq.publisher::<OrderPlaced>("orders", "order.placed");
/// let order = OrderPlaced { order: "o-1".to_owned() };
/// placed.send(&order).await?; // the broker has it, in a queue
/// placed.send(&order).correlation_id("checkout-7").header("x-tenant", "acme").await?;
/// placed.send_all([&order, &order]).await?; // many confirms in flight
/// # mq.close().await
/// # }
/// ```
#[must_use = "a publisher sends nothing by itself"]
pub struct Publisher<T, C = Json> {
    client: Client,
    target: Arc<Target>,
    codec: Arc<C>,
    payload: PhantomData<fn(&T)>,
}

/// Where a publisher's messages go, and how.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) exchange: String,
    pub(super) routing_key: String,
    pub(super) message_type: String,
    pub(super) version: u32,
    pub(super) options: SendOptions,
    pub(super) problem: Option<String>,
    pub(super) meter: PublishMeter,
}

impl Client {
    /// A publisher of `T` in JSON to that exchange under that routing key; the empty exchange is
    /// the default one, which routes to the queue named by the key.
    pub fn publisher<T>(
        &self,
        exchange: impl Into<String>,
        routing_key: impl Into<String>,
    ) -> Publisher<T> {
        Publisher {
            target: Arc::new(Target::new(self, exchange.into(), routing_key.into())),
            client: self.clone(),
            codec: Arc::new(Json),
            payload: PhantomData,
        }
    }

    /// Sends one payload in JSON straight to a queue.
    ///
    /// # Errors
    /// As [`Publisher::send`].
    pub fn send_to_queue<'a, T>(&'a self, queue: &str, payload: &'a T) -> SendMessage<'a>
    where
        T: Sync + ?Sized,
        Json: Encode<T>,
    {
        self.send_json(String::new(), queue.to_owned(), payload)
    }

    /// One payload in JSON to an exchange.
    pub(crate) fn send_json<'a, T>(
        &'a self,
        exchange: String,
        routing_key: String,
        payload: &'a T,
    ) -> SendMessage<'a>
    where
        T: Sync + ?Sized,
        Json: Encode<T>,
    {
        SendMessage::new(
            self,
            Arc::new(Target::new(self, exchange, routing_key)),
            "application/json".to_owned(),
            Box::pin(async move { Json.encode(payload).await }),
        )
    }
}

impl<T, C> Publisher<T, C> {
    /// The same publisher with another codec.
    pub fn codec<D>(self, codec: D) -> Publisher<T, D> {
        Publisher {
            client: self.client,
            target: self.target,
            codec: Arc::new(codec),
            payload: PhantomData,
        }
    }

    /// The type of its messages. Default: the routing key.
    pub fn message_type(self, message_type: impl Into<String>) -> Self {
        let message_type = message_type.into();
        let client = self.client.clone();
        self.change(|target| {
            target.meter =
                client.publish_meters().of(&target.exchange, &target.routing_key, &message_type);
            target.message_type = message_type;
        })
    }

    /// The schema version of its messages, from 1. Default 1.
    pub fn version(self, version: u32) -> Self {
        self.change(|target| target.version = version)
    }

    /// Its messages do not survive a restart of the broker.
    pub fn transient(self) -> Self {
        self.change(|target| target.options.persistent = false)
    }

    /// The priority of its messages, for queues that have priorities.
    pub fn priority(self, priority: u8) -> Self {
        self.change(|target| target.options.priority = Some(priority))
    }

    /// How long its messages may wait in a queue before they expire: from 1 millisecond on. A
    /// classic queue looks at its head only.
    pub fn expiration(self, after: Duration) -> Self {
        self.change(|target| match expiration(after) {
            Ok(text) => target.options.expiration = Some(text),
            Err(error) => target.problem = Some(error.to_string()),
        })
    }

    /// A message that reaches no queue is no error: it is gone.
    pub fn allow_unroutable(self) -> Self {
        self.change(|target| target.options.mandatory = false)
    }

    /// Sends return as soon as the message is handed over, without knowing whether it arrived.
    pub fn without_confirms(self) -> Self {
        self.change(|target| target.options.confirmed = false)
    }

    pub(crate) fn default_message_type(&self) -> &str {
        &self.target.message_type
    }

    /// Where it sends to.
    #[must_use]
    pub fn exchange(&self) -> &str {
        &self.target.exchange
    }

    /// Under which key.
    #[must_use]
    pub fn routing_key(&self) -> &str {
        &self.target.routing_key
    }

    /// Sends a payload. Awaiting it means that the broker has confirmed the message and routed it
    /// to a queue; options come before the await.
    ///
    /// A payload that the codec cannot write does not compile, and the error names the derive or
    /// the codec that is missing:
    ///
    /// ```compile_fail,E0277
    /// # async fn example(mq: acemq::Client) -> acemq::Result<()> {
    /// struct OrderPlaced;
    /// mq.publisher::<OrderPlaced>("orders", "order.placed").send(&OrderPlaced).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// What the codec meets; [`ErrorKind::Unroutable`](crate::ErrorKind::Unroutable),
    /// [`NotFound`](crate::ErrorKind::NotFound) (exchange),
    /// [`TooLarge`](crate::ErrorKind::TooLarge), [`Refused`](crate::ErrorKind::Refused),
    /// [`Rejected`](crate::ErrorKind::Rejected) for this message;
    /// [`Blocked`](crate::ErrorKind::Blocked), [`Lost`](crate::ErrorKind::Lost),
    /// [`Timeout`](crate::ErrorKind::Timeout) for the broker and the way to it, and then
    /// [`Error::may_have_been_published`] says whether it may have arrived.
    ///
    /// # Cancellation
    /// Dropped before the message is handed over, nothing is sent; afterwards it goes out and its
    /// confirm is not seen.
    pub fn send<'a>(&'a self, payload: &'a T) -> SendMessage<'a>
    where
        T: Sync,
        C: Encode<T>,
    {
        SendMessage::new(
            &self.client,
            Arc::clone(&self.target),
            self.codec.content_type().to_owned(),
            Box::pin(self.codec.encode(payload)),
        )
    }

    /// Sends payloads with many confirms in flight, in their order as long as the connection
    /// lasts. Not atomic: it waits for all of them, and its error says which ones are confirmed.
    ///
    /// # Errors
    /// [`BatchError`](super::BatchError) when at least one was not confirmed.
    ///
    /// # Cancellation
    /// What was handed over by then goes out, the rest does not.
    pub fn send_all<'a, I>(&'a self, payloads: I) -> SendBatch<'a, I::IntoIter>
    where
        T: Sync + 'a,
        C: Encode<T>,
        I: IntoIterator<Item = &'a T>,
    {
        SendBatch::new(payloads.into_iter(), Box::new(move |payload| self.send(payload)))
    }

    /// Makes an outbox record of a payload: the same message that [`send`](Self::send) would
    /// send, without interceptors. No connection is needed, and it is made before the transaction
    /// opens, since encoding may wait.
    ///
    /// # Errors
    /// What the codec meets, and what [`OutboxRecord::new`](crate::OutboxRecord::new) refuses.
    pub fn record<'a>(&'a self, payload: &'a T) -> MakeRecord<'a>
    where
        T: Sync,
        C: Encode<T>,
    {
        MakeRecord::new(
            &self.client,
            Arc::clone(&self.target),
            self.codec.content_type().to_owned(),
            Box::pin(self.codec.encode(payload)) as BoxFuture<'a, _>,
        )
    }

    /// Prepares a message with an envelope, a content type and a body that are there already, for
    /// who sends on what has arrived. `complete` has the last word about it.
    ///
    /// # Errors
    /// What an interceptor refuses.
    pub(crate) fn prepare(
        &self,
        envelope: Envelope,
        content: (String, Bytes),
        complete: impl FnOnce(&mut Outgoing),
    ) -> Result<Prepared> {
        Prepared::ready(&self.client, &self.target, envelope, content, complete)
    }

    fn change(mut self, change: impl FnOnce(&mut Target)) -> Self {
        change(Arc::make_mut(&mut self.target));
        self
    }
}

impl Target {
    fn new(client: &Client, exchange: String, routing_key: String) -> Self {
        let message_type = if routing_key.is_empty() { "message" } else { &routing_key };
        Self {
            meter: client.publish_meters().of(&exchange, &routing_key, message_type),
            message_type: message_type.to_owned(),
            exchange,
            routing_key,
            version: 1,
            options: SendOptions::new(client.options().confirms),
            problem: None,
        }
    }

    /// Whether a message still is what this target's meter counts.
    pub(super) fn describes(&self, message: &PublishContext) -> bool {
        message.exchange == self.exchange
            && message.routing_key == self.routing_key
            && message.envelope.message_type() == self.message_type
    }

    /// The beginning of a message to this target.
    pub(super) fn draft(&self, client: &Client) -> Draft {
        let mut draft = Draft::new(client, &self.message_type).version(self.version);
        if let Some(problem) = &self.problem {
            draft.refuse(Error::new(crate::error::ErrorKind::Encode, problem.clone()));
        }
        draft
    }
}

impl<T, C> Clone for Publisher<T, C> {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            target: Arc::clone(&self.target),
            codec: Arc::clone(&self.codec),
            payload: PhantomData,
        }
    }
}

impl<T, C> fmt::Debug for Publisher<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher")
            .field("exchange", &self.target.exchange)
            .field("routing_key", &self.target.routing_key)
            .finish_non_exhaustive()
    }
}
