//! Being written.
/// Being written.
#[derive(Debug, Default)]
pub struct MemoryOutboxStore {}
