//! Handling a message in its turn: it is tried again there, waited for there, or stops what comes
//! behind it, and nothing overtakes it.

use std::{sync::Arc, time::Duration};

use super::{
    ConsumerState, Settlement,
    handle::{Judged, Verdict},
    message::Received,
    order::{Order, OrderedBy, Then, Turn},
    place::Place,
    runtime::{Core, FIRST_PAUSE, LONGEST_PAUSE},
    settle::COMMIT,
    work::{Halt, Task},
};
use crate::{
    backoff::Backoff,
    transport::{Delivery, Settler},
};

impl Core {
    /// Judges a message; where order matters, until there is a verdict that lets the next one have its
    /// turn. The error is that nothing behind it may be handled.
    pub(super) async fn judge_in_turn(
        &self,
        turn: &Turn,
        received: &Arc<Received>,
        place: &Place<'_>,
    ) -> Result<Judged, Halt> {
        if let Turn::Never(text) = turn {
            let verdict = Verdict::Rejected { text: text.clone() };
            return Ok(Judged::new(Arc::clone(received), verdict));
        }
        match &self.order {
            Some(order) => self.judge_in_order(order, Arc::clone(received), place).await,
            None => Ok(self.judge(received, place).await),
        }
    }

    async fn judge_in_order(
        &self,
        order: &Order,
        mut received: Arc<Received>,
        place: &Place<'_>,
    ) -> Result<Judged, Halt> {
        let on_failure = order.on_failure;
        let mut attempts = 1;
        loop {
            let judged = self.judge(&received, place).await;
            let wait = match &judged.verdict {
                Verdict::Failed { reason } if attempts < on_failure.attempts => {
                    attempts += 1;
                    tracing::info!(
                        queue = %self.queue, message_id = received.envelope.id(), reason,
                        "a message failed and is tried again in its turn"
                    );
                    self.counters.settled(Settlement::Retried);
                    let next = received.envelope.next_attempt();
                    received = Arc::new(received.with_envelope(next));
                    on_failure.delay
                }
                Verdict::Failed { reason } if on_failure.then == Then::Stop => {
                    let message_id = received.envelope.id().to_owned();
                    return Err(Halt { message_id, attempts, reason: reason.clone() });
                }
                // None of these is a failure: what is to be known about the message is known later,
                // and what was made of it arrives later.
                Verdict::InProgress => {
                    self.counters.settled(Settlement::InProgress);
                    self.in_progress_wait
                }
                Verdict::Unknown => self.pacing.failed(COMMIT),
                Verdict::Unsent { stop, reason } => {
                    self.counters.copy_failed();
                    let wait = self.pacing.failed(stop);
                    tracing::warn!(
                        queue = %self.queue, message_id = received.envelope.id(), stop, reason,
                        "what was made of a message did not arrive; it is tried again in {wait:?}"
                    );
                    wait
                }
                Verdict::Accepted
                | Verdict::Duplicate
                | Verdict::Failed { .. }
                | Verdict::Parked { .. }
                | Verdict::Rejected { .. }
                | Verdict::Returned
                | Verdict::Undecodable { .. } => return Ok(judged),
            };
            tokio::select! {
                biased;
                () = self.staying_away() => return Ok(Judged::new(received, Verdict::Returned)),
                () = tokio::time::sleep(wait) => {}
            }
            if !place.settler.is_open() {
                return Ok(Judged::new(received, Verdict::Returned));
            }
        }
    }

    /// Waits until the consumer closes, or is to take no messages.
    async fn staying_away(&self) {
        let mut wishes = self.control.wishes();
        tokio::select! {
            () = self.closing.cancelled() => {}
            // The sender is this consumer's own, so it is there.
            _ = wishes.wait_for(|wish| wish.stays_away()) => {}
        }
    }

    /// The turn of a message that is ordered by its payload; `None` if the consumer is to take no
    /// messages before that is known. While the payload cannot be read nothing behind it is looked
    /// at: it might be of the same key.
    pub(super) async fn turn_by_payload(
        &self,
        delivery: &Delivery,
        settler: &dyn Settler,
    ) -> Option<Turn> {
        let received = self.receive(delivery.clone());
        let reading = async {
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
        };
        tokio::select! {
            biased;
            turn = reading => Some(turn),
            () = self.staying_away() => None,
        }
    }

    /// Stops what comes behind a message.
    pub(super) fn halt(&self, task: Task, halt: Halt) {
        let (key, whole) = match (&task.turn, &self.order) {
            (Turn::Of(key), Some(order)) => (Arc::clone(key), order.by == OrderedBy::Queue),
            _ => return,
        };
        let Halt { message_id, attempts, reason } = halt.clone();
        if !self.work.halt(task, halt) {
            return;
        }
        tracing::warn!(
            queue = %self.queue, key = &*key, message_id, attempts, reason,
            "a message failed, and nothing behind it is handled until somebody resumes it"
        );
        if whole {
            self.state.send_replace(ConsumerState::Halted { message_id, attempts, reason });
            self.control.halt();
        }
    }
}
