//! Passes that fail in a row.

use std::time::Duration;

use crate::{
    backoff::Backoff,
    error::{Error, ErrorKind},
};

/// The pauses after a pass that the broker or the store failed: doubling between these (the
/// first is no longer than the poll interval), with jitter.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How long to pause after each, and what is said of them: the first of a kind is a warning, and
/// so is the end of it; those between are not, for an outage may take a night.
pub(super) struct Troubles {
    poll: Duration,
    backoff: Backoff,
    said: Option<ErrorKind>,
}

impl Troubles {
    pub(super) fn new(poll: Duration) -> Self {
        Self { poll, backoff: backoff(poll), said: None }
    }

    /// Says that a pass failed, and how long to pause.
    pub(super) fn meet(&mut self, error: &Error, has_unwritten_marks: bool) -> Duration {
        let pause = self.backoff.next_pause();
        if self.said.replace(error.kind()) == Some(error.kind()) {
            tracing::debug!(%error, ?pause, "a pass of the outbox relay failed again");
        } else {
            tracing::warn!(
                %error,
                has_unwritten_marks,
                "a pass of the outbox relay failed; it tries again and again, at growing intervals \
                 up to {LONGEST_PAUSE:?}, and does not publish again what it could not mark"
            );
        }
        pause
    }

    pub(super) fn are_over(&mut self) {
        if self.said.take().is_some() {
            tracing::info!("the outbox relay goes on");
        }
        self.backoff = backoff(self.poll);
    }
}

fn backoff(poll: Duration) -> Backoff {
    Backoff::new(poll.min(FIRST_PAUSE), LONGEST_PAUSE)
}
