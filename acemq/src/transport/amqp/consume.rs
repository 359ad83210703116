//! Subscriptions, each on a channel of its own.

mod channel;
mod settle;

use std::{
    collections::VecDeque,
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::BytesMut;
use tokio::time::timeout;

use self::channel::SubscriptionChannel;
use super::{
    encode,
    limits::{check_name, check_table},
    link::{Core, Throwaway},
    switch::Tap,
};
use crate::{
    error::Result,
    transport::{
        BoxFuture, ConsumeChannel, ConsumeEnd, ConsumeEvent, Delivery, Settler, Subscription,
    },
};

pub(super) async fn subscribe(
    core: &Arc<Core>,
    tap: &Arc<Tap>,
    subscription: Subscription,
) -> Result<Box<dyn ConsumeChannel>> {
    let queue = subscription.queue.clone();
    let action = format!("consume from queue {queue:?}");
    check_name(&action, "name", &queue)?;
    check_table(&action, &subscription.arguments)?;
    let (owner, tap, what) = (Arc::clone(core), Arc::clone(tap), action.clone());
    core.complete(action, async move {
        let channel = Throwaway::open(&owner, &what).await?;
        let inner = SubscriptionChannel::start(&owner, channel, &tap, &subscription);
        let channel = AmqpConsume { inner, taken: VecDeque::new(), ended: false };
        let qos = |out: &mut BytesMut, number| {
            encode::basic_qos(out, number, subscription.prefetch);
        };
        let consume = |out: &mut BytesMut, number| {
            encode::basic_consume(out, number, &channel.inner.tag(0), &subscription);
        };
        let started = async {
            channel.inner.call(qos).await?;
            channel.inner.call(consume).await
        };
        started.await.map_err(|over| over.error(&what))?;
        Ok(Box::new(channel) as Box<dyn ConsumeChannel>)
    })
    .await
    .map_err(|error| error.with_queue(queue))
}

/// The reading end of a subscription.
struct AmqpConsume {
    inner: Arc<SubscriptionChannel>,
    /// Deliveries that have been taken out of the shared state together.
    taken: VecDeque<Delivery>,
    /// Whether the end has been told.
    ended: bool,
}

impl ConsumeChannel for AmqpConsume {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<ConsumeEvent> {
        if self.ended {
            return Poll::Pending;
        }
        if self.inner.is_open() {
            if let Some(delivery) = self.taken.pop_front() {
                return Poll::Ready(ConsumeEvent::Delivery(delivery));
            }
        } else {
            self.taken.clear();
        }
        let mut state = self.inner.lock();
        if let Some(over) = &state.over {
            self.ended = true;
            return Poll::Ready(ConsumeEvent::Ended(ConsumeEnd::Lost(over.reason())));
        }
        std::mem::swap(&mut state.arrived, &mut self.taken);
        match (self.taken.pop_front(), &state.cancelled) {
            (Some(delivery), _) => Poll::Ready(ConsumeEvent::Delivery(delivery)),
            (None, Some(end)) => {
                self.ended = true;
                Poll::Ready(ConsumeEvent::Ended(end.clone()))
            }
            (None, None) => {
                state.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn settler(&self) -> Arc<dyn Settler> {
        Arc::clone(&self.inner) as Arc<dyn Settler>
    }

    fn renew(&mut self, prefetch: u16) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let action = format!("go on consuming from queue {:?}", self.inner.subscription.queue);
            let (inner, what) = (Arc::clone(&self.inner), action.clone());
            let renew =
                async move { inner.renew(prefetch).await.map_err(|over| over.error(&what)) };
            self.inner.core.complete(action, renew).await
        })
    }

    fn cancel(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            if self.inner.drain.get().is_some() {
                return Ok(());
            }
            let action = format!("stop consuming from queue {:?}", self.inner.subscription.queue);
            let (inner, what) = (Arc::clone(&self.inner), action.clone());
            self.inner
                .core
                .complete(
                    action,
                    async move { inner.cancel().await.map_err(|over| over.error(&what)) },
                )
                .await
        })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let take = async {
                self.inner.flush().await?;
                self.inner.close().await
            };
            // Where this fails or takes too long, the drop closes the channel as it is.
            let _ = timeout(self.inner.core.step, take).await;
        })
    }
}

impl Drop for AmqpConsume {
    fn drop(&mut self) {
        if self.inner.is_open() {
            let inner = Arc::clone(&self.inner);
            self.inner.core.runtime.spawn(async move { inner.close().await });
        }
    }
}

impl fmt::Debug for AmqpConsume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
