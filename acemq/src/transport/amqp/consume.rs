//! Subscriptions, each on a channel of its own.
//!
//! The channel is ours alone, as the publishing one is (`switch`).

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use lapin::Channel;
use tokio::{sync::oneshot, time::timeout};

use super::{
    decode::{self, Method, Payload},
    encode, error,
    limits::{check_name, check_table},
    link::Core,
    switch::{NOT_AMQP, OwnChannel, Tap},
};
use crate::{
    error::{Error, Result},
    transport::{
        BoxFuture, ConsumeChannel, ConsumeEnd, ConsumeEvent, Delivery, Properties, Settler,
        Subscription,
    },
};

/// How much room is made for a body before its first byte has come.
const ROOM: u64 = 1024 * 1024;

pub(super) async fn subscribe(
    core: &Arc<Core>,
    tap: &Arc<Tap>,
    subscription: Subscription,
) -> Result<Box<dyn ConsumeChannel>> {
    let queue = subscription.queue.clone();
    let action = format!("consume from queue {queue:?}");
    check_name(&action, "name", &queue)?;
    check_table(&action, &subscription.arguments)?;
    let (owner, tap, what) = (Arc::clone(core), Arc::clone(tap), action.clone());
    core.complete(action, async move {
        let channel = owner.open_channel(&what).await?;
        let channel = AmqpConsume::start(&owner, channel, &tap, &subscription);
        let qos = |out: &mut BytesMut, number| {
            encode::basic_qos(out, number, subscription.prefetch);
        };
        let consume = |out: &mut BytesMut, number| {
            encode::basic_consume(out, number, &channel.inner.tag, &subscription);
        };
        let started = async {
            channel.inner.call(qos).await?;
            channel.inner.call(consume).await
        };
        started.await.map_err(|over| over.error(&what))?;
        Ok(Box::new(channel) as Box<dyn ConsumeChannel>)
    })
    .await
    .map_err(|error| error.with_queue(queue))
}

/// The reading end of a subscription.
struct AmqpConsume {
    inner: Arc<Inner>,
    /// Deliveries that have been taken out of the shared state together.
    taken: VecDeque<Delivery>,
    /// Whether the end has been told.
    ended: bool,
}

struct Inner {
    core: Arc<Core>,
    tap: Arc<Tap>,
    number: u16,
    /// As long as this lives lapin uses the number for nothing else.
    _reserved: Channel,
    /// The consumer's tag.
    tag: String,
    queue: String,
    prefetch: u16,
    /// Once the channel is gone the broker has taken back whatever was not settled.
    open: AtomicBool,
    state: Mutex<State>,
    /// Once no more deliveries come.
    drain: OnceLock<Drain>,
}

#[derive(Debug, Default)]
struct State {
    /// Frames for the socket.
    out: BytesMut,
    /// Whether the switch has been told that there is something to write.
    announced: bool,
    arrived: VecDeque<Delivery>,
    /// A delivery that has not come whole.
    partial: Option<Partial>,
    /// Who waits for something to arrive.
    reader: Option<Waker>,
    /// Who waits for an answer, in the order of the questions.
    asking: VecDeque<oneshot::Sender<()>>,
    /// No more deliveries come, and the channel is there still.
    cancelled: Option<ConsumeEnd>,
    /// We have closed the channel, and the broker has not answered.
    closing: bool,
    over: Option<Over>,
}

#[derive(Debug)]
struct Partial {
    delivery: Delivery,
    body: Vec<u8>,
    /// `None` until the properties have come.
    size: Option<u64>,
}

/// Why the channel is no more.
#[derive(Clone, Debug)]
enum Over {
    Closed,
    ClosedByBroker { code: u16, text: String },
    Link(String),
}

#[derive(Debug)]
struct Drain {
    /// How long the queue took to commit.
    commit: Duration,
    /// How many deliveries have been settled since.
    settled: AtomicU32,
}

impl AmqpConsume {
    fn start(
        core: &Arc<Core>,
        channel: Channel,
        tap: &Arc<Tap>,
        subscription: &Subscription,
    ) -> Self {
        let inner = Arc::new(Inner {
            core: Arc::clone(core),
            tap: Arc::clone(tap),
            number: channel.id(),
            _reserved: channel,
            tag: format!("acemq-{}", uuid::Uuid::new_v4()),
            queue: subscription.queue.clone(),
            prefetch: subscription.prefetch,
            open: AtomicBool::new(true),
            state: Mutex::default(),
            drain: OnceLock::new(),
        });
        tap.connect(inner.number, Arc::clone(&inner) as Arc<dyn OwnChannel>);
        Self { inner, taken: VecDeque::new(), ended: false }
    }
}

impl ConsumeChannel for AmqpConsume {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<ConsumeEvent> {
        if self.ended {
            return Poll::Pending;
        }
        if self.inner.is_open() {
            if let Some(delivery) = self.taken.pop_front() {
                return Poll::Ready(ConsumeEvent::Delivery(delivery));
            }
        } else {
            self.taken.clear();
        }
        let mut state = self.inner.lock();
        if let Some(over) = &state.over {
            self.ended = true;
            return Poll::Ready(ConsumeEvent::Ended(ConsumeEnd::Lost(over.reason())));
        }
        std::mem::swap(&mut state.arrived, &mut self.taken);
        match (self.taken.pop_front(), &state.cancelled) {
            (Some(delivery), _) => Poll::Ready(ConsumeEvent::Delivery(delivery)),
            (None, Some(end)) => {
                self.ended = true;
                Poll::Ready(ConsumeEvent::Ended(end.clone()))
            }
            (None, None) => {
                state.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn settler(&self) -> Arc<dyn Settler> {
        Arc::clone(&self.inner) as Arc<dyn Settler>
    }

    fn cancel(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            if self.inner.drain.get().is_some() {
                return Ok(());
            }
            let action = format!("stop consuming from queue {:?}", self.inner.queue);
            let (inner, what) = (Arc::clone(&self.inner), action.clone());
            self.inner
                .core
                .complete(
                    action,
                    async move { inner.cancel().await.map_err(|over| over.error(&what)) },
                )
                .await
        })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let take = async {
                self.inner.flush().await?;
                self.inner.close().await
            };
            // Where this fails or takes too long, the drop closes the channel as it is.
            let _ = timeout(self.inner.core.step, take).await;
        })
    }
}

impl Drop for AmqpConsume {
    fn drop(&mut self) {
        if self.inner.is_open() {
            let inner = Arc::clone(&self.inner);
            self.inner.core.runtime.spawn(async move { inner.close().await });
        }
    }
}

impl fmt::Debug for AmqpConsume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Settling.
///
/// What has been written is not yet safe. The broker's channel process passes 32 settlements on to
/// a quorum queue; the others wait in it until the queue has committed those, and are lost if it
/// ends first (measured: 165 to 807 of 10,000 came back, and with a round trip of `basic.qos`
/// before the close still up to 467). What does wait for the queue's log is `basic.cancel`: when
/// it is answered, everything before it has been committed and the rest is on its way, which one
/// more round trip makes sure of (measured: none of 10,000 came back in 20 runs).
impl Inner {
    /// What a channel process passes on without waiting for the queue, with a margin.
    const PASSED_ON: u32 = 16;
    /// A pause in which a queue commits, if it has not taken longer before.
    const PAUSE: Duration = Duration::from_millis(20);

    /// Stops the deliveries, and makes sure of what was settled before.
    async fn cancel(&self) -> Result<(), Over> {
        let start = Instant::now();
        self.call(|out, number| encode::basic_cancel(out, number, &self.tag)).await?;
        let drain = Drain { commit: start.elapsed(), settled: AtomicU32::new(0) };
        let _ = self.drain.set(drain);
        self.round_trip().await
    }

    /// Makes sure of everything that was settled.
    async fn flush(&self) -> Result<(), Over> {
        let Some(drain) = self.drain.get() else { return self.cancel().await };
        if drain.settled.load(Ordering::Acquire) > Self::PASSED_ON {
            // There is nothing left to ask that would wait for the queue's log, so it is given
            // several times what it needed a moment ago. That is likely to be enough, not sure
            // to be: what is lost nevertheless is delivered again.
            for _ in 0..5 {
                tokio::time::sleep(Self::PAUSE.max(drain.commit * 2)).await;
                self.round_trip().await?;
            }
        }
        self.round_trip().await
    }

    /// Whatever was written before has reached the channel process when this returns.
    async fn round_trip(&self) -> Result<(), Over> {
        self.call(|out, number| encode::basic_qos(out, number, self.prefetch)).await
    }

    /// Closes the channel and waits for the broker's answer.
    async fn close(&self) -> Result<(), Over> {
        let (sender, answer) = oneshot::channel();
        self.write(|state, number| {
            state.asking.push_back(sender);
            encode::channel_close(&mut state.out, number);
            // Whatever followed on a closed channel would end the connection.
            state.closing = true;
            self.open.store(false, Ordering::Release);
        })?;
        let closed = answer.await;
        self.end(Over::Closed, |_| {});
        closed.map_err(|_| Over::Closed)
    }

    /// Asks the broker something, and waits for its answer.
    async fn call(&self, question: impl FnOnce(&mut BytesMut, u16)) -> Result<(), Over> {
        let (sender, answer) = oneshot::channel();
        self.write(|state, number| {
            state.asking.push_back(sender);
            question(&mut state.out, number);
        })?;
        answer.await.map_err(|_| self.lock().over.clone().unwrap_or(Over::Closed))
    }

    /// Writes something, unless the channel is gone or going.
    fn write(&self, write: impl FnOnce(&mut State, u16)) -> Result<(), Over> {
        let announce = {
            let mut state = self.lock();
            if let Some(over) = &state.over {
                return Err(over.clone());
            }
            if state.closing {
                return Err(Over::Closed);
            }
            write(&mut state, self.number);
            state.announce()
        };
        if announce {
            self.tap.announce(self.number);
        }
        Ok(())
    }

    fn settle(&self, write: impl FnOnce(&mut BytesMut, u16)) -> bool {
        if let Some(drain) = self.drain.get() {
            drain.settled.fetch_add(1, Ordering::AcqRel);
        }
        self.write(|state, number| write(&mut state.out, number)).is_ok()
    }

    fn hear(&self, method: Method<'_>) {
        match method {
            Method::Deliver { tag, redelivered, exchange, routing_key } => {
                self.lock().partial = Some(Partial {
                    delivery: Delivery {
                        tag,
                        redelivered,
                        exchange: exchange.into_owned(),
                        routing_key: routing_key.into_owned(),
                        properties: Properties::default(),
                        body: Bytes::new(),
                    },
                    body: Vec::new(),
                    size: None,
                });
            }
            Method::QosOk | Method::ConsumeOk | Method::CloseOk => self.lock().answer(),
            Method::CancelOk => {
                let mut state = self.lock();
                state.cancelled.get_or_insert(ConsumeEnd::Cancelled);
                state.answer();
                state.wake();
            }
            Method::Cancel => {
                let mut state = self.lock();
                state.cancelled.get_or_insert(ConsumeEnd::CancelledByBroker);
                state.wake();
            }
            Method::Close { code, text } => self.closed(code, text.into_owned()),
            _ => {}
        }
    }

    /// The broker closes the channel.
    fn closed(&self, code: u16, text: String) {
        let mut state = self.lock();
        if state.closing && !state.announced {
            // The two closings have crossed, and the broker answers ours as well.
            encode::channel_close_ok(&mut state.out, self.number);
            state.announced = true;
            drop(state);
            return self.tap.announce(self.number);
        }
        drop(state);
        let over = Over::ClosedByBroker { code, text };
        self.end(over, |out| encode::channel_close_ok(out, self.number));
    }

    /// The channel is no more; the first reason stands. What is left to write was for the channel
    /// that is gone, but for its last words.
    fn end(&self, over: Over, last_words: impl FnOnce(&mut BytesMut)) {
        self.open.store(false, Ordering::Release);
        let announce = {
            let mut state = self.lock();
            if state.over.is_some() {
                return;
            }
            state.over = Some(over);
            state.partial = None;
            state.arrived.clear();
            state.asking.clear();
            state.out.clear();
            last_words(&mut state.out);
            state.wake();
            !state.out.is_empty() && state.announce()
        };
        if announce {
            self.tap.announce(self.number);
        }
        self.tap.disconnect(self.number);
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether the switch has to be told that there is something to write.
    fn announce(&mut self) -> bool {
        !std::mem::replace(&mut self.announced, true)
    }

    fn answer(&mut self) {
        if let Some(asking) = self.asking.pop_front() {
            let _ = asking.send(());
        }
    }

    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    fn properties(&mut self, size: u64, properties: Properties) {
        if let Some(partial) = &mut self.partial {
            partial.size = Some(size);
            partial.delivery.properties = properties;
        }
        self.body(&[]);
    }

    fn body(&mut self, part: &[u8]) {
        let Some(partial) = &mut self.partial else { return };
        let Some(size) = partial.size else { return };
        let whole = partial.body.is_empty() && part.len() as u64 == size;
        if whole {
            partial.delivery.body = Bytes::copy_from_slice(part);
        } else {
            if partial.body.is_empty() {
                partial.body.reserve(size.min(ROOM) as usize);
            }
            partial.body.extend_from_slice(part);
            if (partial.body.len() as u64) < size {
                return;
            }
            partial.delivery.body = std::mem::take(&mut partial.body).into();
        }
        if let Some(Partial { delivery, .. }) = self.partial.take()
            && !self.closing
        {
            self.arrived.push_back(delivery);
            self.wake();
        }
    }
}

impl OwnChannel for Inner {
    fn take_outgoing(&self, out: &mut BytesMut) {
        let mut state = self.lock();
        state.announced = false;
        out.unsplit(state.out.split());
    }

    fn incoming(self: Arc<Self>, kind: u8, payload: &[u8]) {
        match decode::read(kind, payload) {
            Some(Payload::Method(method)) => self.hear(method),
            Some(Payload::Content { size, properties }) => self.lock().properties(size, properties),
            Some(Payload::Body(part)) => self.lock().body(part),
            None => self.core.give_up(NOT_AMQP),
        }
    }

    fn end(self: Arc<Self>, reason: &str) {
        Self::end(&self, Over::Link(reason.to_owned()), |_| {});
    }
}

impl Settler for Inner {
    fn is_open(&self) -> bool {
        Self::is_open(self)
    }

    fn ack(&self, tag: u64) -> bool {
        self.settle(|out, number| encode::basic_ack(out, number, tag))
    }

    fn nack(&self, tag: u64, requeue: bool) -> bool {
        self.settle(|out, number| encode::basic_nack(out, number, tag, requeue))
    }
}

impl Over {
    fn reason(&self) -> String {
        match self {
            Self::Closed => "the channel was closed".to_owned(),
            Self::ClosedByBroker { code, text } => format!("{text} ({code})"),
            Self::Link(reason) => reason.clone(),
        }
    }

    fn error(&self, action: &str) -> Error {
        match self {
            Self::ClosedByBroker { code, text } => error::of_reply(action, *code, text),
            Self::Closed | Self::Link(_) => error::lost(action, &self.reason()),
        }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AmqpConsume")
            .field("queue", &self.queue)
            .field("channel", &self.number)
            .finish_non_exhaustive()
    }
}
