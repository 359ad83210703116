//! What a consumer is set to do, and the start of it.

use std::{
    fmt,
    future::IntoFuture,
    sync::{Arc, Mutex, OnceLock, Weak},
    time::Duration,
};

use tokio::sync::{Notify, watch};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle, task::TaskTracker};

use super::{
    Consumer, ConsumerState, claim::Idempotency, counters::Counters, handle::Handle,
    order::{self, OnFailure, Order, OrderedBy},
    pacing::Pacing, runtime::Core, work::Work,
};
use crate::{
    connection::{Client, Stop},
    error::{Error, ErrorKind, Result},
    idempotency::SharedIdempotencyStore,
    retry::RetryPolicy,
    telemetry::ConsumeMeter,
    transport::BoxFuture,
};

/// All of a consumer's settings that do not concern its payload.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) client: Client,
    pub(super) queue: String,
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

impl Settings {
    /// A consumer of each of these queues.
    pub(super) fn start_on_each(
        self,
        queues: Vec<String>,
        fault: Option<&'static str>,
        handle: &Arc<dyn Handle>,
    ) -> Vec<StartConsumer> {
        let each = queues.into_iter().map(|queue| Self { queue, ..self.clone() });
        each.map(|settings| settings.start(fault, Arc::clone(handle))).collect()
    }

    /// A consumer that handles its messages like this; `fault` is what is wrong with how it was
    /// set up.
    pub(super) fn start(
        self,
        fault: Option<&'static str>,
        handle: Arc<dyn Handle>,
    ) -> StartConsumer {
        let queue: Arc<str> = self.queue.into();
        let fault = fault.or_else(|| order::fault(self.ordered_by.as_ref(), self.on_failure, &self.policy));
        let on_failure = self.on_failure.unwrap_or_default();
        let core = Core {
            meter: ConsumeMeter::new(&queue, self.client.transport_name()),
            client: self.client,
            queue,
            prefetch: self.prefetch,
            work: Work::new(self.concurrency),
            exclusive: self.exclusive,
            declares: self.declares,
            policy: self.policy,
            order: self.ordered_by.map(|by| Order { by, on_failure }),
            idempotency: self.store.map(Idempotency::new),
            in_progress_wait: self.in_progress_wait,
            handler_timeout: self.handler_timeout,
            counters: Counters::default(),
            state: watch::Sender::new(ConsumerState::Receiving),
            closing: CancellationToken::new(),
            abort: CancellationToken::new(),
            deadline: OnceLock::new(),
            handlers: TaskTracker::new(),
            halting: Notify::new(),
            resume: Mutex::new(None),
            pacing: Pacing::default(),
            stranded: watch::Sender::new(None),
            handle,
        };
        StartConsumer { core: Arc::new(core), concurrency: self.concurrency, fault }
    }
}

/// A consumer that starts when it is awaited, from
/// [`ConsumerBuilder::start`](super::ConsumerBuilder::start).
#[must_use = "a consumer starts by awaiting it"]
pub struct StartConsumer {
    core: Arc<Core>,
    concurrency: usize,
    fault: Option<&'static str>,
}

impl StartConsumer {
    async fn run(self) -> Result<Consumer> {
        let core = self.core;
        check(&core, self.concurrency, self.fault)?;
        warn_about_retention(&core);
        check_store(&core).await?;
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

fn check(core: &Core, concurrency: usize, fault: Option<&str>) -> Result<()> {
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
    if let Some(fault) = fault {
        return refuse(fault);
    }
    core.policy.check()
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
        f.debug_struct("StartConsumer").field("queue", &self.core.queue).finish_non_exhaustive()
    }
}
