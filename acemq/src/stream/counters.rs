//! What a stream's consumer has done so far.

use std::sync::atomic::{AtomicU64, Ordering};

/// A stream consumer's counters at one moment, from
/// [`StreamConsumer::counters`](super::StreamConsumer::counters).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamCounters {
    /// Messages that their handler was done with.
    pub handled: u64,
    /// Messages that had taken effect before, in a transaction: the handler did not run, or it had run
    /// here, and it was found out later that its transaction had committed.
    pub duplicates: u64,
    /// Messages that failed or could not be read, and were passed over.
    pub skipped: u64,
    /// Messages that came and did not match the filter.
    pub filtered: u64,
    /// Failed attempts after which there was another.
    pub retried: u64,
    /// How often messages were missing that the stream had removed, see
    /// [`StreamGap`](super::StreamGap).
    pub gaps: u64,
    /// Messages that a handler has begun and that are not decided yet.
    pub in_flight: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) handled: AtomicU64,
    pub(super) duplicates: AtomicU64,
    pub(super) skipped: AtomicU64,
    pub(super) filtered: AtomicU64,
    pub(super) retried: AtomicU64,
    pub(super) gaps: AtomicU64,
    pub(super) in_flight: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    pub(super) fn read(&self) -> StreamCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StreamCounters {
            handled: read(&self.handled),
            duplicates: read(&self.duplicates),
            skipped: read(&self.skipped),
            filtered: read(&self.filtered),
            retried: read(&self.retried),
            gaps: read(&self.gaps),
            in_flight: read(&self.in_flight),
        }
    }
}
