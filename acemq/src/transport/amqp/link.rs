//! One connection.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures_util::StreamExt as _;
use lapin::{Channel, Connection, ConnectionStatus, ErrorKind, Event};
use tokio::{
    runtime::Handle,
    sync::{oneshot, watch},
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    consume, declare, error,
    publish::Publisher,
    switch::Tap,
    wire::{CutOnDrop, Line},
};
use crate::{
    error::{Error, Result},
    transport::{
        BindingSpec, BoxFuture, ConsumeChannel, ExchangeSpec, Limits, Link, LinkState, Publish,
        PublishFailure, QueueInfo, QueueSpec, ReplyStream, Subscription,
    },
};

/// How long lapin's thread may take to end after an orderly close.
const PARTING: Duration = Duration::from_millis(200);

/// What a link's parts share.
pub(super) struct Core {
    pub(super) connection: Connection,
    pub(super) step: Duration,
    pub(super) state: watch::Sender<LinkState>,
    pub(super) limits: Limits,
    /// Whom the broker sees in us, if a login says.
    pub(super) user: Option<String>,
    /// The broker's address, without its secret.
    peer: String,
    line: Line,
    pub(super) runtime: Handle,
    /// How many channels the broker has closed, each of which used up a number.
    spent: AtomicU32,
}

impl Core {
    /// Completes when the link has ended, with the reason.
    pub(super) async fn ended(&self) -> String {
        let mut state = self.state.subscribe();
        match state.wait_for(|state| matches!(state, LinkState::Ended(_))).await.as_deref() {
            Ok(LinkState::Ended(reason)) => reason.clone(),
            // The sender lives in `self`.
            _ => "closed".to_owned(),
        }
    }

    /// Why the link ended; `None` while it is open.
    pub(super) fn end(&self) -> Option<String> {
        match &*self.state.borrow() {
            LinkState::Ended(reason) => Some(reason.clone()),
            LinkState::Open | LinkState::Blocked(_) => None,
        }
    }

    /// Ends the link from our side, where it cannot do its work any more.
    pub(super) fn give_up(&self, reason: &str) {
        end(&self.state, reason);
        self.line.cut();
    }

    /// Opens a channel.
    ///
    /// The number of a channel that the broker closed stays unusable in lapin: opening one with
    /// that number fails with the error of the one before it. Once each, so the next is tried.
    /// When such numbers are what the connection has run out of, it has to be replaced.
    pub(super) async fn create_channel(&self) -> lapin::Result<Channel> {
        loop {
            match self.connection.create_channel().await {
                Err(error)
                    if error::ends_channel_only(&error) && self.connection.status().connected() => {
                }
                Err(error) if matches!(error.kind(), ErrorKind::ChannelsLimitReached) => {
                    let most = self.connection.configuration().channel_max();
                    if self.spent.load(Ordering::Relaxed) >= u32::from(most / 2) {
                        self.give_up("the broker has closed so many channels that none are left");
                    }
                    return Err(error);
                }
                opened => return opened,
            }
        }
    }

    /// Notes that a channel ended like this.
    pub(super) fn note_end(&self, error: &lapin::Error) {
        if error::ends_channel_only(error) && error::Reply::of(error).is_some() {
            self.spent.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether the broker has closed so many channels that the next should be thought over.
    pub(super) fn is_short_of_channels(&self) -> bool {
        let most = self.connection.configuration().channel_max();
        self.spent.load(Ordering::Relaxed) > u32::from(most / 8)
    }

    async fn open_channel(&self, action: &str) -> Result<Channel> {
        self.create_channel().await.map_err(|error| self.error(action, &error))
    }

    /// lapin's error in our terms; once the link has ended, that is the reason.
    pub(super) fn error(&self, action: &str, lapin: &lapin::Error) -> Error {
        self.note_end(lapin);
        match self.end() {
            Some(reason) if error::Reply::of(lapin).is_none() => error::lost(action, &reason),
            _ => error::of_channel(action, lapin),
        }
    }

    /// Runs `work` to its end in a task, within the link's bound: dropping the returned future
    /// does not leave it half done, with a channel open.
    pub(super) async fn complete<T: Send + 'static>(
        self: &Arc<Self>,
        action: String,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let (core, bound, what) = (Arc::clone(self), self.step, action.clone());
        self.runtime.spawn(async move {
            let result = tokio::select! {
                result = timeout(bound, work) => {
                    result.unwrap_or_else(|_| Err(error::timed_out(&what, bound)))
                }
                reason = core.ended() => Err(error::lost(&what, &reason)),
            };
            let _ = answer.send(result);
        });
        answered.await.unwrap_or_else(|_| Err(error::lost(&action, "the runtime is shutting down")))
    }

    /// Closes a channel that is no longer wanted, in the background. Left to itself lapin would
    /// close it as well, but where that meets the broker's own closing, or the connection's, it
    /// gives up the whole connection.
    fn discard(&self, channel: Channel) {
        let bound = self.step;
        self.runtime.spawn(async move {
            let _ = timeout(bound, channel.close(200, "OK".into())).await;
        });
    }
}

/// A channel of lapin's that is closed in the background when it is dropped.
pub(super) struct Throwaway {
    pub(super) channel: Channel,
    core: Arc<Core>,
}

impl Throwaway {
    pub(super) async fn open(core: &Arc<Core>, action: &str) -> Result<Self> {
        let channel = core.open_channel(action).await?;
        Ok(Self { channel, core: Arc::clone(core) })
    }
}

impl Drop for Throwaway {
    fn drop(&mut self) {
        if self.channel.status().connected() {
            self.core.discard(self.channel.clone());
        }
    }
}

/// A connection by lapin. Dropping it without [`Link::close`] cuts the connection.
pub(super) struct AmqpLink {
    core: Arc<Core>,
    publisher: Option<Arc<Publisher>>,
    wire: CutOnDrop,
    tap: Arc<Tap>,
    /// The task between the socket, lapin and our own channels. Dropping it closes the socket.
    switch: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl AmqpLink {
    pub(super) fn start(
        connection: Connection,
        wire: CutOnDrop,
        (tap, switch): (Arc<Tap>, AbortOnDropHandle<()>),
        limits: Limits,
        (peer, user): (String, Option<&str>),
        step: Duration,
    ) -> Self {
        let events = connection.events_listener();
        let status = connection.status().clone();
        let initial = if status.blocked() {
            LinkState::Blocked("an alarm at the broker".to_owned())
        } else {
            LinkState::Open
        };
        let core = Arc::new(Core {
            connection,
            step,
            state: watch::Sender::new(initial),
            limits,
            user: user.map(str::to_owned),
            peer,
            line: wire.0.clone(),
            runtime: Handle::current(),
            spent: AtomicU32::new(0),
        });
        tokio::spawn(watch_events(events, status, core.state.clone(), wire.0.clone()));
        let (ending, its_tap) = (Arc::clone(&core), Arc::clone(&tap));
        tokio::spawn(async move { its_tap.end(&ending.ended().await) });
        Self { core, publisher: None, wire, tap, switch: Mutex::new(Some(switch)) }
    }

    /// Opens the publishing channel, within the dial's bound.
    pub(super) async fn open_publisher(&mut self) -> Result<()> {
        let action = "open the publishing channel";
        let channel = Throwaway::open(&self.core, action).await?;
        let (publisher, ready) = Publisher::start(&self.core, channel, &self.tap);
        self.publisher = Some(publisher);
        match ready.await {
            Ok(()) => Ok(()),
            Err(_) => Err(error::lost(action, &self.core.ended().await)),
        }
    }

    fn end(&self, reason: &str) {
        end(&self.core.state, reason);
    }
}

/// Makes `Ended` the last state; the first reason stands.
fn end(state: &watch::Sender<LinkState>, reason: &str) {
    state.send_if_modified(|state| match state {
        LinkState::Ended(_) => false,
        LinkState::Open | LinkState::Blocked(_) => {
            *state = LinkState::Ended(reason.to_owned());
            true
        }
    });
}

/// Follows lapin's events until the connection has ended, then makes sure that nothing of it is
/// left.
async fn watch_events(
    events: impl futures_util::Stream<Item = Event>,
    status: ConnectionStatus,
    state: watch::Sender<LinkState>,
    line: Line,
) {
    let change = |new: LinkState| {
        state.send_if_modified(|state| match state {
            LinkState::Ended(_) => false,
            LinkState::Open | LinkState::Blocked(_) => {
                *state = new;
                true
            }
        });
    };
    let mut events = std::pin::pin!(events);
    let reason = loop {
        let event = tokio::select! {
            biased;
            event = events.next() => event,
            () = line.gone() => None,
        };
        match event {
            Some(Event::ConnectionBlocked(reason)) => change(LinkState::Blocked(reason)),
            Some(Event::ConnectionUnblocked) => change(LinkState::Open),
            // Channels report their end here as well.
            Some(Event::Error(error)) if !status.connected() => break error::reason(&error),
            Some(_) => {}
            None => break "the connection was closed".to_owned(),
        }
    };
    end(&state, &reason);
    line.cut();
}

impl Drop for AmqpLink {
    fn drop(&mut self) {
        self.end("dropped without being closed");
    }
}

impl fmt::Debug for AmqpLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AmqpLink")
            .field("peer", &self.core.peer)
            .field("state", &*self.core.state.borrow())
            .finish_non_exhaustive()
    }
}

impl Link for AmqpLink {
    fn state(&self) -> watch::Receiver<LinkState> {
        self.core.state.subscribe()
    }

    fn limits(&self) -> Limits {
        self.core.limits
    }

    fn address(&self) -> &str {
        &self.core.peer
    }

    fn publish(&self, publish: Publish) {
        match &self.publisher {
            Some(publisher) => publisher.publish(publish),
            None => {
                let reason = "the link does not publish".to_owned();
                publish.answer.complete(Err(PublishFailure::Lost { written: false, reason }));
            }
        }
    }

    fn subscribe(
        &self,
        subscription: Subscription,
    ) -> BoxFuture<'_, Result<Box<dyn ConsumeChannel>>> {
        Box::pin(consume::subscribe(&self.core, &self.tap, subscription))
    }

    fn direct_replies(&self) -> BoxFuture<'_, Result<Box<dyn ReplyStream>>> {
        Box::pin(async {
            let what = "have replies come directly";
            let Some(publisher) = &self.publisher else {
                return Err(error::lost(what, "the link does not publish"));
            };
            let replies: Box<dyn ReplyStream> = Box::new(publisher.listen().await?);
            Ok(replies)
        })
    }

    fn declare_exchange<'a>(&'a self, exchange: &'a ExchangeSpec) -> BoxFuture<'a, Result<()>> {
        Box::pin(declare::exchange(&self.core, exchange))
    }

    fn declare_queue<'a>(&'a self, queue: &'a QueueSpec) -> BoxFuture<'a, Result<QueueInfo>> {
        Box::pin(declare::queue(&self.core, queue))
    }

    fn bind_queue<'a>(&'a self, binding: &'a BindingSpec) -> BoxFuture<'a, Result<()>> {
        Box::pin(declare::bind(&self.core, binding))
    }

    fn unbind_queue<'a>(&'a self, binding: &'a BindingSpec) -> BoxFuture<'a, Result<()>> {
        Box::pin(declare::unbind(&self.core, binding))
    }

    fn inspect_queue<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Result<Option<QueueInfo>>> {
        Box::pin(declare::inspect(&self.core, queue))
    }

    fn exchange_exists<'a>(&'a self, exchange: &'a str) -> BoxFuture<'a, Result<bool>> {
        Box::pin(declare::exchange_exists(&self.core, exchange.to_owned()))
    }

    fn delete_queue<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(declare::delete_queue(&self.core, queue))
    }

    fn delete_exchange<'a>(&'a self, exchange: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(declare::delete_exchange(&self.core, exchange))
    }

    fn purge_queue<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Result<u64>> {
        Box::pin(declare::purge(&self.core, queue))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let connection = &self.core.connection;
            // While the broker has paused the connection lapin writes nothing, not even a close.
            if self.core.end().is_none() && !connection.status().blocked() {
                let _ = timeout(self.core.step, connection.close(200, "OK".into())).await;
            }
            self.end("closed by this side");
            if !connection.status().connected() {
                // lapin's thread is about to end by itself, and logs a cut as an error.
                let _ = timeout(PARTING, self.wire.0.gone()).await;
            }
            self.wire.0.cut();
            // lapin's thread sees the cut at once; the bound is for a machine that stands still.
            let _ = timeout(self.core.step, self.wire.0.gone()).await;
            let switch = self.switch.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(switch) = switch {
                let _ = timeout(self.core.step, switch).await;
            }
        })
    }
}
