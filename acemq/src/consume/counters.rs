//! What a consumer has done so far.

use std::{
    iter::Sum,
    sync::atomic::{AtomicU64, Ordering},
};

use super::Settlement;

/// A consumer's counters at one moment, from [`Consumer::counters`](super::Consumer::counters), or
/// those of a group, from [`ConsumerGroup::counters`](super::ConsumerGroup::counters).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerCounters {
    /// Deliveries acknowledged after their handler, duplicates included.
    pub acknowledged: u64,
    /// Duplicates acknowledged without running the handler.
    pub duplicates: u64,
    /// Messages sent on to their next attempt, or tried again in their place.
    pub retried: u64,
    /// Messages in the dead-letter queue because the handler said so, or because they could not be put
    /// in the order that was asked for: no attempt decided it.
    pub rejected: u64,
    /// Messages in the dead-letter queue because their attempts or their age ran out.
    pub dead_lettered: u64,
    /// Messages in the parking queue.
    pub parked: u64,
    /// Rounds of messages that somebody else was handling.
    pub in_progress: u64,
    /// Deliveries given back to the broker, or lost with their channel; and, where order matters, rounds
    /// of messages that stay in their place because what was made of them did not arrive.
    pub returned: u64,
    /// Messages that failed where order matters, and that nothing may overtake: how often a key or a
    /// partition has halted.
    pub halted: u64,
    /// Copies that did not reach a dead-letter, parking or waiting queue: their originals were
    /// given back.
    pub copies_failed: u64,
    /// Deliveries taken and not yet settled.
    pub in_flight: u64,
    /// Of those, the ones that wait for an idempotency store that is down.
    pub waiting_for_store: u64,
}

impl Sum for ConsumerCounters {
    fn sum<I: Iterator<Item = Self>>(counters: I) -> Self {
        counters.fold(Self::default(), |sum, one| Self {
            acknowledged: sum.acknowledged + one.acknowledged,
            duplicates: sum.duplicates + one.duplicates,
            retried: sum.retried + one.retried,
            rejected: sum.rejected + one.rejected,
            dead_lettered: sum.dead_lettered + one.dead_lettered,
            parked: sum.parked + one.parked,
            in_progress: sum.in_progress + one.in_progress,
            returned: sum.returned + one.returned,
            halted: sum.halted + one.halted,
            copies_failed: sum.copies_failed + one.copies_failed,
            in_flight: sum.in_flight + one.in_flight,
            waiting_for_store: sum.waiting_for_store + one.waiting_for_store,
        })
    }
}

/// The members of a group count together.
#[derive(Debug, Default)]
pub(super) struct Counters {
    acknowledged: AtomicU64,
    duplicates: AtomicU64,
    retried: AtomicU64,
    rejected: AtomicU64,
    dead_lettered: AtomicU64,
    parked: AtomicU64,
    in_progress: AtomicU64,
    returned: AtomicU64,
    halted: AtomicU64,
    copies_failed: AtomicU64,
    in_flight: AtomicU64,
    waiting_for_store: AtomicU64,
}

impl Counters {
    pub(super) fn taken(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn let_go(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn waits_for_store(&self) {
        self.waiting_for_store.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn waits_no_more(&self) {
        self.waiting_for_store.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn duplicate(&self) {
        self.duplicates.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn copy_failed(&self) {
        self.copies_failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn settled(&self, settlement: Settlement) {
        let counter = match settlement {
            Settlement::Acknowledged => &self.acknowledged,
            Settlement::Retried => &self.retried,
            Settlement::Rejected => &self.rejected,
            Settlement::DeadLettered => &self.dead_lettered,
            Settlement::Parked => &self.parked,
            Settlement::InProgress => &self.in_progress,
            Settlement::Returned => &self.returned,
            Settlement::Halted => &self.halted,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> ConsumerCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ConsumerCounters {
            acknowledged: read(&self.acknowledged),
            duplicates: read(&self.duplicates),
            retried: read(&self.retried),
            rejected: read(&self.rejected),
            dead_lettered: read(&self.dead_lettered),
            parked: read(&self.parked),
            in_progress: read(&self.in_progress),
            returned: read(&self.returned),
            halted: read(&self.halted),
            copies_failed: read(&self.copies_failed),
            in_flight: read(&self.in_flight),
            waiting_for_store: read(&self.waiting_for_store),
        }
    }
}
