//! The publishing channel.
//!
//! It is ours alone: lapin has opened it and knows nothing of what goes over it (`switch`). A
//! publish is encoded where it is handed over, into the bytes that go to the socket next, and has
//! the next delivery tag; its confirm finds it by that tag. It is in one place only: waiting for the
//! channel, held back until its exchange is known to exist, or in flight; so whatever ends the
//! link finds and answers every one.
//!
//! When the broker closes the channel it does not say which message it was, and those before it
//! may be on their queues already, unconfirmed. Where an exchange is missing, all exchanges are
//! asked for again. Otherwise each message is published again, alone and in order: the one during
//! whose turn the channel closes is refused, all others go out.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::BytesMut;
use tokio::{sync::oneshot, time::timeout};

use super::{
    declare,
    decode::{self, Method, Payload},
    direct::{DirectReplies, Listener},
    encode, error,
    exchanges::{Exchanges, Route, lose, refuse},
    limits,
    link::{Core, Throwaway},
    switch::{self, NOT_AMQP, OwnChannel, Tap},
    window::{Settled, Window},
};
use crate::{
    error::{Error, ErrorKind, Result},
    transport::{ConsumeEnd, LinkState, Properties, Publish, PublishFailure},
};

/// `NOT_FOUND`: the exchange of some message.
const NOT_FOUND: u16 = 404;
/// How often the channel may be closed with nothing on it before that is taken for a fault.
const IDLE_CLOSES: u32 = 3;

pub(super) struct Publisher {
    core: Arc<Core>,
    number: u16,
    /// As long as this lives lapin uses the number for nothing else.
    _reserved: Throwaway,
    state: Mutex<State>,
    tap: Arc<Tap>,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Frames for the socket.
    out: BytesMut,
    window: Window,
    /// What waits for the channel, in order.
    waiting: VecDeque<Publish>,
    /// What is published again, one at a time.
    suspects: VecDeque<Publish>,
    /// Whether the message in flight is one of those, and the broker may have had it before.
    turn: Option<bool>,
    /// Whether the exchanges have been asked for again, and no message has got through since.
    asked_again: bool,
    idle_closes: u32,
    exchanges: Exchanges,
    /// A return whose properties have not come yet.
    returned: Option<Return>,
    ready: Option<oneshot::Sender<()>>,
    /// Who hears the replies to what is published here.
    listener: Option<Listener>,
    /// Whether the switch has been told that there is something to write.
    announced: bool,
}

#[derive(Debug)]
enum Phase {
    /// The broker has been asked for the channel; so many times so far.
    Opening(u64),
    Open(u64),
    Ended(String),
}

#[derive(Debug)]
struct Return {
    code: u16,
    reason: String,
    exchange: String,
    routing_key: String,
}

/// What is to be done once the lock is free.
#[derive(Default)]
struct Effects {
    settled: Vec<Settled>,
    ask: Vec<String>,
    opening: Option<u64>,
    give_up: Option<&'static str>,
}

impl Publisher {
    /// Takes a channel over from lapin. The receiver completes when it confirms.
    pub(super) fn start(
        core: &Arc<Core>,
        channel: Throwaway,
        tap: &Arc<Tap>,
    ) -> (Arc<Self>, oneshot::Receiver<()>) {
        let (ready, is_ready) = oneshot::channel();
        let publisher = Arc::new(Self {
            core: Arc::clone(core),
            number: channel.channel.id(),
            _reserved: channel,
            state: Mutex::new(State {
                phase: Phase::Opening(1),
                out: BytesMut::new(),
                window: Window::default(),
                waiting: VecDeque::new(),
                suspects: VecDeque::new(),
                turn: None,
                asked_again: false,
                idle_closes: 0,
                exchanges: Exchanges::default(),
                returned: None,
                ready: Some(ready),
                listener: None,
                announced: false,
            }),
            tap: Arc::clone(tap),
        });
        tap.connect(publisher.number, Arc::clone(&publisher) as Arc<dyn OwnChannel>);
        publisher.act(|state, _| encode::confirm_select(&mut state.out, publisher.number));
        (publisher, is_ready)
    }

    /// Hands a message over.
    pub(super) fn publish(self: &Arc<Self>, publish: Publish) {
        match limits::check(&publish.message, self.core.user.as_deref(), self.core.limits) {
            Ok(()) => self.act(|state, effects| state.accept(publish, self, effects)),
            Err(error) => {
                publish.answer.complete(Err(PublishFailure::Refused(error)));
            }
        }
    }

    /// Has replies come to what is published from now on.
    pub(super) async fn listen(self: &Arc<Self>) -> Result<DirectReplies> {
        const WHAT: &str = "have replies come directly";
        let (listener, replies, has_begun) = Listener::new(self);
        let mut refused = None;
        self.act(|state, _| {
            refused = match (&state.phase, &state.listener) {
                (Phase::Ended(reason), _) => Some(error::lost(WHAT, reason)),
                (Phase::Opening(_), _) => Some(error::lost(WHAT, "the channel is being opened")),
                (Phase::Open(_), Some(_)) => Some(Error::new(
                    ErrorKind::Unsupported,
                    format!(
                        "{WHAT}: another requester of this client does, and a connection has \
                             one; share it, or let this one have a queue"
                    ),
                )),
                (Phase::Open(_), None) => None,
            };
            if refused.is_none() {
                encode::consume_replies(&mut state.out, self.number, &listener.tag);
                state.listener = Some(listener);
            }
        });
        if let Some(error) = refused {
            return Err(error);
        }
        match timeout(self.core.step, has_begun).await {
            Ok(Ok(())) => Ok(replies),
            Ok(Err(_)) => Err(error::lost(WHAT, "the channel was closed")),
            Err(_elapsed) => Err(error::timed_out(WHAT, self.core.step)),
        }
    }

    /// Ends that listening, if it has not ended.
    pub(super) fn stop_listening(self: &Arc<Self>, tag: &str) {
        self.act(|state, _| {
            if state.listener.as_ref().is_some_and(|listener| listener.tag == tag) {
                state.listener = None;
                encode::basic_cancel(&mut state.out, self.number, tag);
            }
        });
    }

    fn decided(self: &Arc<Self>, exchange: String, answer: Result<bool>) {
        self.act(|state, effects| {
            for publish in state.exchanges.decide(exchange, answer, &mut effects.settled) {
                state.accept_known(publish, self);
            }
        });
    }

    fn act(self: &Arc<Self>, act: impl FnOnce(&mut State, &mut Effects)) {
        let mut effects = Effects::default();
        let announce = {
            let mut state = self.lock();
            act(&mut state, &mut effects);
            let announce = !state.announced && !state.out.is_empty();
            state.announced |= announce;
            announce
        };
        if announce {
            self.tap.announce(self.number);
        }
        for (answer, verdict) in effects.settled {
            answer.complete(verdict);
        }
        for exchange in effects.ask {
            let publisher = Arc::clone(self);
            self.core.runtime.spawn(async move {
                let answer = declare::exchange_exists(&publisher.core, exchange.clone()).await;
                publisher.decided(exchange, answer);
            });
        }
        if let Some(opening) = effects.opening {
            self.core.runtime.spawn(Arc::clone(self).expect_open(opening));
        }
        if let Some(reason) = effects.give_up {
            self.core.give_up(reason);
        }
    }

    /// Ends the link if the channel is not open in time. A broker that has paused publishing reads
    /// nothing; that time does not count.
    async fn expect_open(self: Arc<Self>, opening: u64) {
        let mut link = self.core.state.subscribe();
        let in_time = async {
            let is_read = |state: &LinkState| !matches!(state, LinkState::Blocked(_));
            while link.wait_for(is_read).await.is_ok()
                && timeout(self.core.step, link.changed()).await.is_ok()
            {}
        };
        tokio::select! {
            () = in_time => {}
            _ = self.core.ended() => return,
        }
        if matches!(self.lock().phase, Phase::Opening(now) if now == opening) {
            self.core.give_up("the broker did not open the publishing channel in time");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes a message that was checked.
    fn accept(&mut self, publish: Publish, publisher: &Publisher, effects: &mut Effects) {
        match &self.phase {
            Phase::Ended(reason) => effects.settled.push(lose(publish, reason)),
            Phase::Open(_) if self.turn.is_none() => self.route(publish, publisher, effects),
            Phase::Opening(_) | Phase::Open(_) => self.waiting.extend(self.exchanges.hold(publish)),
        }
    }

    fn route(&mut self, publish: Publish, publisher: &Publisher, effects: &mut Effects) {
        match self.exchanges.route(publish, || publisher.core.is_short_of_channels()) {
            Route::Write(publish) => self.write(publish, publisher),
            Route::Held => {}
            Route::Ask(exchange) => effects.ask.push(exchange),
            Route::Refused(settled) => effects.settled.push(settled),
        }
    }

    /// Takes a message whose exchange was found to exist.
    fn accept_known(&mut self, publish: Publish, publisher: &Publisher) {
        match &self.phase {
            Phase::Open(_) if self.turn.is_none() => self.write(publish, publisher),
            _ => self.waiting.push_back(publish),
        }
    }

    fn write(&mut self, publish: Publish, publisher: &Publisher) {
        let frame_max = publisher.core.limits.frame_max;
        encode::publish(&mut self.out, publisher.number, &publish.message, frame_max);
        self.window.push(publish);
    }

    fn hear(&mut self, method: Method<'_>, publisher: &Publisher, effects: &mut Effects) {
        match method {
            Method::SelectOk => {
                if let Phase::Opening(times) = self.phase {
                    self.phase = Phase::Open(times);
                }
                if let Some(ready) = self.ready.take() {
                    let _ = ready.send(());
                }
                self.go_on(publisher, effects);
            }
            Method::Ack { tag, multiple } => self.settle((tag, multiple), true, publisher, effects),
            Method::Nack { tag, multiple } => {
                self.settle((tag, multiple), false, publisher, effects);
            }
            Method::Return { code, reason, exchange, routing_key } => {
                self.returned = Some(Return {
                    code,
                    reason: reason.into_owned(),
                    exchange: exchange.into_owned(),
                    routing_key: routing_key.into_owned(),
                });
            }
            Method::Close { code, text } => self.closed(code, &text, publisher, effects),
            Method::ConsumeOk => {
                if let Some(listener) = &mut self.listener {
                    listener.begun();
                }
            }
            Method::Deliver { .. } => {
                if let Some(listener) = &mut self.listener {
                    listener.begin(method);
                }
            }
            Method::Cancel => self.stop_hearing(ConsumeEnd::CancelledByBroker),
            _ => {}
        }
    }

    /// The properties of a returned message have come, or of a reply.
    fn hear_content(&mut self, size: u64, properties: Properties) {
        match &mut self.listener {
            Some(listener) if self.returned.is_none() => listener.properties(size, properties),
            _ => self.take_return(&properties),
        }
    }

    fn stop_hearing(&mut self, end: ConsumeEnd) {
        if let Some(listener) = self.listener.take() {
            listener.end(end);
        }
    }

    /// The properties of a returned message have come.
    fn take_return(&mut self, properties: &Properties) {
        if let Some(Return { code, reason, exchange, routing_key }) = self.returned.take() {
            let id = properties.message_id.as_deref().unwrap_or("");
            let failure = PublishFailure::Unroutable { code, reason };
            self.window.returned((id, &exchange, &routing_key), failure);
        }
    }

    fn settle(
        &mut self,
        (tag, multiple): (u64, bool),
        acked: bool,
        publisher: &Publisher,
        effects: &mut Effects,
    ) {
        self.window.settle(tag, multiple, acked, &mut effects.settled);
        self.asked_again = false;
        self.idle_closes = 0;
        if self.turn.is_some() && self.window.is_empty() {
            self.go_on(publisher, effects);
        }
    }

    /// Publishes the next of the suspects, or everything that waits once there are none.
    fn go_on(&mut self, publisher: &Publisher, effects: &mut Effects) {
        let suspect = self.suspects.pop_front();
        self.turn = suspect.as_ref().map(|suspect| suspect.written);
        if let Some(suspect) = suspect {
            return self.write(suspect, publisher);
        }
        for publish in std::mem::take(&mut self.waiting) {
            self.route(publish, publisher, effects);
        }
    }

    /// The broker has closed the channel; it is opened again under the same number.
    fn closed(&mut self, code: u16, text: &str, publisher: &Publisher, effects: &mut Effects) {
        let (Phase::Opening(times) | Phase::Open(times)) = self.phase else { return };
        self.phase = Phase::Opening(times + 1);
        effects.opening = Some(times + 1);
        // What is left here was for the channel that is gone.
        self.out.clear();
        encode::channel_close_ok(&mut self.out, publisher.number);
        encode::channel_open(&mut self.out, publisher.number);
        encode::confirm_select(&mut self.out, publisher.number);
        self.returned = None;
        self.stop_hearing(ConsumeEnd::Lost(format!("{text} ({code})")));
        self.exchanges.forget();
        let mut unanswered = self.window.take();
        if unanswered.is_empty() {
            self.idle_closes += 1;
            if self.idle_closes > IDLE_CLOSES {
                effects.give_up = Some("the broker keeps closing the publishing channel");
            }
        } else if let Some(written) = self.turn.take() {
            let suspects = unanswered.drain(..).map(|suspect| Publish { written, ..suspect });
            effects.settled.extend(suspects.map(|suspect| refuse_suspect(suspect, code, text)));
        } else if code == NOT_FOUND && !self.asked_again {
            self.asked_again = true;
            unanswered.extend(self.waiting.drain(..));
            self.waiting = unanswered.into();
        } else {
            self.suspects = unanswered.into();
        }
    }
}

impl OwnChannel for Publisher {
    fn take_outgoing(&self, out: &mut BytesMut) {
        let mut state = self.lock();
        state.announced = false;
        state.window.written();
        switch::hand_over(&mut state.out, out);
    }

    fn incoming(self: Arc<Self>, kind: u8, payload: &[u8]) {
        match decode::read(kind, payload) {
            Some(Payload::Method(method)) => {
                self.act(|state, effects| state.hear(method, &self, effects));
            }
            Some(Payload::Content { size, properties }) => {
                self.lock().hear_content(size, properties);
            }
            Some(Payload::Body(part)) => {
                if let Some(listener) = &mut self.lock().listener {
                    listener.body(part);
                }
            }
            None => self.core.give_up(NOT_AMQP),
        }
    }

    fn end(self: Arc<Self>, reason: &str) {
        self.act(|state, effects| {
            state.phase = Phase::Ended(reason.to_owned());
            state.out.clear();
            state.ready = None;
            state.stop_hearing(ConsumeEnd::Lost(reason.to_owned()));
            let left = state.window.take().into_iter();
            let left = left.chain(state.suspects.drain(..)).chain(state.waiting.drain(..));
            let left = left.chain(state.exchanges.take_held());
            effects.settled.extend(left.map(|publish| lose(publish, reason)));
        });
    }
}

/// The verdict on a message during whose turn the channel closed.
fn refuse_suspect(suspect: Publish, code: u16, text: &str) -> Settled {
    match error::of_reply("", code, text).kind() {
        // A channel that ends for another reason leaves the message's fate open.
        ErrorKind::Lost => lose(Publish { written: true, ..suspect }, text),
        // What is there, and who may use it, may have been different when it was written before.
        kind @ (ErrorKind::NotFound | ErrorKind::Refused) => refuse(suspect, kind, text),
        kind => refuse(Publish { written: false, ..suspect }, kind, text),
    }
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Publisher").field("channel", &self.number).finish_non_exhaustive()
    }
}
