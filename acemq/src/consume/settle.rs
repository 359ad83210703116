//! Settling: the one place that acknowledges.
//!
//! First the copy is confirmed elsewhere, then the original is acknowledged. Where the copy cannot
//! be made, the original goes back to the broker, paced: every return costs a delivery of a quorum
//! queue's limit, and an unpaced one burns twenty of them in a quarter of a second.

use std::{sync::Arc, time::Duration};

use super::{
    Settlement, copies,
    handle::{Judged, Verdict},
    message::Received,
    runtime::Core,
};
use crate::{
    error::ErrorKind,
    retry::Wait,
    topology::{dead_letter_queue, parking_queue},
    transport::{Outgoing, Settler},
};

/// The waits before a message whose copy failed goes back: doubling between these.
const FIRST_RETURN: Duration = Duration::from_secs(1);
const LONGEST_RETURN: Duration = Duration::from_secs(60);

/// One delivery about to be settled.
pub(super) struct Settling<'a> {
    pub(super) core: &'a Core,
    pub(super) settler: &'a dyn Settler,
    pub(super) tag: u64,
}

impl Settling<'_> {
    pub(super) async fn settle(&self, judged: &Judged) -> Settlement {
        let received = &judged.received;
        let core = self.core;
        match &judged.verdict {
            Verdict::Accepted => self.ack(Settlement::Acknowledged),
            Verdict::Duplicate => {
                core.counters.duplicate();
                self.ack(Settlement::Acknowledged)
            }
            Verdict::InProgress => {
                self.hold(core.in_progress_wait).await;
                let copy = copies::unchanged(received, &core.queue);
                self.replace(copy, Settlement::InProgress).await
            }
            Verdict::Failed { reason } => self.retry_or_give_up(received, reason).await,
            Verdict::Rejected { text } => {
                let target = dead_letter_queue(&core.queue);
                let copy = copies::set_aside(received, &target, text, core.client.frame_max());
                self.set_aside(copy, Settlement::Rejected).await
            }
            Verdict::Parked { text } => {
                let target = parking_queue(&core.queue);
                let copy = copies::set_aside(received, &target, text, core.client.frame_max());
                self.set_aside(copy, Settlement::Parked).await
            }
            Verdict::Undecodable { text } => {
                let target = parking_queue(&core.queue);
                let copy = copies::unread(received, &target, text, core.client.frame_max());
                self.set_aside(copy, Settlement::Parked).await
            }
            Verdict::Returned => self.give_back(),
        }
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
            return self.set_aside(copy, Settlement::DeadLettered).await;
        }
        match core.policy.wait(&core.queue, attempt) {
            Wait::InBroker(rung) => {
                let copy = copies::next_attempt(received, &rung.name);
                self.replace(copy, Settlement::Retried).await
            }
            Wait::InConsumer(wait) => {
                self.hold(wait).await;
                let copy = copies::next_attempt(received, &core.queue);
                self.replace(copy, Settlement::Retried).await
            }
        }
    }

    /// Waits, holding the prefetch slot and no handler; not past the closing of the consumer.
    async fn hold(&self, wait: Duration) {
        tokio::select! {
            () = self.core.closing.cancelled() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }

    async fn set_aside(&self, copy: Outgoing, settlement: Settlement) -> Settlement {
        let target = copy.routing_key.clone();
        let settlement = self.replace(copy, settlement).await;
        if settlement == Settlement::Returned && self.settler.is_open() {
            self.core.meter.set_aside_failed(&target);
        }
        settlement
    }

    /// Publishes the copy and acknowledges the original once the copy is known to be in a queue.
    async fn replace(&self, copy: Outgoing, settlement: Settlement) -> Settlement {
        let core = self.core;
        if !self.settler.is_open() {
            // The broker has taken the original back: a copy would double it.
            return Settlement::Returned;
        }
        let target = copy.routing_key.clone();
        let published = tokio::select! {
            published = core.client.publish(Arc::new(copy)) => published,
            () = core.abort.cancelled() => return self.give_back(),
        };
        match published {
            Ok(()) => {
                core.copies_landed();
                self.ack(settlement)
            }
            Err(error) => {
                core.counters.copy_failed();
                let rung_is_gone = error.kind() == ErrorKind::Unroutable
                    && settlement == Settlement::Retried
                    && target != *core.queue;
                if rung_is_gone {
                    core.meter.rung_missing(&target);
                }
                let wait = core.next_return(FIRST_RETURN, LONGEST_RETURN);
                tracing::warn!(
                    queue = %core.queue, target, %error,
                    "the copy of a message did not land; the message goes back in {wait:?}"
                );
                self.hold(wait).await;
                self.give_back()
            }
        }
    }

    fn ack(&self, settlement: Settlement) -> Settlement {
        if self.settler.ack(self.tag) { settlement } else { Settlement::Returned }
    }

    fn give_back(&self) -> Settlement {
        self.settler.nack(self.tag, true);
        Settlement::Returned
    }
}
