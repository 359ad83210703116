//! Reliable messaging over RabbitMQ.
//!
//! A [`send`](Publisher::send) that returns `Ok` is confirmed by the broker and in a queue. A
//! message is acknowledged after its handler, and one that fails is tried again, and then set
//! aside where it can be looked at. An outbox ([`OutboxRelay`]) lets messages commit with a database, and an
//! idempotency store ([`IdempotencyStore`]) lets each take effect once. On the wire it is one of
//! the AceMQ family, beside Java, Go, .NET, Python and Ruby.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> acemq::Result<()> {
//! use std::time::Duration;
//! use acemq::{HandlerError, Message, Queue, RetryPolicy};
//!
//! async fn greet(message: Message<String>) -> Result<(), HandlerError> {
//!     println!("hello {}", message.payload());
//!     Ok(())
//! }
//!
//! let mq = acemq::connect("memory://crate-example").await?; // or amqp://user:password@host
//! mq.declare_queue(&Queue::new("names").dead_letters()).await?;
//!
//! let consumer = mq
//!     .consumer::<String>("names")
//!     .retry(RetryPolicy::exponential(5, Duration::from_secs(1), Duration::from_secs(60)))
//!     .start(greet)
//!     .await?;
//! mq.send_to_queue("names", "Ada").await?;
//!
//! // … until the service stops:
//! mq.close().await?;
//! # drop(consumer);
//! # Ok(())
//! # }
//! ```
//!
//! # Where to look
//!
//! | for | see |
//! |---|---|
//! | connecting and closing | [`connect()`], [`Client`] |
//! | logins, certificates, TLS | [`Connect::credentials`], `CredentialsProvider`, `Tls` |
//! | exchanges, queues, bindings | [`Topology`], [`Queue`], [`Exchange`] |
//! | sending | [`Client::publisher`], [`Publisher`] |
//! | handling, retries, dead letters | [`Client::consumer`], [`ConsumerBuilder`], [`RetryPolicy`] |
//! | consumers that grow, shrink and pause | [`ConsumerGroup`], [`StartConsumer::group`], [`Consumer::pause`] |
//! | questions and answers | [`Client::requester`], [`Requester`], [`ConsumerBuilder::respond`], [`Responder`] |
//! | looking at dead letters, and putting them back | [`Client::peek`], [`Client::replay`] |
//! | order | [`ConsumerBuilder::ordered_by_header`], [`Client::partitions`], [`OnFailure`] |
//! | duplicates | [`ConsumerBuilder::idempotent`], [`IdempotencyStore`] |
//! | exactly once in effect | [`ConsumerBuilder::start_in_transaction`], and the crate `acemq-sql` |
//! | logs that are read again and again | [`Stream`], [`Client::stream_consumer`], [`StreamConsumerBuilder`] |
//! | messages for later | [`Client::scheduler`], [`Scheduler`] |
//! | work that passes through several steps | [`Client::pipeline`], [`PipelineBuilder`], [`Itinerary`] |
//! | steps that are undone when a later one fails | [`Saga`], [`SagaResult`] |
//! | the same, surviving a crash | [`DurableSaga`], [`SagaWorker`], [`SagaInstances`], and the crate `acemq-sql` |
//! | messages that commit with a database | [`OutboxRelay`], [`OutboxRecord`], and the crate `acemq-sql` |
//! | removing what is done with | [`Maintenance`] |
//! | formats | [`Json`], [`Text`], [`RawBytes`], [`AnyFormat`], [`Format`], `Xml`, `Yaml`, `Toml`, `Avro`, `Protobuf`, [`Encode`], [`Decode`] |
//! | schemas that have numbers | [`SchemaRegistry`], and the crate `acemq-sql` |
//! | several types on one queue | [`ByType`] |
//! | payloads that are too large for a broker | [`ClaimCheck`], [`ClaimCheckStore`] |
//! | tests without a server | [`testing::MemoryBroker`], `memory://NAME` |
//! | what went wrong | [`Error`], [`ErrorKind`] |
//!
//! # What it promises, and does not
//!
//! Publishing is at least once: a failed send says whether the message may have arrived all the
//! same. Handling is at least once, and once in effect with an idempotency store. Nothing is
//! acknowledged before its handler has succeeded or its copy is safe elsewhere. The order of
//! messages is not promised where there are retries or several handlers, unless it is asked for.
//!
//! Every wait is bounded, and every future may be dropped at any await: no message is lost by it.
//! What works in the background stops when its handle ([`Consumer`], [`ConsumerGroup`],
//! [`Responder`], [`Requester`], [`Pipeline`], [`Scheduler`], [`StreamConsumer`], [`Replay`],
//! [`OutboxRelay`], [`SagaWorker`], [`Maintenance`]) is dropped. A [`Saga`]'s run does not: it undoes
//! what it has done.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `amqp`, on by default | RabbitMQ over AMQP 0-9-1, with TLS. Without it only `memory://` connects |
//! | `avro` | the codecs `Avro`, `AvroReader` and `AvroValues`, over apache-avro 0.22 |
//! | `dev-certificates` | `DevelopmentCertificates`, which makes certificates for development and tests |
//! | `encryption` | bodies that only the holders of a key can read: `Encrypted`, `Keyring` |
//! | `object-store` | large payloads in S3, Azure, Google and other object storage: `ObjectClaimCheckStore` |
//! | `protobuf` | the codec `Protobuf`, for messages of prost 0.14 |
//! | `toml`, `xml`, `yaml` | the codecs `Toml`, `Xml` and `Yaml`; what is enabled is also what [`AnyFormat`], and so every consumer without a codec of its own, reads |

#[cfg(test)]
extern crate self as acemq;

mod backoff;
mod claim_check;
mod clock;
mod codec;
mod connection;
mod consume;
mod counted;
#[cfg(feature = "encryption")]
mod encryption;
mod envelope;
mod error;
mod idempotency;
mod itinerary;
mod maintenance;
mod outbox;
mod partition;
mod patience;
pub mod pipeline;
mod publish;
mod replay;
mod request;
mod retry;
mod saga;
mod scheduler;
mod schema;
#[cfg(any(feature = "amqp", feature = "dev-certificates"))]
mod security;
mod stream;
#[cfg(test)]
#[path = "../tests/support/broker.rs"]
mod support;
mod telemetry;
mod topology;
mod transport;

#[cfg(feature = "object-store")]
pub use object_store;

#[cfg(feature = "object-store")]
pub use claim_check::ObjectClaimCheckStore;
pub use claim_check::{
    ClaimCheck, ClaimCheckStore, FileClaimCheckStore, MemoryClaimCheckStore, SharedClaimCheckStore,
};
#[cfg(feature = "protobuf")]
pub use codec::Protobuf;
#[cfg(feature = "toml")]
pub use codec::Toml;
#[cfg(feature = "xml")]
pub use codec::Xml;
#[cfg(feature = "yaml")]
pub use codec::Yaml;
pub use codec::{AnyFormat, ByType, Decode, Encode, Format, Json, RawBytes, Text};
#[cfg(feature = "avro")]
pub use codec::{Avro, AvroReader, AvroValues};
pub use connection::{Client, Connect, ConnectionState, StateWatch, connect, connect_lazy};
pub use consume::{
    Ack, CommitError, ConsumeContext, ConsumeInterceptor, Consumer, ConsumerBuilder,
    ConsumerCounters, ConsumerGroup, ConsumerState, HaltedKey, HandlerError, Message, OnFailure,
    Responder, ResponderCounters, Settlement, StartConsumer, StartConsumerGroup, StartResponder,
    TransactionClaim, TransactionalStore,
};
#[cfg(feature = "encryption")]
pub use encryption::{Encrypted, Keyring};
pub use envelope::{Envelope, HeaderValue, Headers, Replayed, Route};
pub use error::{BoxError, Conflict, Error, ErrorKind, Result};
pub use idempotency::{
    Claim, IdempotencyStore, Lease, MemoryIdempotencyStore, SharedIdempotencyStore,
};
pub use itinerary::{Itinerary, Stop};
pub use maintenance::{Maintenance, MaintenanceBuilder};
pub use outbox::{
    ClaimRequest, ClaimedRecord, Discard, FailedRecord, MemoryOutboxStore, OutboxCounts,
    OutboxRecord, OutboxRelay, OutboxRelayBuilder, OutboxSignal, OutboxStore, RecordClaim,
    RelayLock, RelayOrder, RelayState, SharedOutboxStore, StoredRecord, StuckRecord,
};
pub use partition::{
    DeclarePartitions, HaltedPartition, PartitionedConsumer, PartitionedConsumerBuilder,
    PartitionedPublisher, Partitions, StartPartitionedConsumer,
};
pub use pipeline::{
    Pipeline, PipelineBuilder, PipelineCounters, PipelineStep, RunReceipt, SendRun, StartPipeline,
    StartStep, StepStats,
};
pub use publish::{
    BatchError, MakeRecord, PublishContext, PublishInterceptor, Publisher, Receipt, SendBatch,
    SendMessage,
};
pub use replay::{
    BodyView, Peek, QueuedMessage, ReasonCount, ReasonCounts, Replay, ReplayBuilder, ReplayOutcome,
    ReplayProgress, ReplayReason,
};
pub use request::{Requester, RequesterBuilder, RequesterCounters, Requests, SendRequest};
pub use retry::RetryPolicy;
pub use saga::{
    ClaimedSaga, DurableSaga, DurableSagaBuilder, DurableStepBuilder, JoinsTransaction,
    MemorySagaStore, NewSaga, ReplyOutcome, RunSaga, Saga, SagaBegun, SagaBuilder, SagaClaim,
    SagaFilter, SagaInstance, SagaInstances, SagaNext, SagaQuery, SagaResolution, SagaResult,
    SagaStatus, SagaStep, SagaStepBuilder, SagaStepStatus, SagaStore, SagaWorker,
    SagaWorkerBuilder, SagaWorkerCounters, SagaWorkerState, SagaWrite, StepAttempts, StepContext,
    StepFailure, StoredSaga, TransactionalSagaStore,
};
pub use scheduler::{Schedule, ScheduleMessage, Scheduler, SchedulerBuilder, SchedulerCounters};
pub use schema::{
    MemorySchemaRegistry, RegisteredSchema, SchemaFormat, SchemaId, SchemaRegistry,
    SharedSchemaRegistry,
};
#[cfg(feature = "dev-certificates")]
pub use security::DevelopmentCertificates;
#[cfg(feature = "amqp")]
pub use security::{Credentials, CredentialsProvider, Tls};
pub use stream::{
    MemoryStreamCheckpoints, STREAM_FILTER_VALUE, StartStreamConsumer, StreamCheckpointStore,
    StreamConsumer, StreamConsumerBuilder, StreamCounters, StreamGap, StreamOffset, StreamStop,
    TransactionalCheckpointStore,
};
pub use telemetry::describe_metrics;
pub use topology::{
    Exchange, PlannedObject, PlannedStatus, Queue, Stream, Topology, TopologyObject, TopologyPlan,
};
pub use transport::{ExchangeKind, QueueInfo};

/// What the tests of programs that use this library want.
pub mod testing {
    pub use crate::transport::{MemoryBroker, MemoryMessage};
}
