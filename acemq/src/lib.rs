//! Reliable messaging over RabbitMQ.

mod clock;
mod codec;
mod envelope;
mod error;
mod idempotency;
mod outbox;
mod transport;

pub use codec::{Decode, Encode, Json, RawBytes, Text};
pub use envelope::{Envelope, HeaderValue, Headers, Replayed, Route};
pub use error::{BoxError, Conflict, Error, ErrorKind, Result};
pub use idempotency::{
    Claim, IdempotencyStore, Lease, MemoryIdempotencyStore, SharedIdempotencyStore,
};
pub use outbox::{
    ClaimedRecord, FailedRecord, MemoryOutboxStore, OutboxRecord, OutboxRelay, OutboxRelayBuilder,
    OutboxSignal, OutboxStore, RecordClaim, SharedOutboxStore, StoredRecord, StuckRecord,
};
pub use transport::{ExchangeKind, QueueInfo};

/// What the tests of programs that use this library want.
pub mod testing {
    pub use crate::transport::{MemoryBroker, MemoryMessage};
}
