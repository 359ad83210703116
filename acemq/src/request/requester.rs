//! The handle of a running requester.

use std::{fmt, sync::Arc};

use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::{Requests, replies::Replies};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::{connection::Stop, error::Result};

/// Sends requests and gives each its reply, from [`Client::requester`](crate::Client::requester).
/// Cheap to clone; all clones are the same requester.
///
/// It has a reply queue of its own, which goes with it or with its connection, and is made again
/// when the connection was lost, or the queue deleted, while it lives. Requests that were in flight
/// go on waiting then: a reply that is sent afterwards finds its way, and one that went with the
/// queue is missed until the timeout, whose error says so.
///
/// One requester serves any number of callers at once, whatever they ask and whomever, since a
/// reply is matched by the correlation id that only its request had. A second one costs another
/// queue and another channel, and is for who wants to close it apart from the first.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> acemq::Result<()> {
/// use acemq::{HandlerError, Message, Queue};
///
/// async fn price(article: Message<String>) -> Result<u64, HandlerError> {
///     match &**article.payload() {
///         "book" => Ok(1_250),
///         other => Err(HandlerError::fatal(format!("no such article: {other}"))),
///     }
/// }
///
/// let mq = acemq::connect("memory://requester-example").await?;
/// mq.declare_queue(&Queue::new("prices").dead_letters()).await?;
/// let responder = mq.consumer::<String>("prices").concurrency(8).respond(price).await?;
///
/// let requester = mq.requester().await?;
/// let prices = requester.to::<String, u64>("", "prices");
/// assert_eq!(prices.request(&"book".to_owned()).await?, 1_250);
///
/// let error = prices.request(&"dragon".to_owned()).await.unwrap_err();
/// assert_eq!(error.kind(), acemq::ErrorKind::Responder);
/// # drop(responder);
/// # mq.close().await
/// # }
/// ```
///
/// Dropping the last clone, [`Requests`] included, stops it.
#[derive(Clone)]
#[must_use = "dropping a requester stops it"]
pub struct Requester(Arc<Inner>);

pub(super) struct Inner {
    pub(super) replies: Arc<Replies>,
    pub(super) _task: AbortOnDropHandle<()>,
}

/// A requester's counters at one moment, from [`Requester::counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequesterCounters {
    /// Requests whose reply came in time and could be read.
    pub answered: u64,
    /// Requests whose reply did not come in time.
    pub timed_out: u64,
    /// Requests that failed in any other way, those given up by their callers included.
    pub failed: u64,
    /// Replies that nobody waited for: late ones, second ones, and those to nobody's request.
    pub unmatched: u64,
    /// Requests that wait for their reply.
    pub in_flight: u64,
}

impl Requester {
    pub(super) fn new(inner: Inner) -> Self {
        Self(Arc::new(inner))
    }

    pub(super) fn replies(&self) -> &Arc<Replies> {
        &self.0.replies
    }

    /// Requests of type `Q`, answered with an `A`, to whoever responds there; the empty exchange is
    /// the default one, which routes to the queue named by the key. Requests go out in JSON, and
    /// replies are read in the format that each names, unless other codecs are chosen.
    pub fn to<Q, A>(
        &self,
        exchange: impl Into<String>,
        routing_key: impl Into<String>,
    ) -> Requests<Q, A> {
        Requests::new(self.clone(), exchange.into(), routing_key.into())
    }

    /// The queue that replies come to. Another one may take its place after a lost connection.
    #[must_use]
    pub fn reply_queue(&self) -> String {
        (*self.0.replies.queue()).to_owned()
    }

    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> RequesterCounters {
        self.0.replies.read_counters()
    }

    /// Fails every request that waits, at once, with [`ErrorKind::Closed`], and gives the reply
    /// queue up. Every clone is closed with it. Closing twice is no error;
    /// [`Client::close`](crate::Client::close) closes it after the consumers, whose handlers may be
    /// waiting for replies.
    ///
    /// # Errors
    /// None today.
    ///
    /// # Cancellation
    /// Dropping the future does not stop the closing.
    pub async fn close(&self) -> Result<()> {
        let replies = &self.0.replies;
        replies.stop(Instant::now() + replies.client.options().drain_timeout).await
    }
}

impl fmt::Debug for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requester")
            .field("reply_queue", &self.0.replies.queue())
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}
