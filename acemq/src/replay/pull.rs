//! Reading what stands in a queue, up to a bound, and leaving it there unless it is settled.
//!
//! It subscribes with a window instead of asking for one message after the other (`basic.get`): a
//! round trip for each would make ten thousand dead letters take as many round trips, and on a
//! quorum queue as many commits of its log. What a subscription lacks is an end: it is over when as
//! many messages came as there were at the beginning, or nothing comes and the broker says that
//! nothing is left. Nor does a window know of a bound, so who settles deliveries holds back the
//! acknowledgements that would let the broker hand over more (see `pass`).
//!
//! What is to stay is held unsettled until the reading is over: given back earlier it would come
//! again, at the head. Of such a message only the tag is kept. A window that is full of them is renewed
//! on the same channel, so that their number has no bound but the broker's own: it closes a channel on
//! which a delivery has been unsettled for its consumer timeout, 30 minutes by default.
//!
//! It is given back by nacks, since what the closing of a channel gives back is ready only some time
//! after the broker has answered (measured on RabbitMQ 4), and the next pass would miss it. A quorum
//! queue mixes up what several windows held, in whatever way it is given back: the broker collects the
//! nacks of each window. Dead-letter queues are classic ones, where each message has its place.

use std::{future::poll_fn, sync::Arc, time::Duration};

use tokio::time::{Instant, timeout};

use crate::{
    connection::Client,
    envelope::Headers,
    error::{Error, ErrorKind, Result},
    transport::{ConsumeChannel, ConsumeEnd, ConsumeEvent, Delivery, Link, Settler, Subscription},
};

/// How many deliveries may be here and undecided, and so how many bodies.
const WINDOW: u16 = 256;

/// How long nothing comes before the broker is asked whether anything is left: from the first of
/// these, doubling up to the second.
const FIRST_QUIET: Duration = Duration::from_millis(200);
const LONGEST_QUIET: Duration = Duration::from_secs(2);

/// How long nothing may come from a queue that has messages, beyond the time that publishing may hold
/// up the reader.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);

/// A queue being read.
pub(super) struct Pull {
    channel: Box<dyn ConsumeChannel>,
    link: Arc<dyn Link>,
    queue: Arc<str>,
    window: u16,
    patience: Duration,
    /// Whether some of the messages are settled, which makes room for others.
    settles: bool,
    /// How many messages may still come.
    left: u64,
    /// How many of this window are held.
    in_window: u16,
    /// What goes back.
    held: Vec<u64>,
    reading: Reading,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    Subscribed,
    /// Nothing more is handed over; what was on its way still comes.
    Cancelled,
    Over,
}

/// How many messages are ready in a queue, which has to be there for `doing` something with it.
pub(super) async fn ready(link: &dyn Link, queue: &str, doing: &str) -> Result<u64> {
    match link.inspect_queue(queue).await? {
        Some(info) => Ok(info.messages),
        None => {
            let text = format!("{doing} queue {queue:?}: there is no such queue");
            Err(Error::new(ErrorKind::NotFound, text).with_queue(queue))
        }
    }
}

impl Pull {
    /// Begins to read at most `bound` messages. Where none of them is settled, no other one is touched.
    pub(super) async fn open(
        client: &Client,
        link: Arc<dyn Link>,
        queue: Arc<str>,
        bound: u64,
        settles: bool,
    ) -> Result<Self> {
        let window = window(bound);
        let options = client.options();
        let patience = LONGEST_SILENCE + options.confirm_timeout + options.blocked_timeout;
        let subscription = Subscription {
            queue: queue.as_ref().to_owned(),
            prefetch: window,
            exclusive: false,
            arguments: Headers::new(),
        };
        let channel = link.subscribe(subscription).await?;
        Ok(Self {
            channel,
            link,
            queue,
            window,
            patience,
            settles,
            left: bound,
            in_window: 0,
            held: Vec::new(),
            reading: Reading::Subscribed,
        })
    }

    /// How many of the messages within the bound have no place in the first window.
    pub(super) fn beyond_window(&self) -> u64 {
        self.left.saturating_sub(self.window.into())
    }

    pub(super) fn settler(&self) -> Arc<dyn Settler> {
        self.channel.settler()
    }

    /// The next message; `None` once as many came as were to, or nothing is left. Then nothing more
    /// is handed over.
    ///
    /// Dropped at any await it loses nothing: call it again, or [`stop`](Self::stop).
    pub(super) async fn next(&mut self) -> Result<Option<Delivery>> {
        let silent_since = Instant::now();
        let mut quiet = FIRST_QUIET;
        loop {
            if self.left == 0 {
                self.stop().await;
            }
            if self.reading == Reading::Over {
                return Ok(None);
            }
            if self.reading == Reading::Subscribed && self.is_full() {
                let window = window(self.left);
                // Renewing twice, after this was dropped, does no harm.
                self.channel.set_prefetch(window).await?;
                (self.window, self.in_window) = (window, 0);
            }
            let event = poll_fn(|context| self.channel.poll_next(context));
            match timeout(quiet, event).await {
                Ok(ConsumeEvent::Delivery(delivery)) => {
                    self.left -= 1;
                    return Ok(Some(delivery));
                }
                Ok(ConsumeEvent::Ended(ConsumeEnd::Cancelled)) => self.reading = Reading::Over,
                Ok(ConsumeEvent::Ended(ConsumeEnd::CancelledByBroker)) => {
                    return Err(self.lost("it was deleted, or its node went"));
                }
                Ok(ConsumeEvent::Ended(ConsumeEnd::Lost(reason))) => {
                    return Err(self.lost(&reason));
                }
                Err(_) if self.reading == Reading::Cancelled => {}
                Err(_) if ready(&*self.link, &self.queue, "read").await? == 0 => {
                    self.cancel().await?;
                }
                Err(_) if silent_since.elapsed() > self.patience => return Err(self.silent()),
                Err(_) => quiet = (quiet * 2).min(LONGEST_QUIET),
            }
        }
    }

    /// Whether the window has no room for what may still come, or too little to be fast.
    fn is_full(&self) -> bool {
        let free = self.window.saturating_sub(self.in_window);
        free == 0 || self.settles && free < self.window / 2 && u64::from(free) < self.left
    }

    /// Leaves a message that has come where it is.
    pub(super) fn hold(&mut self, tag: u64) {
        self.in_window = self.in_window.saturating_add(1);
        self.held.push(tag);
    }

    async fn cancel(&mut self) -> Result<()> {
        self.channel.cancel().await?;
        self.reading = Reading::Cancelled;
        Ok(())
    }

    /// Has the broker hand over nothing more. What was on its way stays.
    pub(super) async fn stop(&mut self) {
        let cancelled = match self.reading {
            Reading::Subscribed => self.cancel().await,
            Reading::Cancelled | Reading::Over => Ok(()),
        };
        if let Err(error) = cancelled {
            tracing::debug!(%error, "stopping to read a queue failed; its channel closes instead");
            self.reading = Reading::Over;
        }
        while self.reading != Reading::Over {
            match poll_fn(|context| self.channel.poll_next(context)).await {
                ConsumeEvent::Delivery(delivery) => self.held.push(delivery.tag),
                ConsumeEvent::Ended(_) => self.reading = Reading::Over,
            }
        }
    }

    /// Gives back what was held and this, each to its place, and makes sure of what was settled.
    pub(super) async fn close(mut self, rest: Vec<u64>) {
        self.stop().await;
        self.held.extend(rest);
        self.held.sort_unstable();
        let settler = self.channel.settler();
        for tag in &self.held {
            settler.nack(*tag, true);
        }
        self.channel.close().await;
    }

    fn lost(&self, reason: &str) -> Error {
        let queue = &self.queue;
        Error::new(
            ErrorKind::Lost,
            format!("read queue {queue:?}: {reason}; what was held is back"),
        )
        .with_queue(&**queue)
    }

    fn silent(&self) -> Error {
        let Self { queue, patience, .. } = self;
        Error::new(
            ErrorKind::Timeout,
            format!(
                "read queue {queue:?}: it has messages and gave none for {patience:?}; \
                 another consumer may have it for itself"
            ),
        )
        .with_queue(&**queue)
    }
}

/// The window for at most so many messages.
fn window(bound: u64) -> u16 {
    u16::try_from(bound).map_or(WINDOW, |bound| bound.clamp(1, WINDOW))
}
