//! A replay that runs.

use std::{
    fmt,
    sync::{Arc, Weak},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{QueuedMessage, ReplayOutcome, ReplayProgress, ReplayReason, pass};
use crate::{
    connection::{Client, Stop},
    error::Result,
    transport::BoxFuture,
};

pub(super) type Filter = Box<dyn Fn(&QueuedMessage) -> bool + Send + Sync>;

/// A replay that runs in the background, from [`ReplayBuilder::start`](super::ReplayBuilder::start).
///
/// Dropping it stops it at once: nothing is lost, and of the messages in hand (at most 256, and what
/// the filter let through of them) some may be in both queues. [`close`](Self::close) ends it
/// between messages.
#[must_use = "dropping a replay stops it"]
pub struct Replay {
    core: Arc<Core>,
    _task: AbortOnDropHandle<()>,
}

pub(super) struct Settings {
    pub(super) from: Arc<str>,
    pub(super) into: String,
    pub(super) limit: u64,
    pub(super) deadline: Option<Duration>,
    pub(super) filter: Option<Filter>,
    pub(super) keep_attempts: bool,
    pub(super) dry_run: bool,
}

pub(super) struct Core {
    pub(super) client: Client,
    pub(super) settings: Settings,
    pub(super) progress: watch::Sender<ReplayProgress>,
    pub(super) closing: CancellationToken,
    outcome: watch::Sender<Option<ReplayOutcome>>,
}

impl Replay {
    pub(super) fn start(client: Client, settings: Settings) -> Self {
        let core = Arc::new(Core {
            client,
            settings,
            progress: watch::Sender::new(ReplayProgress::default()),
            closing: CancellationToken::new(),
            outcome: watch::Sender::new(None),
        });
        let weak: Weak<dyn Stop> = Arc::downgrade(&core) as Weak<dyn Stop>;
        if !core.client.owns_relay(weak) {
            core.closing.cancel();
        }
        let running = Arc::clone(&core);
        let task = tokio::spawn(async move {
            // Whoever waits does not wait in vain, however this ends.
            let ended = Ended(&running);
            let outcome = pass::run(&running).await;
            ended.tell(outcome);
        });
        Self { core, _task: AbortOnDropHandle::new(task) }
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> ReplayProgress {
        *self.core.progress.borrow()
    }

    /// Follows how far it is.
    #[must_use]
    pub fn progresses(&self) -> watch::Receiver<ReplayProgress> {
        self.core.progress.subscribe()
    }

    /// Waits until it has ended and says how it went.
    ///
    /// # Cancellation
    /// Dropping the future stops only the waiting.
    pub async fn outcome(&self) -> ReplayOutcome {
        let mut outcomes = self.core.outcome.subscribe();
        let ended = outcomes.wait_for(Option::is_some).await;
        match ended.as_deref() {
            Ok(Some(outcome)) => outcome.clone(),
            // The sender is ours, and what was waited for is there.
            Ok(None) | Err(_) => self.core.cut_off(),
        }
    }

    /// Ends it: nothing more is read, what was published has its answer and is acknowledged, and
    /// everything else goes back. A replay that has ended is not changed by it.
    ///
    /// # Cancellation
    /// Dropping the future does not stop the closing.
    pub async fn close(&self) -> ReplayOutcome {
        self.core.closing.cancel();
        self.outcome().await
    }
}

impl Core {
    /// The outcome of a pass that was dropped.
    fn cut_off(&self) -> ReplayOutcome {
        let progress = *self.progress.borrow();
        ReplayOutcome {
            moved: progress.moved,
            skipped: progress.skipped,
            reason: ReplayReason::Cancelled,
            error: None,
        }
    }
}

struct Ended<'a>(&'a Core);

impl Ended<'_> {
    fn tell(&self, outcome: ReplayOutcome) {
        let settings = &self.0.settings;
        match outcome.error() {
            None => tracing::info!(
                from = %settings.from, into = settings.into, dry_run = settings.dry_run, %outcome,
                "a replay has ended"
            ),
            Some(error) => tracing::warn!(
                from = %settings.from, into = settings.into, dry_run = settings.dry_run, %outcome,
                %error, "a replay has ended"
            ),
        }
        self.0.outcome.send_replace(Some(outcome));
    }
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.outcome.send_if_modified(|outcome| {
            let cut_off = outcome.is_none();
            if cut_off {
                *outcome = Some(self.0.cut_off());
            }
            cut_off
        });
    }
}

impl Stop for Core {
    fn stop(&self, deadline: Instant) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.closing.cancel();
            let mut outcomes = self.outcome.subscribe();
            // Past the bound the connections close, and what was not settled goes back.
            let _ = tokio::time::timeout_at(deadline, outcomes.wait_for(Option::is_some)).await;
            Ok(())
        })
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay")
            .field("from", &self.core.settings.from)
            .field("into", &self.core.settings.into)
            .field("progress", &self.progress())
            .finish_non_exhaustive()
    }
}
