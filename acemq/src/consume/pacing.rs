//! How long a message whose copy failed is held before it goes back to the broker.
//!
//! Every return costs a delivery of a quorum queue's limit, and an unpaced one burns twenty of
//! them in a quarter of a second.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The waits: doubling between these for as long as nothing reaches the target.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// The copies of one consumer that failed one after the other, by the queue they were for: what
/// reaches one queue says nothing about another.
#[derive(Debug, Default)]
pub(super) struct Pacing(Mutex<HashMap<String, u32>>);

impl Pacing {
    /// A copy reached its queue.
    pub(super) fn landed(&self, target: &str) {
        self.failures().remove(target);
    }

    /// A copy did not: how long its original is held.
    pub(super) fn failed(&self, target: &str) -> Duration {
        let mut failures = self.failures();
        let before = failures.entry(target.to_owned()).or_default();
        let wait = FIRST.saturating_mul(1 << (*before).min(16)).min(LONGEST);
        *before = before.saturating_add(1);
        wait
    }

    fn failures(&self) -> MutexGuard<'_, HashMap<String, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_waits_double_up_to_a_minute_for_each_queue_by_itself() {
        let pacing = Pacing::default();
        let waits: Vec<u64> = (0..8).map(|_| pacing.failed("q.dlq").as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);

        pacing.landed("q");
        assert_eq!(pacing.failed("q.dlq").as_secs(), 60);
        assert_eq!(pacing.failed("q.parked").as_secs(), 1);

        pacing.landed("q.dlq");
        assert_eq!(pacing.failed("q.dlq").as_secs(), 1);
    }
}
