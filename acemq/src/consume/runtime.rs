//! A running consumer: subscribe, hand deliveries to handlers, recover, drain.

use std::{
    collections::VecDeque,
    future::poll_fn,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{Arc, Mutex, OnceLock},
    task::Poll,
    time::Duration,
};

use futures_util::FutureExt as _;
use tokio::{
    sync::{Notify, oneshot, watch},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument as _;

use super::{
    ConsumerState, Settlement,
    claim::Idempotency,
    counters::Counters,
    handle::{Handle, Judged, Verdict},
    interceptor,
    message::Received,
    order::{Order, OrderedBy, Place},
    pacing::Pacing,
    settle::Settling,
    work::{Another, Halt, Task, Work},
};
use crate::{
    connection::{Client, Stop},
    envelope::{self, ReadContext},
    error::{Error, ErrorKind, Result},
    retry::RetryPolicy,
    telemetry::{ConsumeMeter, ConsumeOutcome},
    topology::declare_for_consumer,
    transport::{
        BoxFuture, ConsumeChannel, ConsumeEnd, ConsumeEvent, Delivery, Settler, Subscription,
    },
};

/// The pauses between attempts at consuming again: doubling between these, with jitter.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(100);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How long past the drain bound what has to end by itself may take: giving claims up, and the
/// broker's taking of the last settlements.
const GRACE: Duration = Duration::from_millis(500);

/// How long a worker goes on before it lets others run. What its handlers and settlements have
/// woken, such as the connection, may be waiting for this very thread.
const TURN: Duration = Duration::from_millis(1);

/// Everything about one consumer but its payload's type.
pub(super) struct Core {
    pub(super) client: Client,
    pub(super) queue: Arc<str>,
    pub(super) prefetch: u16,
    pub(super) work: Work,
    pub(super) exclusive: bool,
    pub(super) declares: bool,
    pub(super) policy: RetryPolicy,
    /// Where messages are handled in order.
    pub(super) order: Option<Order>,
    pub(super) idempotency: Option<Idempotency>,
    pub(super) in_progress_wait: Duration,
    pub(super) handler_timeout: Option<Duration>,
    pub(super) counters: Counters,
    pub(super) meter: ConsumeMeter,
    pub(super) state: watch::Sender<ConsumerState>,
    /// No new deliveries, and no more waiting.
    pub(super) closing: CancellationToken,
    /// Running handlers have to stop, and nothing is published any more.
    pub(super) abort: CancellationToken,
    pub(super) deadline: OnceLock<Instant>,
    pub(super) handlers: TaskTracker,
    /// That a failure has stopped the whole consumer.
    pub(super) halting: Notify,
    /// For letting it go on, while it is stopped.
    pub(super) resume: Mutex<Option<oneshot::Sender<()>>>,
    pub(super) pacing: Pacing,
    pub(super) stranded: watch::Sender<Option<usize>>,
    pub(super) handle: Arc<dyn Handle>,
}

/// How one subscription came to its end.
enum Pumped {
    Closing(Box<dyn ConsumeChannel>),
    Ended(String),
    /// A failure has stopped the consumer.
    Halted(Box<dyn ConsumeChannel>),
}

impl Core {
    /// Declares what the consumer needs and starts to consume.
    pub(super) async fn subscribe(&self) -> Result<Box<dyn ConsumeChannel>> {
        let link = self.client.consuming_link().await?;
        // An exclusive or auto-delete queue has gone with its last consumer.
        self.client.restore_queue(&*link, &self.queue).await?;
        if self.declares {
            declare_for_consumer(&*link, &self.queue, &self.policy).await?;
        }
        link.subscribe(Subscription {
            queue: self.queue.as_ref().to_owned(),
            prefetch: self.prefetch,
            exclusive: self.exclusive,
            arguments: envelope::Headers::new(),
        })
        .await
    }

    /// Declares the dead-letter and waiting queues again, of which somebody has deleted one; says
    /// whether they are all there.
    pub(super) async fn declare_again(&self) -> bool {
        if !self.declares {
            return false;
        }
        let declare = async {
            let link = self.client.consuming_link().await?;
            declare_for_consumer(&*link, &self.queue, &self.policy).await
        };
        let declared = declare.await;
        if let Err(error) = &declared {
            tracing::warn!(queue = %self.queue, %error, "declaring its queues again failed");
        }
        declared.is_ok()
    }

    pub(super) async fn run(self: Arc<Self>, first: Box<dyn ConsumeChannel>) {
        let _ended = Ended(&self);
        let mut next = Some(first);
        let mut last = None;
        while !self.closing.is_cancelled() {
            let channel = match next.take() {
                Some(channel) => channel,
                None => tokio::select! {
                    () = self.closing.cancelled() => break,
                    channel = self.subscribe_until_done() => channel,
                },
            };
            self.state.send_replace(ConsumerState::Receiving);
            match self.pump(channel).await {
                Pumped::Closing(channel) => last = Some(channel),
                Pumped::Ended(reason) => {
                    self.work.clear();
                    tracing::warn!(queue = %self.queue, %reason, "the consumer lost its channel");
                    self.state.send_replace(ConsumerState::Recovering { attempt: 1, reason });
                }
                Pumped::Halted(channel) => self.halt_until_resumed(channel).await,
            }
        }
        let stranded = self.drain(last).await;
        self.state.send_replace(ConsumerState::Closed);
        self.stranded.send_replace(Some(stranded));
    }

    async fn subscribe_until_done(&self) -> Box<dyn ConsumeChannel> {
        let mut pause = FIRST_PAUSE;
        for attempt in 1_u32.. {
            match self.subscribe().await {
                Ok(channel) => {
                    tracing::info!(queue = %self.queue, attempt, "consuming again");
                    return channel;
                }
                Err(error) => {
                    tracing::warn!(queue = %self.queue, attempt, %error, "consuming again failed");
                    self.state.send_replace(ConsumerState::Recovering {
                        attempt: attempt.saturating_add(1),
                        reason: error.to_string(),
                    });
                }
            }
            tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        unreachable!("the attempts are not bounded")
    }

    /// Hands deliveries to handlers until the channel ends or the consumer closes.
    async fn pump(self: &Arc<Self>, mut channel: Box<dyn ConsumeChannel>) -> Pumped {
        let settler = channel.settler();
        let mut closing = pin!(self.closing.cancelled());
        let in_order = self.order.as_ref().map(|order| &order.by);
        // The channel is read on while all handlers are busy, so that its end is seen at once. At
        // most the prefetch waits.
        loop {
            tokio::select! {
                biased;
                () = &mut closing => return Pumped::Closing(channel),
                // The news may be of a channel before this one.
                () = self.halting.notified() => if !self.work.halted().is_empty() {
                    return Pumped::Halted(channel);
                },
                event = poll_fn(|context| channel.poll_next(context)) => match event {
                    ConsumeEvent::Delivery(delivery) => {
                        let place = match in_order {
                            None => Place::Free,
                            Some(OrderedBy::Payload) => tokio::select! {
                                biased;
                                () = &mut closing => return Pumped::Closing(channel),
                                place = self.place_by_payload(&delivery, &*settler) => place,
                            },
                            Some(by) => by.place(&delivery),
                        };
                        let settler = Arc::clone(&settler);
                        self.start(self.work.add(Task { delivery, settler, place }));
                    }
                    ConsumeEvent::Ended(end) => return Pumped::Ended(explain(end)),
                },
            }
        }
    }

    /// Starts a worker where one is wanted. It is a task of its own, so that the waiting of its
    /// handlers is nobody else's.
    pub(super) fn start(self: &Arc<Self>, another: Another) {
        if another == Another::Start {
            self.handlers.spawn(Arc::clone(self).take_on());
        }
    }

    /// Handles one delivery after the other, until there is none or one has to wait for its
    /// settlement.
    async fn take_on(self: Arc<Self>) {
        self.work.begun();
        let mut turn = std::time::Instant::now();
        while let Some((task, another)) = self.work.take() {
            if another == Another::Start {
                self.start(another);
                step_back().await;
            }
            let place = task.place.clone();
            // The broker has taken it back, which the reader of the channel is about to see.
            if !task.settler.is_open() {
                self.work.done(&place);
                continue;
            }
            let mut gave_way = false;
            let processed = AssertUnwindSafe(self.process(task, &mut gave_way)).catch_unwind();
            match processed.await {
                Ok(None) => self.work.done(&place),
                Ok(Some((task, halt))) => self.halt(task, halt),
                // Whatever panics here, the worker goes on: somebody has to take what waits.
                Err(_) => {
                    tracing::error!(queue = %self.queue, "a settlement panicked");
                    self.work.done(&place);
                }
            }
            if gave_way {
                // What was behind it may have come to its turn.
                return self.start(self.work.another());
            }
            if turn.elapsed() >= TURN {
                tokio::task::yield_now().await;
                turn = std::time::Instant::now();
            }
        }
    }

    /// Handles a delivery; `gave_way` tells whether the worker's place was given away meanwhile. What
    /// may not be passed by comes back, with the reason.
    async fn process(self: &Arc<Self>, task: Task, gave_way: &mut bool) -> Option<(Task, Halt)> {
        let Task { delivery, settler, place } = task;
        let started = Instant::now();
        let tag = delivery.tag;
        let received = Arc::new(self.receive(delivery));
        let envelope = &received.envelope;
        let _in_flight = InFlight::new(self, envelope.attempt);
        let span = tracing::info_span!(
            "consume",
            queue = %self.queue,
            message_id = envelope.id,
            message_type = envelope.message_type,
            attempt = envelope.attempt,
            outcome = tracing::field::Empty,
        );
        let judged = self.judge_in_place(&place, &received, &*settler).instrument(span.clone());
        let judged = match judged.await {
            Ok(judged) => judged,
            Err(halt) => {
                span.record("outcome", ConsumeOutcome::Failed.name());
                let delivery = received.delivery(tag);
                return Some((Task { delivery, settler, place }, halt));
            }
        };
        let settling = Settling { core: self, settler: &*settler, tag };
        let settled = self.settle(&judged, &settling, started, gave_way);
        let outcome = settled.instrument(span.clone()).await;
        span.record("outcome", outcome.name());
        None
    }

    /// What has arrived, with its envelope read.
    pub(super) fn receive(&self, delivery: Delivery) -> Received {
        let mut envelope = envelope::read(
            &delivery.properties.headers,
            ReadContext {
                message_id: delivery.properties.message_id.as_deref(),
                reply_to: delivery.properties.reply_to.as_deref(),
                routing_key: &delivery.routing_key,
            },
        );
        let clock = self.client.clock();
        // From the first copy on, a message of unknown age has one.
        envelope.first_seen.get_or_insert_with(|| clock.now());
        Received::new(delivery, envelope, Arc::clone(&self.queue), clock)
    }

    pub(super) async fn judge(&self, received: &Arc<Received>, settler: &dyn Settler) -> Judged {
        tokio::select! {
            biased;
            judged = self.handle.judge(self, Arc::clone(received), settler) => judged,
            () = self.past_grace() => Judged::new(Arc::clone(received), Verdict::Returned),
        }
    }

    async fn settle(
        self: &Arc<Self>,
        judged: &Judged,
        settling: &Settling<'_>,
        started: Instant,
        gave_way: &mut bool,
    ) -> ConsumeOutcome {
        let give_way = || {
            *gave_way = true;
            self.start(self.work.give_way());
        };
        let settlement = settling.settle(judged, give_way).await;
        self.counters.settled(settlement);
        let outcome = outcome(settlement);
        self.meter.settled(judged.received.envelope.message_type(), outcome, started.elapsed());
        if let Some(seen) = &judged.seen {
            interceptor::after_handle(self.client.consume_interceptors(), seen, settlement);
        }
        outcome
    }

    /// Past this even a codec or a store that hangs is let go of.
    async fn past_grace(&self) {
        self.abort.cancelled().await;
        tokio::time::sleep(GRACE).await;
    }

    /// Hands back what no handler has begun, waits for those running, makes sure that the broker
    /// has their settlements, and says how many had to be stopped. Where order matters nothing goes
    /// back before the handlers are done: somebody else would begin with what comes behind.
    async fn drain(&self, last: Option<Box<dyn ConsumeChannel>>) -> usize {
        let deadline = self.deadline.get().copied().unwrap_or_else(Instant::now);
        let mut channel = None;
        let waiting = self.work.close();
        if let Some(mut open) = last {
            if self.order.is_none() {
                hand_back(&mut *open, waiting, deadline).await;
            }
            channel = Some(open);
        }
        self.handlers.close();
        let mut stranded = 0;
        if tokio::time::timeout_at(deadline, self.handlers.wait()).await.is_err() {
            stranded = self.handlers.len();
            self.abort.cancel();
            // What never comes to an await cannot be stopped; nobody waits for it.
            let _ = tokio::time::timeout(GRACE * 2, self.handlers.wait()).await;
        }
        if let Some(channel) = channel {
            let bound = deadline.max(Instant::now() + GRACE);
            // A channel that does not close in time is dropped.
            let _ = tokio::time::timeout_at(bound, channel.close()).await;
        }
        stranded
    }
}

/// Stops new deliveries and returns what arrived and was not begun.
async fn hand_back(channel: &mut dyn ConsumeChannel, waiting: VecDeque<Task>, deadline: Instant) {
    let settler = channel.settler();
    if let Ok(Err(error)) = tokio::time::timeout_at(deadline, channel.cancel()).await {
        tracing::debug!(%error, "cancelling a consumer failed; its channel closes instead");
    }
    for task in waiting {
        settler.nack(task.delivery.tag, true);
    }
    let rest = async {
        while let ConsumeEvent::Delivery(delivery) =
            poll_fn(|context| channel.poll_next(context)).await
        {
            settler.nack(delivery.tag, true);
        }
    };
    // Past the deadline the closing of the channel hands the rest back.
    let _ = tokio::time::timeout_at(deadline, rest).await;
}

/// Lets others run. Unlike tokio's own yield this puts the task where other threads find it: the
/// one it has just spawned gets this thread, and may keep it.
async fn step_back() {
    let mut back = false;
    poll_fn(|context| {
        if std::mem::replace(&mut back, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// However the task of a consumer ends, also by a panic: its state says so, and nobody waits for it
/// in vain.
struct Ended<'a>(&'a Core);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.state.send_if_modified(|state| {
            let open = *state != ConsumerState::Closed;
            *state = ConsumerState::Closed;
            open
        });
        self.0.stranded.send_if_modified(|stranded| {
            let unknown = stranded.is_none();
            if unknown {
                *stranded = Some(0);
            }
            unknown
        });
    }
}

/// Counts a delivery as in flight until it is settled, or its task has ended in any way.
struct InFlight<'a>(&'a Core);

impl<'a> InFlight<'a> {
    fn new(core: &'a Core, attempt: u32) -> Self {
        core.counters.taken();
        core.meter.taken(attempt);
        Self(core)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.counters.let_go();
        self.0.meter.let_go();
    }
}

impl Stop for Core {
    fn stop(&self, deadline: Instant) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            // A second call waits with the first one's bound.
            let _ = self.deadline.set(deadline);
            self.closing.cancel();
            let mut stranded = self.stranded.subscribe();
            let stranded = stranded.wait_for(Option::is_some).await.map_or(0, |n| n.unwrap_or(0));
            if stranded == 0 {
                return Ok(());
            }
            let handlers = match stranded {
                1 => "1 handler was".to_owned(),
                many => format!("{many} handlers were"),
            };
            Err(Error::new(
                ErrorKind::Timeout,
                format!(
                    "close the consumer of \"{}\": {handlers} still running at the bound, and \
                     stopped; the messages go back",
                    self.queue
                ),
            )
            .with_queue(&*self.queue))
        })
    }
}

fn explain(end: ConsumeEnd) -> String {
    match end {
        ConsumeEnd::Cancelled => "the subscription was cancelled".to_owned(),
        ConsumeEnd::CancelledByBroker => {
            "the broker cancelled the consumer; its queue was deleted or its node went".to_owned()
        }
        ConsumeEnd::Lost(reason) => reason,
    }
}

fn outcome(settlement: Settlement) -> ConsumeOutcome {
    match settlement {
        Settlement::Acknowledged => ConsumeOutcome::Acked,
        Settlement::Retried => ConsumeOutcome::Retried,
        Settlement::Rejected => ConsumeOutcome::Rejected,
        Settlement::DeadLettered => ConsumeOutcome::DeadLettered,
        Settlement::Parked => ConsumeOutcome::Parked,
        Settlement::InProgress => ConsumeOutcome::InProgress,
        Settlement::Returned => ConsumeOutcome::Failed,
    }
}
