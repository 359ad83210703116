//! Handling partitions: each one message after the other.

use std::{fmt, future::IntoFuture, time::Duration};

use futures_util::{StreamExt as _, TryStreamExt as _, future::join_all, stream};
use tokio::time::Instant;

use super::Partitions;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::{
    codec::{AnyFormat, Decode},
    consume::{
        Ack, Consumer, ConsumerBuilder, ConsumerCounters, ConsumerState, HandlerError, Message,
        OnFailure, StartConsumer, TransactionalStore,
    },
    error::Result,
    idempotency::IdempotencyStore,
    transport::BoxFuture,
};

/// How many partitions are subscribed to at once.
const AT_ONCE: usize = 16;

/// A consumer of all partitions about to be started, from [`Partitions::consumer`].
#[must_use = "a consumer does nothing until it is started"]
pub struct PartitionedConsumerBuilder<T, C = AnyFormat> {
    partitions: Partitions,
    each: ConsumerBuilder<T, C>,
}

impl<T> PartitionedConsumerBuilder<T> {
    pub(super) fn new(partitions: &Partitions) -> Self {
        // The queue is each partition's own.
        let each = partitions
            .client
            .consumer(partitions.name())
            .one_after_the_other(partitions.single_active);
        Self { partitions: partitions.clone(), each }
    }
}

impl<T, C> PartitionedConsumerBuilder<T, C> {
    /// How many messages the broker hands over of each partition before the first of these is
    /// settled. Default 20, at least 1. One of them is handled at a time.
    ///
    /// Every process has to have the same. What one process gives back another one is given first, but
    /// a quorum queue puts what comes back behind what came back before: a process that is given only
    /// a part of it, because its prefetch is smaller, and gives that back in turn, breaks the order.
    pub fn prefetch(mut self, count: u16) -> Self {
        self.each = self.each.prefetch(count);
        self
    }

    /// What becomes of a message that fails. Default [`OnFailure::stop`]: the partition halts, the
    /// message and what is behind it go back, and nothing of the partition is handled here until
    /// [`PartitionedConsumer::resume`]. Where another process asks for the partition as well, it becomes
    /// the active one and tries the message in its turn. On a quorum queue each halt costs a delivery
    /// of those that a message has (20 by default from RabbitMQ 4.0).
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.each = self.each.on_failure(on_failure);
        self
    }

    /// As [`ConsumerBuilder::idempotent`].
    pub fn idempotent(mut self, store: impl IdempotencyStore) -> Self {
        self.each = self.each.idempotent(store);
        self
    }

    /// As [`ConsumerBuilder::idempotency_key`].
    pub fn idempotency_key<K: Into<String>>(
        mut self,
        key: impl Fn(&Message<T>) -> K + Send + Sync + 'static,
    ) -> Self {
        self.each = self.each.idempotency_key(key);
        self
    }

    /// As [`ConsumerBuilder::in_progress_wait`]; the message waits in its place.
    pub fn in_progress_wait(mut self, wait: Duration) -> Self {
        self.each = self.each.in_progress_wait(wait);
        self
    }

    /// As [`ConsumerBuilder::handler_timeout`].
    pub fn handler_timeout(mut self, limit: Duration) -> Self {
        self.each = self.each.handler_timeout(limit);
        self
    }

    /// As [`ConsumerBuilder::declare`].
    pub fn declare(mut self, declare: bool) -> Self {
        self.each = self.each.declare(declare);
        self
    }

    /// The same consumer with another codec.
    pub fn codec<D>(self, codec: D) -> PartitionedConsumerBuilder<T, D> {
        PartitionedConsumerBuilder { partitions: self.partitions, each: self.each.codec(codec) }
    }

    /// Starts to consume all partitions, with one handler at a time for each. Awaiting it means that
    /// the broker has accepted the subscriptions. They are asked for in random order, so that
    /// processes that start together have a share each; the first process has all of them, and
    /// another one takes over when it closes.
    ///
    /// # Errors
    /// As [`ConsumerBuilder::start`]; then those that were started stop again.
    ///
    /// # Cancellation
    /// Dropping the future before it is done stops those that were started.
    pub fn start<F, Fut, R>(self, handler: F) -> StartPartitionedConsumer
    where
        T: Send + 'static,
        C: Decode<T>,
        F: Fn(Message<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, HandlerError>> + Send + 'static,
        R: Into<Ack>,
    {
        let Self { partitions, each } = self;
        let queues = queues(&partitions);
        StartPartitionedConsumer { starts: each.handled_by(handler).for_each(queues), partitions }
    }

    /// Starts to consume all partitions with a handler whose writes commit with the claim on its
    /// message, as [`ConsumerBuilder::start_in_transaction`].
    ///
    /// # Errors
    /// As [`ConsumerBuilder::start_in_transaction`]; then those that were started stop again.
    ///
    /// # Cancellation
    /// Dropping the future before it is done stops those that were started.
    pub fn start_in_transaction<S, F, Fut>(self, store: S, handler: F) -> StartPartitionedConsumer
    where
        T: Send + 'static,
        C: Decode<T>,
        S: TransactionalStore,
        F: Fn(Message<T>, S::Transaction) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<S::Transaction, HandlerError>> + Send + 'static,
    {
        let Self { partitions, each } = self;
        let queues = queues(&partitions);
        let starts = each.handled_in_transaction(store, handler).for_each(queues);
        StartPartitionedConsumer { starts, partitions }
    }
}

fn queues(partitions: &Partitions) -> Vec<String> {
    (0..partitions.count).map(|partition| partitions.queue(partition)).collect()
}

/// Consumers that start when this is awaited, from [`PartitionedConsumerBuilder::start`].
#[must_use = "consumers start by awaiting it"]
pub struct StartPartitionedConsumer {
    partitions: Partitions,
    starts: Vec<StartConsumer>,
}

impl StartPartitionedConsumer {
    async fn run(self) -> Result<PartitionedConsumer> {
        let mut starts: Vec<_> = (0_u32..).zip(self.starts).collect();
        fastrand::shuffle(&mut starts);
        let mut consumers: Vec<(u32, Consumer)> = stream::iter(starts)
            .map(
                |(partition, start)| async move { start.await.map(|started| (partition, started)) },
            )
            .buffered(AT_ONCE)
            .try_collect()
            .await?;
        consumers.sort_by_key(|(partition, _)| *partition);
        let consumers = consumers.into_iter().map(|(_, consumer)| consumer).collect();
        Ok(PartitionedConsumer { partitions: self.partitions, consumers })
    }
}

/// The running consumers of all partitions, from [`PartitionedConsumerBuilder::start`].
///
/// Dropping it stops them at once, as dropping a [`Consumer`] does; [`close`](Self::close) lets
/// handlers finish.
#[must_use = "dropping it stops the consumers"]
pub struct PartitionedConsumer {
    partitions: Partitions,
    /// By partition.
    consumers: Vec<Consumer>,
}

/// A partition of which nothing is handled any more, from [`PartitionedConsumer::halted`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HaltedPartition {
    /// The partition, from 0.
    pub partition: u32,
    /// Its queue, in which the message is.
    pub queue: String,
    /// The message that failed.
    pub message_id: String,
    /// How many attempts it has had.
    pub attempts: u32,
    /// Why the last of them failed.
    pub reason: String,
}

impl PartitionedConsumer {
    /// The consumer of a partition, for its state and its counters; `None` where there is no such
    /// partition.
    #[must_use]
    pub fn partition(&self, partition: u32) -> Option<&Consumer> {
        self.consumers.get(partition as usize)
    }

    /// What all partitions have done so far, together. What was skipped is among the
    /// [`dead_lettered`](ConsumerCounters::dead_lettered).
    #[must_use]
    pub fn counters(&self) -> ConsumerCounters {
        self.consumers.iter().map(Consumer::counters).sum()
    }

    /// The partitions that have halted here, because a message failed and [`OnFailure`] says to stop.
    #[must_use]
    pub fn halted(&self) -> Vec<HaltedPartition> {
        let halted = (0..).zip(&self.consumers).filter_map(|(partition, consumer)| {
            let ConsumerState::Halted { message_id, attempts, reason } = consumer.state() else {
                return None;
            };
            let queue = consumer.queue().to_owned();
            Some(HaltedPartition { partition, queue, message_id, attempts, reason })
        });
        halted.collect()
    }

    /// Lets a partition go on that has halted, beginning with the message that failed; `false` if it
    /// has not. Awaiting it means that the broker has accepted the subscription.
    ///
    /// # Errors
    /// As [`Consumer::resume`].
    ///
    /// # Cancellation
    /// Dropping the future does not stop the resuming.
    pub async fn resume(&self, partition: u32) -> Result<bool> {
        match self.partition(partition) {
            Some(consumer) if matches!(consumer.state(), ConsumerState::Halted { .. }) => {
                consumer.resume().await.map(|()| true)
            }
            _ => Ok(false),
        }
    }

    /// Stops taking messages and waits for running handlers, all within the client's drain timeout.
    /// Everything else goes back, each message to its place. A second call waits for the first.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`] when a handler was still running at the bound: it was stopped, and its
    /// message goes back. Everything is closed all the same.
    ///
    /// # Cancellation
    /// Dropping the future does not stop the closing.
    pub async fn close(&self) -> Result<()> {
        let deadline = Instant::now() + self.partitions.client.options().drain_timeout;
        let closed = join_all(self.consumers.iter().map(|consumer| consumer.close_by(deadline)));
        closed.await.into_iter().collect()
    }
}

impl IntoFuture for StartPartitionedConsumer {
    type Output = Result<PartitionedConsumer>;
    type IntoFuture = BoxFuture<'static, Result<PartitionedConsumer>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl<T, C> fmt::Debug for PartitionedConsumerBuilder<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionedConsumerBuilder")
            .field("partitions", &self.partitions)
            .field("each", &self.each)
            .finish()
    }
}

impl fmt::Debug for StartPartitionedConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartPartitionedConsumer")
            .field("partitions", &self.partitions)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for PartitionedConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionedConsumer")
            .field("partitions", &self.partitions)
            .field("counters", &self.counters())
            .field("halted", &self.halted())
            .finish_non_exhaustive()
    }
}
