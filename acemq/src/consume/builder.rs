//! How a consumer is set up and started.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    Ack, HandlerError, Message, StartConsumer, StartResponder,
    answer::{Answering, Responding},
    handle::{Handler, Typed},
    key::{KeyScope, MessageKey},
    order::{MakeOrderKey, OnFailure, OrderedBy},
    start::{Recipe, Settings},
    transaction::TransactionalStore,
    transactional::Transactional,
};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::{
    codec::{AnyFormat, Decode, Encode, Json},
    connection::Client,
    idempotency::{IdempotencyStore, SharedIdempotencyStore},
    retry::RetryPolicy,
};

const DEFAULT_PREFETCH: u16 = 20;
const DEFAULT_IN_PROGRESS_WAIT: Duration = Duration::from_secs(1);

/// A consumer about to be started, from [`Client::consumer`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> acemq::Result<()> {
/// use std::time::Duration;
/// use acemq::{HandlerError, MemoryIdempotencyStore, Message, Queue, RetryPolicy};
///
/// #[derive(serde::Deserialize)]
/// struct OrderPlaced {
///     order: String,
/// }
///
/// async fn charge(message: Message<OrderPlaced>) -> Result<(), HandlerError> {
///     println!("charging {}", message.payload().order);
///     Ok(())
/// }
///
/// let mq = acemq::connect("memory://consumer-example").await?;
/// mq.declare_queue(&Queue::new("orders.new").dead_letters()).await?;
/// let consumer = mq
///     .consumer::<OrderPlaced>("orders.new")
///     .prefetch(20)
///     .concurrency(4)
///     .retry(RetryPolicy::exponential(5, Duration::from_secs(1), Duration::from_secs(300)))
///     .idempotent(MemoryIdempotencyStore::new())
///     .start(charge)
///     .await?;
/// // … until the service stops:
/// consumer.close().await?;
/// # mq.close().await
/// # }
/// ```
#[must_use = "a consumer does nothing until it is started"]
pub struct ConsumerBuilder<T, C = AnyFormat> {
    pub(super) settings: Settings,
    key: MessageKey<T>,
    order_key: Option<MakeOrderKey<T>>,
    codec: C,
}

impl Client {
    /// Sets up a consumer of a queue whose messages carry a `T`, in the format that each names, see
    /// [`AnyFormat`], unless another [`codec`](ConsumerBuilder::codec) is chosen. The queue has to
    /// exist.
    pub fn consumer<T>(&self, queue: impl Into<String>) -> ConsumerBuilder<T> {
        ConsumerBuilder {
            settings: Settings {
                client: self.clone(),
                queue: queue.into().into(),
                prefetch: DEFAULT_PREFETCH,
                concurrency: 1,
                exclusive: false,
                declares: true,
                policy: RetryPolicy::none(),
                store: None,
                in_progress_wait: DEFAULT_IN_PROGRESS_WAIT,
                handler_timeout: None,
                ordered_by: None,
                on_failure: None,
            },
            key: MessageKey { scope: KeyScope::Queue, make: None },
            order_key: None,
            codec: AnyFormat,
        }
    }
}

impl<T, C> ConsumerBuilder<T, C> {
    /// How many messages the broker hands over before the first of them is settled; messages that
    /// wait in the consumer for their next attempt count. Default 20, at least 1.
    pub fn prefetch(mut self, count: u16) -> Self {
        self.settings.prefetch = count;
        self
    }

    /// How many handlers run at once. Default 1. More than the prefetch never run.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.settings.concurrency = handlers;
        self
    }

    /// What becomes of a message whose handler failed. Default [`RetryPolicy::none`]: one attempt,
    /// then the dead-letter queue.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.settings.policy = policy;
        self
    }

    /// Handles the messages that have one value in that header one after the other, in the order of
    /// the queue, while those of others are handled at the same time, up to the
    /// [`concurrency`](Self::concurrency). That a key is in use is remembered only while messages of
    /// it are here.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> acemq::Result<()> {
    /// use std::time::Duration;
    /// use acemq::{OnFailure, Message};
    ///
    /// # let mq = acemq::connect("memory://ordered-example").await?;
    /// # mq.declare_queue(&acemq::Queue::new("orders").dead_letters()).await?;
    /// let consumer = mq
    ///     .consumer::<String>("orders")
    ///     .concurrency(8)
    ///     .prefetch(100)
    ///     .ordered_by_header("x-customer")
    ///     .on_failure(OnFailure::retry_in_place(3, Duration::from_secs(1)).then_skip())
    ///     .start(async |_: Message<String>| Ok(()))
    ///     .await?;
    /// # drop(consumer);
    /// # mq.close().await
    /// # }
    /// ```
    ///
    /// The order is that of this process: with several on one queue each has its share of a key's
    /// messages. For an order over several processes see [`Client::partitions`]. A broker that takes
    /// messages back, because a connection was lost, delivers them again, also those that were handled:
    /// what may not happen twice is for [`idempotent`](Self::idempotent).
    ///
    /// A failure never lets the next message of the key overtake: see
    /// [`on_failure`](Self::on_failure). A message that somebody else is handling is waited for in its
    /// place. One that the handler rejects or parks, or declares to be beyond help
    /// ([`HandlerError::fatal`]), and one that cannot be read, is set aside in every case, and the next
    /// has its turn.
    ///
    /// A key is text or an integer, and the empty text is one as any other. A message without the
    /// header, or with another type of value in it, goes to the dead-letter queue with that reason.
    pub fn ordered_by_header(mut self, name: impl Into<String>) -> Self {
        self.settings.ordered_by = Some(OrderedBy::Header(name.into()));
        self
    }

    /// As [`ordered_by_header`](Self::ordered_by_header), by the routing key: for messages that were
    /// published under their key. A message that comes back through a dead-letter exchange or a
    /// replay has another.
    pub fn ordered_by_routing_key(mut self) -> Self {
        self.settings.ordered_by = Some(OrderedBy::RoutingKey);
        self
    }

    /// As [`ordered_by_header`](Self::ordered_by_header), by something that the payload says.
    ///
    /// The body is read once more for it, one message after the other, when it arrives: a header or
    /// the routing key costs less. While a body cannot be read for a while (its claim-check store is
    /// away), what is behind it waits. A message for which making the key panics goes to the
    /// dead-letter queue.
    pub fn ordered_by<K: Into<String>>(
        mut self,
        key: impl Fn(&T) -> K + Send + Sync + 'static,
    ) -> Self {
        self.settings.ordered_by = Some(OrderedBy::Payload);
        self.order_key = Some(Box::new(move |payload| key(payload).into()));
        self
    }

    /// All messages of the queue one after the other; a failure that stops them stops the consumer.
    pub(crate) fn one_after_the_other(mut self, single_active: bool) -> Self {
        self.settings.ordered_by = Some(OrderedBy::Queue { single_active });
        self
    }

    /// What becomes of a message that fails, where messages are handled in order. Default
    /// [`OnFailure::stop`]: nothing of its key is handled any more, what has come of it is held, and
    /// other keys go on; [`Consumer::halted`](super::Consumer::halted) lists such keys and
    /// [`Consumer::resume_key`](super::Consumer::resume_key) lets one go on. What is held has its place in the
    /// [`prefetch`](Self::prefetch); a broker takes it back after its consumer timeout (30 minutes by
    /// default), and then the message is tried again, as after a lost connection or a pause.
    ///
    /// That a body cannot be read for a while, because its claim-check store is away, is a failure as
    /// any other: give it some attempts.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.settings.on_failure = Some(on_failure);
        self
    }

    /// Handles each message once in effect: a delivery whose id is confirmed in the store is
    /// acknowledged without running the handler. The key is `queue/id`, so that consumers of
    /// different queues may share a store.
    pub fn idempotent(mut self, store: impl IdempotencyStore) -> Self {
        self.settings.store = Some(SharedIdempotencyStore::new(store));
        self
    }

    /// Recognises a message by something that it carries instead of by its id: what its sender
    /// sends twice under two ids is then handled once. As with an id, the key is `queue/` and what
    /// this makes. It is for [`idempotent`](Self::idempotent) and transactional consumers.
    ///
    /// A message for which the key is empty, or for which making it panics, goes to the dead-letter
    /// queue with that reason. Its id is never taken instead.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> acemq::Result<()> {
    /// # let mq = acemq::connect("memory://key-example").await?;
    /// # mq.declare_queue(&acemq::Queue::new("payments")).await?;
    /// let consumer = mq
    ///     .consumer::<String>("payments")
    ///     .idempotent(acemq::MemoryIdempotencyStore::new())
    ///     .idempotency_key(|message| message.payload().clone())
    ///     .start(async |_: acemq::Message<String>| Ok(()))
    ///     .await?;
    /// # drop(consumer);
    /// # mq.close().await
    /// # }
    /// ```
    pub fn idempotency_key<K: Into<String>>(
        mut self,
        key: impl Fn(&Message<T>) -> K + Send + Sync + 'static,
    ) -> Self {
        self.key.make = Some(Box::new(move |message| key(message).into()));
        self
    }

    /// Uses the bare message id as the key, as the family's other libraries do: for one queue that
    /// is served by several languages on one table.
    pub fn key_shared_with_family(mut self) -> Self {
        self.key.scope = KeyScope::Family;
        self
    }

    /// How long a message that somebody else is handling waits before it goes round again.
    /// Default 1 second. A transactional consumer also waits that long (at most 10 seconds) for
    /// another transaction that has the message.
    pub fn in_progress_wait(mut self, wait: Duration) -> Self {
        self.settings.in_progress_wait = wait;
        self
    }

    /// How long a handler may run. Past it the handler is dropped at its next await, and the
    /// message has failed. Default: no limit of ours; the broker's own (30 minutes by default)
    /// closes the channel.
    pub fn handler_timeout(mut self, limit: Duration) -> Self {
        self.settings.handler_timeout = Some(limit);
        self
    }

    /// Asks for the queue alone: the start fails while it has another consumer.
    pub fn exclusive(mut self) -> Self {
        self.settings.exclusive = true;
        self
    }

    /// Whether the dead-letter and waiting queues are declared at the start. Default `true`;
    /// `false` for a service without the permission, which then needs them declared elsewhere.
    pub fn declare(mut self, declare: bool) -> Self {
        self.settings.declares = declare;
        self
    }

    /// The same consumer with another codec, which then reads just what it accepts. Default
    /// [`AnyFormat`].
    pub fn codec<D>(self, codec: D) -> ConsumerBuilder<T, D> {
        ConsumerBuilder { settings: self.settings, key: self.key, order_key: self.order_key, codec }
    }

    /// Starts to consume. Awaiting it means that the broker has accepted the subscription. To start
    /// several at once, as a group that can grow and shrink, put
    /// [`group`](StartConsumer::group) before the await.
    ///
    /// The handler is an `async fn(Message<T>) -> Result<(), HandlerError>` or a closure; for
    /// shared state write `move |message| charge(app.clone(), message)`, since an `async` closure
    /// may not own what it captures. A handler that fails, panics or runs too long fails its own
    /// message and nothing else. What keeps its thread for long, by calculating or blocking,
    /// belongs into tokio's `spawn_blocking`: others wait for that thread, the connection among
    /// them. A handler runs inside a tracing span `consume` with the queue, the message's id, type
    /// and attempt, and at last the outcome.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for a queue that does not exist; [`ErrorKind::Conflict`] for a
    /// dead-letter or waiting queue that exists in another form; [`ErrorKind::Config`] for
    /// settings that cannot work; [`ErrorKind::Refused`], and what the connection meets. A store
    /// that could never be used, for want of its table, say, fails the start with its own error;
    /// one that is merely away is waited for, with the consumer started and its messages held.
    ///
    /// # Cancellation
    /// Dropping the future before it is done starts nothing.
    pub fn start<F, Fut, R>(self, handler: F) -> StartConsumer
    where
        T: Send + 'static,
        C: Decode<T>,
        F: Fn(Message<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, HandlerError>> + Send + 'static,
        R: Into<Ack>,
    {
        StartConsumer::new(self.handled_by(handler))
    }

    /// What such a consumer is made of.
    pub(crate) fn handled_by<F, Fut, R>(self, handler: F) -> Recipe
    where
        T: Send + 'static,
        C: Decode<T>,
        F: Fn(Message<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, HandlerError>> + Send + 'static,
        R: Into<Ack>,
    {
        let fault = self.fault();
        let handle = Arc::new(Typed::new(self.codec, self.key, self.order_key, Handler(handler)));
        Recipe { settings: self.settings, handle, fault }
    }

    /// Starts to answer requests. The handler is an `async fn(Message<T>) -> Result<R,
    /// HandlerError>`; the `R` that it returns goes in JSON to the reply address of the request,
    /// for [`Requester`](crate::Requester)s here and in the family's other languages. See
    /// [`Responder`](crate::Responder) for what becomes of requests that fail and of replies that do
    /// not arrive.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    ///
    /// # Cancellation
    /// Dropping the future before it is done starts nothing.
    pub fn respond<F, Fut, R>(self, handler: F) -> StartResponder
    where
        T: Send + 'static,
        C: Decode<T>,
        F: Fn(Message<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, HandlerError>> + Send + 'static,
        R: Send + Sync + 'static,
        Json: Encode<R>,
    {
        self.respond_in(Json, handler)
    }

    /// As [`respond`](Self::respond), with another codec for the replies.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    ///
    /// # Cancellation
    /// Dropping the future before it is done starts nothing.
    pub fn respond_in<D, F, Fut, R>(self, codec: D, handler: F) -> StartResponder
    where
        T: Send + 'static,
        C: Decode<T>,
        D: Encode<R>,
        F: Fn(Message<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, HandlerError>> + Send + 'static,
        R: Send + Sync + 'static,
    {
        let in_order = self.settings.ordered_by.is_some().then_some(
            "it answers requests in an order, and whoever asks would be told of a failure before the \
             next attempt; leave the order out",
        );
        let fault = self.fault().or(in_order);
        let answering = Answering::new(handler, codec);
        let counters = answering.counters();
        let inner = Typed::new(self.codec, self.key, None, answering);
        let handle = Arc::new(Responding::new(inner, Arc::clone(&counters)));
        StartResponder::new(Recipe { settings: self.settings, handle, fault }, counters)
    }

    /// Starts to consume with a handler whose writes, the claim on its message and the confirmation
    /// are one transaction: each message takes effect exactly once in that database, through any
    /// crash. The store is `acemq_sql::SqlIdempotency`, or a [`TransactionalStore`] of your own.
    ///
    /// The handler is an `async fn(Message<T>, Transaction) -> Result<Transaction, HandlerError>`:
    /// it is given an open transaction, and gives it back to have it committed. Then the message
    /// is acknowledged. An outbox's records that it adds in the transaction commit with the rest.
    /// A handler that fails, panics or runs too long has done nothing, and its message takes the
    /// usual way: the retry policy, or the dead-letter queue for [`HandlerError::fatal`]. There is
    /// no [`Ack`] to choose: what is given back is accepted, and what is not is undone.
    ///
    /// A transaction that the database undoes for the sake of another (a deadlock, a serialization
    /// failure), or loses, is run again at once, up to five times in all, before it counts as a
    /// failed attempt: a handler must not do anything outside of its transaction that may not
    /// happen twice. While the database is away, messages wait as they do for an
    /// [`idempotent`](Self::idempotent) consumer. A commit whose answer is lost sends its message
    /// back to the broker, and the database knows when it comes again.
    ///
    /// Each handler that runs holds a transaction, and with it a connection: give the pool at least
    /// as many as the [`concurrency`](Self::concurrency); handlers beyond that wait for one.
    ///
    /// # Errors
    /// Those of [`start`](Self::start), and [`ErrorKind::Config`] beside
    /// [`idempotent`](Self::idempotent): the transaction does what that store is for.
    ///
    /// # Cancellation
    /// Dropping the future before it is done starts nothing.
    pub fn start_in_transaction<S, F, Fut>(self, store: S, handler: F) -> StartConsumer
    where
        T: Send + 'static,
        C: Decode<T>,
        S: TransactionalStore,
        F: Fn(Message<T>, S::Transaction) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<S::Transaction, HandlerError>> + Send + 'static,
    {
        StartConsumer::new(self.handled_in_transaction(store, handler))
    }

    /// What such a consumer is made of.
    pub(crate) fn handled_in_transaction<S, F, Fut>(self, store: S, handler: F) -> Recipe
    where
        T: Send + 'static,
        C: Decode<T>,
        S: TransactionalStore,
        F: Fn(Message<T>, S::Transaction) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<S::Transaction, HandlerError>> + Send + 'static,
    {
        let fault = self.settings.store.is_some().then_some(
            "it is both idempotent and transactional; leave out the idempotency store, since the \
             transaction writes down what was handled",
        );
        let handle = Transactional::new(self.codec, self.key, self.order_key, store, handler);
        Recipe { settings: self.settings, handle: Arc::new(handle), fault }
    }
}

impl<T, C> ConsumerBuilder<T, C> {
    fn fault(&self) -> Option<&'static str> {
        (self.key.make.is_some() && self.settings.store.is_none())
            .then_some("it makes keys and has no idempotency store to look them up in")
    }
}

impl<T, C> fmt::Debug for ConsumerBuilder<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerBuilder")
            .field("queue", &self.settings.queue)
            .field("prefetch", &self.settings.prefetch)
            .field("concurrency", &self.settings.concurrency)
            .field("policy", &self.settings.policy)
            .finish_non_exhaustive()
    }
}
