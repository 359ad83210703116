//! What schedulers report.

use std::time::Duration;

use metrics::{Key, Label};

use super::{count, observe};

pub(super) const TOTAL: &str = "acemq.schedule.total";
pub(super) const LAG: &str = "acemq.schedule.lag";

/// What a scheduler did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScheduleOutcome {
    Scheduled,
    Delivered,
    Hopped,
    Undelivered,
}

impl ScheduleOutcome {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Scheduled, "scheduled"),
        (Self::Delivered, "delivered"),
        (Self::Hopped, "hopped"),
        (Self::Undelivered, "undelivered"),
    ];
}

/// Reports what the schedulers of this process do.
#[derive(Debug)]
pub(crate) struct ScheduleMeter {
    totals: [Key; 4],
    lag: Key,
}

impl ScheduleMeter {
    pub(crate) fn new() -> Self {
        let total = |(_, outcome)| {
            Key::from_parts(TOTAL, vec![Label::from_static_parts("outcome", outcome)])
        };
        Self { totals: ScheduleOutcome::ALL.map(total), lag: Key::from_name(LAG) }
    }

    pub(crate) fn record(&self, outcome: ScheduleOutcome) {
        count(&self.totals[outcome as usize]);
    }

    /// A message was delivered that long after it was due.
    pub(crate) fn late(&self, lag: Duration) {
        observe(&self.lag, lag.as_secs_f64());
    }
}
