//! How a pipeline is declared.

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use super::{
    encoder::{Encoder, Shared},
    handler::{self, MakeConsumer},
    options::StepOptions,
    start::{StartPipeline, StartStep},
    state::{
        AfterFilter, AfterJoin, AfterJoinLast, AfterLast, AfterStep, Entry, HasFormat, HasStep,
        TakesStep,
    },
};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::{
    codec::{AnyFormat, Decode, Encode, Json},
    connection::Client,
    consume::{HandlerError, Message},
    idempotency::{IdempotencyStore, SharedIdempotencyStore},
    retry::RetryPolicy,
};

/// What is between two steps unless another codec is chosen: JSON is written, and every format that
/// is known here is read.
pub type StepCodec = (Json, AnyFormat);

/// A pipeline about to be started, from [`Client::pipeline`]. It is sent an `In`, and the next step
/// receives a `Cur`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> acemq::Result<()> {
/// use std::time::Duration;
/// use acemq::{HandlerError, Message, RetryPolicy};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Order {
///     id: String,
///     quantity: u32,
/// }
///
/// #[derive(Serialize, Deserialize)]
/// struct Reservation {
///     order: String,
/// }
///
/// /// An order of nothing ends here. That is a decision and no failure.
/// async fn validate(order: Message<Order>) -> Result<bool, HandlerError> {
///     Ok(order.payload().quantity > 0)
/// }
///
/// async fn reserve(order: Message<Order>) -> Result<Option<Reservation>, HandlerError> {
///     Ok(Some(Reservation { order: order.into_payload().id }))
/// }
///
/// async fn dispatch(reservation: Message<Reservation>) -> Result<(), HandlerError> {
///     println!("dispatching {}", reservation.payload().order);
///     Ok(())
/// }
///
/// let mq = acemq::connect("memory://pipeline-example").await?;
/// let fulfilment = mq
///     .pipeline("fulfilment")
///     .filter("validate", validate)
///     .step("reserve", reserve)
///     .described_as("hold stock for 15 minutes so payment cannot oversell")
///     .retry(RetryPolicy::exponential(4, Duration::from_secs(1), Duration::from_secs(60)))
///     .concurrency(4)
///     .last("dispatch", dispatch)
///     .start()
///     .await?;
///
/// let run = fulfilment.send(&Order { id: "o-1".to_owned(), quantity: 2 }).await?;
/// println!("sent as {}", run.run_id);
/// # while fulfilment.counters().completed < 1 {
/// #     tokio::task::yield_now().await;
/// # }
/// fulfilment.close().await?; // when the service stops
/// # mq.close().await
/// # }
/// ```
///
/// A step receives what the one before it has made. Another type does not compile:
///
/// ```compile_fail,E0631
/// # use acemq::{Client, HandlerError, Message};
/// // promise: PL-2
/// async fn count(words: Message<String>) -> Result<Option<usize>, HandlerError> {
///     Ok(Some(words.payload().len()))
/// }
/// async fn print(words: Message<String>) -> Result<(), HandlerError> {
///     Ok(println!("{}", words.payload()))
/// }
/// fn example(mq: &Client) {
///     let _ = mq.pipeline::<String>("words").step("count", count).last("print", print);
/// }
/// ```
///
/// What a step can be told comes after the step, and after the last one comes no other:
///
/// ```compile_fail,E0599
/// # use acemq::Client;
/// // promise: PL-2
/// fn example(mq: &Client) {
///     let _ = mq.pipeline::<String>("words").concurrency(4);
/// }
/// ```
///
/// ```compile_fail,E0599
/// # use acemq::{Client, HandlerError, Message};
/// // promise: PL-2
/// async fn print(words: Message<String>) -> Result<(), HandlerError> {
///     Ok(println!("{}", words.payload()))
/// }
/// fn example(mq: &Client) {
///     let _ = mq.pipeline("words").last("print", print).last("again", print);
/// }
/// ```
#[must_use = "a pipeline does nothing until it is started"]
pub struct PipelineBuilder<In, Cur = In, State = Entry, C = StepCodec> {
    steps: Steps<In>,
    state: State,
    codec: Arc<C>,
    types: PhantomData<fn() -> Cur>,
}

/// What there is so far of a pipeline.
pub struct Steps<In> {
    pub(super) client: Client,
    pub(super) name: String,
    pub(super) declares: bool,
    pub(super) like_family: bool,
    /// What writes a message that is sent into it.
    pub(super) entry: Option<Arc<dyn Encoder<In>>>,
    pub(super) declared: Vec<(StepOptions, MakeConsumer)>,
}

impl Client {
    /// Declares a pipeline of that name, which is also its exchange. Messages that carry an `In`
    /// are sent into it.
    pub fn pipeline<In>(&self, name: impl Into<String>) -> PipelineBuilder<In> {
        PipelineBuilder {
            steps: Steps {
                client: self.clone(),
                name: name.into(),
                declares: true,
                like_family: false,
                entry: None,
                declared: Vec::new(),
            },
            state: Entry(()),
            codec: Arc::new((Json, AnyFormat)),
            types: PhantomData,
        }
    }
}

impl<In, C> PipelineBuilder<In, In, Entry, C> {
    /// Whether the pipeline's exchange and queues are declared at the start, and its steps'
    /// dead-letter and waiting queues. Default `true`; `false` for a service without the
    /// permission, which then needs them declared elsewhere.
    pub fn declare(mut self, declare: bool) -> Self {
        self.steps.declares = declare;
        self
    }

    /// Declares the steps' queues as the family's other libraries do, for a pipeline that services
    /// in several languages declare.
    ///
    /// Such a queue has no dead-letter target: from RabbitMQ 4.0 on, a message that comes back from
    /// its consumers more often than the queue's delivery limit, 20 unless set, is dropped. Give the
    /// queues one by a policy. Without this they have one, and the other libraries, which ask for
    /// queues without, do not start on them. Queues that were declared without are used as they are.
    pub fn queues_shared_with_family(mut self) -> Self {
        self.steps.like_family = true;
        self
    }

    /// Runs one step of a route that was declared elsewhere, perhaps in another language: it
    /// consumes the queue `pipeline.step` and sends what it makes to where the message's routing
    /// slip says. `None` ends the run.
    ///
    /// Neither the pipeline's exchange nor the queue is declared. A message without a slip goes to
    /// the dead-letter queue, since nothing says where it goes next.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> acemq::Result<()> {
    /// use acemq::{HandlerError, Message};
    ///
    /// async fn enrich(order: Message<String>) -> Result<Option<String>, HandlerError> {
    ///     Ok(Some(format!("{}, enriched", order.payload())))
    /// }
    ///
    /// # let mq = acemq::connect("memory://join-example").await?;
    /// # mq.declare_queue(&acemq::Queue::new("fulfilment.enrich")).await?;
    /// let step = mq.pipeline("fulfilment").join("enrich", enrich).concurrency(4).start().await?;
    /// # step.close().await?;
    /// # mq.close().await
    /// # }
    /// ```
    pub fn join<N, F, Fut>(
        self,
        name: impl Into<String>,
        handler: F,
    ) -> PipelineBuilder<In, N, AfterJoin<N>, C>
    where
        In: Send + 'static,
        N: Send + Sync + 'static,
        C: Decode<In>,
        F: Fn(Message<In>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Option<N>, HandlerError>> + Send + 'static,
    {
        let state = AfterJoin {
            options: StepOptions::new(name.into()),
            make: handler::step(Shared(Arc::clone(&self.codec)), handler),
        };
        PipelineBuilder { steps: self.steps, state, codec: self.codec, types: PhantomData }
    }

    /// As [`join`](Self::join), for the last step of a route, which hands nothing on.
    pub fn join_last<F, Fut>(
        self,
        name: impl Into<String>,
        handler: F,
    ) -> PipelineBuilder<In, (), AfterJoinLast, C>
    where
        In: Send + 'static,
        C: Decode<In>,
        F: Fn(Message<In>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let state = AfterJoinLast {
            options: StepOptions::new(name.into()),
            make: handler::last(Shared(Arc::clone(&self.codec)), handler),
        };
        PipelineBuilder { steps: self.steps, state, codec: self.codec, types: PhantomData }
    }
}

impl<In, Cur, State: TakesStep<In, Cur>, C> PipelineBuilder<In, Cur, State, C> {
    /// Adds a step: an `async fn(Message<Cur>) -> Result<Option<N>, HandlerError>`, or a closure.
    /// The next step receives the `N`; `None` ends the run here, which is a decision and no failure.
    /// On a message whose route ends here, either is the end of it.
    ///
    /// The name is what goes over the wire: the routing key, the end of the queue's name, an entry
    /// in the routing slip. It takes letters, digits, dashes and dots, a letter or digit first, and
    /// a message that is on its way to a step which is renamed does not find it.
    ///
    /// A failing step is like any handler that fails: see [`retry`](Self::retry). So is one whose
    /// message finds nobody serving the next step: the input is kept, and the reason names the step.
    /// While the broker cannot take what a step hands on, its input waits, and goes back to the
    /// step's queue; that costs no attempt.
    pub fn step<N, F, Fut>(
        self,
        name: impl Into<String>,
        handler: F,
    ) -> PipelineBuilder<In, N, AfterStep<N>, C>
    where
        Cur: Send + 'static,
        N: Send + Sync + 'static,
        C: Encode<Cur> + Decode<Cur>,
        F: Fn(Message<Cur>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Option<N>, HandlerError>> + Send + 'static,
    {
        let (steps, codec) = self.settled();
        let make = handler::step(Shared(Arc::clone(&codec)), handler);
        let state = AfterStep { options: StepOptions::new(name.into()), make };
        PipelineBuilder { steps, state, codec, types: PhantomData }
    }

    /// Adds a step that says whether a message goes on: `true` sends it on as it came, byte for
    /// byte, `false` ends the run here. The name is as for a [`step`](Self::step).
    pub fn filter<F, Fut>(
        self,
        name: impl Into<String>,
        handler: F,
    ) -> PipelineBuilder<In, Cur, AfterFilter, C>
    where
        Cur: Send + 'static,
        C: Encode<Cur> + Decode<Cur>,
        F: Fn(Message<Cur>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<bool, HandlerError>> + Send + 'static,
    {
        let (steps, codec) = self.settled();
        let make = handler::filter(Shared(Arc::clone(&codec)), handler);
        let state = AfterFilter { options: StepOptions::new(name.into()), make };
        PipelineBuilder { steps, state, codec, types: PhantomData }
    }

    /// Adds the last step, which hands nothing on. The name is as for a [`step`](Self::step).
    ///
    /// A message whose own slip leads on from here ends its run early, and that is logged.
    pub fn last<F, Fut>(
        self,
        name: impl Into<String>,
        handler: F,
    ) -> PipelineBuilder<In, (), AfterLast, C>
    where
        Cur: Send + 'static,
        C: Encode<Cur> + Decode<Cur>,
        F: Fn(Message<Cur>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let (steps, codec) = self.settled();
        let make = handler::last(Shared(Arc::clone(&codec)), handler);
        let state = AfterLast { options: StepOptions::new(name.into()), make };
        PipelineBuilder { steps, state, codec, types: PhantomData }
    }

    fn settled(self) -> (Steps<In>, Arc<C>)
    where
        C: Encode<Cur>,
    {
        let Self { mut steps, state, codec, .. } = self;
        state.settle(&codec, &mut steps);
        (steps, codec)
    }
}

/// About what comes out here.
impl<In, Cur, State: HasFormat, C> PipelineBuilder<In, Cur, State, C> {
    /// From here on what is handed on is written with this codec and read with it, until another is
    /// chosen. Before the first step that is what is sent into the pipeline. Default: JSON is
    /// written, and every format that is known here is read. Steps in another language, too, have
    /// to read what is written, and write what is read.
    pub fn codec<D>(self, codec: D) -> PipelineBuilder<In, Cur, State, D> {
        PipelineBuilder {
            steps: self.steps,
            state: self.state,
            codec: Arc::new(codec),
            types: PhantomData,
        }
    }
}

/// About the step before.
impl<In, Cur, State: HasStep, C> PipelineBuilder<In, Cur, State, C> {
    /// Says what the step is for, to people: it stands in the log and wherever the step is shown,
    /// and never changes where a message goes.
    pub fn described_as(self, description: impl Into<String>) -> Self {
        self.change(|options| options.description = Some(description.into()))
    }

    /// What becomes of a message on which the step failed. Each step counts attempts of its own.
    /// Default [`RetryPolicy::none`]: one attempt, then the dead-letter queue `pipeline.step.dlq`.
    /// A message that is put back from there goes on at this step.
    pub fn retry(self, policy: RetryPolicy) -> Self {
        self.change(|options| options.retry = policy)
    }

    /// How many consumers the step has at first; [`PipelineStep::scale_to`](super::PipelineStep)
    /// changes that while it runs. Default 1. More than one make sense where one channel of the
    /// broker's is what slows the step down.
    pub fn consumers(self, count: usize) -> Self {
        self.change(|options| options.consumers = count)
    }

    /// How many of the step's handlers run at once in each of its consumers. Default 1, which keeps
    /// the order of the messages of one consumer as long as none fails.
    pub fn concurrency(self, handlers: usize) -> Self {
        self.change(|options| options.concurrency = handlers)
    }

    /// How many messages each consumer of the step holds at most: those that it handles, those that wait for it here,
    /// and those of which what was made is on its way to the broker. Default twice the concurrency,
    /// and at least 20.
    pub fn prefetch(self, count: u16) -> Self {
        self.change(|options| options.prefetch = Some(count))
    }

    /// Has the step handle each message once in effect. A message keeps its id on its way, so what
    /// the step before has sent twice, because of a crash, is recognised. The key is
    /// `pipeline.step/id`, so that all steps may share a store; when a route leads to the step a
    /// second time, it ends in `#2`.
    pub fn idempotent(self, store: impl IdempotencyStore) -> Self {
        let store = SharedIdempotencyStore::new(store);
        self.change(|options| options.store = Some(store))
    }

    /// Uses the bare message id as the key, as the family's other libraries do: for a step that is
    /// served by several languages on one table. Each step then needs a table of its own, since
    /// a message keeps its id.
    pub fn key_shared_with_family(self) -> Self {
        self.change(|options| options.key_shared_with_family = true)
    }

    /// How long a message that somebody else is handling waits before it goes round again.
    /// Default 1 second.
    pub fn in_progress_wait(self, wait: Duration) -> Self {
        self.change(|options| options.in_progress_wait = Some(wait))
    }

    /// How long the step may take for a message, with the writing of what it makes. Past it the
    /// handler is dropped at its next await, and the step has failed. Default: no limit of ours.
    pub fn handler_timeout(self, limit: Duration) -> Self {
        self.change(|options| options.handler_timeout = Some(limit))
    }

    fn change(mut self, change: impl FnOnce(&mut StepOptions)) -> Self {
        change(self.state.options());
        self
    }
}

impl<In, C> PipelineBuilder<In, (), AfterLast, C> {
    /// Declares the exchange, and the queue of each step bound to it, and starts the steps'
    /// consumers. Awaiting it means that all of them run.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a pipeline without a name, for two steps of one name, for a name
    /// that cannot be a step's, and for settings that cannot work; [`ErrorKind::Conflict`] for an
    /// exchange or queue that exists in another form; [`ErrorKind::Refused`], and what the connection
    /// meets. Where one step does not start, those that have are closed.
    ///
    /// # Cancellation
    /// Dropping the future before it is done stops what has started. What was declared stays.
    pub fn start(self) -> StartPipeline<In> {
        let Self { mut steps, state, .. } = self;
        steps.declared.push((state.options, state.make));
        StartPipeline::new(steps)
    }
}

impl<In, N, C> PipelineBuilder<In, N, AfterJoin<N>, C> {
    /// Starts the step's consumers.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where the step's queue was not declared yet; [`ErrorKind::Config`] for
    /// a name that cannot be a step's and for settings that cannot work; [`ErrorKind::Refused`], and
    /// what the connection meets.
    ///
    /// # Cancellation
    /// Dropping the future before it is done starts nothing.
    pub fn start(self) -> StartStep
    where
        N: Sync + 'static,
        C: Encode<N>,
    {
        let make = (self.state.make)(self.codec);
        StartStep::new(
            self.steps.client,
            self.steps.name,
            self.steps.declares,
            self.state.options,
            make,
        )
    }
}

impl<In, C> PipelineBuilder<In, (), AfterJoinLast, C> {
    /// Starts the step's consumers.
    ///
    /// # Errors
    /// As for a step that is [joined](PipelineBuilder::join).
    ///
    /// # Cancellation
    /// Dropping the future before it is done starts nothing.
    pub fn start(self) -> StartStep {
        let Steps { client, name, declares, .. } = self.steps;
        StartStep::new(client, name, declares, self.state.options, self.state.make)
    }
}

impl<In, Cur, State: fmt::Debug, C> fmt::Debug for PipelineBuilder<In, Cur, State, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipelineBuilder")
            .field("steps", &self.steps)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl<In> fmt::Debug for Steps<In> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels: Vec<String> = self.declared.iter().map(|(step, _)| step.label()).collect();
        f.debug_struct("Steps")
            .field("pipeline", &self.name)
            .field("declared", &labels)
            .finish_non_exhaustive()
    }
}
