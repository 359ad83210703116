//! The task that owns the confirm channel.
//!
//! Publishing never waits for its turn to write: frames are queued in order and their confirms
//! awaited together. A publish is in one place only: in the inbox, held back until its exchange
//! is known to exist, or in flight; so whatever ends the task finds and answers every one.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker, ready},
    time::{Duration, Instant},
};

use futures_util::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};
use lapin::{Channel, Confirmation, message::BasicReturnMessage, options::BasicPublishOptions};
use tokio::sync::mpsc;
use tokio_util::sync::ReusableBoxFuture;

use super::{convert, declare, error, limits, link::Core, returns::Returns, suspects};
use crate::{
    error::{ErrorKind, Result},
    transport::{BoxFuture, Outgoing, Publish, PublishFailure},
};

/// How many publishes are taken from the inbox before the confirms are looked at again.
const BATCH: usize = 64;

/// How many of lapin's futures are kept for the next publishes.
const SPARE: usize = 1_000;

/// How soon a link that is short of channels asks for a missing exchange again.
const ASK_AGAIN: Duration = Duration::from_secs(1);
const MISSING: &str = "the exchange does not exist; declare it first";

/// The handle to the task.
#[derive(Debug)]
pub(super) struct Publisher(mpsc::UnboundedSender<Publish>);

impl Publisher {
    pub(super) fn start(core: Arc<Core>, channel: Channel) -> Self {
        // Unbounded: the permits in the publishes bound it.
        let (sender, inbox) = mpsc::unbounded_channel();
        tokio::spawn(run(core, channel, inbox));
        Self(sender)
    }

    pub(super) fn send(&self, publish: Publish) -> Result<(), mpsc::error::SendError<Publish>> {
        self.0.send(publish)
    }
}

async fn run(core: Arc<Core>, channel: Channel, mut inbox: mpsc::UnboundedReceiver<Publish>) {
    let mut exchanges = Exchanges::default();
    let mut channel = Some(channel);
    while let Some(current) = channel.take() {
        let suspects = Flight::new(&core, &current).run(&mut inbox, &mut exchanges).await;
        if core.end().is_none()
            && let Some(suspects) = suspects
        {
            // An exchange may be what is gone.
            exchanges.known.clear();
            channel = suspects::resolve(&core, suspects).await;
        }
    }
    // Nobody may be left waiting: what is still here never reached lapin.
    inbox.close();
    let reason = core.ended().await;
    let held = exchanges.held.into_values().flatten();
    for publish in held {
        lose(publish, false, &reason);
    }
    while let Some(publish) = inbox.recv().await {
        lose(publish, false, &reason);
    }
}

pub(super) fn lose(publish: Publish, written: bool, reason: &str) {
    publish.answer.complete(Err(PublishFailure::Lost { written, reason: reason.to_owned() }));
}

fn refuse(publish: Publish, kind: ErrorKind, why: &str) {
    let error = limits::about(&publish.message, kind, why);
    publish.answer.complete(Err(PublishFailure::Refused(error)));
}

/// Which exchanges are known to exist, and what waits to hear about others.
#[derive(Default)]
struct Exchanges {
    known: HashSet<String>,
    held: HashMap<String, VecDeque<Publish>>,
    checks: FuturesUnordered<BoxFuture<'static, (String, Result<bool>)>>,
    /// Exchanges that were missing a moment ago.
    missing: HashMap<String, Instant>,
}

impl Exchanges {
    /// Takes a publish whose exchange is not known to exist; gives it back if it is.
    fn hold(&mut self, core: &Arc<Core>, publish: Publish) -> Option<Publish> {
        let exchange = &publish.message.exchange;
        if exchange.is_empty() || self.known.contains(exchange) {
            return Some(publish);
        }
        if let Some(held) = self.held.get_mut(exchange) {
            held.push_back(publish);
            return None;
        }
        // Every "no" uses up a channel number, so one that asks again and again waits.
        if core.is_short_of_channels()
            && let Some(since) = self.missing.get(exchange)
            && since.elapsed() < ASK_AGAIN
        {
            refuse(publish, ErrorKind::NotFound, MISSING);
            return None;
        }
        let (core, name) = (Arc::clone(core), exchange.clone());
        self.checks.push(Box::pin(async move {
            let answer = declare::exchange_exists(&core, name.clone()).await;
            (name, answer)
        }));
        self.held.insert(exchange.clone(), VecDeque::from([publish]));
        None
    }

    /// Gives what was held back for an exchange that exists; answers it where it does not.
    fn decide(&mut self, name: String, answer: Result<bool>) -> VecDeque<Publish> {
        let held = self.held.remove(&name).unwrap_or_default();
        match answer {
            // No answer in time is no answer: the broker may have paused the connection, and the
            // publish itself will tell.
            Err(error) if error.kind() == ErrorKind::Timeout => held,
            Ok(true) => {
                self.known.insert(name);
                held
            }
            Ok(false) => {
                for publish in held {
                    refuse(publish, ErrorKind::NotFound, MISSING);
                }
                self.missing.retain(|_, since| since.elapsed() < ASK_AGAIN);
                self.missing.insert(name, Instant::now());
                VecDeque::new()
            }
            Err(error) if error.kind() == ErrorKind::Lost => {
                for publish in held {
                    lose(publish, false, &error.to_string());
                }
                VecDeque::new()
            }
            Err(error) => {
                for publish in held {
                    refuse(publish, error.kind(), &error.to_string());
                }
                VecDeque::new()
            }
        }
    }
}

type Request<'a> = ReusableBoxFuture<'a, lapin::Result<Confirmation>>;

/// A publish whose confirm has not come.
struct Pending<'a> {
    number: u64,
    request: Option<Request<'a>>,
}

/// A publish whose confirm has come.
struct Confirm<'a> {
    number: u64,
    outcome: Result<Acked, Box<lapin::Error>>,
    /// Some message that was returned, of this publish or another one.
    returned: Option<Box<BasicReturnMessage>>,
    /// For the next publish.
    request: Option<Request<'a>>,
}

#[derive(Clone, Copy)]
enum Acked {
    Ack,
    Nack,
    NotRequested,
}

impl<'a> Future for Pending<'a> {
    type Output = Confirm<'a>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Confirm<'a>> {
        let Some(request) = &mut self.request else { return Poll::Pending };
        let (outcome, returned) = match ready!(request.poll(context)) {
            Ok(Confirmation::Ack(returned)) => (Ok(Acked::Ack), returned),
            Ok(Confirmation::Nack(returned)) => (Ok(Acked::Nack), returned),
            Ok(Confirmation::NotRequested) => (Ok(Acked::NotRequested), None),
            Err(error) => (Err(Box::new(error)), None),
        };
        Poll::Ready(Confirm {
            number: self.number,
            outcome,
            returned: returned.map(Box::new),
            request: self.request.take(),
        })
    }
}

/// What one channel has in flight.
struct Flight<'a> {
    core: &'a Arc<Core>,
    channel: &'a Channel,
    confirms: FuturesUnordered<Pending<'a>>,
    /// lapin's futures are large, and making room for each anew is dear: these are done with.
    spare: Vec<Request<'a>>,
    /// The publishes in order; `None` where one has been answered. The first has the number
    /// `first`.
    window: VecDeque<Option<Publish>>,
    first: u64,
    returns: Returns,
    /// Confirms that have come and are not answered yet.
    come: Vec<Confirm<'a>>,
    nudge: Arc<Nudge>,
}

impl<'a> Flight<'a> {
    fn new(core: &'a Arc<Core>, channel: &'a Channel) -> Self {
        Self {
            core,
            channel,
            confirms: FuturesUnordered::new(),
            spare: Vec::new(),
            window: VecDeque::new(),
            first: 0,
            returns: Returns::default(),
            come: Vec::new(),
            nudge: Arc::new(Nudge::default()),
        }
    }

    /// Publishes until the channel ends; gives what was unanswered then, in order, if the link
    /// goes on.
    async fn run(
        mut self,
        inbox: &mut mpsc::UnboundedReceiver<Publish>,
        exchanges: &mut Exchanges,
    ) -> Option<Vec<Publish>> {
        let mut batch = Vec::with_capacity(BATCH);
        let mut ended = pin!(self.core.ended());
        loop {
            if let Err(error) = self.settle() {
                return self.channel_ended(&error, ended).await;
            }
            tokio::select! {
                biased;
                Some(confirm) = self.confirms.next(), if !self.confirms.is_empty() => {
                    self.come.push(confirm);
                }
                Some((name, answer)) = exchanges.checks.next(), if !exchanges.checks.is_empty() => {
                    for publish in exchanges.decide(name, answer) {
                        self.write(publish);
                    }
                }
                reason = &mut ended => {
                    self.lose_all(&reason);
                    return None;
                }
                taken = inbox.recv_many(&mut batch, BATCH) => {
                    if taken == 0 {
                        // The link was dropped; its end is on the way.
                        let reason = ended.await;
                        self.lose_all(&reason);
                        return None;
                    }
                    for publish in batch.drain(..) {
                        if let Some(publish) = exchanges.hold(self.core, publish) {
                            self.write(publish);
                        }
                    }
                }
            }
        }
    }

    /// Queues a message's frames, unless it can be seen that the broker would not take it.
    fn write(&mut self, publish: Publish) {
        let message = &publish.message;
        let checked = limits::check(message, &self.core.user, self.core.limits)
            .and_then(|()| request(self.channel, message));
        let request = match checked {
            Ok(request) => request,
            Err(error) => {
                publish.answer.complete(Err(PublishFailure::Refused(error)));
                return;
            }
        };
        let number = self.first + self.window.len() as u64;
        self.window.push_back(Some(publish));
        let request = match self.spare.pop() {
            Some(mut spare) => {
                spare.set(request);
                spare
            }
            None => ReusableBoxFuture::new(request),
        };
        // Boxed, and so polled in place: its first poll queues the frames, and has to happen now
        // to keep the order.
        let mut pending = Pending { number, request: Some(request) };
        match Pin::new(&mut pending).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(confirm) => self.come.push(confirm),
            Poll::Pending => self.confirms.push(pending),
        }
    }

    /// Answers the publishes whose confirms have come.
    ///
    /// A confirm is looked at only after lapin has dealt with the whole frame it came in, and
    /// every confirm of that frame has been asked for its returned message.
    fn settle(&mut self) -> Result<(), Box<lapin::Error>> {
        let mut failure = None;
        while !self.come.is_empty() {
            self.collect();
            let seen = self.come.len();
            self.wait_for_frame();
            self.collect();
            for confirm in &mut self.come {
                if let Some(returned) = confirm.returned.take() {
                    self.returns.add(*returned);
                }
            }
            let mut settled: Vec<_> = self.come.drain(..seen).collect();
            settled.sort_unstable_by_key(|confirm| confirm.number);
            for Confirm { number, outcome, request, .. } in settled {
                match outcome {
                    Ok(acked) => self.answer(number, acked),
                    Err(error) => failure = Some(error),
                }
                if self.spare.len() < SPARE {
                    self.spare.extend(request);
                }
            }
        }
        match failure {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Moves every confirm that is there into `come`.
    fn collect(&mut self) {
        let waker = Waker::from(Arc::clone(&self.nudge));
        let mut context = Context::from_waker(&waker);
        loop {
            self.nudge.0.store(false, Ordering::Relaxed);
            while let Poll::Ready(Some(confirm)) = self.confirms.poll_next_unpin(&mut context) {
                self.come.push(confirm);
            }
            // The set takes breaks: only if it was not nudged meanwhile has it looked at all.
            if !self.nudge.0.load(Ordering::Acquire) {
                return;
            }
        }
    }

    /// Returns once lapin's thread has finished the frame it is resolving confirms of: it holds
    /// the lock over them meanwhile, and this takes that lock. Nothing is awaited.
    fn wait_for_frame(&mut self) {
        if let Some(Ok(returned)) = self.channel.wait_for_confirms().now_or_never() {
            // Of publishes whose confirm was dropped, of which there are none.
            for returned in returned {
                self.returns.add(returned);
            }
        }
    }

    fn answer(&mut self, number: u64, acked: Acked) {
        let Some(publish) = self.take(number) else { return };
        let verdict = match (acked, self.returns.take(&publish.message)) {
            (_, Some(unroutable)) => Err(unroutable),
            (Acked::Ack, None) => Ok(()),
            (Acked::Nack, None) => Err(PublishFailure::Rejected),
            (Acked::NotRequested, None) => Err(PublishFailure::Lost {
                written: true,
                reason: "the channel does not confirm".to_owned(),
            }),
        };
        publish.answer.complete(verdict);
    }

    fn take(&mut self, number: u64) -> Option<Publish> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let publish = self.window.get_mut(index)?.take();
        while let Some(None) = self.window.front() {
            self.window.pop_front();
            self.first += 1;
        }
        publish
    }

    /// The channel has ended. If that was all, the unanswered are given back for another try.
    async fn channel_ended(
        mut self,
        error: &lapin::Error,
        ended: Pin<&mut impl Future<Output = String>>,
    ) -> Option<Vec<Publish>> {
        self.core.note_end(error);
        if error::ends_channel_only(error) && self.core.end().is_none() {
            return Some(self.window.drain(..).flatten().collect());
        }
        // lapin is about to say so to the link as well.
        let reason = ended.await;
        self.lose_all(&reason);
        None
    }

    fn lose_all(&mut self, reason: &str) {
        for publish in self.window.drain(..).flatten() {
            lose(publish, true, reason);
        }
    }
}

/// Starts publishing a message; the first poll queues its frames.
pub(super) fn request<'a>(
    channel: &'a Channel,
    message: &Arc<Outgoing>,
) -> Result<impl Future<Output = lapin::Result<Confirmation>> + Send + 'a + use<'a>> {
    let exchange = convert::short(&message.exchange)?;
    let routing_key = convert::short(&message.routing_key)?;
    let properties = convert::properties(&message.properties)?;
    let options =
        BasicPublishOptions { mandatory: message.mandatory, ..BasicPublishOptions::default() };
    let body = message.body.clone();
    Ok(async move {
        channel.basic_publish(exchange, routing_key, options, &body, properties).await?.await
    })
}

/// A waker that remembers.
#[derive(Debug, Default)]
struct Nudge(AtomicBool);

impl Wake for Nudge {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}
