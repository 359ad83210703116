//! A running consumer of a stream: read, hand messages to handlers in order, recover, drain.

use std::{
    collections::VecDeque,
    future::poll_fn,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use futures_util::FutureExt as _;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{Instant, sleep_until, timeout, timeout_at},
};
use tokio_util::{
    sync::CancellationToken,
    task::{AbortOnDropHandle, TaskTracker},
};

use super::{
    StreamGap, StreamOffset, StreamStop,
    counters::{Counters, count},
    filter::Filter,
    handle::Handle,
    progress::{Delivered, Progress},
    saving::Checkpoints,
    subscribe::{Arrival, Subscribed},
};
use crate::{
    connection::{Client, Stop},
    consume::{ConsumerState, GRACE, OnFailure, stranded, stream_offset},
    error::Result,
    telemetry::ConsumeMeter,
    transport::{BoxFuture, ConsumeEnd, ConsumeEvent, Delivery},
};

/// Everything about one consumer but its payload's type.
pub(super) struct Core {
    pub(super) client: Client,
    pub(super) stream: Arc<str>,
    pub(super) from: StreamOffset,
    pub(super) prefetch: u16,
    pub(super) filter: Option<Filter>,
    pub(super) on_failure: OnFailure,
    pub(super) handler_timeout: Option<Duration>,
    pub(super) checkpoints: Option<Checkpoints>,
    pub(super) counters: Counters,
    pub(super) meter: ConsumeMeter,
    pub(super) state: watch::Sender<ConsumerState>,
    /// No new messages, and no more waiting.
    pub(super) closing: CancellationToken,
    /// Running handlers have to stop.
    pub(super) abort: CancellationToken,
    pub(super) deadline: OnceLock<Instant>,
    pub(super) handlers: TaskTracker,
    /// The places of the handlers.
    pub(super) places: Arc<Semaphore>,
    pub(super) stranded: watch::Sender<Option<usize>>,
    pub(super) handle: Arc<dyn Handle>,
    pub(super) progress: Mutex<Progress>,
    /// Whether the stream was made anew since, and is read from its beginning.
    pub(super) made_anew: AtomicBool,
    pub(super) gap: Mutex<Option<StreamGap>>,
    pub(super) stop: OnceLock<StreamStop>,
}

/// What arrived and was not begun.
type Waiting = VecDeque<(u64, Delivery)>;

/// Why the reading of a channel came to an end.
enum Left {
    /// The consumer closes.
    Closing(Subscribed),
    Lost(ConsumeEnd),
    /// The stream is another one than it was.
    MadeAnew,
}

impl Core {
    pub(super) async fn run(self: Arc<Self>, first: Subscribed) {
        let _ended = Ended(&self);
        let saving = {
            let core = Arc::clone(&self);
            AbortOnDropHandle::new(tokio::spawn(async move { core.keep_saving().await }))
        };
        let mut open = Some(first);
        while !self.closing.is_cancelled() {
            let Some(subscribed) = open.take() else { break };
            self.state.send_replace(ConsumerState::Receiving);
            open = match self.pump(subscribed).await {
                Left::Closing(subscribed) => {
                    open = Some(subscribed);
                    break;
                }
                Left::Lost(end) => {
                    self.lost(end.to_string());
                    self.subscribe_until_done().await
                }
                Left::MadeAnew => {
                    self.lost("the stream was made anew".to_owned());
                    self.begin_anew();
                    self.subscribe_until_done().await
                }
            };
        }
        let stranded = self.drain(open, saving).await;
        self.state.send_replace(match self.stop.get() {
            Some(stop) => stop.state(),
            None => ConsumerState::Closed,
        });
        self.stranded.send_replace(Some(stranded));
    }

    fn lost(&self, reason: String) {
        self.progress().lose();
        tracing::warn!(stream = %self.stream, %reason, "the consumer of a stream lost its channel");
        self.state.send_replace(ConsumerState::Recovering { attempt: 1, reason });
    }

    /// Hands messages to handlers until the consumer closes or the channel has ended.
    async fn pump(self: &Arc<Self>, mut subscribed: Subscribed) -> Left {
        let mut waiting = Waiting::new();
        let mut doubt = pin!(sleep_until(subscribed.doubted_at(self)));
        // The channel is read on while all handlers are busy, so that its end is seen at once.
        loop {
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return Left::Closing(subscribed),
                place = Arc::clone(&self.places).acquire_owned(), if !waiting.is_empty() => {
                    if let (Ok(place), Some((offset, delivery))) = (place, waiting.pop_front()) {
                        self.start(offset, delivery, place);
                    }
                }
                event = poll_fn(|context| subscribed.channel.poll_next(context)) => match event {
                    ConsumeEvent::Delivery(delivery) => {
                        let Some(offset) = stream_offset(&delivery.properties.headers) else {
                            tracing::error!(stream = %self.stream, "a message came without its offset");
                            subscribed.settler.ack(delivery.tag);
                            continue;
                        };
                        match self.arrived(&mut subscribed, offset, &delivery).await {
                            Arrival::Wanted => self.take(&subscribed, offset, delivery, &mut waiting),
                            Arrival::Unwanted => {
                                subscribed.settler.ack(delivery.tag);
                            }
                            Arrival::Another => return Left::MadeAnew,
                        }
                    }
                    ConsumeEvent::Ended(end) => return Left::Lost(end),
                },
                () = &mut doubt, if subscribed.anchor().is_some() => {
                    if self.is_another_stream(&mut subscribed).await {
                        return Left::MadeAnew;
                    }
                    doubt.as_mut().reset(subscribed.doubted_at(self));
                }
            }
        }
    }

    fn take(
        &self,
        subscribed: &Subscribed,
        offset: u64,
        delivery: Delivery,
        waiting: &mut Waiting,
    ) {
        let receipt = (Arc::clone(&subscribed.settler), delivery.tag);
        let id = delivery.properties.message_id.as_deref();
        let delivered = self.progress().deliver(offset, receipt, id);
        match delivered {
            Delivered::Finished => {
                subscribed.settler.ack(delivery.tag);
            }
            Delivered::Running => {}
            Delivered::New => {
                let filter = self.filter.as_ref();
                if filter.is_none_or(|filter| filter.matches(&delivery.properties.headers)) {
                    waiting.push_back((offset, delivery));
                } else {
                    count(&self.counters.filtered);
                    let generation = self.progress().generation();
                    self.finish(offset, generation, false);
                }
            }
        }
    }

    fn start(self: &Arc<Self>, offset: u64, delivery: Delivery, place: OwnedSemaphorePermit) {
        let generation = {
            let mut progress = self.progress();
            progress.begin(offset);
            progress.generation()
        };
        let core = Arc::clone(self);
        self.handlers.spawn(async move {
            let message_id = delivery.properties.message_id.clone();
            let process = core.process(offset, generation, delivery);
            if AssertUnwindSafe(process).catch_unwind().await.is_err() {
                core.panicked(offset, generation, message_id.unwrap_or_default());
            }
            drop(place);
        });
    }

    /// Notes that a message is done with, and acknowledges it.
    pub(super) fn finish(&self, offset: u64, generation: u64, committed: bool) {
        let receipt = self.progress().finish(offset, generation);
        if let Some((settler, tag)) = receipt {
            settler.ack(tag);
        }
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.finished(offset, committed);
        }
    }

    /// Something beside a handler panicked, such as a recorder of metrics or a subscriber to logs. It
    /// is not known how far the message has come, and it must not hold up the others in silence.
    fn panicked(&self, offset: u64, generation: u64, message_id: String) {
        let reason = "what is around its handler panicked".to_owned();
        if self.is_of_this_stream(generation) {
            self.stop_for(StreamStop::Failed { offset, message_id, attempts: 1, reason });
        }
    }

    /// Whether what was begun in a generation is a message of the stream that is read now.
    pub(super) fn is_of_this_stream(&self, generation: u64) -> bool {
        self.progress().generation() == generation
    }

    /// Nothing more is begun, for this reason.
    pub(super) fn stop_for(&self, stop: StreamStop) {
        if self.stop.set(stop).is_ok() {
            self.closing.cancel();
        }
    }

    /// Waits for the handlers that run, saves the place, and says how many had to be stopped.
    async fn drain(&self, open: Option<Subscribed>, saving: AbortOnDropHandle<()>) -> usize {
        let later = || Instant::now() + self.client.options().drain_timeout;
        let deadline = self.deadline.get().copied().unwrap_or_else(later);
        self.handlers.close();
        let mut stranded = 0;
        if timeout_at(deadline, self.handlers.wait()).await.is_err() {
            stranded = self.handlers.len();
            self.abort.cancel();
            // What never comes to an await cannot be stopped; nobody waits for it.
            let _ = timeout(GRACE * 2, self.handlers.wait()).await;
        }
        self.save_last(saving, deadline.max(Instant::now() + GRACE)).await;
        if let Some(open) = open {
            // What is not settled just ends with its channel: a stream takes nothing back.
            let bound = deadline.max(Instant::now() + GRACE);
            let _ = timeout_at(bound, open.channel.close()).await;
        }
        stranded
    }

    pub(super) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn gap(&self) -> MutexGuard<'_, Option<StreamGap>> {
        self.gap.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// However the task of a consumer ends, also by a panic: its state says so, and nobody waits for it
/// in vain.
struct Ended<'a>(&'a Core);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.state.send_if_modified(|state| {
            let open = !matches!(state, ConsumerState::Closed | ConsumerState::Halted { .. });
            if open {
                *state = ConsumerState::Closed;
            }
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

impl Stop for Core {
    fn stop(&self, deadline: Instant) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            // A second call waits with the first one's bound.
            let _ = self.deadline.set(deadline);
            self.closing.cancel();
            let mut left = self.stranded.subscribe();
            let left = left.wait_for(Option::is_some).await.map_or(0, |left| left.unwrap_or(0));
            self.state.send_replace(ConsumerState::Closed);
            stranded("stream consumer", &self.stream, left)
        })
    }
}
