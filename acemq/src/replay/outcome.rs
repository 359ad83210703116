//! How a replay goes, and how it went.

use std::{fmt, sync::Arc};

use crate::error::{Error, Result};

/// How far a replay is, from [`Replay::progress`](super::Replay::progress).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayProgress {
    /// How many messages were ready when it began: no more are looked at.
    pub total: u64,
    /// How many are in the queue they failed in.
    pub moved: u64,
    /// How many the filter has declined.
    pub skipped: u64,
}

/// Why a replay ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReplayReason {
    /// It was cancelled, or its client closed.
    Cancelled,
    /// Its time was up.
    Deadline,
    /// Every message that was there when it began has been looked at, or somebody else took it.
    Drained,
    /// It could not go on: see [`ReplayOutcome::error`].
    Failed,
    /// It has moved as many as it was to.
    Limit,
}

impl ReplayReason {
    /// `cancelled`, `deadline`, `drained`, `failed` or `limit`, as all libraries of the family call
    /// them.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Deadline => "deadline",
            Self::Drained => "drained",
            Self::Failed => "failed",
            Self::Limit => "limit",
        }
    }
}

impl fmt::Display for ReplayReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a replay went: `moved 500, skipped 31 (limit)`.
#[derive(Clone, Debug)]
#[must_use = "a replay that failed says so here"]
#[non_exhaustive]
pub struct ReplayOutcome {
    /// How many messages are in the queue they failed in; for a dry run, would be.
    pub moved: u64,
    /// How many the filter has declined.
    pub skipped: u64,
    /// Why it ended.
    pub reason: ReplayReason,
    pub(super) error: Option<Arc<Error>>,
}

impl ReplayOutcome {
    /// What it failed with, where the reason is [`ReplayReason::Failed`].
    #[must_use]
    pub fn error(&self) -> Option<&Error> {
        self.error.as_deref()
    }

    /// The same outcome, with a failure as an error.
    ///
    /// # Errors
    /// [`error`](Self::error).
    pub fn into_result(self) -> Result<Self, Arc<Error>> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self),
        }
    }
}

impl fmt::Display for ReplayOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "moved {}, skipped {} ({})", self.moved, self.skipped, self.reason)
    }
}
