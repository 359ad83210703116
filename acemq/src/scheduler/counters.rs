//! What a scheduler has done so far.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::telemetry::{ScheduleMeter, ScheduleOutcome};

/// A scheduler's counters at one moment, from [`Scheduler::counters`](super::Scheduler::counters).
///
/// Any scheduler moves any message, so those of one say nothing about what became of what it has
/// scheduled itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SchedulerCounters {
    /// Messages that were scheduled here and are safe on the broker.
    pub scheduled: u64,
    /// Messages that were due and were delivered from here.
    pub delivered: u64,
    /// How often a message was sent on to wait in another queue.
    pub hops: u64,
    /// How often a message was due and could not be delivered. It is tried again every ten seconds.
    pub undelivered: u64,
    /// Messages that cannot be read, and are in the queue `acemq.schedule.due.dlq` with the reason.
    pub rejected: u64,
}

/// Counts for the program and for its metrics.
#[derive(Debug)]
pub(super) struct Counters {
    scheduled: AtomicU64,
    delivered: AtomicU64,
    hops: AtomicU64,
    undelivered: AtomicU64,
    meter: ScheduleMeter,
}

impl Counters {
    pub(super) fn new() -> Self {
        Self {
            scheduled: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            hops: AtomicU64::new(0),
            undelivered: AtomicU64::new(0),
            meter: ScheduleMeter::new(),
        }
    }

    pub(super) fn read(&self) -> SchedulerCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SchedulerCounters {
            scheduled: read(&self.scheduled),
            delivered: read(&self.delivered),
            hops: read(&self.hops),
            undelivered: read(&self.undelivered),
            rejected: 0,
        }
    }

    pub(super) fn scheduled(&self) {
        self.count(&self.scheduled, ScheduleOutcome::Scheduled);
    }

    /// A message was delivered, that late.
    pub(super) fn delivered(&self, late: Duration) {
        self.count(&self.delivered, ScheduleOutcome::Delivered);
        self.meter.late(late);
    }

    pub(super) fn hopped(&self) {
        self.count(&self.hops, ScheduleOutcome::Hopped);
    }

    pub(super) fn undelivered(&self) {
        self.count(&self.undelivered, ScheduleOutcome::Undelivered);
    }

    fn count(&self, counter: &AtomicU64, outcome: ScheduleOutcome) {
        counter.fetch_add(1, Ordering::Relaxed);
        self.meter.record(outcome);
    }
}
