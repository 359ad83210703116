//! Where a durable saga stands.

use std::fmt;

/// Where an instance of a durable saga stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SagaStatus {
    /// Its steps have failed or its deadline has passed, and what it has done is being undone.
    Compensating,
    /// It has failed, and what was done is undone: by compensations, or by a person.
    Compensated,
    /// All its steps have succeeded.
    Completed,
    /// It goes forward: a step runs, is about to, or waits for its next attempt.
    Running,
    /// It has failed, and something is left of it that no retry resolves: a compensation failed, or
    /// a step may have been done and nothing asks. A person has to look.
    Unresolved,
    /// A step has sent its message, and the reply is awaited.
    Waiting,
}

impl SagaStatus {
    /// All there are.
    pub const ALL: [Self; 6] = [
        Self::Running,
        Self::Waiting,
        Self::Compensating,
        Self::Completed,
        Self::Compensated,
        Self::Unresolved,
    ];

    /// As a store writes it: `RUNNING`, `WAITING`, `COMPENSATING`, `COMPLETED`, `COMPENSATED` or
    /// `UNRESOLVED`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Compensated => "COMPENSATED",
            Self::Compensating => "COMPENSATING",
            Self::Completed => "COMPLETED",
            Self::Running => "RUNNING",
            Self::Unresolved => "UNRESOLVED",
            Self::Waiting => "WAITING",
        }
    }

    /// The status that a store has written so.
    #[must_use]
    pub fn from_stored(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Whether nothing goes on by itself any more.
    #[must_use]
    pub fn is_over(self) -> bool {
        match self {
            Self::Compensated | Self::Completed | Self::Unresolved => true,
            Self::Compensating | Self::Running | Self::Waiting => false,
        }
    }
}

/// In words: `waiting`.
impl fmt::Display for SagaStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.as_str().to_ascii_lowercase())
    }
}
