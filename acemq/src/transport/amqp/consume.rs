//! Subscriptions, each on a channel of its own.

mod channel;
mod settle;
mod tags;

use std::{
    collections::VecDeque,
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::time::timeout;

use self::channel::{Over, SubscriptionChannel};
use super::{
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
        let prefetch = subscription.prefetch;
        let inner = SubscriptionChannel::start(&owner, channel, &tap, subscription);
        let channel = AmqpConsume { inner, taken: VecDeque::new(), ended: false };
        channel.inner.begin(prefetch).await.map_err(|over| over.error(&what))?;
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

    fn cancel(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            if self.inner.lock().drain.is_some() {
                return Ok(());
            }
            let inner = Arc::clone(&self.inner);
            self.complete("stop consuming", async move { inner.cancel().await }).await
        })
    }

    fn resume(&mut self, prefetch: u16) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let inner = Arc::clone(&self.inner);
            self.ended = false;
            self.complete("consume again", async move { inner.begin(prefetch).await }).await
        })
    }

    fn set_prefetch(&mut self, prefetch: u16) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let inner = Arc::clone(&self.inner);
            self.complete("change the prefetch", async move { inner.replace(prefetch).await }).await
        })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.close_after(self.inner.flush()).await })
    }

    fn leave(self: Box<Self>, alone: bool) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let flush = async {
                if alone {
                    self.inner.flush_beside().await
                } else {
                    self.inner.flush_in_time().await
                }
            };
            self.close_after(flush).await;
        })
    }
}

impl AmqpConsume {
    /// Closes the channel once the broker has all settlements.
    async fn close_after(&self, flush: impl Future<Output = Result<(), Over>>) {
        let take = async {
            flush.await?;
            self.inner.close().await
        };
        // Where this fails or takes too long, the drop closes the channel as it is.
        let _ = timeout(self.inner.core.step, take).await;
    }

    /// Runs `work` to its end, whether or not this is dropped.
    async fn complete(
        &self,
        what: &str,
        work: impl Future<Output = Result<(), Over>> + Send + 'static,
    ) -> Result<()> {
        let action = format!("{what}, queue {:?}", self.inner.subscription.queue);
        let name = action.clone();
        let work = async move { work.await.map_err(|over| over.error(&name)) };
        self.inner.core.complete(action, work).await
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
