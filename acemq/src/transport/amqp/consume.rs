//! Subscriptions.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures_util::{FutureExt as _, Stream};
use lapin::{
    Channel, Consumer,
    options::{
        BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions,
    },
};
use tokio::time::timeout;

use super::{
    convert::{delivery, short, table},
    error,
    limits::{check_name, check_table},
    link::{Core, Throwaway},
};
use crate::{
    error::Result,
    transport::{BoxFuture, ConsumeChannel, ConsumeEnd, ConsumeEvent, Settler, Subscription},
};

pub(super) async fn subscribe(
    core: &Arc<Core>,
    subscription: Subscription,
) -> Result<Box<dyn ConsumeChannel>> {
    let Subscription { queue, prefetch, exclusive, arguments } = subscription;
    let action = format!("consume from queue {queue:?}");
    check_name(&action, "name", &queue)?;
    check_table(&action, &arguments)?;
    let (name, arguments) = (short(&queue)?, table(&arguments)?);
    let tag = short(&format!("acemq-{}", uuid::Uuid::new_v4()))?;
    let (owner, what) = (Arc::clone(core), action.clone());
    core.complete(action, async move {
        let opened = Throwaway::open(&owner, &what).await?;
        let channel = &opened.channel;
        let consume = async {
            channel.basic_qos(prefetch, BasicQosOptions { global: false }).await?;
            let options = BasicConsumeOptions { exclusive, ..BasicConsumeOptions::default() };
            channel.basic_consume(name, tag, options, arguments).await
        };
        let consumer = consume.await.map_err(|error| owner.error(&what, &error))?;
        let channel = opened.keep();
        Ok(Box::new(AmqpConsume {
            core: owner,
            settle: Arc::new(Settle { channel }),
            consumer,
            prefetch,
            cancelled: false,
            failure: None,
        }) as Box<dyn ConsumeChannel>)
    })
    .await
    .map_err(|error| error.with_queue(queue))
}

struct AmqpConsume {
    core: Arc<Core>,
    settle: Arc<Settle>,
    consumer: Consumer,
    prefetch: u16,
    cancelled: bool,
    /// Why lapin says that the channel ended, which it says before it ends the stream.
    failure: Option<String>,
}

impl AmqpConsume {
    fn end(&self) -> ConsumeEnd {
        match (&self.failure, self.settle.channel.status().connected()) {
            (Some(reason), _) => ConsumeEnd::Lost(reason.clone()),
            (None, true) if self.cancelled => ConsumeEnd::Cancelled,
            (None, true) => ConsumeEnd::CancelledByBroker,
            (None, false) => ConsumeEnd::Lost(
                self.core.end().unwrap_or_else(|| "the channel was closed".to_owned()),
            ),
        }
    }
}

impl ConsumeChannel for AmqpConsume {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<ConsumeEvent> {
        loop {
            match ready!(Pin::new(&mut self.consumer).poll_next(context)) {
                // Once the channel is gone the broker has taken back what came before.
                Some(Ok(theirs)) if self.settle.channel.status().connected() => {
                    return Poll::Ready(ConsumeEvent::Delivery(delivery(theirs)));
                }
                Some(Ok(_)) => {}
                Some(Err(lapin)) => self.failure = Some(error::reason(&lapin)),
                None => return Poll::Ready(ConsumeEvent::Ended(self.end())),
            }
        }
    }

    fn settler(&self) -> Arc<dyn Settler> {
        Arc::clone(&self.settle) as Arc<dyn Settler>
    }

    fn cancel(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            if self.cancelled {
                return Ok(());
            }
            self.cancelled = true;
            let action = format!("stop consuming from queue {:?}", self.consumer.queue().as_str());
            let (owner, what) = (Arc::clone(&self.core), action.clone());
            let (channel, tag) = (self.settle.channel.clone(), self.consumer.tag());
            self.core
                .complete(action, async move {
                    channel
                        .basic_cancel(tag, BasicCancelOptions::default())
                        .await
                        .map_err(|error| owner.error(&what, &error))
                })
                .await
        })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let (channel, tag) = (self.settle.channel.clone(), self.consumer.tag());
            let prefetch = self.prefetch;
            let take = async move {
                channel.basic_cancel(tag, BasicCancelOptions::default()).await?;
                channel.basic_qos(prefetch, BasicQosOptions { global: false }).await?;
                channel.close(200, "OK".into()).await
            };
            let _ = timeout(self.core.step, take).await;
        })
    }
}

impl Drop for AmqpConsume {
    fn drop(&mut self) {
        if self.settle.channel.status().connected() {
            self.core.discard(self.settle.channel.clone(), self.consumer.clone());
        }
    }
}

impl fmt::Debug for AmqpConsume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AmqpConsume")
            .field("queue", &self.consumer.queue().as_str())
            .field("cancelled", &self.cancelled)
            .finish_non_exhaustive()
    }
}

/// Settles by channel and tag. The channel is this subscription's own, so that a tag of one that
/// has ended never reaches another.
struct Settle {
    channel: Channel,
}

impl Settle {
    /// Queues the frame, which the first poll does; nobody waits for it to be written. `false`
    /// where lapin refuses it because the channel has ended.
    fn queue(&self, settle: impl Future<Output = lapin::Result<()>>) -> bool {
        !matches!(settle.now_or_never(), Some(Err(_)))
    }
}

impl Settler for Settle {
    fn is_open(&self) -> bool {
        self.channel.status().connected()
    }

    fn ack(&self, tag: u64) -> bool {
        self.queue(self.channel.basic_ack(tag, BasicAckOptions::default()))
    }

    fn nack(&self, tag: u64, requeue: bool) -> bool {
        let options = BasicNackOptions { requeue, ..BasicNackOptions::default() };
        self.queue(self.channel.basic_nack(tag, options))
    }
}

impl fmt::Debug for Settle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settle").field("channel", &self.channel.id()).finish_non_exhaustive()
    }
}
