//! Settling: the one place that acknowledges.
//!
//! First the copy is confirmed elsewhere, then the original is acknowledged. Where the copy cannot
//! be made, the original goes back to the broker, paced.

use std::{sync::Arc, time::Duration};

use super::{
    Settlement, copies,
    handle::{Judged, Verdict},
    message::Received,
    runtime::Core,
};
use crate::{
    error::{ErrorKind, Result},
    retry::Wait,
    topology::{dead_letter_queue, parking_queue},
    transport::{BoxFuture, Outgoing, Settler},
};

/// What returns after a commit of unknown outcome are paced by, among the queues that copies go
/// to: no queue is called that.
pub(super) const COMMIT: &str = "";

/// One delivery about to be settled.
pub(super) struct Settling<'a> {
    pub(super) core: &'a Core,
    pub(super) settler: &'a dyn Settler,
    pub(super) tag: u64,
}

impl Settling<'_> {
    /// Settles; `give_way` is called if that has to wait for anything.
    pub(super) async fn settle(&self, judged: &Judged, give_way: impl FnOnce()) -> Settlement {
        let received = &judged.received;
        let core = self.core;
        let frame_max = || core.client.frame_max();
        // Boxed: they are large, and nearly every message needs none.
        let copying: BoxFuture<'_, Settlement> = match &judged.verdict {
            Verdict::Accepted => return self.ack(Settlement::Acknowledged),
            Verdict::Duplicate => {
                core.counters.duplicate();
                return self.ack(Settlement::Acknowledged);
            }
            Verdict::Returned => return self.give_back(),
            Verdict::Unknown => Box::pin(async {
                self.hold(core.pacing.failed(COMMIT)).await;
                self.give_back()
            }),
            Verdict::Unsent { stop, reason } => Box::pin(async move {
                core.counters.copy_failed();
                let wait = core.pacing.failed(stop);
                tracing::warn!(
                    queue = %core.queue, message_id = received.envelope.id(), stop, reason,
                    "what was made of a message did not arrive; the message goes back in {wait:?}"
                );
                self.hold(wait).await;
                self.give_back()
            }),
            Verdict::InProgress => Box::pin(async {
                self.hold(core.in_progress_wait).await;
                let copy = copies::unchanged(received, &core.queue);
                self.replace(copy, Settlement::InProgress).await
            }),
            Verdict::Failed { reason } => Box::pin(self.retry_or_give_up(received, reason)),
            Verdict::Rejected { text } => {
                let target = dead_letter_queue(&core.queue);
                let copy = copies::set_aside(received, &target, text, frame_max());
                Box::pin(self.set_aside(received, copy, text, Settlement::Rejected))
            }
            Verdict::Unmovable { text } => {
                let target = dead_letter_queue(&core.queue);
                let copy = copies::unread(received, &target, text, frame_max());
                Box::pin(self.set_aside(received, copy, text, Settlement::Rejected))
            }
            Verdict::Parked { text } => {
                let target = parking_queue(&core.queue);
                let copy = copies::set_aside(received, &target, text, frame_max());
                Box::pin(self.set_aside(received, copy, text, Settlement::Parked))
            }
            Verdict::Undecodable { text } => {
                let target = parking_queue(&core.queue);
                let copy = copies::unread(received, &target, text, frame_max());
                Box::pin(self.set_aside(received, copy, text, Settlement::Parked))
            }
        };
        give_way();
        copying.await
    }

    async fn retry_or_give_up(&self, received: &Arc<Received>, reason: &str) -> Settlement {
        let core = self.core;
        let attempt = received.envelope.attempt();
        let age = received.envelope.age(core.client.clock().now());
        if !core.policy.retries(attempt, age) {
            let text = if attempt < core.policy.max_attempts() {
                format!(
                    "exceeded the maximum message age of {:?}: {reason}",
                    core.policy.age_limit()
                )
            } else {
                let attempts = if attempt == 1 { "attempt" } else { "attempts" };
                format!("exhausted {attempt} {attempts}: {reason}")
            };
            let target = dead_letter_queue(&core.queue);
            let copy = copies::set_aside(received, &target, &text, core.client.frame_max());
            return self.set_aside(received, copy, &text, Settlement::DeadLettered).await;
        }
        let copy = match core.policy.wait(&core.queue, attempt) {
            Wait::InBroker(rung) => copies::next_attempt(received, &rung.name),
            Wait::InConsumer(wait) => {
                self.hold(wait).await;
                copies::next_attempt(received, &core.queue)
            }
        };
        let settlement = self.replace(copy, Settlement::Retried).await;
        if settlement == Settlement::Retried {
            tracing::info!(
                queue = %core.queue, message_id = received.envelope.id(), attempt, reason,
                "a message failed and is tried again"
            );
        }
        settlement
    }

    /// Waits, holding the prefetch slot and no handler; not past the closing of the consumer.
    async fn hold(&self, wait: Duration) {
        tokio::select! {
            () = self.core.left() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }

    async fn set_aside(
        &self,
        received: &Received,
        copy: Outgoing,
        reason: &str,
        settlement: Settlement,
    ) -> Settlement {
        let target = copy.routing_key.clone();
        let settlement = self.replace(copy, settlement).await;
        if settlement != Settlement::Returned {
            tracing::warn!(
                queue = %self.core.queue, message_id = received.envelope.id(), target, reason,
                "a message was set aside"
            );
        } else if self.settler.is_open() {
            self.core.meter.set_aside_failed(&target);
        }
        settlement
    }

    /// Publishes the copy and acknowledges the original once the copy is known to be in a queue.
    async fn replace(&self, copy: Outgoing, settlement: Settlement) -> Settlement {
        let core = self.core;
        let copy = Arc::new(copy);
        let target = &*copy.routing_key;
        loop {
            let published = tokio::select! {
                biased;
                () = core.abort.cancelled() => return self.give_back(),
                published = self.publish(&copy, settlement) => published,
            };
            let error = match published {
                Ok(true) => {
                    core.pacing.landed(target);
                    return self.ack(settlement);
                }
                Ok(false) => return Settlement::Returned,
                Err(error) => error,
            };
            core.counters.copy_failed();
            let wait = core.pacing.failed(target);
            // Where order matters, going back would let the next message overtake it.
            let stays = core.order.is_some();
            let next = if stays { "is tried again" } else { "goes back" };
            tracing::warn!(
                queue = %core.queue, target, %error,
                "the copy of a message did not land; the message {next} in {wait:?}"
            );
            self.hold(wait).await;
            if !stays || core.closing.is_cancelled() || *core.leaving.borrow() {
                return self.give_back();
            }
        }
    }

    /// `false` where nothing was published because the broker has taken the original back: a copy
    /// would double it.
    async fn publish(&self, copy: &Arc<Outgoing>, settlement: Settlement) -> Result<bool> {
        let core = self.core;
        if !self.settler.is_open() {
            return Ok(false);
        }
        let error = match core.client.publish(Arc::clone(copy)).await {
            Ok(()) => return Ok(true),
            Err(error) => error,
        };
        if error.kind() != ErrorKind::Unroutable {
            return Err(error);
        }
        // Somebody has deleted a queue that this consumer declared.
        if settlement == Settlement::Retried && copy.routing_key != *core.queue {
            core.meter.rung_missing(&copy.routing_key);
        }
        if !core.declare_again().await {
            return Err(error);
        }
        if !self.settler.is_open() {
            return Ok(false);
        }
        core.client.publish(Arc::clone(copy)).await.map(|()| true)
    }

    fn ack(&self, settlement: Settlement) -> Settlement {
        if self.settler.ack(self.tag) { settlement } else { Settlement::Returned }
    }

    /// Where order matters this happens at the end of the consumer or of the channel only, and the
    /// broker puts everything in its place when the channel closes.
    fn give_back(&self) -> Settlement {
        if self.core.order.is_none() {
            self.settler.nack(self.tag, true);
        }
        Settlement::Returned
    }
}
