//! Reading streams.
//!
//! A stream is a log that keeps its messages, and each reader has a place of its own in it. RabbitMQ
//! keeps no such place for AMQP 0-9-1 consumers, and takes nothing back: what was not acknowledged when
//! a channel closes just comes again to who begins there. So the reader's place is kept here, by
//! [`progress`], and by a [`StreamCheckpointStore`] beyond the process.
//!
//! Nothing is ever published on behalf of a failed message, since a copy would be appended to the
//! stream; and nothing is ever rejected, since RabbitMQ ends the connection for that.

mod builder;
mod checkpoint;
mod consumer;
mod counters;
mod doubt;
mod filter;
mod handle;
mod offset;
mod probe;
mod progress;
mod runtime;
mod saving;
mod subscribe;
mod support;
mod work;

pub(crate) use self::support::require_streams;
pub use self::{
    builder::{StartStreamConsumer, StreamConsumerBuilder},
    checkpoint::{MemoryStreamCheckpoints, StreamCheckpointStore, TransactionalCheckpointStore},
    consumer::{StreamConsumer, StreamGap, StreamStop},
    counters::StreamCounters,
    filter::STREAM_FILTER_VALUE,
    offset::StreamOffset,
};
