//! The transactional outbox: messages that commit with the work they announce.
//!
//! An [`OutboxRecord`] is a message in its final form, made before the transaction opens. A store
//! that lives in the application's database (`acemq-sql`) adds it in the caller's transaction; an
//! [`OutboxRelay`] publishes what has committed, confirmed and routed, and marks it afterwards. A
//! crash between the two publishes again under the same id: never lost, at times doubled.

mod erased;
mod json;
mod lock;
mod memory;
mod order;
mod record;
mod relay;
mod request;
mod signal;
mod store;

pub(crate) use self::erased::ErasedOutboxStore;
pub use self::{
    erased::SharedOutboxStore,
    lock::RelayLock,
    memory::MemoryOutboxStore,
    order::RelayOrder,
    record::{OutboxRecord, StoredRecord},
    relay::{OutboxRelay, OutboxRelayBuilder, RelayState},
    request::ClaimRequest,
    signal::OutboxSignal,
    store::{
        ClaimedRecord, Discard, FailedRecord, OutboxCounts, OutboxStore, RecordClaim, StuckRecord,
    },
};
