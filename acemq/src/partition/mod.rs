//! Order over several processes: one queue for each part of the keys, one consumer at a time for
//! each queue.

mod consumer;
mod declare;
mod hash;
mod number;
mod publisher;

pub use self::{
    consumer::{
        HaltedPartition, PartitionedConsumer, PartitionedConsumerBuilder, StartPartitionedConsumer,
    },
    declare::{DeclarePartitions, Partitions},
    publisher::PartitionedPublisher,
};
