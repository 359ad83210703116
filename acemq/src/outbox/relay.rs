//! Being written.
/// Being written.
#[derive(Debug, Default)]
pub struct OutboxRelay {}
/// Being written.
#[derive(Debug, Default)]
pub struct OutboxRelayBuilder {}
