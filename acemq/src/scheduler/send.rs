//! One message on its way to where it waits.

use std::{
    fmt,
    future::IntoFuture,
    sync::atomic::Ordering,
    time::{Duration, SystemTime},
};

use super::{
    Scheduler,
    handle::Inner,
    ladder::{self, Rung},
    mover::is_missing,
    scheduled::{self, LATEST, PREFIX},
};
use crate::{
    clock::epoch_millis,
    envelope,
    error::{Error, ErrorKind, Result},
    publish::{Receipt, SendMessage, draft_options},
    transport::{BoxFuture, Outgoing, check_texts},
};

/// What a frame has to hold beside the headers that a message is scheduled with: the properties,
/// and what the broker writes on it in every waiting queue.
const ROOM: usize = 2_048;

/// When a message is due, in milliseconds since 1970; `None` where that is out of reach.
pub(super) struct Due(Option<i64>);

impl Due {
    pub(super) fn after(scheduler: &Inner, delay: Duration) -> Self {
        let due = scheduler.client.clock().time_of_day().checked_add(delay);
        due.map_or(Self(None), Self::at)
    }

    pub(super) fn at(time: SystemTime) -> Self {
        Self(Some(epoch_millis(time)).filter(|due| *due <= LATEST))
    }
}

/// A message about to be scheduled, from [`Scheduler::after`], [`Scheduler::at`] and their likes.
/// Awaiting it schedules it.
#[must_use = "a message is scheduled by awaiting it"]
pub struct ScheduleMessage<'a> {
    scheduler: &'a Scheduler,
    message: SendMessage<'a>,
    due: Due,
}

impl<'a> ScheduleMessage<'a> {
    pub(super) fn new(scheduler: &'a Scheduler, message: SendMessage<'a>, due: Due) -> Self {
        Self { scheduler, message, due }
    }

    draft_options!(message.draft);

    async fn run(self) -> Result<Receipt> {
        let Self { scheduler, message, due: Due(due) } = self;
        let scheduler = scheduler.inner();
        let Inner { client, counters, .. } = scheduler;
        let prepared = message.confirmed_and_routed().prepare().await?;
        let now = epoch_millis(client.clock().time_of_day());
        let rung = due.and_then(|due| ladder::next(due, now));
        let prepared = prepared.change(|message| {
            check(scheduler, message)?;
            let due = due.ok_or_else(|| {
                let why = "it would be due after the year 9999";
                refused(message, ErrorKind::Encode, why)
            })?;
            let Some(rung) = rung else { return Ok(()) };
            postpone(message, due, rung, client.frame_max())
        })?;
        let receipt = prepared
            // Somebody may have deleted what was declared at the start.
            .send_mended(|error| async move {
                rung.is_some() && is_missing(error) && scheduler.declare_again().await
            })
            .await?;
        counters.scheduled();
        if rung.is_none() {
            counters.delivered(Duration::ZERO);
        }
        Ok(receipt)
    }
}

impl Inner {
    /// Declares the waiting queues again, and says whether they are all there.
    async fn declare_again(&self) -> bool {
        if !self.declares {
            return false;
        }
        let declared = self.client.declare(&ladder::topology()).await;
        if let Err(error) = &declared {
            tracing::warn!(%error, "declaring the scheduler's queues again failed");
        }
        declared.is_ok()
    }
}

/// Finds out now what would keep the message from being delivered later.
fn check(scheduler: &Inner, message: &Outgoing) -> Result<()> {
    if scheduler.closed.load(Ordering::Relaxed) {
        return Err(refused(message, ErrorKind::Closed, "the scheduler is closed"));
    }
    if message.exchange.is_empty() && message.routing_key.is_empty() {
        let why = "it has neither an exchange nor a routing key, so it would reach no queue";
        return Err(refused(message, ErrorKind::Config, why));
    }
    let mut names = message.properties.headers.keys();
    if let Some(name) = names.find(|name| name.starts_with(PREFIX)) {
        let why = format!("its header `{name}` has a name that belongs to schedulers; use another");
        return Err(refused(message, ErrorKind::Encode, &why));
    }
    // On its way to the waiting queue they are headers, which may be longer.
    check_texts(message)
}

fn postpone(message: &mut Outgoing, due: i64, rung: &Rung, frame_max: Option<usize>) -> Result<()> {
    let mut waiting = message.clone();
    scheduled::postpone(&mut waiting, due, rung);
    let headers = envelope::encoded_len(&waiting.properties.headers) + ROOM;
    if let Some(frame_max) = frame_max
        && headers > frame_max
    {
        let why = format!(
            "its headers and what comes to them on the way take {headers} bytes, but a frame holds \
             {frame_max}; put large values into the body"
        );
        return Err(refused(message, ErrorKind::TooLarge, &why));
    }
    *message = waiting;
    Ok(())
}

fn refused(message: &Outgoing, kind: ErrorKind, why: &str) -> Error {
    let id = message.properties.message_id.as_deref().unwrap_or("without id");
    let Outgoing { exchange, routing_key, .. } = message;
    let text = format!(
        "schedule message {id} to exchange \"{exchange}\" with key \"{routing_key}\": {why}; it was \
         not scheduled"
    );
    Error::new(kind, text).with_message_id(id).with_exchange(exchange).with_routing_key(routing_key)
}

impl<'a> IntoFuture for ScheduleMessage<'a> {
    type Output = Result<Receipt>;
    type IntoFuture = BoxFuture<'a, Result<Receipt>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl fmt::Debug for ScheduleMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduleMessage")
            .field("message", &self.message)
            .field("due", &self.due.0)
            .finish_non_exhaustive()
    }
}
