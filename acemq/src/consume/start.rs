//! What a consumer is set to do, and the start of it.

use std::{
    fmt,
    future::IntoFuture,
    sync::{Arc, OnceLock, Weak, atomic::AtomicU64},
    time::Duration,
};

use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle, task::TaskTracker};

use super::{
    Consumer, ConsumerState, StartConsumerGroup,
    claim::Idempotency,
    control::Control,
    counters::Counters,
    handle::Handle,
    order::{self, OnFailure, Order, OrderedBy},
    pacing::Pacing,
    runtime::Core,
    work::Work,
};
use crate::{
    connection::{Client, Stop},
    error::{Error, ErrorKind, Result},
    idempotency::SharedIdempotencyStore,
    retry::RetryPolicy,
    telemetry::ConsumeMeter,
    transport::BoxFuture,
};

/// What is wrong with a prefetch of 0.
pub(super) const NO_PREFETCH: &str =
    "the prefetch is 0, which would be no bound at all; it is at least 1";

/// All of a consumer's settings that do not concern its payload.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) client: Client,
    pub(super) queue: Arc<str>,
    pub(super) prefetch: u16,
    pub(super) concurrency: usize,
    pub(super) exclusive: bool,
    pub(super) declares: bool,
    pub(super) policy: RetryPolicy,
    pub(super) store: Option<SharedIdempotencyStore>,
    pub(super) in_progress_wait: Duration,
    pub(super) handler_timeout: Option<Duration>,
    pub(super) ordered_by: Option<OrderedBy>,
    pub(super) on_failure: Option<OnFailure>,
}

/// What consumers are made of: one, or the members of a group.
pub(crate) struct Recipe {
    pub(super) settings: Settings,
    pub(super) handle: Arc<dyn Handle>,
    /// What is wrong with how it was set up.
    pub(super) fault: Option<&'static str>,
}

impl Recipe {
    /// The same consumer of each of these queues.
    pub(crate) fn for_each(self, queues: Vec<String>) -> Vec<StartConsumer> {
        let of = |queue: String| {
            let settings = Settings { queue: queue.into(), ..self.settings.clone() };
            StartConsumer::new(Self {
                settings,
                handle: Arc::clone(&self.handle),
                fault: self.fault,
            })
        };
        queues.into_iter().map(of).collect()
    }

    /// What has to be right before the first consumer of this kind starts.
    pub(super) async fn check(&self) -> Result<()> {
        let settings = &self.settings;
        if settings.queue.is_empty() {
            return Err(self.refuse("the queue has no name"));
        }
        if settings.prefetch == 0 {
            return Err(self.refuse(NO_PREFETCH));
        }
        if settings.concurrency == 0 {
            return Err(self.refuse("the concurrency is 0; it is at least 1"));
        }
        if let Some(fault) = self.fault {
            return Err(self.refuse(fault));
        }
        let ordered_by = settings.ordered_by.as_ref();
        if let Some(fault) = order::fault(ordered_by, settings.on_failure, &settings.policy) {
            return Err(self.refuse(fault));
        }
        settings.policy.check()?;
        let core = self.core(Control::new(settings.prefetch, false), Arc::default());
        warn_about_retention(&core);
        check_store(&core).await
    }

    /// Starts one consumer by itself.
    pub(super) async fn start_one(&self) -> Result<Consumer> {
        self.check().await?;
        self.start(self.settings.prefetch, false, Arc::default()).await
    }

    pub(super) fn refuse(&self, why: &str) -> Error {
        let queue = &self.settings.queue;
        Error::new(ErrorKind::Config, format!("start the consumer of \"{queue}\": {why}"))
            .with_queue(&**queue)
    }

    /// Starts a consumer that counts there; one that is paused consumes once it is resumed.
    pub(super) async fn start(
        &self,
        prefetch: u16,
        paused: bool,
        counters: Arc<Counters>,
    ) -> Result<Consumer> {
        let core = Arc::new(self.core(Control::new(prefetch, paused), counters));
        let subscribed = if paused { None } else { Some(core.subscribe().await?) };
        let task = tokio::spawn(Arc::clone(&core).run(subscribed));
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

    fn core(&self, control: Control, counters: Arc<Counters>) -> Core {
        let paused = control.wish().paused;
        let initial = if paused { ConsumerState::Paused } else { ConsumerState::Receiving };
        let settings = &self.settings;
        Core {
            meter: ConsumeMeter::new(&settings.queue, settings.client.transport_name()),
            client: settings.client.clone(),
            queue: Arc::clone(&settings.queue),
            control,
            work: Work::new(settings.concurrency),
            exclusive: settings.exclusive,
            declares: settings.declares,
            policy: settings.policy.clone(),
            order: settings.ordered_by.clone().map(|by| {
                let on_failure = settings.on_failure.unwrap_or_default();
                Order { by, on_failure }
            }),
            idempotency: settings.store.clone().map(Idempotency::new),
            in_progress_wait: settings.in_progress_wait,
            handler_timeout: settings.handler_timeout,
            counters,
            outages: AtomicU64::new(0),
            state: watch::Sender::new(initial),
            closing: CancellationToken::new(),
            abort: CancellationToken::new(),
            deadline: OnceLock::new(),
            handlers: TaskTracker::new(),
            leaving: watch::Sender::new(false),
            pacing: Pacing::default(),
            stranded: watch::Sender::new(None),
            handle: Arc::clone(&self.handle),
        }
    }
}

/// A consumer that starts when it is awaited, from
/// [`ConsumerBuilder::start`](super::ConsumerBuilder::start).
#[must_use = "a consumer starts by awaiting it"]
pub struct StartConsumer(Recipe);

impl StartConsumer {
    pub(super) fn new(recipe: Recipe) -> Self {
        Self(recipe)
    }

    /// Starts that many such consumers of the queue instead of one, each with a channel, a prefetch
    /// and a concurrency of its own, as a group whose size can be changed while it runs.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> acemq::Result<()> {
    /// # let mq = acemq::connect("memory://group-example").await?;
    /// # mq.declare_queue(&acemq::Queue::new("orders.new").dead_letters()).await?;
    /// # async fn charge(_: acemq::Message<String>) -> Result<(), acemq::HandlerError> { Ok(()) }
    /// let group = mq.consumer::<String>("orders.new").prefetch(50).start(charge).group(3).await?;
    /// group.scale_to(6).await?; // the queue grows
    /// group.scale_to(1).await?; // and is empty again
    /// group.close().await?;
    /// # mq.close().await
    /// # }
    /// ```
    pub fn group(self, members: usize) -> StartConsumerGroup {
        StartConsumerGroup::new(self.0, members)
    }

    async fn run(self) -> Result<Consumer> {
        self.0.start_one().await
    }
}

/// A store that could never be used fails the start. One that is merely away does not: a service
/// may well come up before its database, and its messages wait.
async fn check_store(core: &Core) -> Result<()> {
    let bound = core.client.options().connect_timeout;
    match tokio::time::timeout(bound, core.handle.check_store(core)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) if !error.is_transient() => return Err(error),
        Ok(Err(error)) => {
            tracing::warn!(queue = %core.queue, %error, "the idempotency store is down; messages wait");
        }
        Err(_) => {
            tracing::warn!(queue = %core.queue, "no answer from the idempotency store within {bound:?}");
        }
    }
    Ok(())
}

/// A confirmation that is forgotten while a message is still on its way lets it be handled twice.
fn warn_about_retention(core: &Core) {
    let retention = core.handle.retention(core);
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
        f.debug_struct("StartConsumer")
            .field("queue", &self.0.settings.queue)
            .finish_non_exhaustive()
    }
}
