//! A running consumer: subscribe, hand deliveries to workers, pause, recover, drain.

use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::pin,
    sync::{Arc, OnceLock, atomic::AtomicU64},
    task::Poll,
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, timeout, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    ConsumerState,
    claim::Idempotency,
    control::{Control, Wish},
    counters::Counters,
    handle::Handle,
    order::{Order, OrderedBy, Turn},
    pacing::Pacing,
    work::{Task, Work},
};
use crate::{
    backoff::Backoff,
    connection::{Client, Stop},
    envelope::Headers,
    error::{Error, ErrorKind, Result},
    retry::RetryPolicy,
    telemetry::ConsumeMeter,
    topology::declare_for_consumer,
    transport::{BoxFuture, ConsumeChannel, ConsumeEvent, Delivery, Subscription},
};

/// The pauses between attempts at consuming again: doubling between these, with jitter.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(100);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// How long past the drain bound what has to end by itself may take: giving claims up, and the
/// broker's taking of the last settlements.
pub(crate) const GRACE: Duration = Duration::from_millis(500);

/// Everything about one consumer but its payload's type.
pub(super) struct Core {
    pub(super) client: Client,
    pub(super) queue: Arc<str>,
    pub(super) control: Control,
    pub(super) work: Work,
    pub(super) exclusive: bool,
    pub(super) declares: bool,
    pub(super) policy: RetryPolicy,
    /// Where messages are handled in order.
    pub(super) order: Option<Order>,
    pub(super) idempotency: Option<Idempotency>,
    pub(super) in_progress_wait: Duration,
    pub(super) handler_timeout: Option<Duration>,
    pub(super) counters: Arc<Counters>,
    /// How many deliveries wait for the store.
    pub(super) outages: AtomicU64,
    pub(super) meter: ConsumeMeter,
    pub(super) state: watch::Sender<ConsumerState>,
    /// No new deliveries, and no more waiting.
    pub(super) closing: CancellationToken,
    /// Running handlers have to stop, and nothing is published any more.
    pub(super) abort: CancellationToken,
    pub(super) deadline: OnceLock<Instant>,
    pub(super) handlers: TaskTracker,
    /// Messages that wait in their turn are to go back.
    pub(super) leaving: watch::Sender<bool>,
    pub(super) pacing: Pacing,
    pub(super) stranded: watch::Sender<Option<usize>>,
    pub(super) handle: Arc<dyn Handle>,
}

/// A channel, and what was last asked of it.
pub(super) struct Subscribed {
    pub(super) channel: Box<dyn ConsumeChannel>,
    prefetch: u16,
    paused: bool,
    /// A delivery that has no place in the order yet.
    unplaced: Option<Delivery>,
}

impl Core {
    /// Declares what the consumer needs and starts to consume.
    pub(super) async fn subscribe(&self) -> Result<Subscribed> {
        let prefetch = self.control.wish().prefetch;
        let link = self.client.consuming_link().await?;
        // An exclusive or auto-delete queue has gone with its last consumer.
        self.client.restore_queue(&*link, &self.queue).await?;
        if self.declares {
            self.handle.declare().await?;
            declare_for_consumer(&*link, &self.queue, &self.policy).await?;
        }
        let subscription = Subscription {
            queue: self.queue.as_ref().to_owned(),
            prefetch,
            exclusive: self.exclusive,
            arguments: Headers::new(),
        };
        let channel = link.subscribe(subscription).await?;
        Ok(Subscribed { channel, prefetch, paused: false, unplaced: None })
    }

    /// Declares the dead-letter and waiting queues again, of which somebody has deleted one; says
    /// whether they are all there.
    pub(super) async fn declare_again(&self) -> bool {
        if !self.declares {
            return false;
        }
        let declare = async {
            self.handle.declare().await?;
            let link = self.client.consuming_link().await?;
            declare_for_consumer(&*link, &self.queue, &self.policy).await
        };
        let declared = declare.await;
        if let Err(error) = &declared {
            tracing::warn!(queue = %self.queue, %error, "declaring its queues again failed");
        }
        declared.is_ok()
    }

    pub(super) async fn run(self: Arc<Self>, first: Option<Subscribed>) {
        let _ended = Ended(&self);
        let mut wishes = self.control.wishes();
        let mut open = first;
        while !self.closing.is_cancelled() {
            let wish = wishes.borrow_and_update().clone();
            if let Some(subscribed) = open.take() {
                open = self.comply(subscribed, &wish).await;
            }
            if wish.stays_away() {
                self.state.send_replace(match wish.halted.as_deref() {
                    Some(halt) => halt.state(),
                    None => ConsumerState::Paused,
                });
                self.control.acted_on(&wish);
                self.idle(&mut wishes).await;
                continue;
            }
            let Some(subscribed) = open.take() else {
                open = self.subscribe_until_done(&mut wishes).await;
                continue;
            };
            self.state.send_replace(ConsumerState::Receiving);
            self.control.acted_on(&wish);
            open = self.pump(subscribed, &mut wishes).await;
        }
        let stranded = self.drain(open).await;
        self.state.send_replace(ConsumerState::Closed);
        self.stranded.send_replace(Some(stranded));
    }

    /// Does to a channel what is wanted; `None` if that cost it.
    async fn comply(&self, mut subscribed: Subscribed, wish: &Wish) -> Option<Subscribed> {
        let other = wish.stays_away() || subscribed.prefetch != wish.prefetch;
        if self.order.is_some() && other {
            return self.leave_in_order(subscribed).await;
        }
        let Subscribed { channel, prefetch, paused, .. } = &mut subscribed;
        let done = match (*paused, wish.paused) {
            (false, true) => {
                let bound = Instant::now() + self.client.options().connect_timeout;
                hand_back(&mut **channel, self.work.take_waiting(), bound).await
            }
            (true, false) => channel.resume(wish.prefetch).await,
            (false, false) if *prefetch != wish.prefetch => {
                channel.set_prefetch(wish.prefetch).await
            }
            _ => return Some(subscribed),
        };
        if let Err(error) = done {
            self.lost(error.to_string());
            return None;
        }
        (*paused, *prefetch) = (wish.paused, wish.prefetch);
        Some(subscribed)
    }

    /// Waits until something else is wanted.
    async fn idle(&self, wishes: &mut watch::Receiver<Wish>) {
        tokio::select! {
            () = self.closing.cancelled() => {}
            // The sender is this consumer's own, so it is there.
            _ = wishes.changed() => {}
        }
    }

    fn lost(&self, reason: String) {
        // The broker has taken it back.
        self.work.clear();
        tracing::warn!(queue = %self.queue, %reason, "the consumer lost its channel");
        self.state.send_replace(ConsumerState::Recovering { attempt: 1, reason });
    }

    /// Consumes again, however often that takes; `None` once the consumer is to close or to pause.
    async fn subscribe_until_done(&self, wishes: &mut watch::Receiver<Wish>) -> Option<Subscribed> {
        let mut subscribing = pin!(self.subscribe_again());
        loop {
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return None,
                subscribed = &mut subscribing => return Some(subscribed),
                Ok(()) = wishes.changed() => {
                    let wish = wishes.borrow_and_update().clone();
                    if wish.stays_away() {
                        wishes.mark_changed();
                        return None;
                    }
                    // The next attempt goes by it.
                    self.control.acted_on(&wish);
                }
            }
        }
    }

    async fn subscribe_again(&self) -> Subscribed {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        for attempt in 1_u32.. {
            let wish = self.control.wish();
            match self.subscribe().await {
                Ok(subscribed) => {
                    tracing::info!(queue = %self.queue, attempt, "consuming again");
                    return subscribed;
                }
                Err(error) => {
                    tracing::warn!(queue = %self.queue, attempt, %error, "consuming again failed");
                    self.state.send_replace(ConsumerState::Recovering {
                        attempt: attempt.saturating_add(1),
                        reason: error.to_string(),
                    });
                    // Whoever asked for it looks at the state.
                    self.control.acted_on(&wish);
                }
            }
            backoff.pause().await;
        }
        unreachable!("the attempts are not bounded")
    }

    /// Hands deliveries to handlers until the consumer closes, or something else is wanted of it;
    /// `None` once the channel has ended.
    async fn pump(
        self: &Arc<Self>,
        mut subscribed: Subscribed,
        wishes: &mut watch::Receiver<Wish>,
    ) -> Option<Subscribed> {
        let Subscribed { channel, unplaced, .. } = &mut subscribed;
        let settler = channel.settler();
        let mut wanted = pin!(self.idle(wishes));
        let ordered_by = self.order.as_ref().map(|order| &order.by);
        // The channel is read on while all handlers are busy, so that its end is seen at once. At
        // most the prefetch waits.
        loop {
            tokio::select! {
                biased;
                () = &mut wanted => return Some(subscribed),
                event = poll_fn(|context| match unplaced.take() {
                    Some(delivery) => Poll::Ready(ConsumeEvent::Delivery(delivery)),
                    None => channel.poll_next(context),
                }) => match event {
                    ConsumeEvent::Delivery(delivery) => {
                        let turn = match ordered_by {
                            None => Turn::Any,
                            Some(OrderedBy::Payload) => tokio::select! {
                                biased;
                                turn = self.turn_by_payload(&delivery, &*settler) => turn,
                                () = &mut wanted => {
                                    *unplaced = Some(delivery);
                                    return Some(subscribed);
                                }
                            },
                            Some(by) => by.turn(&delivery),
                        };
                        let settler = Arc::clone(&settler);
                        self.start(self.work.add(Task { delivery, settler, turn }));
                    }
                    ConsumeEvent::Ended(end) => {
                        self.lost(end.to_string());
                        return None;
                    }
                },
            }
        }
    }

    /// Hands back what no handler has begun, waits for those running, makes sure that the broker
    /// has their settlements, and says how many had to be stopped. Where order matters everything
    /// goes back once the handlers are done.
    async fn drain(&self, open: Option<Subscribed>) -> usize {
        let deadline = self.deadline.get().copied().unwrap_or_else(Instant::now);
        let waiting = self.work.close();
        let mut channel = open.map(|open| open.channel);
        if self.order.is_none()
            && let Some(channel) = &mut channel
            && let Err(error) = hand_back(&mut **channel, waiting, deadline).await
        {
            tracing::debug!(%error, "cancelling a consumer failed; its channel closes instead");
        }
        self.handlers.close();
        let mut stranded = 0;
        if timeout_at(deadline, self.handlers.wait()).await.is_err() {
            stranded = self.handlers.len();
            self.abort.cancel();
            // What never comes to an await cannot be stopped; nobody waits for it.
            let _ = timeout(GRACE * 2, self.handlers.wait()).await;
        }
        if let Some(channel) = channel {
            let bound = deadline.max(Instant::now() + GRACE);
            let close = match &self.order {
                Some(_) => channel.leave(self.is_alone()),
                None => channel.close(),
            };
            // A channel that does not close in time is dropped.
            let _ = timeout_at(bound, close).await;
        }
        self.work.clear();
        stranded
    }
}

/// Stops new deliveries and returns what arrived and was not begun.
async fn hand_back(
    channel: &mut dyn ConsumeChannel,
    waiting: VecDeque<Task>,
    deadline: Instant,
) -> Result<()> {
    let settler = channel.settler();
    let cancelled = timeout_at(deadline, channel.cancel()).await;
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
    let returned = timeout_at(deadline, rest).await;
    match (cancelled, returned) {
        (Ok(cancelled), Ok(())) => cancelled,
        _ => Err(Error::new(ErrorKind::Timeout, "the broker did not cancel the consumer in time")),
    }
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
        self.0.control.ended();
    }
}

impl Core {
    /// Stops by `deadline`, and says how many handlers were still running then.
    pub(super) async fn stopped(&self, deadline: Instant) -> usize {
        // A second call waits with the first one's bound.
        let _ = self.deadline.set(deadline);
        // Before whoever closes lets anything else go on, such as the handlers that run.
        self.work.stop();
        self.closing.cancel();
        let mut stranded = self.stranded.subscribe();
        stranded.wait_for(Option::is_some).await.map_or(0, |stranded| stranded.unwrap_or(0))
    }
}

impl Stop for Core {
    fn stop(&self, deadline: Instant) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { stranded("consumer", &self.queue, self.stopped(deadline).await) })
    }
}

/// The error of a close that did not wait for so many handlers, if there were any.
pub(crate) fn stranded(what: &str, queue: &str, handlers: usize) -> Result<()> {
    let handlers = match handlers {
        0 => return Ok(()),
        1 => "1 handler was".to_owned(),
        many => format!("{many} handlers were"),
    };
    Err(Error::new(
        ErrorKind::Timeout,
        format!(
            "close the {what} of \"{queue}\": {handlers} still running at the bound, and stopped; \
             their messages come again"
        ),
    )
    .with_queue(queue))
}
