//! In which order a relay publishes.

/// What a relay promises about the order of the records, and what that costs.
///
/// The order is that of [`created_at`](crate::OutboxRecord::created_at), then of the id, among
/// the records that have committed. A record whose transaction commits after a later one's goes
/// out after it, in every mode. Times are made by the hosts, so writers on hosts whose clocks
/// differ are ordered by their clocks.
///
/// Both ordered modes have one active relay on a table: the others stand by and take over when
/// the active one ends or dies, what it held once its lease has run out. A record that failed
/// holds up what is behind it until it is due again, and one that has used up its attempts until
/// somebody retries or discards it. What may have been published goes out again before what is
/// behind it. Relays of other libraries, and relaxed ones, know nothing of this: beside them no
/// order is promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RelayOrder {
    /// Oldest first, with many confirms in flight. One relay keeps the order as long as nothing
    /// fails; a record that fails is overtaken. The fastest, and the default.
    #[default]
    Relaxed,
    /// The records of one exchange and routing key one after the other, each confirmed before
    /// the next is published; those of different keys at the same time, in no certain order.
    PerKey,
    /// All records of the table one after the other, each confirmed before the next is published.
    Strict,
}

impl RelayOrder {
    /// Whether one relay has to be alone.
    pub(crate) fn is_kept(self) -> bool {
        self != Self::Relaxed
    }
}
