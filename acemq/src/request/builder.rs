//! How a requester is set up and started.

use std::{
    fmt,
    future::IntoFuture,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio_util::task::AbortOnDropHandle;

use super::{Requester, replies::Replies, requester::Inner};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::{
    connection::{Client, Stop},
    error::Result,
    transport::BoxFuture,
};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// A requester that starts when it is awaited, from [`Client::requester`].
#[must_use = "a requester starts by awaiting it"]
pub struct RequesterBuilder {
    client: Client,
    timeout: Duration,
    direct: bool,
}

impl Client {
    /// Sets up a requester. One is enough for all that a program asks, of whomever: it has one
    /// reply queue and one channel, and any number of requests in flight. See [`Requester`].
    ///
    /// Awaiting it means that the reply queue is there and its replies are read.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] without the permission to make a queue; [`ErrorKind::Config`] for a
    /// timeout of zero; [`ErrorKind::Closed`] on a closed client; and what the connection meets.
    ///
    /// # Cancellation
    /// Dropping the future before it is done starts nothing.
    pub fn requester(&self) -> RequesterBuilder {
        RequesterBuilder { client: self.clone(), timeout: DEFAULT_TIMEOUT, direct: false }
    }
}

impl RequesterBuilder {
    /// How long its requests wait for their replies, all in all, unless they say otherwise.
    /// Default 30 seconds.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Has replies come without a queue, by RabbitMQ's direct reply-to: on the very channel that
    /// publishes the requests, so nothing has to be made or read for them. It asks no permission
    /// to make a queue, and is a little faster.
    ///
    /// What it gives away: when the connection is lost, or its channel is closed, the requests in
    /// flight can not be answered any more, and fail at once with [`ErrorKind::Lost`]; and no
    /// responder learns that whoever asked is gone. A client has one such requester at a time, and
    /// the memory broker has none: [`ErrorKind::Unsupported`].
    pub fn direct_reply_to(mut self) -> Self {
        self.direct = true;
        self
    }

    async fn run(self) -> Result<Requester> {
        let replies = Arc::new(Replies::new(self.client.clone(), self.timeout, self.direct)?);
        let source = replies.subscribe().await?;
        let task = tokio::spawn(Arc::clone(&replies).run(source));
        let weak: Weak<dyn Stop> = Arc::downgrade(&replies) as Weak<dyn Stop>;
        let task = AbortOnDropHandle::new(task);
        if !self.client.owns_requester(weak) {
            return Err(replies.closed("start a requester"));
        }
        Ok(Requester::new(Inner { replies, _task: task }))
    }
}

impl IntoFuture for RequesterBuilder {
    type Output = Result<Requester>;
    type IntoFuture = BoxFuture<'static, Result<Requester>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl fmt::Debug for RequesterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequesterBuilder")
            .field("timeout", &self.timeout)
            .field("direct", &self.direct)
            .finish_non_exhaustive()
    }
}
