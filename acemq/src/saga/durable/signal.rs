//! How a saga of this process hears that there is something to do.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

/// The first look after a saga was begun in a transaction that may commit soon; each next one waits
/// twice as long.
const FIRST_LOOK: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(super) struct Signal {
    changed: watch::Sender<()>,
    wanted: Mutex<Wanted>,
}

#[derive(Debug, Default)]
struct Wanted {
    /// When an instance that this process has put down is due.
    at: Option<Instant>,
    /// How soon to look for what was begun and may not have committed.
    look: Option<Duration>,
}

impl Signal {
    pub(super) fn new() -> Self {
        Self { changed: watch::Sender::new(()), wanted: Mutex::default() }
    }

    /// Something is due now.
    pub(super) fn wake(&self) {
        self.changed.send_replace(());
    }

    /// Something was begun in a transaction that may commit soon.
    pub(super) fn arm(&self) {
        self.wanted().look = Some(FIRST_LOOK);
        self.wake();
    }

    /// Something is due after so long.
    pub(super) fn due_after(&self, wait: Duration) {
        let Some(at) = Instant::now().checked_add(wait) else { return };
        {
            let mut wanted = self.wanted();
            if wanted.at.is_some_and(|earlier| earlier <= at) {
                return;
            }
            wanted.at = Some(at);
        }
        self.wake();
    }

    pub(super) fn listen(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// How long a worker that found nothing rests, at most `poll`.
    pub(super) fn rest(&self, poll: Duration) -> Duration {
        let mut wanted = self.wanted();
        let mut rest = poll;
        if let Some(look) = wanted.look {
            rest = rest.min(look);
            wanted.look = Some(look * 2).filter(|next| *next < poll);
        }
        if let Some(at) = wanted.at {
            let left = at.saturating_duration_since(Instant::now());
            rest = rest.min(left.max(FIRST_LOOK));
            if left.is_zero() {
                wanted.at = None;
            }
        }
        rest
    }

    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
