//! What a relay wants to claim.

use std::time::Duration;

use super::RelayOrder;

/// How many records a relay would take, and how, for
/// [`OutboxStore::claim`](crate::OutboxStore::claim).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClaimRequest {
    /// At most so many records.
    pub records: usize,
    /// At most so many bytes of bodies, as they are stored; one record may have more by itself.
    pub bytes: u64,
    /// For how long.
    pub lease: Duration,
    /// Which records may be handed out while others wait.
    pub order: RelayOrder,
}

impl ClaimRequest {
    /// A request for records in no kept order, however large they are.
    #[must_use]
    pub fn new(records: usize, lease: Duration) -> Self {
        Self { records, bytes: u64::MAX, lease, order: RelayOrder::Relaxed }
    }

    /// At most so many bytes of bodies; one record may have more by itself.
    #[must_use]
    pub fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// Which records may be handed out while others wait.
    #[must_use]
    pub fn order(mut self, order: RelayOrder) -> Self {
        self.order = order;
        self
    }
}
