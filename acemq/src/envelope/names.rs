//! The names of the headers on the wire.

/// Headers that begin so belong to the library.
pub(crate) const RESERVED_PREFIX: &str = "x-acemq-";

pub(crate) const ID: &str = "x-acemq-id";
pub(crate) const TYPE: &str = "x-acemq-type";
pub(crate) const VERSION: &str = "x-acemq-version";
pub(crate) const CORRELATION: &str = "x-acemq-correlation";
pub(crate) const ATTEMPT: &str = "x-acemq-attempt";
pub(crate) const FIRST_SEEN: &str = "x-acemq-first-seen";
pub(crate) const CAUSATION: &str = "x-acemq-causation";
pub(crate) const ORIGIN: &str = "x-acemq-origin";
pub(crate) const ERROR: &str = "x-acemq-error";
pub(crate) const CLAIM: &str = "x-acemq-claim";
pub(crate) const ROUTE: &str = "x-acemq-route";
pub(crate) const ROUTE_POSITION: &str = "x-acemq-route-position";
pub(crate) const ROUTE_ID: &str = "x-acemq-route-id";

pub(crate) const REPLAYED_FROM: &str = "acemq-replayed-from";
pub(crate) const REPLAYED_AT: &str = "acemq-replayed-at";
pub(crate) const REPLAY_COUNT: &str = "acemq-replay-count";
pub(crate) const REPLY_TO: &str = "acemq-reply-to";
/// On a reply: why the responder failed.
pub(crate) const REPLY_ERROR: &str = "acemq-error";
