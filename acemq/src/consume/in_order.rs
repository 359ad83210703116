//! Handling a message in its place: it is tried again there, waited for there, or stops what comes
//! behind it, and nothing overtakes it.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    ConsumerState, Settlement,
    handle::{Judged, Verdict},
    message::Received,
    order::{Order, OrderedBy, Place, Then},
    runtime::{Core, FIRST_PAUSE, LONGEST_PAUSE},
    settle::COMMIT,
    work::{Halt, Task},
};
use crate::transport::{ConsumeChannel, Delivery, Settler};

impl Core {
    /// Judges a message; where order matters, until there is a verdict that lets the next one have its
    /// turn. The error is that nothing behind it may be handled.
    pub(super) async fn judge_in_place(
        &self,
        place: &Place,
        received: &Arc<Received>,
        settler: &dyn Settler,
    ) -> Result<Judged, Halt> {
        if let Place::Nowhere(text) = place {
            let verdict = Verdict::Rejected { text: text.clone() };
            return Ok(Judged::new(Arc::clone(received), verdict));
        }
        match &self.order {
            Some(order) => self.judge_in_order(order, Arc::clone(received), settler).await,
            None => Ok(self.judge(received, settler).await),
        }
    }

    async fn judge_in_order(
        &self,
        order: &Order,
        mut received: Arc<Received>,
        settler: &dyn Settler,
    ) -> Result<Judged, Halt> {
        let on_failure = order.on_failure;
        let mut attempts = 1;
        loop {
            let judged = self.judge(&received, settler).await;
            let wait = match &judged.verdict {
                Verdict::Failed { reason } if attempts < on_failure.attempts => {
                    attempts += 1;
                    tracing::info!(
                        queue = %self.queue, message_id = received.envelope.id(), reason,
                        "a message failed and is tried again in its place"
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
                // Neither is a failure: what is to be known about the message is known later.
                Verdict::InProgress => {
                    self.counters.settled(Settlement::InProgress);
                    self.in_progress_wait
                }
                Verdict::Unknown => self.pacing.failed(COMMIT),
                Verdict::Accepted
                | Verdict::Duplicate
                | Verdict::Failed { .. }
                | Verdict::Parked { .. }
                | Verdict::Rejected { .. }
                | Verdict::Returned
                | Verdict::Undecodable { .. } => return Ok(judged),
            };
            if !self.waited(wait).await || !settler.is_open() {
                return Ok(Judged::new(received, Verdict::Returned));
            }
        }
    }

    /// Waits; `false` if the consumer closes meanwhile.
    async fn waited(&self, wait: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.closing.cancelled() => false,
            () = tokio::time::sleep(wait) => true,
        }
    }

    /// The place of a message that is ordered by its payload. While that cannot be read nothing behind
    /// it is looked at: it might be of the same key.
    pub(super) async fn place_by_payload(
        &self,
        delivery: &Delivery,
        settler: &dyn Settler,
    ) -> Place {
        let received = self.receive(delivery.clone());
        let mut pause = FIRST_PAUSE;
        while settler.is_open() {
            match self.handle.place(&received).await {
                Ok(place) => return place,
                Err(reason) => tracing::warn!(
                    queue = %self.queue, message_id = received.envelope.id(), reason,
                    "a message cannot be put in order for now; what is behind it waits"
                ),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        // It comes again, and then has a place.
        Place::Free
    }

    /// Stops what comes behind a message.
    pub(super) fn halt(&self, task: Task, halt: Halt) {
        let (key, whole) = match (&task.place, &self.order) {
            (Place::In(key), Some(order)) => (Arc::clone(key), order.by == OrderedBy::Queue),
            _ => return,
        };
        tracing::warn!(
            queue = %self.queue, key = &*key, message_id = halt.message_id,
            attempts = halt.attempts, reason = halt.reason,
            "a message failed, and nothing behind it is handled until somebody resumes it"
        );
        self.work.halt(task, halt);
        if whole {
            self.halting.notify_one();
        }
    }

    /// Gives everything back, each to its place, and waits for somebody to resume, or for the closing.
    pub(super) async fn halt_until_resumed(&self, channel: Box<dyn ConsumeChannel>) {
        let halted = self.work.halted().pop();
        self.work.clear();
        // Makes sure of the settlements before. What is not settled goes back with the channel.
        channel.close().await;
        let Some(halted) = halted else { return };
        let (resume, resumed) = oneshot::channel();
        *self.resume.lock().unwrap_or_else(PoisonError::into_inner) = Some(resume);
        self.state.send_replace(ConsumerState::Halted {
            message_id: halted.message_id,
            attempts: halted.attempts,
            reason: halted.reason,
        });
        tokio::select! {
            biased;
            () = self.closing.cancelled() => {}
            // The sender is dropped by whoever uses it, and by nobody else.
            _ = resumed => {
                tracing::info!(queue = %self.queue, "the consumer is resumed");
                let reason = "it had halted and was resumed".to_owned();
                self.state.send_replace(ConsumerState::Recovering { attempt: 1, reason });
            }
        }
    }
}
