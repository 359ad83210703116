//! The named points at which a worker ends itself, as suddenly as a kill would.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use clap::ValueEnum;

use crate::ledger::{Deed, Ledger};

/// How long a statement may be under way before the worker ends itself in the middle of it.
const UNDER_WAY_MICROS: u64 = 2_000;

/// A place in a worker's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Point {
    /// Everything is written, nothing committed.
    BeforeCommit,
    /// The commit is under way.
    InCommit,
    /// Committed, and not noted in the ledger.
    AfterCommit,
    /// Claimed, and not begun.
    AfterClaim,
    /// Published, and not marked.
    BeforeMark,
    /// The mark is under way.
    InMark,
    /// Marked; the relay does not know it yet.
    AfterMark,
    /// In the handler, before its effect.
    InHandler,
    /// The effect is there, not confirmed.
    BeforeConfirm,
    /// The confirmation is under way.
    InConfirm,
    /// Confirmed, and not acknowledged.
    AfterConfirm,
}

impl Point {
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Ends this process at the n-th time it comes to a point.
pub(crate) struct Fuse {
    at: Option<(Point, AtomicU32)>,
    ledger: Arc<Ledger>,
    random: Mutex<fastrand::Rng>,
}

impl Fuse {
    pub(crate) fn new(
        at: Option<(Point, u32)>,
        ledger: Arc<Ledger>,
        random: fastrand::Rng,
    ) -> Self {
        let at = at.map(|(point, nth)| (point, AtomicU32::new(nth)));
        Self { at, ledger, random: Mutex::new(random) }
    }

    /// Ends the process if this is the point and the time.
    pub(crate) fn reached<'a>(&self, point: Point, ids: impl Iterator<Item = &'a str>) {
        if self.is_due(point) {
            self.die(ids);
        }
    }

    /// Does the work; if this is the point and the time, only the beginning of it.
    pub(crate) async fn during<'a, T>(
        &self,
        point: Point,
        ids: impl Iterator<Item = &'a str>,
        work: impl Future<Output = T>,
    ) -> T {
        if !self.is_due(point) {
            return work.await;
        }
        let micros = {
            let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
            random.u64(..UNDER_WAY_MICROS)
        };
        let mut work = std::pin::pin!(work);
        let _ = tokio::time::timeout(Duration::from_micros(micros), &mut work).await;
        self.die(ids)
    }

    fn is_due(&self, point: Point) -> bool {
        // Only the call that finds 1 is the one: calls come from several tasks.
        self.at.as_ref().is_some_and(|(at, nth)| {
            *at == point
                && nth.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                    == Ok(1)
        })
    }

    fn die<'a>(&self, ids: impl Iterator<Item = &'a str>) -> ! {
        self.ledger.note(Deed::Dying, ids);
        std::process::abort()
    }
}
