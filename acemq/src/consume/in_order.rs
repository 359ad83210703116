//! Handling a message in its turn: it is tried again there, waited for there, or stops what comes
//! behind it, and nothing overtakes it.

use std::sync::Arc;

use tokio::time::timeout;

use super::{
    Settlement,
    attempt::Attempt,
    handle::{Judged, Verdict},
    message::Received,
    order::{Order, OrderedBy, Then, Turn},
    place::Place,
    runtime::{Core, FIRST_PAUSE, LONGEST_PAUSE, Subscribed},
    settle::COMMIT,
    work::{Halt, Task},
};
use crate::{
    backoff::Backoff,
    transport::{Delivery, Settler},
};

/// A message that failed, and nothing behind it may be handled.
pub(super) struct Stopped {
    judged: Judged,
    attempt: Attempt,
    /// How many there were here.
    attempts: u32,
    reason: String,
}

impl Core {
    /// Judges a message; where order matters, until there is a verdict that lets the next one have its
    /// turn. Gives the attempt that led to it.
    pub(super) async fn judge_in_turn(
        &self,
        turn: &Turn,
        received: &Arc<Received>,
        place: &Place<'_>,
        attempt: Attempt,
    ) -> Result<(Judged, Attempt), Box<Stopped>> {
        if let Turn::Never(text) = turn {
            let verdict = Verdict::Rejected { text: text.clone() };
            return Ok((Judged::new(Arc::clone(received), verdict), attempt));
        }
        match (&self.order, turn) {
            (Some(order), Turn::Of(_)) => {
                self.judge_in_order(order, Arc::clone(received), place, attempt).await
            }
            _ => Ok((self.judge(received, place, &attempt).await, attempt)),
        }
    }

    async fn judge_in_order(
        &self,
        order: &Order,
        mut received: Arc<Received>,
        place: &Place<'_>,
        mut attempt: Attempt,
    ) -> Result<(Judged, Attempt), Box<Stopped>> {
        let on_failure = order.on_failure;
        let mut attempts = 1;
        loop {
            let judged = self.judge(&received, place, &attempt).await;
            let (settlement, wait) = match &judged.verdict {
                Verdict::Failed { reason } if attempts < on_failure.attempts => {
                    attempts += 1;
                    tracing::info!(
                        parent: attempt.span(),
                        queue = %self.queue, message_id = received.envelope.id(), reason,
                        "a message failed and is tried again in its turn"
                    );
                    // As a copy of it would have it.
                    let next = judged.received.envelope.next_attempt();
                    received = Arc::new(received.with_envelope(next));
                    (Settlement::Retried, on_failure.delay)
                }
                Verdict::Failed { reason } if on_failure.then == Then::Stop => {
                    let reason = reason.clone();
                    return Err(Box::new(Stopped { judged, attempt, attempts, reason }));
                }
                // None of these is a failure: what is to be known about the message is known later,
                // and what was made of it arrives later.
                Verdict::InProgress => (Settlement::InProgress, self.in_progress_wait),
                Verdict::Unknown => (Settlement::Returned, self.pacing.failed(COMMIT)),
                Verdict::Unsent { stop, reason } => {
                    self.counters.copy_failed();
                    let wait = self.pacing.failed(stop);
                    tracing::warn!(
                        parent: attempt.span(),
                        queue = %self.queue, message_id = received.envelope.id(), stop, reason,
                        "what was made of a message did not arrive; it is tried again in {wait:?}"
                    );
                    (Settlement::Returned, wait)
                }
                Verdict::Accepted
                | Verdict::Duplicate
                | Verdict::Failed { .. }
                | Verdict::Parked { .. }
                | Verdict::Rejected { .. }
                | Verdict::Returned
                | Verdict::Undecodable { .. }
                | Verdict::Unmovable { .. } => return Ok((judged, attempt)),
            };
            attempt.settled(self, &judged, settlement);
            let left = tokio::select! {
                biased;
                () = self.left() => true,
                () = tokio::time::sleep(wait) => false,
            };
            attempt = Attempt::begin(self, &received.envelope);
            if left || !place.settler.is_open() {
                return Ok((Judged::new(received, Verdict::Returned), attempt));
            }
        }
    }

    /// Waits until the consumer closes, or messages that wait in their turn are to go back.
    pub(super) async fn left(&self) {
        let mut leaving = self.leaving.subscribe();
        tokio::select! {
            () = self.closing.cancelled() => {}
            // The sender is this consumer's own, so it is there.
            _ = leaving.wait_for(|leaving| *leaving) => {}
        }
    }

    /// The turn of a message that is ordered by its payload. While that cannot be read nothing behind
    /// it is looked at: it might be of the same key.
    pub(super) async fn turn_by_payload(&self, delivery: &Delivery, settler: &dyn Settler) -> Turn {
        let received = self.receive(delivery.clone());
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        while settler.is_open() {
            match self.handle.turn(&received).await {
                Ok(turn) => return turn,
                Err(reason) => tracing::warn!(
                    queue = %self.queue, message_id = received.envelope.id(), reason,
                    "a message cannot be put in order for now; what is behind it waits"
                ),
            }
            backoff.pause().await;
        }
        // It comes again, and then has a turn.
        Turn::Any
    }

    /// Leaves a channel once the handlers are done: whoever was given what comes behind their messages
    /// would begin too early. It comes back as it is if the consumer closes meanwhile.
    pub(super) async fn leave_in_order(&self, subscribed: Subscribed) -> Option<Subscribed> {
        self.work.clear();
        self.leaving.send_replace(true);
        self.handlers.close();
        let finished = tokio::select! {
            () = self.closing.cancelled() => false,
            () = self.handlers.wait() => true,
        };
        self.handlers.reopen();
        self.leaving.send_replace(false);
        if !finished {
            return Some(subscribed);
        }
        let bound = self.client.options().connect_timeout;
        // A channel that does not close in time is dropped.
        let _ = timeout(bound, subscribed.channel.leave(self.is_alone())).await;
        // A key that has halted meanwhile went back as well.
        self.work.clear();
        None
    }

    /// Whether all messages of the queue belong together, so that a failure stops the consumer.
    pub(super) fn is_one_lane(&self) -> bool {
        self.order.as_ref().is_some_and(|order| matches!(order.by, OrderedBy::Queue { .. }))
    }

    /// Whether the queue is known to have one active consumer at a time.
    pub(super) fn is_alone(&self) -> bool {
        let alone = OrderedBy::Queue { single_active: true };
        self.order.as_ref().is_some_and(|order| order.by == alone)
    }

    /// Stops what comes behind a message.
    pub(super) fn halt(&self, task: Task, stopped: Stopped) {
        let Turn::Of(key) = &task.turn else { return };
        let key = Arc::clone(key);
        let Stopped { judged, attempt, attempts, reason } = stopped;
        let message_id = judged.received.envelope.id().to_owned();
        let halt = Arc::new(Halt { message_id, attempts, reason, _gauged: self.meter.halted() });
        if !self.work.halt(task, Arc::clone(&halt)) {
            // It comes again.
            return attempt.settled(self, &judged, Settlement::Returned);
        }
        tracing::warn!(
            parent: attempt.span(),
            queue = %self.queue, key = &*key, message_id = halt.message_id, attempts,
            reason = halt.reason,
            "a message failed, and nothing behind it is handled until somebody resumes it"
        );
        attempt.settled(self, &judged, Settlement::Halted);
        if self.is_one_lane() {
            self.control.halt(halt);
        }
    }
}
