//! What a run has on the broker.

/// The names of a run's exchange and queues.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    /// Where the outbox's records go.
    pub(crate) exchange: String,
    /// What the consumers consume.
    pub(crate) work: String,
    /// A copy of all that was published, which nobody touches until the end.
    pub(crate) audit: String,
}

impl Names {
    pub(crate) const ROUTING_KEY: &str = "order.placed";

    pub(crate) fn of(run: &str) -> Self {
        Self {
            exchange: format!("crash.{run}"),
            work: format!("crash.{run}.work"),
            audit: format!("crash.{run}.audit"),
        }
    }

    /// What the consumers could not handle; empty when all is well.
    pub(crate) fn set_aside(&self) -> [String; 2] {
        [format!("{}.dlq", self.work), format!("{}.parked", self.work)]
    }
}
