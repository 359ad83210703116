//! The channel of a subscription.
//!
//! It is ours alone, as the publishing one is (`switch`).

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
};

use bytes::BytesMut;
use tokio::sync::oneshot;

use super::settle::Drain;
use crate::{
    error::Error,
    transport::{
        ConsumeEnd, Delivery, Subscription,
        amqp::{
            assembly::Assembly,
            decode::{self, Method, Payload},
            encode, error,
            link::{Core, Throwaway},
            switch::{self, NOT_AMQP, OwnChannel, Tap},
        },
    },
};

pub(super) struct SubscriptionChannel {
    pub(super) core: Arc<Core>,
    tap: Arc<Tap>,
    number: u16,
    /// As long as this lives lapin uses the number for nothing else.
    _reserved: Throwaway,
    pub(super) subscription: Subscription,
    /// Once the channel is gone the broker has taken back whatever was not settled.
    open: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Frames for the socket.
    pub(super) out: BytesMut,
    /// Whether the switch has been told that there is something to write.
    announced: bool,
    pub(super) arrived: VecDeque<Delivery>,
    partial: Assembly,
    /// Who waits for something to arrive.
    pub(super) reader: Option<Waker>,
    /// Who waits for an answer, in the order of the questions.
    asking: VecDeque<oneshot::Sender<()>>,
    /// No more deliveries come, and the channel is there still.
    pub(super) cancelled: Option<ConsumeEnd>,
    /// We have closed the channel, and the broker has not answered.
    closing: bool,
    pub(super) over: Option<Over>,
    /// How many deliveries have been settled.
    pub(super) settled: u64,
    /// The tags of the consumers that the broker has not cancelled.
    pub(super) consumers: Vec<String>,
    /// The last consumer's prefetch.
    pub(super) prefetch: u16,
    /// Once no more deliveries come.
    pub(super) drain: Option<Drain>,
}

/// A question that the broker has not answered.
#[must_use]
pub(super) struct Asked(oneshot::Receiver<()>);

/// Why the channel is no more.
#[derive(Clone, Debug)]
pub(super) enum Over {
    Closed,
    ClosedByBroker { code: u16, text: String },
    Link(String),
}

impl SubscriptionChannel {
    pub(super) fn start(
        core: &Arc<Core>,
        channel: Throwaway,
        tap: &Arc<Tap>,
        subscription: Subscription,
    ) -> Arc<Self> {
        let inner = Arc::new(Self {
            core: Arc::clone(core),
            tap: Arc::clone(tap),
            number: channel.channel.id(),
            _reserved: channel,
            subscription,
            open: AtomicBool::new(true),
            state: Mutex::default(),
        });
        tap.connect(inner.number, Arc::clone(&inner) as Arc<dyn OwnChannel>);
        inner
    }

    /// Closes the channel and waits for the broker's answer.
    pub(super) async fn close(&self) -> Result<(), Over> {
        let (sender, answer) = oneshot::channel();
        self.write(|state, number| {
            state.asking.push_back(sender);
            encode::channel_close(&mut state.out, number);
            // Whatever followed on a closed channel would end the connection.
            state.closing = true;
            self.open.store(false, Ordering::Release);
        })?;
        answer.await.map_err(|_| Over::Closed)
    }

    /// Asks the broker something; the answer is for [`answered`](Self::answered).
    pub(super) fn ask(&self, question: impl FnOnce(&mut State, u16)) -> Result<Asked, Over> {
        let (sender, answer) = oneshot::channel();
        self.write(|state, number| {
            state.asking.push_back(sender);
            question(state, number);
        })?;
        Ok(Asked(answer))
    }

    /// Waits for the broker's answer.
    pub(super) async fn answered(&self, Asked(answer): Asked) -> Result<(), Over> {
        answer.await.map_err(|_| self.lock().over.clone().unwrap_or(Over::Closed))
    }

    /// Writes something, unless the channel is gone or going.
    pub(super) fn write(&self, write: impl FnOnce(&mut State, u16)) -> Result<(), Over> {
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

    fn hear(&self, method: Method<'_>) {
        match method {
            Method::Deliver { .. } => self.lock().partial.begin(method),
            Method::QosOk | Method::ConsumeOk => self.lock().answer(),
            Method::CloseOk => {
                self.lock().answer();
                // What is left is the answer to a closing that crossed ours.
                self.end(Over::Closed, |_| {});
            }
            Method::CancelOk { consumer_tag } => {
                let mut state = self.lock();
                state.consumers.retain(|tag| *tag != consumer_tag);
                if state.consumers.is_empty() {
                    state.cancelled.get_or_insert(ConsumeEnd::Cancelled);
                }
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
        self.end(over, |out| {
            // This was for the channel that is gone.
            out.clear();
            encode::channel_close_ok(out, self.number);
        });
    }

    /// The channel is no more; the first reason stands. `last_words` has what is left to write.
    fn end(&self, over: Over, last_words: impl FnOnce(&mut BytesMut)) {
        self.open.store(false, Ordering::Release);
        {
            let mut state = self.lock();
            if state.over.is_some() {
                return;
            }
            state.over = Some(over);
            state.partial.clear();
            state.arrived.clear();
            state.asking.clear();
            last_words(&mut state.out);
            state.wake();
        }
        self.tap.disconnect(self.number);
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
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

    fn take(&mut self, delivery: Option<Delivery>) {
        if let Some(delivery) = delivery.filter(|_| !self.closing) {
            self.arrived.push_back(delivery);
            self.wake();
        }
    }
}

impl OwnChannel for SubscriptionChannel {
    fn take_outgoing(&self, out: &mut BytesMut) {
        let mut state = self.lock();
        state.announced = false;
        switch::hand_over(&mut state.out, out);
    }

    fn incoming(self: Arc<Self>, kind: u8, payload: &[u8]) {
        match decode::read(kind, payload) {
            Some(Payload::Method(method)) => self.hear(method),
            Some(Payload::Content { size, properties }) => {
                let mut state = self.lock();
                let whole = state.partial.properties(size, properties);
                state.take(whole);
            }
            Some(Payload::Body(part)) => {
                let mut state = self.lock();
                let whole = state.partial.body(part);
                state.take(whole);
            }
            None => self.core.give_up(NOT_AMQP),
        }
    }

    fn end(self: Arc<Self>, reason: &str) {
        Self::end(&self, Over::Link(reason.to_owned()), BytesMut::clear);
    }
}

impl Over {
    pub(super) fn reason(&self) -> String {
        match self {
            Self::Closed => "the channel was closed".to_owned(),
            Self::ClosedByBroker { code, text } => format!("{text} ({code})"),
            Self::Link(reason) => reason.clone(),
        }
    }

    pub(super) fn error(&self, action: &str) -> Error {
        match self {
            Self::ClosedByBroker { code, text } => error::of_reply(action, *code, text),
            Self::Closed | Self::Link(_) => error::lost(action, &self.reason()),
        }
    }
}

impl fmt::Debug for SubscriptionChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AmqpConsume")
            .field("queue", &self.subscription.queue)
            .field("channel", &self.number)
            .finish_non_exhaustive()
    }
}
