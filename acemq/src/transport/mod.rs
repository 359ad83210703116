//! The seam between the library and a broker.
//!
//! Everything above this module speaks in these terms; nothing above it names a client library.
//! A [`Transport`] dials, a [`Link`] is one live connection that ends once and never comes back
//! (who recovers is `connection`), a [`ConsumeChannel`] is one subscription on it. What happens
//! per message is a plain call that hands the work over and never waits, so that no future of a
//! caller's holds anything of the transport's: see [`Link::publish`] and [`ConsumeChannel::ack`].

#[cfg(feature = "amqp")]
mod amqp;
#[cfg(test)]
mod conformance;
mod limits;
mod memory;
mod message;
mod topology;

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};

#[cfg(feature = "amqp")]
pub(crate) use self::amqp::AmqpTransport;
pub(crate) use self::{
    limits::check_texts,
    memory::MemoryTransport,
    message::{Delivery, Outgoing, Properties},
    topology::{BindingSpec, ExchangeSpec, QueueSpec},
};
pub use self::{
    memory::{MemoryBroker, MemoryMessage},
    topology::{ExchangeKind, QueueInfo},
};
use crate::{
    envelope::Headers,
    error::{Error, Result},
};

pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// How a connection is made.
#[derive(Clone, Debug)]
pub(crate) struct DialOptions {
    /// AMQP's `connection_name`, which operators see in the broker's lists.
    pub(crate) connection_name: String,
    /// The bound of each step: dialling, opening a channel, declaring, starting to consume.
    pub(crate) step_timeout: Duration,
    /// The largest body in bytes that is published, instead of what the broker's version takes.
    pub(crate) body_max: Option<usize>,
    /// Whether the connection publishes: it then has a confirm channel from the start.
    pub(crate) publishes: bool,
}

/// A broker that can be dialled, again and again.
pub(crate) trait Transport: Send + Sync + fmt::Debug {
    /// `amqp` or `memory`, as it stands in metrics.
    fn name(&self) -> &'static str;

    /// Makes a connection, within `step_timeout` for each of the broker's addresses; a future that
    /// is dropped or times out leaves no socket, thread or task behind.
    ///
    /// # Errors
    /// `Authentication`, `Connect`, `Config`, `NotFound` (virtual host), `Refused`, `Timeout`,
    /// `Tls`, each naming the address without its secret.
    fn dial(&self, options: DialOptions) -> BoxFuture<'_, Result<Arc<dyn Link>>>;
}

/// What a link is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// Open, and publishing is not paused.
    Open,
    /// Open, and the broker has paused publishing for this reason.
    Blocked(String),
    /// Ended, for this reason. The last state there is.
    Ended(String),
}

/// What the peer allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The negotiated frame size in bytes; a header table must fit one frame.
    pub(crate) frame_max: usize,
    /// The largest body in bytes that the broker's version takes by default.
    pub(crate) body_max: usize,
    pub(crate) streams: Streams,
}

/// What a broker knows of streams, by its version; each of these includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Streams {
    Unknown,
    Known,
    Filtered,
}

/// One live connection to a broker.
///
/// Every method that waits is bounded by the link's `step_timeout` and may be dropped at any
/// await. Declarations and questions run on throwaway channels, since a broker answers them by
/// closing the channel.
pub(crate) trait Link: Send + Sync + fmt::Debug {
    /// The state and its changes.
    fn state(&self) -> watch::Receiver<LinkState>;

    /// Whether the broker has paused publishing.
    fn is_blocked(&self) -> bool {
        matches!(*self.state().borrow(), LinkState::Blocked(_))
    }

    fn limits(&self) -> Limits;

    /// The broker's address, without a secret, for people.
    fn address(&self) -> &str;

    /// Hands a message over for publishing, confirmed. Never waits; the verdict comes through
    /// [`Publish::answer`]. Messages handed over by one task go out in that order; only the first
    /// ones to an exchange wait apart until it is known to exist.
    ///
    /// On a link that has ended, or was dialled without `publishes`, the answer is
    /// [`PublishFailure::Lost`] with `written: false`.
    fn publish(&self, publish: Publish);

    /// Starts to consume.
    ///
    /// # Errors
    /// `NotFound` for a queue that does not exist; `Refused`, `Lost`, `Timeout`.
    fn subscribe(
        &self,
        subscription: Subscription,
    ) -> BoxFuture<'_, Result<Box<dyn ConsumeChannel>>>;

    /// Has replies come that are sent to [`DIRECT_REPLY_TO`] of what is published on this link from
    /// then on. One at a time.
    ///
    /// # Errors
    /// `Unsupported` where there is no such thing, or one already; `Lost`, `Timeout`.
    fn direct_replies(&self) -> BoxFuture<'_, Result<Box<dyn ReplyStream>>>;

    /// Declares an exchange. `Conflict` where it exists with other properties.
    fn declare_exchange<'a>(&'a self, exchange: &'a ExchangeSpec) -> BoxFuture<'a, Result<()>>;

    /// Declares a queue. `Conflict` where it exists with other properties or arguments, naming
    /// the argument and both values. An empty name asks the broker for one.
    fn declare_queue<'a>(&'a self, queue: &'a QueueSpec) -> BoxFuture<'a, Result<QueueInfo>>;

    /// Binds a queue to an exchange. `NotFound` names the one that is missing.
    fn bind_queue<'a>(&'a self, binding: &'a BindingSpec) -> BoxFuture<'a, Result<()>>;

    fn unbind_queue<'a>(&'a self, binding: &'a BindingSpec) -> BoxFuture<'a, Result<()>>;

    /// Asks for a queue without declaring it; `None` where there is none.
    fn inspect_queue<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Result<Option<QueueInfo>>>;

    /// Asks whether an exchange exists.
    fn exchange_exists<'a>(&'a self, exchange: &'a str) -> BoxFuture<'a, Result<bool>>;

    /// Deletes a queue with its messages; one that does not exist is no error.
    fn delete_queue<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Result<()>>;

    /// Deletes an exchange; one that does not exist is no error.
    fn delete_exchange<'a>(&'a self, exchange: &'a str) -> BoxFuture<'a, Result<()>>;

    /// Removes a queue's ready messages and says how many there were.
    fn purge_queue<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Result<u64>>;

    /// Closes the connection in order; afterwards the state is `Ended`. Closing twice is no error.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// A message on its way out.
///
/// `answer` is completed exactly once, also when the caller has gone; the permit is given back at
/// that moment, so that what is outstanding at the broker stays counted.
#[derive(Debug)]
pub(crate) struct Publish {
    pub(crate) message: Arc<Outgoing>,
    pub(crate) answer: PublishAnswer,
    /// Whether the broker may have the message already, from a channel that has ended. The
    /// link's own: whoever hands a message over says `false`.
    #[cfg_attr(not(feature = "amqp"), expect(dead_code, reason = "memory writes at once"))]
    pub(crate) written: bool,
}

impl Publish {
    pub(crate) fn new(message: Arc<Outgoing>, answer: PublishAnswer) -> Self {
        Self { message, answer, written: false }
    }
}

/// Where the verdict on one publish goes.
#[derive(Debug)]
pub(crate) struct PublishAnswer {
    pub(crate) sender: oneshot::Sender<Result<(), PublishFailure>>,
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

impl PublishAnswer {
    /// Gives the permit back, then tells the caller if it still waits; `false` if it does not.
    pub(crate) fn complete(self, verdict: Result<(), PublishFailure>) -> bool {
        drop(self.permit);
        self.sender.send(verdict).is_ok()
    }
}

/// Why a publish did not succeed.
#[derive(Debug)]
pub(crate) enum PublishFailure {
    /// The broker returned it: no queue is bound for it.
    Unroutable { code: u16, reason: String },
    /// The broker answered with a nack.
    #[cfg_attr(not(feature = "amqp"), expect(dead_code, reason = "memory always keeps it"))]
    Rejected,
    /// The broker refused this very message (missing or forbidden exchange, too large, …): unless
    /// the error says that it may have been published before, it was
    /// not published, and sending it again gives the same answer.
    Refused(Error),
    /// The link ended. `written` says whether the message may have reached the broker.
    Lost { written: bool, reason: String },
}

/// Where in a stream to begin, as a subscription's argument, and where a message stands in one, as
/// a delivery's header.
pub(crate) const STREAM_OFFSET: &str = "x-stream-offset";

/// What to consume, and how. That of a stream has the argument [`STREAM_OFFSET`].
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    pub(crate) queue: String,
    pub(crate) prefetch: u16,
    pub(crate) exclusive: bool,
    pub(crate) arguments: Headers,
}

/// One subscription on a channel of its own. Dropping it closes the channel, and the broker takes
/// back what was not settled.
pub(crate) trait ConsumeChannel: Send + fmt::Debug {
    /// The next thing that happens. After [`ConsumeEvent::Ended`] nothing more comes.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<ConsumeEvent>;

    /// A handle for settling deliveries from any task.
    fn settler(&self) -> Arc<dyn Settler>;

    /// Stops new deliveries (basic.cancel) and waits for the broker's answer. What had arrived
    /// before still comes out of `poll_next`, then `Ended(Cancelled)`.
    fn cancel(&mut self) -> BoxFuture<'_, Result<()>>;

    /// Consumes again after [`cancel`](Self::cancel), on the same channel: what was delivered
    /// before is still settled on it. After an error the channel is of no use.
    fn resume(&mut self, prefetch: u16) -> BoxFuture<'_, Result<()>>;

    /// Changes the prefetch without a gap in consuming. What is out by then may come on top of it
    /// until it is settled. Not for an exclusive subscription. After an error the channel is of no
    /// use.
    fn set_prefetch(&mut self, prefetch: u16) -> BoxFuture<'_, Result<()>>;

    /// Makes sure that the broker has taken every settlement handed over before, then closes the
    /// channel.
    fn close(self: Box<Self>) -> BoxFuture<'static, ()>;

    /// As [`close`](Self::close), where order matters: what is not settled goes back in its order, and
    /// nobody is given what comes behind it before. It is never cancelled. A quorum queue that is told
    /// to cancel a consumer hands what comes next to another one at once, and takes back what this one
    /// had when its channel closes; as the channel closes both happen in one step (measured on
    /// RabbitMQ 3.10 and 4.0 while messages kept coming). `alone` says that the queue has a single
    /// active consumer.
    fn leave(self: Box<Self>, alone: bool) -> BoxFuture<'static, ()>;
}

/// Where replies to a request go that are to come on the channel it was published on. A reply's own
/// address begins with this, and a dot.
pub(crate) const DIRECT_REPLY_TO: &str = "amq.rabbitmq.reply-to";

/// Replies that come without a queue, and need no acks. Dropping it ends it.
pub(crate) trait ReplyStream: Send + fmt::Debug {
    /// As [`ConsumeChannel::poll_next`].
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<ConsumeEvent>;
}

/// Settles deliveries of one channel. Nothing here waits, and what comes after the channel's end
/// is dropped: the broker has taken those deliveries back.
pub(crate) trait Settler: Send + Sync + fmt::Debug {
    /// Whether the channel still lives. Once it does not, every delivery of it comes again.
    fn is_open(&self) -> bool;

    /// `false` if the channel has ended, so that the delivery will come again.
    fn ack(&self, tag: u64) -> bool;

    /// `false` if the channel has ended.
    fn nack(&self, tag: u64, requeue: bool) -> bool;
}

/// What comes out of a subscription.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly every event is a delivery: no box for each")]
pub(crate) enum ConsumeEvent {
    Delivery(Delivery),
    Ended(ConsumeEnd),
}

/// Why a subscription ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConsumeEnd {
    /// We cancelled it.
    Cancelled,
    /// The broker cancelled it: the queue was deleted, or its node went.
    CancelledByBroker,
    /// The channel or the link was lost, for this reason.
    Lost(String),
}

impl fmt::Display for ConsumeEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cancelled => "the subscription was cancelled",
            Self::CancelledByBroker => {
                "the broker cancelled the consumer; its queue was deleted or its node went"
            }
            Self::Lost(reason) => reason,
        })
    }
}
