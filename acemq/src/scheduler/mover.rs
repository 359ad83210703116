//! Moving what comes out of the ladder: to where it goes if it is due, and else to its next rung.
//!
//! Nothing is held here while it waits. A message is acknowledged when its next place has it, so a
//! crash in between leaves it in both, under one id.

use std::{sync::Arc, time::Duration};

use super::{
    counters::Counters,
    ladder::{self, Rung},
    scheduled::{self, Scheduled},
};
use crate::{
    backoff::Backoff,
    clock::epoch_millis,
    connection::Client,
    consume::{Moved, Mover, Received, Way},
    error::{Error, ErrorKind, Result},
};

/// The pauses between attempts while the broker takes nothing.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Moves what is in the queue `acemq.schedule.due`.
pub(super) struct DueMover {
    client: Client,
    counters: Arc<Counters>,
}

impl DueMover {
    pub(super) fn new(client: Client, counters: Arc<Counters>) -> Self {
        Self { client, counters }
    }

    async fn hop(&self, received: &Received, rung: &Rung, way: &Way<'_>) -> Result<Moved> {
        let Some(sent) = way.publish(scheduled::hop(received, rung)).await else {
            return Ok(Moved::Kept);
        };
        match sent {
            Ok(()) => {
                self.counters.hopped();
                Ok(Moved::Arrived)
            }
            Err(error) if error.kind() == ErrorKind::TooLarge => {
                Ok(Moved::Refused(format!("it cannot wait in {}: {error}", rung.queue)))
            }
            Err(error) => {
                if is_missing(error.kind()) {
                    way.declare_again().await;
                }
                Err(error)
            }
        }
    }

    /// Delivers a message. What arrives nowhere waits where it holds nothing up, and is tried again.
    async fn deliver(
        &self,
        scheduled: &Scheduled<'_>,
        received: &Received,
        way: &Way<'_>,
    ) -> Result<Moved> {
        let now = self.client.clock().time_of_day();
        let Some(sent) = way.publish(scheduled.delivery(received, now)).await else {
            return Ok(Moved::Kept);
        };
        let error = match sent {
            Ok(()) => {
                self.counters.delivered(self.overdue(scheduled));
                return Ok(Moved::Arrived);
            }
            Err(error) if error.kind() == ErrorKind::TooLarge => {
                return Ok(Moved::Refused(format!("it cannot be delivered: {error}")));
            }
            Err(error) if is_away(&error) => return Err(error),
            Err(error) => error,
        };
        self.counters.undelivered();
        tracing::warn!(
            exchange = ?scheduled.exchange,
            routing_key = ?scheduled.routing_key,
            message_id = received.envelope.id(),
            overdue = ?self.overdue(scheduled),
            %error,
            "a scheduled message is due and could not be delivered; it is tried again every ten \
             seconds"
        );
        self.hop(received, &ladder::AGAIN, way).await
    }

    fn overdue(&self, scheduled: &Scheduled<'_>) -> Duration {
        let now = epoch_millis(self.client.clock().time_of_day());
        u64::try_from(now.saturating_sub(scheduled.due))
            .map_or(Duration::ZERO, Duration::from_millis)
    }
}

impl Mover for DueMover {
    async fn declare(&self) -> Result<()> {
        self.client.declare(&ladder::topology()).await
    }

    async fn move_on(&self, received: &Received, way: Way<'_>) -> Moved {
        let scheduled = match Scheduled::read(&received.properties.headers) {
            Ok(scheduled) => scheduled,
            Err(why) => return Moved::Refused(format!("it is no scheduled message: {why}")),
        };
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            let now = epoch_millis(self.client.clock().time_of_day());
            let moved = match ladder::next(scheduled.due, now) {
                Some(rung) => self.hop(received, rung, &way).await,
                None => self.deliver(&scheduled, received, &way).await,
            };
            match moved {
                Ok(moved) => return moved,
                Err(error) => tracing::warn!(
                    message_id = received.envelope.id(), %error,
                    "a scheduled message could not be moved on; trying again"
                ),
            }
            // No queue counts how often it is taken, and still it is not handed back: whatever is
            // wrong is wrong for all of them.
            if !way.pause(&mut backoff).await {
                return Moved::Kept;
            }
        }
    }
}

/// Whether the ladder is not as it was declared.
pub(super) fn is_missing(error: ErrorKind) -> bool {
    matches!(error, ErrorKind::NotFound | ErrorKind::Unroutable)
}

/// Whether nothing gets through to the broker, so that it says nothing about this message.
fn is_away(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Authentication
        | ErrorKind::Blocked
        | ErrorKind::Closed
        | ErrorKind::Connect
        | ErrorKind::Lost
        | ErrorKind::Tls => true,
        // Unlike a confirm that does not come.
        ErrorKind::Timeout => !error.may_have_been_published(),
        _ => false,
    }
}
