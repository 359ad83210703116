//! Settling, and making sure that the broker has it.
//!
//! What has been written is not yet safe. The broker's channel process passes 32 settlements on to
//! a quorum queue; the others wait in it until the queue has committed those, and are lost if it
//! ends first (measured: 165 to 807 of 10,000 came back, and with a round trip of `basic.qos`
//! before the close still up to 467). What does wait for the queue's log is `basic.cancel`: when
//! it is answered, everything before it has been committed and the rest is on its way, which one
//! more round trip makes sure of (measured: none of 10,000 came back in 20 runs).

use std::time::{Duration, Instant};

use bytes::BytesMut;

use super::channel::{Over, State, SubscriptionChannel};
use crate::transport::{Settler, amqp::encode};

#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    /// How long the queue took to commit.
    commit: Duration,
    /// How many deliveries were settled before that was asked for.
    settled: u64,
}

impl SubscriptionChannel {
    /// What a channel process passes on without waiting for the queue, with a margin.
    const PASSED_ON: u64 = 16;
    /// A pause in which a queue commits, if it has not taken longer before.
    const PAUSE: Duration = Duration::from_millis(20);

    /// Stops the deliveries, and makes sure of what was settled before.
    pub(super) async fn cancel(&self) -> Result<(), Over> {
        let (start, settled) = (Instant::now(), self.lock().settled);
        self.end_consumers().await?;
        self.lock().drain = Some(Drain { commit: start.elapsed(), settled });
        self.round_trip().await
    }

    /// Makes sure of everything that was settled.
    pub(super) async fn flush(&self) -> Result<(), Over> {
        let Some(drain) = self.lock().drain else { return self.cancel().await };
        if self.lock().settled - drain.settled > Self::PASSED_ON {
            // There is nothing left to ask that would wait for the queue's log.
            self.give_time(Self::PAUSE.max(drain.commit * 2)).await?;
        }
        self.round_trip().await
    }

    /// As [`flush`](Self::flush), without cancelling anything: another consumer of this channel's
    /// waits for the queue's log as well. For queues with a single active consumer; of another one's
    /// messages it would be given some.
    pub(super) async fn flush_beside(&self) -> Result<(), Over> {
        let prefetch = self.lock().prefetch;
        self.begin(prefetch).await?;
        self.round_trip().await
    }

    /// As [`flush`](Self::flush), without asking for anything that would change who is given what.
    pub(super) async fn flush_in_time(&self) -> Result<(), Over> {
        self.give_time(Self::PAUSE).await?;
        self.round_trip().await
    }

    /// Gives the queue several times the pause in which it commits. That is likely to be enough, not
    /// sure to be: what is lost nevertheless is delivered again.
    async fn give_time(&self, pause: Duration) -> Result<(), Over> {
        for _ in 0..5 {
            tokio::time::sleep(pause).await;
            self.round_trip().await?;
        }
        Ok(())
    }

    /// Whatever was written before has reached the channel process when this returns.
    async fn round_trip(&self) -> Result<(), Over> {
        let qos =
            |state: &mut State, number| encode::basic_qos(&mut state.out, number, state.prefetch);
        self.answered(self.ask(qos)?).await
    }

    fn settle(&self, write: impl FnOnce(&mut BytesMut, u16)) -> bool {
        let settle = |state: &mut State, number| {
            state.settled += 1;
            write(&mut state.out, number);
        };
        self.write(settle).is_ok()
    }
}

impl Settler for SubscriptionChannel {
    fn is_open(&self) -> bool {
        Self::is_open(self)
    }

    fn ack(&self, tag: u64) -> bool {
        self.settle(|out, number| encode::basic_ack(out, number, tag))
    }

    fn nack(&self, tag: u64, requeue: bool) -> bool {
        self.settle(|out, number| encode::basic_nack(out, number, tag, requeue))
    }
}
