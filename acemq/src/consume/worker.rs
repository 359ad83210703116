//! The workers: each handles one delivery after the other.

use std::{future::poll_fn, panic::AssertUnwindSafe, sync::Arc, task::Poll, time::Duration};

use futures_util::FutureExt as _;
use tracing::Instrument as _;

use super::{
    attempt::Attempt,
    handle::{Judged, Verdict},
    in_order::Stopped,
    message::Received,
    order::Turn,
    place::Place,
    runtime::{Core, GRACE},
    settle::Settling,
    work::{Another, Task},
};
use crate::transport::Delivery;

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
                Ok(Some((delivery, stopped))) => {
                    self.halt(Task { delivery, settler, turn }, *stopped);
                }
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
    ) -> Option<(Delivery, Box<Stopped>)> {
        let tag = delivery.tag;
        let received = Arc::new(self.receive(delivery));
        let _in_flight = InFlight::new(self);
        let attempt = Attempt::begin(self, &received.envelope);
        match self.judge_in_turn(turn, &received, place, attempt).await {
            Ok((judged, attempt)) => {
                let settling = Settling { core: self, settler: place.settler, tag };
                let settle = settling.settle(&judged, || place.give_way());
                let settlement = settle.instrument(attempt.span()).await;
                attempt.settled(self, &judged, settlement);
                None
            }
            Err(stopped) => Some((received.delivery(tag), stopped)),
        }
    }

    /// What has arrived, with its envelope read.
    pub(super) fn receive(&self, delivery: Delivery) -> Received {
        Received::read(delivery, Arc::clone(&self.queue), self.client.clock())
    }

    pub(super) async fn judge(
        &self,
        received: &Arc<Received>,
        place: &Place<'_>,
        attempt: &Attempt,
    ) -> Judged {
        let judge = async {
            tokio::select! {
                biased;
                judged = self.handle.judge(self, Arc::clone(received), place) => judged,
                () = self.past_grace() => Judged::new(Arc::clone(received), Verdict::Returned),
            }
        };
        judge.instrument(attempt.span()).await
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
    fn new(core: &'a Core) -> Self {
        core.counters.taken();
        core.meter.taken();
        Self(core)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.counters.let_go();
        self.0.meter.let_go();
    }
}
