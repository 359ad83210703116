//! What a relay is doing.

/// What a relay that works in the background is doing, from
/// [`OutboxRelay::state`](super::OutboxRelay::state).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RelayState {
    /// Not started, or closed.
    Stopped,
    /// Started; its first look at the store is under way.
    Starting,
    /// It looks for records and publishes what it finds.
    Active,
    /// Another relay is the active one in an ordered mode; this one takes over when that ends.
    StandingBy,
    /// Its last pass failed, by the broker's or the store's fault. It tries again and again, and no
    /// record spends an attempt on it.
    Failing {
        /// What the pass failed with.
        reason: String,
    },
}
