//! How an outbox store wakes its relay.
//!
//! [`add`](OutboxSignal::arm) runs before the caller's commit, so it cannot announce the record;
//! it arms the relay with the record's id, and the relay looks at short, growing intervals until
//! it has seen it or the poll interval is reached.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::Notify;

/// The most ids that are awaited one by one; beyond that the relay is busy anyway.
const MAX_ARMED: usize = 10_000;

/// A wire between a store and its relay. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct OutboxSignal(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    changed: Notify,
    armed: Mutex<HashSet<String>>,
}

impl OutboxSignal {
    /// A signal that nobody has armed.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Says that a record was added in a transaction that may commit soon.
    pub fn arm(&self, id: &str) {
        {
            let mut armed = self.armed();
            if armed.len() < MAX_ARMED {
                armed.insert(id.to_owned());
            }
        }
        self.0.changed.notify_one();
    }

    /// Says that something has committed: the relay looks at once.
    pub fn wake(&self) {
        self.0.changed.notify_one();
    }

    /// Waits for the next [`arm`](Self::arm) or [`wake`](Self::wake), also one that came before.
    pub(crate) async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// Whether a record is still awaited.
    pub(crate) fn is_armed(&self) -> bool {
        !self.armed().is_empty()
    }

    /// Takes a record that was seen off the list.
    pub(crate) fn seen(&self, id: &str) {
        self.armed().remove(id);
    }

    /// Gives up on what is still awaited: rolled back, or taken by another relay.
    pub(crate) fn forget(&self) {
        self.armed().clear();
    }

    fn armed(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.0.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_that_came_before_the_wait_is_not_missed() {
        let signal = OutboxSignal::new();
        signal.clone().wake();
        tokio::time::timeout(Duration::from_secs(1), signal.changed()).await.unwrap();
        tokio::time::timeout(Duration::from_secs(1), signal.changed()).await.unwrap_err();
    }

    #[test]
    fn armed_ids_are_awaited_until_seen_or_forgotten() {
        let signal = OutboxSignal::new();
        assert!(!signal.is_armed());
        signal.arm("a");
        signal.arm("b");
        signal.seen("a");
        assert!(signal.is_armed());
        signal.seen("b");
        assert!(!signal.is_armed());
        signal.arm("rolled back");
        signal.forget();
        assert!(!signal.is_armed());
    }

    #[test]
    fn the_list_of_awaited_ids_does_not_grow_without_bound() {
        let signal = OutboxSignal::new();
        for n in 0..MAX_ARMED + 10 {
            signal.arm(&n.to_string());
        }
        assert_eq!(signal.armed().len(), MAX_ARMED);
    }
}
