//! The reply queue: making it, reading it, and making it again.
//!
//! It belongs to the consuming connection and goes with it, so nothing is left of a requester that
//! died. A queue that was deleted, or lost with its connection, is made again under the same name:
//! a reply that is still on its way finds it. Only where the broker has not seen the end of the old
//! connection, and holds the queue for it, does another name help.
//!
//! With direct reply-to there is no queue: replies come on the publishing channel, and only to what
//! was asked on that very channel.

use std::{
    future::poll_fn,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::{RequesterCounters, waiting::Waiting};
use crate::{
    backoff::Backoff,
    connection::{Client, Stop},
    envelope::{self, CORRELATION, Headers},
    error::{Error, ErrorKind, Result},
    transport::{
        BoxFuture, ConsumeChannel, ConsumeEvent, DIRECT_REPLY_TO, Delivery, Link, QueueSpec,
        ReplyStream, Settler, Subscription,
    },
};

/// The pauses between attempts at reading replies again: doubling between these, with jitter.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Replies that the broker hands over before the first is acknowledged, which each is at once.
const PREFETCH: u16 = 100;

/// Where replies go.
#[derive(Clone, Debug)]
pub(super) enum Address {
    /// To this queue, which is read. The number counts how often it had to be made again: replies
    /// may have gone with the one before.
    Queue {
        name: Arc<str>,
        losses: u64,
    },
    /// Nowhere for the moment.
    Lost {
        reason: String,
    },
    Closed,
}

pub(super) struct Replies {
    pub(super) client: Client,
    pub(super) timeout: Duration,
    pub(super) waiting: Arc<Waiting>,
    pub(super) counters: Counters,
    /// Whether replies come without a queue.
    pub(super) direct: bool,
    address: watch::Sender<Address>,
    name: Mutex<Arc<str>>,
    losses: AtomicU64,
    closing: CancellationToken,
}

/// What replies come out of.
pub(super) enum Source {
    Queue(Box<dyn ConsumeChannel>),
    Direct(Box<dyn ReplyStream>),
}

impl Source {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<ConsumeEvent> {
        match self {
            Self::Queue(channel) => channel.poll_next(context),
            Self::Direct(replies) => replies.poll_next(context),
        }
    }

    /// What acknowledges, where that is needed.
    fn settler(&self) -> Option<Arc<dyn Settler>> {
        match self {
            Self::Queue(channel) => Some(channel.settler()),
            Self::Direct(_) => None,
        }
    }

    async fn close(self) {
        match self {
            Self::Queue(channel) => channel.close().await,
            Self::Direct(replies) => drop(replies),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) answered: AtomicU64,
    pub(super) timed_out: AtomicU64,
    pub(super) failed: AtomicU64,
    unmatched: AtomicU64,
}

impl Replies {
    pub(super) fn new(client: Client, timeout: Duration, direct: bool) -> Result<Self> {
        if timeout.is_zero() {
            return Err(Error::new(
                ErrorKind::Config,
                "start a requester: its timeout is zero, which no reply would meet",
            ));
        }
        let lost = Address::Lost { reason: "not yet subscribed".to_owned() };
        Ok(Self {
            client,
            timeout,
            waiting: Arc::default(),
            counters: Counters::default(),
            address: watch::Sender::new(lost),
            name: Mutex::new(if direct { DIRECT_REPLY_TO.into() } else { new_name() }),
            direct,
            losses: AtomicU64::new(0),
            closing: CancellationToken::new(),
        })
    }

    /// The reply queue's name.
    pub(super) fn queue(&self) -> Arc<str> {
        Arc::clone(&self.name.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn read_counters(&self) -> RequesterCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RequesterCounters {
            answered: read(&self.counters.answered),
            timed_out: read(&self.counters.timed_out),
            failed: read(&self.counters.failed),
            unmatched: read(&self.counters.unmatched),
            in_flight: self.waiting.len() as u64,
        }
    }

    /// How often the reply queue was lost so far.
    pub(super) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }

    /// Where replies to a request go that is sent now; waits while there is no such place. `None`
    /// once the requester is closed.
    pub(super) async fn address(&self) -> Option<(Arc<str>, u64)> {
        let mut address = self.address.subscribe();
        let known = address.wait_for(|address| !matches!(address, Address::Lost { .. })).await;
        match known.as_deref() {
            Ok(Address::Queue { name, losses }) => Some((Arc::clone(name), *losses)),
            _ => None,
        }
    }

    /// Why there is no place for replies.
    pub(super) fn trouble(&self) -> Option<String> {
        match &*self.address.borrow() {
            Address::Lost { reason } => Some(reason.clone()),
            Address::Queue { .. } | Address::Closed => None,
        }
    }

    pub(super) fn closed(&self, what: &str) -> Error {
        let who = if self.client.is_closed() { "client" } else { "requester" };
        Error::new(ErrorKind::Closed, format!("{what}: the {who} is closed"))
    }

    /// Makes the place that replies come to, and begins to read it.
    pub(super) async fn subscribe(&self) -> Result<Source> {
        let source = if self.direct {
            let link = self.client.publishing_link().await?;
            Source::Direct(link.direct_replies().await?)
        } else {
            Source::Queue(self.subscribe_to_queue().await?)
        };
        self.set_address(Address::Queue { name: self.queue(), losses: self.losses() });
        Ok(source)
    }

    async fn subscribe_to_queue(&self) -> Result<Box<dyn ConsumeChannel>> {
        let link = self.client.consuming_link().await?;
        let mut name = self.queue();
        match declare(&*link, &name).await {
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Refused) => {
                // The broker holds it for a connection whose end it has not seen. What is to go
                // there is not for us any more.
                tracing::warn!(queue = %name, %error, "the reply queue is replaced by another");
                name = new_name();
                *self.name.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&name);
                self.waiting.abandon();
                declare(&*link, &name).await?;
            }
            declared => declared?,
        }
        let subscription = Subscription {
            queue: (*name).to_owned(),
            prefetch: PREFETCH,
            exclusive: false,
            arguments: Headers::new(),
        };
        link.subscribe(subscription).await
    }

    pub(super) async fn run(self: Arc<Self>, first: Source) {
        let _ended = Ended(&self);
        let mut next = Some(first);
        loop {
            let mut source = match next.take() {
                Some(source) => source,
                None => tokio::select! {
                    () = self.closing.cancelled() => return,
                    source = self.subscribe_again() => source,
                },
            };
            let reason = tokio::select! {
                biased;
                () = self.closing.cancelled() => return source.close().await,
                reason = self.read(&mut source) => reason,
            };
            drop(source);
            tracing::warn!(queue = %self.queue(), %reason, "the requester lost its reply queue");
            self.losses.fetch_add(1, Ordering::Relaxed);
            self.set_address(Address::Lost { reason });
            if self.direct {
                self.waiting.abandon();
            }
        }
    }

    async fn subscribe_again(&self) -> Source {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            match self.subscribe().await {
                Ok(source) => {
                    tracing::info!(queue = %self.queue(), "the requester has a reply queue again");
                    return source;
                }
                Err(error) => {
                    tracing::warn!(queue = %self.queue(), %error, "no reply queue; trying again");
                    self.set_address(Address::Lost { reason: error.to_string() });
                }
            }
            backoff.pause().await;
        }
    }

    /// Gives replies to those who wait for them, until there are no more; says why.
    async fn read(&self, source: &mut Source) -> String {
        let settler = source.settler();
        loop {
            match poll_fn(|context| source.poll_next(context)).await {
                ConsumeEvent::Delivery(reply) => {
                    let tag = reply.tag;
                    self.give(reply);
                    if let Some(settler) = &settler {
                        settler.ack(tag);
                    }
                }
                ConsumeEvent::Ended(end) => return end.to_string(),
            }
        }
    }

    fn give(&self, reply: Delivery) {
        let correlation_id = envelope::text(&reply.properties.headers, CORRELATION);
        let correlation_id = correlation_id.unwrap_or_default();
        if !self.waiting.answer(&correlation_id, reply) {
            self.counters.unmatched.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(correlation_id, "a reply came that nobody waits for");
        }
    }

    /// Changes the address, unless it is closed for good.
    fn set_address(&self, new: Address) {
        self.address.send_if_modified(|address| {
            let open = !matches!(address, Address::Closed);
            if open {
                *address = new;
            }
            open
        });
    }
}

impl Stop for Replies {
    fn stop(&self, deadline: Instant) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.waiting.close();
            self.closing.cancel();
            let mut address = self.address.subscribe();
            let closed = address.wait_for(|address| matches!(address, Address::Closed));
            // Past the deadline the queue goes with its connection.
            let _ = timeout_at(deadline, closed).await;
            Ok(())
        })
    }
}

/// However the task of a requester ends: nobody waits for it in vain.
struct Ended<'a>(&'a Replies);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.waiting.close();
        self.0.address.send_replace(Address::Closed);
    }
}

fn new_name() -> Arc<str> {
    format!("acemq-reply-{}", uuid::Uuid::new_v4()).into()
}

async fn declare(link: &dyn Link, name: &str) -> Result<()> {
    let queue = QueueSpec {
        name: name.to_owned(),
        durable: false,
        exclusive: true,
        auto_delete: true,
        arguments: Headers::new(),
    };
    link.declare_queue(&queue).await.map(|_| ())
}
