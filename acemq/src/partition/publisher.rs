//! Sending under a key.

use std::fmt;

use super::{Partitions, declare::routing_key};
use crate::{
    codec::{Encode, Json},
    publish::{MakeRecord, Publisher, SendBatch, SendMessage},
};

/// Sends messages of type `T`, each to the partition of its key. From [`Partitions::publisher`].
///
/// The order is that in which the messages are sent: await one before the next of the same key is
/// sent, or send them in one batch. A send that failed and is tried again comes after what was sent
/// meanwhile.
#[must_use = "a publisher sends nothing by itself"]
pub struct PartitionedPublisher<T, C = Json> {
    partitions: Partitions,
    /// By partition.
    publishers: Vec<Publisher<T, C>>,
}

impl<T> PartitionedPublisher<T> {
    pub(super) fn new(partitions: &Partitions) -> Self {
        let Partitions { client, name, count, .. } = partitions;
        let publishers = (0..*count)
            .map(|at| client.publisher(&**name, routing_key(at)).message_type(&**name))
            .collect();
        Self { partitions: partitions.clone(), publishers }
    }
}

impl<T, C> PartitionedPublisher<T, C> {
    /// The same publisher with another codec, of which each partition has a clone.
    pub fn codec<D: Clone>(self, codec: D) -> PartitionedPublisher<T, D> {
        let publishers =
            self.publishers.into_iter().map(|publisher| publisher.codec(codec.clone())).collect();
        PartitionedPublisher { partitions: self.partitions, publishers }
    }

    /// The type of its messages. Default: the partitions' name.
    pub fn message_type(self, message_type: impl Into<String>) -> Self {
        let message_type = message_type.into();
        self.change(|publisher| publisher.message_type(&*message_type))
    }

    /// The schema version of its messages, from 1. Default 1.
    pub fn version(self, version: u32) -> Self {
        self.change(|publisher| publisher.version(version))
    }

    /// Sends a payload under a key. Awaiting it means that the broker has confirmed the message and
    /// that it is in its partition; options come before the await. An empty key is a key as any other.
    ///
    /// # Errors
    /// As [`Publisher::send`].
    ///
    /// # Cancellation
    /// As [`Publisher::send`].
    pub fn send<'a>(&'a self, key: &str, payload: &'a T) -> SendMessage<'a>
    where
        T: Sync,
        C: Encode<T>,
    {
        self.of(key).send(payload)
    }

    /// Sends payloads under their keys with many confirms in flight, in their order as long as the
    /// connection lasts. Not atomic: it waits for all of them, and its error says which ones are
    /// confirmed.
    ///
    /// # Errors
    /// [`BatchError`](crate::BatchError) when at least one was not confirmed.
    ///
    /// # Cancellation
    /// What was handed over by then goes out, the rest does not.
    pub fn send_all<'a, I>(&'a self, payloads: I) -> SendBatch<'a, I::IntoIter>
    where
        T: Sync + 'a,
        C: Encode<T>,
        I: IntoIterator<Item = (&'a str, &'a T)>,
    {
        let send = move |(key, payload): (&'a str, &'a T)| self.send(key, payload);
        SendBatch::new(payloads.into_iter(), Box::new(send))
    }

    /// Makes an outbox record of a payload under a key; a relay in an ordered mode keeps the order of
    /// each partition.
    pub fn record<'a>(&'a self, key: &str, payload: &'a T) -> MakeRecord<'a>
    where
        T: Sync,
        C: Encode<T>,
    {
        self.of(key).record(payload)
    }

    fn of(&self, key: &str) -> &Publisher<T, C> {
        // There is one for each partition.
        &self.publishers[self.partitions.of(key) as usize]
    }

    fn change(self, change: impl Fn(Publisher<T, C>) -> Publisher<T, C>) -> Self {
        Self { publishers: self.publishers.into_iter().map(change).collect(), ..self }
    }
}

impl<T, C> Clone for PartitionedPublisher<T, C> {
    fn clone(&self) -> Self {
        Self { partitions: self.partitions.clone(), publishers: self.publishers.clone() }
    }
}

impl<T, C> fmt::Debug for PartitionedPublisher<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionedPublisher")
            .field("partitions", &self.partitions)
            .finish_non_exhaustive()
    }
}
