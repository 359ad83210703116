//! How a consumer is set up and started.

use std::{
    fmt,
    future::IntoFuture,
    marker::PhantomData,
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle, task::TaskTracker};

use super::{
    Ack, Consumer, ConsumerState, HandlerError, Message,
    claim::{Idempotency, KeyScope},
    counters::Counters,
    handle::Typed,
    pacing::Pacing,
    runtime::Core,
    work::Work,
};
use crate::{
    codec::{Decode, Json},
    connection::{Client, Stop},
    error::{Error, ErrorKind, Result},
    idempotency::{IdempotencyStore, SharedIdempotencyStore},
    retry::RetryPolicy,
    telemetry::ConsumeMeter,
    transport::BoxFuture,
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
pub struct ConsumerBuilder<T, C = Json> {
    client: Client,
    queue: String,
    prefetch: u16,
    concurrency: usize,
    exclusive: bool,
    declares: bool,
    policy: RetryPolicy,
    store: Option<SharedIdempotencyStore>,
    scope: KeyScope,
    in_progress_wait: Duration,
    handler_timeout: Option<Duration>,
    codec: C,
    payload: PhantomData<fn() -> T>,
}

impl Client {
    /// Sets up a consumer of a queue whose messages carry a `T`, in JSON unless another
    /// [`codec`](ConsumerBuilder::codec) is named. The queue has to exist.
    pub fn consumer<T>(&self, queue: impl Into<String>) -> ConsumerBuilder<T> {
        ConsumerBuilder {
            client: self.clone(),
            queue: queue.into(),
            prefetch: DEFAULT_PREFETCH,
            concurrency: 1,
            exclusive: false,
            declares: true,
            policy: RetryPolicy::none(),
            store: None,
            scope: KeyScope::Queue,
            in_progress_wait: DEFAULT_IN_PROGRESS_WAIT,
            handler_timeout: None,
            codec: Json,
            payload: PhantomData,
        }
    }
}

impl<T, C> ConsumerBuilder<T, C> {
    /// How many messages the broker hands over before the first of them is settled; messages that
    /// wait in the consumer for their next attempt count. Default 20, at least 1.
    pub fn prefetch(mut self, count: u16) -> Self {
        self.prefetch = count;
        self
    }

    /// How many handlers run at once. Default 1. More than the prefetch never run.
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = handlers;
        self
    }

    /// What becomes of a message whose handler failed. Default [`RetryPolicy::none`]: one attempt,
    /// then the dead-letter queue.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Handles each message once in effect: a delivery whose id is confirmed in the store is
    /// acknowledged without running the handler. The key is `queue/id`, so that consumers of
    /// different queues may share a store.
    pub fn idempotent(mut self, store: impl IdempotencyStore) -> Self {
        self.store = Some(SharedIdempotencyStore::new(store));
        self
    }

    /// Uses the bare message id as the key, as the family's other libraries do: for one queue that
    /// is served by several languages on one table.
    pub fn key_shared_with_family(mut self) -> Self {
        self.scope = KeyScope::Family;
        self
    }

    /// How long a message that somebody else is handling waits before it goes round again.
    /// Default 1 second.
    pub fn in_progress_wait(mut self, wait: Duration) -> Self {
        self.in_progress_wait = wait;
        self
    }

    /// How long a handler may run. Past it the handler is dropped at its next await, and the
    /// message has failed. Default: no limit of ours; the broker's own (30 minutes by default)
    /// closes the channel.
    pub fn handler_timeout(mut self, limit: Duration) -> Self {
        self.handler_timeout = Some(limit);
        self
    }

    /// Asks for the queue alone: the start fails while it has another consumer.
    pub fn exclusive(mut self) -> Self {
        self.exclusive = true;
        self
    }

    /// Whether the dead-letter and waiting queues are declared at the start. Default `true`;
    /// `false` for a service without the permission, which then needs them declared elsewhere.
    pub fn declare(mut self, declare: bool) -> Self {
        self.declares = declare;
        self
    }

    /// The same consumer with another codec.
    pub fn codec<D>(self, codec: D) -> ConsumerBuilder<T, D> {
        ConsumerBuilder {
            client: self.client,
            queue: self.queue,
            prefetch: self.prefetch,
            concurrency: self.concurrency,
            exclusive: self.exclusive,
            declares: self.declares,
            policy: self.policy,
            store: self.store,
            scope: self.scope,
            in_progress_wait: self.in_progress_wait,
            handler_timeout: self.handler_timeout,
            codec,
            payload: PhantomData,
        }
    }

    /// Starts to consume. Awaiting it means that the broker has accepted the subscription.
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
    /// settings that cannot work; [`ErrorKind::Refused`], and what the connection meets.
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
        let queue: Arc<str> = self.queue.into();
        let core = Core {
            meter: ConsumeMeter::new(&queue, self.client.transport_name()),
            client: self.client,
            queue,
            prefetch: self.prefetch,
            work: Work::new(self.concurrency),
            exclusive: self.exclusive,
            declares: self.declares,
            policy: self.policy,
            idempotency: self.store.map(|store| Idempotency::new(store, self.scope)),
            in_progress_wait: self.in_progress_wait,
            handler_timeout: self.handler_timeout,
            counters: Counters::default(),
            state: watch::Sender::new(ConsumerState::Receiving),
            closing: CancellationToken::new(),
            abort: CancellationToken::new(),
            deadline: OnceLock::new(),
            handlers: TaskTracker::new(),
            pacing: Pacing::default(),
            stranded: watch::Sender::new(None),
            handle: Box::new(Typed::new(self.codec, handler)),
        };
        StartConsumer { core: Arc::new(core), concurrency: self.concurrency }
    }
}

impl<T, C> fmt::Debug for ConsumerBuilder<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerBuilder")
            .field("queue", &self.queue)
            .field("prefetch", &self.prefetch)
            .field("concurrency", &self.concurrency)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// A consumer that starts when it is awaited, from [`ConsumerBuilder::start`].
#[must_use = "a consumer starts by awaiting it"]
pub struct StartConsumer {
    core: Arc<Core>,
    concurrency: usize,
}

impl StartConsumer {
    async fn run(self) -> Result<Consumer> {
        let core = self.core;
        check(&core, self.concurrency)?;
        warn_about_retention(&core);
        let channel = core.subscribe().await?;
        let task = tokio::spawn(Arc::clone(&core).run(channel));
        let consumer = Consumer::new(Arc::clone(&core), AbortOnDropHandle::new(task));
        let weak: Weak<dyn Stop> = Arc::downgrade(&core) as Weak<dyn Stop>;
        if !core.client.owns_consumer(weak) {
            return Err(Error::new(
                ErrorKind::Closed,
                format!("start the consumer of \"{}\": the client is closed", core.queue),
            ));
        }
        Ok(consumer)
    }
}

fn check(core: &Core, concurrency: usize) -> Result<()> {
    let refuse = |what: &str| {
        Err(Error::new(
            ErrorKind::Config,
            format!("start the consumer of \"{}\": {what}", core.queue),
        )
        .with_queue(&*core.queue))
    };
    if core.queue.is_empty() {
        return refuse("the queue has no name");
    }
    if core.prefetch == 0 {
        return refuse("the prefetch is 0, which would be no bound at all; it is at least 1");
    }
    if concurrency == 0 {
        return refuse("the concurrency is 0; it is at least 1");
    }
    core.policy.check()
}

/// A confirmation that is forgotten while a message is still on its way lets it be handled twice.
fn warn_about_retention(core: &Core) {
    let retention = core.idempotency.as_ref().and_then(Idempotency::retention);
    if let Some(retention) = retention.filter(|retention| *retention < core.policy.total_wait()) {
        tracing::warn!(
            queue = %core.queue, ?retention, retries = ?core.policy.total_wait(),
            "the idempotency store forgets confirmations before the retry ladder has run its \
             length; a late duplicate would be handled again"
        );
    }
}

impl IntoFuture for StartConsumer {
    type Output = Result<Consumer>;
    type IntoFuture = BoxFuture<'static, Result<Consumer>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl fmt::Debug for StartConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartConsumer").field("queue", &self.core.queue).finish_non_exhaustive()
    }
}
