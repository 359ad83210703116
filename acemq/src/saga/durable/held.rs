//! An instance that this process holds.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::Instant;

use super::{ClaimedSaga, SagaClaim, StoredSaga, journal::Journal, key};
use crate::error::{Error, ErrorKind};

pub(super) struct Held {
    pub(super) claim: SagaClaim,
    pub(super) id: Arc<str>,
    pub(super) journal: Journal,
    /// Before the lease in force was asked for, which is when it began at the earliest.
    pub(super) leased: Instant,
    deadline_at: Option<SystemTime>,
    read_at: SystemTime,
    read: Instant,
}

impl Held {
    /// An instance as it was claimed at that moment.
    pub(super) fn new(
        saga: &str,
        claimed: &ClaimedSaga,
        mut journal: Journal,
        read: Instant,
    ) -> Self {
        let ClaimedSaga { claim, stored } = claimed;
        journal.was_begun_at(stored.created_at);
        Self {
            claim: claim.clone(),
            id: id_of(saga, &stored.key).into(),
            journal,
            leased: read,
            deadline_at: stored.deadline_at,
            read_at: stored.read_at,
            read,
        }
    }

    /// The time by the store's clock.
    pub(super) fn now(&self) -> SystemTime {
        self.read_at + self.read.elapsed()
    }

    /// How long it may still go forward; `None` without a deadline.
    pub(super) fn left(&self, now: SystemTime) -> Option<Duration> {
        self.deadline_at.map(|deadline| deadline.duration_since(now).unwrap_or_default())
    }

    pub(super) fn is_late(&self, now: SystemTime) -> bool {
        self.left(now).is_some_and(|left| left.is_zero())
    }
}

/// The id of an instance: where its key is a stranger's, all of it.
pub(super) fn id_of<'k>(saga: &str, key: &'k str) -> &'k str {
    key::id_in(saga, key).unwrap_or(key)
}

/// What an instance has done.
pub(super) fn journal_of(stored: &StoredSaga) -> Result<Journal, Error> {
    Journal::read(&stored.state).map_err(|fault| unreadable(stored, &fault))
}

pub(super) fn unreadable(stored: &StoredSaga, fault: &str) -> Error {
    Error::new(
        ErrorKind::Decode,
        format!(
            "read the state of saga {}: {fault}; it is left as it is, and somebody has to look at its \
             row",
            stored.key
        ),
    )
}
