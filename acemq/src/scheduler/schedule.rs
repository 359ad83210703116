//! Where scheduled messages of one type go, and in which form.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use super::{ScheduleMessage, Scheduler, send::Due};
use crate::{
    codec::{Encode, Json},
    publish::Publisher,
};

/// Schedules messages of type `T` to one exchange under one routing key, from [`Scheduler::to`].
/// Cheap to clone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> acemq::Result<()> {
/// use std::time::Duration;
/// use acemq::Text;
///
/// # let mq = acemq::connect("memory://schedule-example").await?;
/// # mq.declare_queue(&acemq::Queue::new("invoices.due")).await?;
/// let scheduler = mq.scheduler().await?;
/// let invoices = scheduler.to::<String>("", "invoices.due").codec(Text).message_type("invoice.due");
/// invoices.after(Duration::from_secs(30 * 86_400), &"i-7".to_owned()).id("i-7:due").await?;
/// # assert_eq!(scheduler.counters().scheduled, 1);
/// # mq.close().await
/// # }
/// ```
#[must_use = "nothing is scheduled by this alone"]
pub struct Schedule<T, C = Json> {
    scheduler: Scheduler,
    publisher: Publisher<T, C>,
}

impl<T> Schedule<T> {
    pub(super) fn new(scheduler: Scheduler, publisher: Publisher<T>) -> Self {
        Self { scheduler, publisher }
    }
}

impl<T, C> Schedule<T, C> {
    /// The same with another codec. Default [`Json`].
    pub fn codec<D>(self, codec: D) -> Schedule<T, D> {
        Schedule { scheduler: self.scheduler, publisher: self.publisher.codec(codec) }
    }

    /// The type of its messages. Default: the routing key.
    pub fn message_type(mut self, message_type: impl Into<String>) -> Self {
        self.publisher = self.publisher.message_type(message_type);
        self
    }

    /// The schema version of its messages, from 1. Default 1.
    pub fn version(mut self, version: u32) -> Self {
        self.publisher = self.publisher.version(version);
        self
    }

    /// Has a payload delivered after that delay; see [`Scheduler::after`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancellation
    /// As there.
    pub fn after<'a>(&'a self, delay: Duration, payload: &'a T) -> ScheduleMessage<'a>
    where
        T: Sync,
        C: Encode<T>,
    {
        let due = Due::after(self.scheduler.inner(), delay);
        ScheduleMessage::new(&self.scheduler, self.publisher.send(payload), due)
    }

    /// Has a payload delivered at that time; see [`Scheduler::at`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancellation
    /// As there.
    pub fn at<'a>(&'a self, time: impl Into<SystemTime>, payload: &'a T) -> ScheduleMessage<'a>
    where
        T: Sync,
        C: Encode<T>,
    {
        let due = Due::at(time.into());
        ScheduleMessage::new(&self.scheduler, self.publisher.send(payload), due)
    }
}

impl<T, C> Clone for Schedule<T, C> {
    fn clone(&self) -> Self {
        Self { scheduler: self.scheduler.clone(), publisher: self.publisher.clone() }
    }
}

impl<T, C> fmt::Debug for Schedule<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedule")
            .field("exchange", &self.publisher.exchange())
            .field("routing_key", &self.publisher.routing_key())
            .finish_non_exhaustive()
    }
}
