//! The workers: each handles one delivery after the other.

use std::{future::poll_fn, panic::AssertUnwindSafe, sync::Arc, task::Poll, time::Duration};

use futures_util::FutureExt as _;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::{
    Settlement,
    handle::{Judged, Verdict},
    interceptor,
    message::Received,
    order::Turn,
    place::Place,
    runtime::{Core, GRACE},
    settle::Settling,
    work::{Another, Halt, Task},
};
use crate::{telemetry::ConsumeOutcome, transport::Delivery};

/// How long a worker goes on before it lets others run. What its handlers and settlements have
/// woken, such as the connection, may be waiting for this very thread.
const TIME_SLICE: Duration = Duration::from_millis(1);

impl Core {
    /// Starts a worker where one is wanted. It is a task of its own, so that the waiting of its
    /// handlers is nobody else's.
    pub(super) fn start(self: &Arc<Self>, another: Another) {
        if another == Another::Start {
            self.handlers.spawn(Arc::clone(self).take_on());
        }
    }

    /// Handles one delivery after the other, until there is none or one has to wait for its
    /// settlement.
    async fn take_on(self: Arc<Self>) {
        self.work.begun();
        let mut slice = std::time::Instant::now();
        while let Some((task, another)) = self.work.take() {
            if another == Another::Start {
                self.start(another);
                step_back().await;
            }
            let Task { delivery, settler, turn } = task;
            // The broker has taken it back, which the reader of the channel is about to see.
            if !settler.is_open() {
                self.work.done(&turn);
                continue;
            }
            let in_lane = matches!(turn, Turn::Of(_));
            let place = Place::new(&self, &*settler);
            let processed = AssertUnwindSafe(self.process(delivery, &turn, &place)).catch_unwind();
            let processed = processed.await;
            let given = place.is_given();
            match processed {
                Ok(None) => self.work.done(&turn),
                Ok(Some((delivery, halt))) => self.halt(Task { delivery, settler, turn }, halt),
                // Whatever panics here, the worker goes on: somebody has to take what waits.
                Err(_) => {
                    tracing::error!(queue = %self.queue, "a settlement panicked");
                    self.work.done(&turn);
                }
            }
            if given {
                if in_lane {
                    // What was behind it may have come to its turn.
                    self.start(self.work.another());
                }
                return;
            }
            if slice.elapsed() >= TIME_SLICE {
                tokio::task::yield_now().await;
                slice = std::time::Instant::now();
            }
        }
    }

    /// Handles a delivery. The worker's place may be given away meanwhile. What nothing may pass by
    /// comes back, with the reason.
    async fn process(
        &self,
        delivery: Delivery,
        turn: &Turn,
        place: &Place<'_>,
    ) -> Option<(Delivery, Halt)> {
        let started = Instant::now();
        let tag = delivery.tag;
        let received = Arc::new(self.receive(delivery));
        let envelope = &received.envelope;
        let _in_flight = InFlight::new(self, envelope.attempt);
        let span = tracing::info_span!(
            "consume",
            queue = %self.queue,
            message_id = envelope.id,
            message_type = envelope.message_type,
            attempt = envelope.attempt,
            outcome = tracing::field::Empty,
        );
        let processed = async {
            let judged = self.judge_in_turn(turn, &received, place).await?;
            Ok(self.settle(&judged, tag, started, place).await)
        };
        match processed.instrument(span.clone()).await {
            Ok(outcome) => {
                span.record("outcome", outcome.name());
                None
            }
            Err(halt) => {
                span.record("outcome", ConsumeOutcome::Failed.name());
                Some((received.delivery(tag), halt))
            }
        }
    }

    /// What has arrived, with its envelope read.
    pub(super) fn receive(&self, delivery: Delivery) -> Received {
        Received::read(delivery, Arc::clone(&self.queue), self.client.clock())
    }

    pub(super) async fn judge(&self, received: &Arc<Received>, place: &Place<'_>) -> Judged {
        tokio::select! {
            biased;
            judged = self.handle.judge(self, Arc::clone(received), place) => judged,
            () = self.past_grace() => Judged::new(Arc::clone(received), Verdict::Returned),
        }
    }

    async fn settle(
        &self,
        judged: &Judged,
        tag: u64,
        started: Instant,
        place: &Place<'_>,
    ) -> ConsumeOutcome {
        let settling = Settling { core: self, settler: place.settler, tag };
        let settlement = settling.settle(judged, || place.give_way()).await;
        self.counters.settled(settlement);
        let outcome = outcome(settlement);
        self.meter.settled(judged.received.envelope.message_type(), outcome, started.elapsed());
        if let Some(seen) = &judged.seen {
            interceptor::after_handle(self.client.consume_interceptors(), seen, settlement);
        }
        outcome
    }

    /// Past this even a codec or a store that hangs is let go of.
    async fn past_grace(&self) {
        self.abort.cancelled().await;
        tokio::time::sleep(GRACE).await;
    }
}

/// Lets others run. Unlike tokio's own yield this puts the task where other threads find it: the
/// one it has just spawned gets this thread, and may keep it.
async fn step_back() {
    let mut back = false;
    poll_fn(|context| {
        if std::mem::replace(&mut back, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Counts a delivery as in flight until it is settled, or its task has ended in any way.
struct InFlight<'a>(&'a Core);

impl<'a> InFlight<'a> {
    fn new(core: &'a Core, attempt: u32) -> Self {
        core.counters.taken();
        core.meter.taken(attempt);
        Self(core)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.counters.let_go();
        self.0.meter.let_go();
    }
}

fn outcome(settlement: Settlement) -> ConsumeOutcome {
    match settlement {
        Settlement::Acknowledged => ConsumeOutcome::Acked,
        Settlement::Retried => ConsumeOutcome::Retried,
        Settlement::Rejected => ConsumeOutcome::Rejected,
        Settlement::DeadLettered => ConsumeOutcome::DeadLettered,
        Settlement::Parked => ConsumeOutcome::Parked,
        Settlement::InProgress => ConsumeOutcome::InProgress,
        Settlement::Returned => ConsumeOutcome::Failed,
    }
}
