//! How a replay is set up.

use std::{fmt, future::IntoFuture, sync::Arc, time::Duration};

use super::{
    QueuedMessage, Replay, ReplayOutcome,
    handle::{Filter, Settings},
};
use crate::{
    connection::Client,
    error::{Error, ErrorKind, Result},
    topology::{dead_letter_queue, parking_queue},
    transport::BoxFuture,
};

/// A replay about to be run, from [`Client::replay`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> acemq::Result<()> {
/// use acemq::{Queue, ReplayReason};
///
/// let mq = acemq::connect("memory://replay-example").await?;
/// mq.declare_queue(&Queue::new("orders.new").dead_letters()).await?;
/// # mq.send_to_queue("orders.new.dlq", "o-1").await?;
///
/// let outcome = mq
///     .replay("orders.new") // out of orders.new.dlq, to orders.new
///     .limit(500)
///     .filter(|message| message.reason().is_none_or(|reason| !reason.contains("card declined")))
///     .await?;
/// println!("{outcome}"); // moved 1, skipped 0 (drained)
/// # assert_eq!(outcome.to_string(), "moved 1, skipped 0 (drained)");
/// assert_eq!(outcome.reason, ReplayReason::Drained);
/// # mq.close().await
/// # }
/// ```
///
/// It looks at as many messages as there are when it begins, so that one that fails again meanwhile
/// is not moved twice. Each is published to the queue it failed in, and to no other that might be
/// bound to an exchange; once that is confirmed and routed, the original is acknowledged. The copy
/// is the message as it stands, with the attempt back at 1, the reason taken off, and the headers
/// `acemq-replayed-from`, `acemq-replayed-at` and `acemq-replay-count` put on. The order is kept.
///
/// What the filter declines stays: it is held until the end of the pass and then goes back to its place
/// (of a quorum queue, where that is more than 128 messages, in some order).
/// A broker takes back what was held for longer than its consumer timeout (30 minutes by default),
/// and the pass then fails.
///
/// It is at least once: a crash between the confirm and the acknowledgement leaves a message in both
/// queues, under one id, which an idempotent consumer handles once.
#[must_use = "a replay runs by awaiting it, or by `start`"]
pub struct ReplayBuilder {
    client: Client,
    queue: String,
    from: Option<String>,
    into: Option<String>,
    limit: Option<u64>,
    deadline: Option<Duration>,
    filter: Option<Filter>,
    keep_attempts: bool,
    dry_run: bool,
}

impl Client {
    /// Sets up the return of a queue's dead letters, those in `{queue}.dlq`, to the queue itself.
    pub fn replay(&self, queue: impl Into<String>) -> ReplayBuilder {
        ReplayBuilder {
            client: self.clone(),
            queue: queue.into(),
            from: None,
            into: None,
            limit: None,
            deadline: None,
            filter: None,
            keep_attempts: false,
            dry_run: false,
        }
    }
}

impl ReplayBuilder {
    /// Takes the messages out of `{queue}.parked`: those that could not be read.
    pub fn parked(mut self) -> Self {
        self.from = Some(parking_queue(&self.queue));
        self
    }

    /// Takes the messages out of that queue.
    pub fn out_of(mut self, queue: impl Into<String>) -> Self {
        self.from = Some(queue.into());
        self
    }

    /// Sends the messages to that queue instead of the one they failed in.
    pub fn into_queue(mut self, queue: impl Into<String>) -> Self {
        self.into = Some(queue.into());
        self
    }

    /// How many messages are moved at most. Default: all that are there; at least 1.
    pub fn limit(mut self, messages: u64) -> Self {
        self.limit = Some(messages);
        self
    }

    /// How long it may take. What was published by then has its answer waited for. Default: no limit.
    pub fn deadline(mut self, after: Duration) -> Self {
        self.deadline = Some(after);
        self
    }

    /// Moves only the messages for which this is true. It should be quick: it runs where the
    /// messages come in. If it panics the replay fails, and nothing is lost by it.
    ///
    /// With a filter up to 256 messages beyond the last one that is moved may come to be held and
    /// given back, and are then marked as redelivered.
    pub fn filter(
        mut self,
        wanted: impl Fn(&QueuedMessage) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.filter = Some(Box::new(wanted));
        self
    }

    /// Leaves the attempt and the reason as they are: a message whose attempts were used up then has
    /// one more.
    pub fn keep_attempts(mut self) -> Self {
        self.keep_attempts = true;
        self
    }

    /// Moves nothing and counts what would be moved. With a filter the messages are looked at, and so
    /// marked as redelivered; without one the queue is not touched.
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// Starts it in the background. Has to be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a replay onto the queue it reads from, for a queue without a name and
    /// a limit of 0; [`ErrorKind::Closed`] for a client that is closed. Everything that happens
    /// later, a queue that does not exist among it, is in the [`ReplayOutcome`].
    pub fn start(self) -> Result<Replay> {
        let from = self.from.unwrap_or_else(|| dead_letter_queue(&self.queue));
        let into = self.into.unwrap_or(self.queue);
        let refuse = |kind, why: &str| {
            let text = format!("replay from {from:?} to {into:?}: {why}");
            Err(Error::new(kind, text).with_queue(&*from))
        };
        if from.is_empty() || into.is_empty() {
            return refuse(ErrorKind::Config, "a queue has no name");
        }
        if from == into {
            return refuse(
                ErrorKind::Config,
                "that is the queue it reads from, so it would have no end",
            );
        }
        if self.limit == Some(0) {
            return refuse(ErrorKind::Config, "a limit of 0 moves nothing; it is at least 1");
        }
        if self.client.is_closed() {
            return refuse(ErrorKind::Closed, "the client is closed");
        }
        let settings = Settings {
            from: Arc::from(from),
            into,
            limit: self.limit.unwrap_or(u64::MAX),
            deadline: self.deadline,
            filter: self.filter,
            keep_attempts: self.keep_attempts,
            dry_run: self.dry_run,
        };
        Ok(Replay::start(self.client, settings))
    }
}

/// Runs it to its end. Dropping the future stops it, as dropping a [`Replay`] does.
impl IntoFuture for ReplayBuilder {
    type Output = Result<ReplayOutcome>;
    type IntoFuture = BoxFuture<'static, Result<ReplayOutcome>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { Ok(self.start()?.outcome().await) })
    }
}

impl fmt::Debug for ReplayBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayBuilder")
            .field("queue", &self.queue)
            .field("from", &self.from)
            .field("into", &self.into)
            .field("limit", &self.limit)
            .field("deadline", &self.deadline)
            .field("keep_attempts", &self.keep_attempts)
            .field("dry_run", &self.dry_run)
            .finish_non_exhaustive()
    }
}
