//! The ladder: queues in each of which every message waits equally long.
//!
//! A queue expires messages at its head only. In one with many delays a short one waits behind a
//! long one; here the head of a queue is always the message that is due first.

use std::time::Duration;

use crate::topology::{Exchange, Queue, Topology};

/// The exchange of all scheduled messages.
pub(super) const EXCHANGE: &str = "acemq.schedule";

/// Where a message comes out of the ladder, to be looked at.
pub(super) const DUE: &str = "acemq.schedule.due";

/// A queue, and how long a message stays in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rung {
    pub(super) queue: &'static str,
    pub(super) wait: Duration,
}

const fn rung(queue: &'static str, seconds: u64) -> Rung {
    Rung { queue, wait: Duration::from_secs(seconds) }
}

/// All of them, the longest first.
pub(super) const RUNGS: &[Rung] = &[
    rung("acemq.schedule.1h", 3_600),
    rung("acemq.schedule.10m", 600),
    rung("acemq.schedule.1m", 60),
    AGAIN,
    rung("acemq.schedule.1s", 1),
];

/// Where a message waits that is due and could not be delivered.
pub(super) const AGAIN: Rung = rung("acemq.schedule.10s", 10);

/// Where a message waits next that is due at that time, both in milliseconds since 1970: in the
/// longest queue that does not make it late. `None` where it is due, or would be within a second.
pub(super) fn next(due: i64, now: i64) -> Option<&'static Rung> {
    let remaining = u64::try_from(due.saturating_sub(now)).map(Duration::from_millis).ok()?;
    RUNGS.iter().find(|rung| rung.wait <= remaining)
}

/// The ladder as every library of the family declares it, argument for argument.
pub(super) fn topology() -> Topology {
    let waiting = |rung: &Rung| {
        Queue::new(rung.queue)
            .classic()
            .message_ttl(rung.wait)
            .argument("x-dead-letter-exchange", EXCHANGE)
            .argument("x-dead-letter-routing-key", DUE)
    };
    let queues = RUNGS.iter().map(waiting).chain([Queue::new(DUE).classic()]);
    queues.fold(Topology::new().exchange(Exchange::direct(EXCHANGE)), |topology, queue| {
        let name = queue.spec.name.clone();
        topology.queue(queue).bind(&*name, EXCHANGE, &*name)
    })
}
