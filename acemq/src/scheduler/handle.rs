//! The handle of a scheduler.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use super::{Schedule, ScheduleMessage, SchedulerCounters, counters::Counters, send::Due};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::{
    codec::{Encode, Json},
    connection::Client,
    consume::Consumer,
    error::Result,
};

/// Delivers messages after a delay or at a time, from [`Client::scheduler`]. Cheap to clone; all
/// clones are the same scheduler.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> acemq::Result<()> {
/// use std::time::{Duration, SystemTime};
///
/// let mq = acemq::connect("memory://scheduler-example").await?;
/// # mq.declare_queue(&acemq::Queue::new("reminders")).await?;
/// let scheduler = mq.scheduler().await?;
///
/// let in_four_hours = Duration::from_secs(4 * 3_600);
/// scheduler.after(in_four_hours, "", "reminders", "water the plants").id("plants-7").await?;
///
/// let at = SystemTime::now() + Duration::from_secs(86_400); // or a time with a zone
/// scheduler.at(at, "", "reminders", "feed the cat").await?;
/// # let arrived = async || mq.inspect_queue("reminders").await.map(|queue| queue.unwrap().messages);
/// # tokio::time::sleep(in_four_hours + Duration::from_secs(2)).await;
/// # assert_eq!(arrived().await?, 1);
/// # tokio::time::sleep(Duration::from_secs(20 * 3_600)).await;
/// # assert_eq!(arrived().await?, 2);
/// # mq.close().await
/// # }
/// ```
///
/// **Where messages wait.** On the broker, in queues that every scheduler of the family shares: a
/// restart of the broker or of a service neither loses a message nor changes its wait, and any
/// number of waiting ones costs a process nothing. Any scheduler, in any language, moves any
/// message; there has to be one somewhere. A long delay is hops of an hour and less.
///
/// **When it is delivered.** At most a second early, and about as much late; by the clock of the
/// process that moves it, which ought to agree with that of the one that scheduled it. Of what is
/// due at about the same time nothing is promised about the order.
///
/// **At least once.** A crash between a hop and its acknowledgement doubles a message, under one
/// and the same id, by which an idempotent consumer recognises it. Out of a waiting queue it is the
/// broker that moves a message, without a confirm: what it was moving in the second in which it is
/// killed may be lost.
///
/// **What nobody is there for.** A message that is due and reaches no queue waits on, and is tried
/// again every ten seconds until it is delivered, with a warning each time. It is never thrown away.
///
/// **The envelope** (id, correlation, causation, type, version, headers) is the one given at the
/// scheduling, as long as schedulers of this library move the message. One of another language
/// makes a new one, as they do for their own.
///
/// Dropping the last clone, every [`Schedule`] included, stops it; what waits goes on waiting.
#[derive(Clone)]
#[must_use = "dropping a scheduler stops it"]
pub struct Scheduler(Arc<Inner>);

pub(super) struct Inner {
    pub(super) client: Client,
    pub(super) counters: Arc<Counters>,
    pub(super) declares: bool,
    pub(super) mover: Option<Consumer>,
    pub(super) closed: AtomicBool,
}

impl Scheduler {
    pub(super) fn new(inner: Inner) -> Self {
        Self(Arc::new(inner))
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.0
    }

    /// Has a payload delivered in JSON after that delay to an exchange under a routing key; the
    /// empty exchange is the default one, which routes to the queue named by the key. Awaiting it
    /// means that the message is safe on the broker; options, such as an
    /// [id](ScheduleMessage::id), come before the await. For another codec, and for many messages to
    /// one place, see [`to`](Self::to).
    ///
    /// With less than a second to go it is delivered at once, as [`Publisher::send`] would.
    ///
    /// # Errors
    /// [`ErrorKind::Encode`] for a time after the year 9999 and for headers that begin with
    /// `x-schedule-`; [`ErrorKind::TooLarge`] for headers that would not fit on the way;
    /// [`ErrorKind::Config`] for neither exchange nor routing key; [`ErrorKind::Closed`] once the
    /// scheduler is closed; and whatever [`Publisher::send`] meets. Whether anybody is there to get
    /// the message is found out when it is due.
    ///
    /// # Cancellation
    /// Dropped before the message is handed over, nothing is scheduled; afterwards it is, and its
    /// confirm is not seen.
    ///
    /// [`Publisher::send`]: crate::Publisher::send
    pub fn after<'a, T>(
        &'a self,
        delay: Duration,
        exchange: impl Into<String>,
        routing_key: impl Into<String>,
        payload: &'a T,
    ) -> ScheduleMessage<'a>
    where
        T: Sync + ?Sized,
        Json: Encode<T>,
    {
        self.schedule(Due::after(self.inner(), delay), exchange, routing_key, payload)
    }

    /// As [`after`](Self::after), at that time: a [`SystemTime`], or what becomes one, such as the
    /// zoned times of `time` and `chrono`. What is past is delivered at once.
    ///
    /// # Errors
    /// As [`after`](Self::after).
    ///
    /// # Cancellation
    /// As there.
    pub fn at<'a, T>(
        &'a self,
        time: impl Into<SystemTime>,
        exchange: impl Into<String>,
        routing_key: impl Into<String>,
        payload: &'a T,
    ) -> ScheduleMessage<'a>
    where
        T: Sync + ?Sized,
        Json: Encode<T>,
    {
        self.schedule(Due::at(time.into()), exchange, routing_key, payload)
    }

    fn schedule<'a, T>(
        &'a self,
        due: Due,
        exchange: impl Into<String>,
        routing_key: impl Into<String>,
        payload: &'a T,
    ) -> ScheduleMessage<'a>
    where
        T: Sync + ?Sized,
        Json: Encode<T>,
    {
        let message = self.0.client.send_json(exchange.into(), routing_key.into(), payload);
        ScheduleMessage::new(self, message, due)
    }

    /// Schedules messages that carry a `T` to one exchange under one routing key, in JSON unless
    /// another codec is chosen.
    pub fn to<T>(
        &self,
        exchange: impl Into<String>,
        routing_key: impl Into<String>,
    ) -> Schedule<T> {
        Schedule::new(self.clone(), self.0.client.publisher(exchange, routing_key))
    }

    /// The consumer of what comes out of the waiting queues, which can be looked at, paused and
    /// changed as any other. `None` for a scheduler that moves nothing.
    #[must_use = "nothing is changed by this alone"]
    pub fn consumer(&self) -> Option<&Consumer> {
        self.0.mover.as_ref()
    }

    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> SchedulerCounters {
        let rejected = self.consumer().map_or(0, |mover| mover.counters().rejected);
        SchedulerCounters { rejected, ..self.0.counters.read() }
    }

    /// Stops it, all its clones: nothing more is scheduled, what is being moved gets where it goes,
    /// within the client's drain timeout, and the rest goes back. The queues stay, and what waits in
    /// them.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`] when messages were still being moved at the bound: they go back, and
    /// some of them may have arrived as well. It is closed all the same.
    ///
    /// # Cancellation
    /// Dropping the future does not stop the closing.
    pub async fn close(&self) -> Result<()> {
        self.0.closed.store(true, Ordering::Relaxed);
        match self.consumer() {
            Some(mover) => mover.close().await,
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler")
            .field("state", &self.consumer().map(Consumer::state))
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}
