//! Reliable messaging over RabbitMQ.

#[cfg(test)]
extern crate self as acemq;

mod clock;
mod codec;
mod connection;
mod consume;
mod envelope;
mod error;
mod idempotency;
mod outbox;
mod publish;
mod retry;
#[cfg(test)]
#[path = "../tests/behaviour/support/mod.rs"]
mod support;
mod telemetry;
mod topology;
mod transport;

pub use codec::{Decode, Encode, Json, RawBytes, Text};
pub use connection::{Client, Connect, ConnectionState, StateWatch, connect, connect_lazy};
pub use consume::{
    Ack, ConsumeContext, ConsumeInterceptor, Consumer, ConsumerBuilder, ConsumerCounters,
    ConsumerState, HandlerError, Message, Settlement, StartConsumer,
};
pub use envelope::{Envelope, HeaderValue, Headers, Replayed, Route};
pub use error::{BoxError, Conflict, Error, ErrorKind, Result};
pub use idempotency::{
    Claim, IdempotencyStore, Lease, MemoryIdempotencyStore, SharedIdempotencyStore,
};
pub use outbox::{
    ClaimedRecord, FailedRecord, MemoryOutboxStore, OutboxRecord, OutboxRelay, OutboxRelayBuilder,
    OutboxSignal, OutboxStore, RecordClaim, SharedOutboxStore, StoredRecord, StuckRecord,
};
pub use publish::{
    BatchError, MakeRecord, PublishContext, PublishInterceptor, Publisher, Receipt, SendBatch,
    SendMessage,
};
pub use retry::RetryPolicy;
pub use telemetry::describe_metrics;
pub use topology::{Exchange, Queue, Topology};
pub use transport::{ExchangeKind, QueueInfo};

/// What the tests of programs that use this library want.
pub mod testing {
    pub use crate::transport::{MemoryBroker, MemoryMessage};
}
