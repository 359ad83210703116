//! Subscriptions: what a consumer has been given and has not settled.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    task::{Context, Poll, Waker, ready},
};

use tokio::task::coop;

use super::{
    broker::Broker,
    death::Reason,
    queue::Stored,
    state::{Id, QueueName, State},
};
use crate::{
    envelope::HeaderValue,
    error::{Error, ErrorKind, Result},
    transport::{
        BoxFuture, ConsumeChannel, ConsumeEnd, ConsumeEvent, DIRECT_REPLY_TO, Delivery, Settler,
        Subscription,
    },
};

pub(super) struct Consumer {
    pub(super) link: Id,
    pub(super) queue: QueueName,
    queue_id: Id,
    exclusive: bool,
    prefetch: usize,
    /// The last tag from before the prefetch was set anew, and how many up to it are unsettled:
    /// they take no room.
    prefetch_since: u64,
    held: usize,
    /// Deliveries by tag.
    unsettled: BTreeMap<u64, Stored>,
    /// The tag given out last.
    last_tag: u64,
    /// The last tag that has come out of the channel; what is above it waits there.
    taken: u64,
    waker: Option<Waker>,
    end: Option<ConsumeEnd>,
}

/// What becomes of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settlement {
    Accept,
    Reject,
    Requeue,
}

/// What comes out of a consumer next.
enum Next {
    Delivery(u64, Stored),
    Ended(ConsumeEnd),
}

impl Consumer {
    pub(super) fn has_room(&self) -> bool {
        self.end.is_none() && self.unsettled.len() - self.held < self.prefetch
    }

    /// Takes a delivery, and says whom to wake.
    pub(super) fn take(&mut self, stored: Stored) -> Option<Waker> {
        self.last_tag += 1;
        self.unsettled.insert(self.last_tag, stored);
        self.waker.take()
    }

    fn next(&mut self, waker: &Waker) -> Option<Next> {
        if let Some(end @ ConsumeEnd::Lost(_)) = &self.end {
            return Some(Next::Ended(end.clone()));
        }
        while self.taken < self.last_tag {
            self.taken += 1;
            if let Some(stored) = self.unsettled.get(&self.taken) {
                return Some(Next::Delivery(self.taken, stored.clone()));
            }
        }
        if let Some(end) = &self.end {
            return Some(Next::Ended(end.clone()));
        }
        match &mut self.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        None
    }
}

impl State {
    pub(super) fn subscribe(&mut self, link: Id, subscription: &Subscription) -> Result<Id> {
        let Subscription { queue: name, prefetch, exclusive, arguments } = subscription;
        let fail = |kind, why: &str| {
            Err(Error::new(kind, format!("consume from queue {name:?}: {why}")).with_queue(name))
        };
        if let Some(argument) = arguments.keys().find(|argument| argument.starts_with("x-")) {
            let why = format!("the memory transport does not know the argument {argument:?}");
            return fail(ErrorKind::Unsupported, &why);
        }
        if name == DIRECT_REPLY_TO {
            return fail(ErrorKind::Unsupported, "the memory transport has no direct reply-to");
        }
        let id = self.next_id();
        let (queue, queue_id) = self.join(link, name, id, *exclusive)?;
        let consumer = Consumer {
            link,
            queue,
            queue_id,
            exclusive: *exclusive,
            prefetch: most(*prefetch),
            prefetch_since: 0,
            held: 0,
            unsettled: BTreeMap::new(),
            last_tag: 0,
            taken: 0,
            waker: None,
            end: None,
        };
        self.consumers.insert(id, consumer);
        self.run(name);
        Ok(id)
    }

    /// Takes a consumer in among those of a queue.
    fn join(
        &mut self,
        link: Id,
        name: &str,
        consumer: Id,
        exclusive: bool,
    ) -> Result<(QueueName, Id)> {
        let queue = self.queue_for(link, name, "consume from")?;
        if queue.taken || exclusive && !queue.consumers.is_empty() {
            let why = "it is in the exclusive use of another consumer";
            return Err(Error::new(
                ErrorKind::Refused,
                format!("consume from queue {name:?}: {why}"),
            )
            .with_queue(name));
        }
        queue.taken = exclusive;
        queue.consumers.push(consumer);
        queue.waiting.push_back(consumer);
        Ok((queue.name.clone(), queue.id))
    }

    /// Lets a consumer that was cancelled consume again. Where it cannot, its channel ends.
    fn resume(&mut self, id: Id, prefetch: u16) -> Result<()> {
        let found = self.consumers.get(&id).filter(|_| self.holds_deliveries(id));
        let Some(consumer) = found else { return Err(ended("consume again")) };
        let (link, name, exclusive) = (consumer.link, consumer.queue.clone(), consumer.exclusive);
        // What it holds may be of a queue that is gone; another of that name is for a new channel.
        let joined = match (self.queue_of(id), self.queues.contains_key(&name)) {
            (None, true) => Err(ended("consume again")),
            _ => self.join(link, &name, id, exclusive),
        };
        if let Err(error) = joined {
            self.lose(&[id], "it could not consume again");
            return Err(error);
        }
        if let Some(consumer) = self.consumers.get_mut(&id) {
            consumer.end = None;
        }
        self.set_prefetch(id, prefetch)
    }

    fn set_prefetch(&mut self, id: Id, prefetch: u16) -> Result<()> {
        let found = self.consumers.get_mut(&id).filter(|consumer| consumer.end.is_none());
        let Some(consumer) = found else { return Err(ended("change the prefetch")) };
        consumer.prefetch = most(prefetch);
        consumer.prefetch_since = consumer.last_tag;
        consumer.held = consumer.unsettled.len();
        let (has_room, name) = (consumer.has_room(), consumer.queue.clone());
        if let Some(queue) = self.queues.get_mut(&name) {
            queue.waiting.retain(|&waiting| waiting != id);
            queue.waiting.extend(has_room.then_some(id));
        }
        self.run(&name);
        Ok(())
    }

    fn next_event(&mut self, id: Id, waker: &Waker) -> Option<Next> {
        match self.consumers.get_mut(&id) {
            Some(consumer) => consumer.next(waker),
            None => Some(Next::Ended(ConsumeEnd::Lost("the channel is closed".to_owned()))),
        }
    }

    /// Whether a consumer's channel lives, so that its deliveries are still its own.
    fn holds_deliveries(&self, id: Id) -> bool {
        self.consumers
            .get(&id)
            .is_some_and(|consumer| !matches!(consumer.end, Some(ConsumeEnd::Lost(_))))
    }

    fn settle(&mut self, id: Id, tag: u64, settlement: Settlement) -> bool {
        if !self.holds_deliveries(id) {
            return false;
        }
        let Some(consumer) = self.consumers.get_mut(&id) else { return false };
        let was_full = !consumer.has_room();
        let Some(stored) = consumer.unsettled.remove(&tag) else {
            self.lose(&[id], &format!("unknown delivery tag {tag}"));
            return false;
        };
        if tag <= consumer.prefetch_since {
            consumer.held -= 1;
        }
        let waits = was_full && consumer.has_room();
        let Some((queue, queue_id)) = self.queue_of(id) else { return true };
        if waits && let Some(queue) = self.queues.get_mut(&queue) {
            queue.waiting.push_back(id);
        }
        match settlement {
            Settlement::Accept => {}
            Settlement::Reject => self.bury(&queue, &stored, Reason::Rejected),
            Settlement::Requeue => self.put_back(&queue, queue_id, [stored]),
        }
        self.run(&queue);
        true
    }

    /// The queue that a consumer's deliveries came from, if it is still that one.
    fn queue_of(&self, id: Id) -> Option<(QueueName, Id)> {
        let consumer = self.consumers.get(&id)?;
        let queue = self.queues.get(&consumer.queue)?;
        (queue.id == consumer.queue_id).then(|| (queue.name.clone(), queue.id))
    }

    fn put_back(&mut self, name: &str, id: Id, messages: impl IntoIterator<Item = Stored>) {
        for stored in messages {
            let Some(queue) = self.queues.get_mut(name).filter(|queue| queue.id == id) else {
                return;
            };
            if let Err(worn_out) = queue.put_back(stored) {
                self.bury(name, &worn_out, Reason::DeliveryLimit);
            }
        }
    }

    /// Ends a subscription; its deliveries can still be settled.
    pub(super) fn end_consumer(&mut self, id: Id, end: ConsumeEnd) {
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        let was_active = consumer.end.is_none();
        let is_lost = matches!(end, ConsumeEnd::Lost(_));
        if was_active || is_lost {
            consumer.end = Some(end);
        }
        self.effects.wake.extend(consumer.waker.take());
        let Some((name, _)) = self.queue_of(id).filter(|_| was_active) else { return };
        let Some(queue) = self.queues.get_mut(&name) else { return };
        queue.remove_consumer(id);
        if queue.auto_delete && queue.consumers.is_empty() {
            self.remove_queue(&name);
        } else if !is_lost {
            // Another may be the one active consumer from now on. Where the channel is lost, what it
            // held comes first.
            self.run(&name);
        }
    }

    /// Ends the channels of these consumers, and only then puts back what they had not settled:
    /// it would otherwise go from one to the next.
    pub(super) fn lose(&mut self, consumers: &[Id], reason: &str) {
        for &id in consumers {
            self.end_consumer(id, ConsumeEnd::Lost(reason.to_owned()));
        }
        for &id in consumers {
            let Some(consumer) = self.consumers.get_mut(&id) else { continue };
            let unsettled = std::mem::take(&mut consumer.unsettled);
            if let Some((queue, queue_id)) = self.queue_of(id) {
                // The last first: each then comes in at the front.
                self.put_back(&queue, queue_id, unsettled.into_values().rev());
                self.run(&queue);
            }
        }
    }
}

/// One consumer, as the transport's users hold it. It does not keep the broker alive.
pub(super) struct MemoryChannel {
    broker: Weak<Broker>,
    id: Id,
    ended: bool,
}

impl MemoryChannel {
    pub(super) fn new(broker: &Arc<Broker>, id: Id) -> Self {
        Self { broker: Arc::downgrade(broker), id, ended: false }
    }

    fn act(&self, what: &str, act: impl FnOnce(&mut State, Id) -> Result<()>) -> Result<()> {
        let Some(broker) = self.broker.upgrade() else { return Err(ended(what)) };
        broker.act(|state| act(state, self.id))
    }
}

impl ConsumeChannel for MemoryChannel {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<ConsumeEvent> {
        if self.ended {
            return Poll::Pending;
        }
        // Without this a consumer of a full queue would never let another task run.
        let budget = ready!(coop::poll_proceed(context));
        let next = match self.broker.upgrade() {
            Some(broker) => broker.act(|state| state.next_event(self.id, context.waker())),
            None => Some(Next::Ended(ConsumeEnd::Lost("the memory broker is gone".to_owned()))),
        };
        let Some(next) = next else { return Poll::Pending };
        budget.made_progress();
        Poll::Ready(match next {
            Next::Delivery(tag, stored) => ConsumeEvent::Delivery(delivery(tag, &stored)),
            Next::Ended(end) => {
                self.ended = true;
                ConsumeEvent::Ended(end)
            }
        })
    }

    fn settler(&self) -> Arc<dyn Settler> {
        Arc::new(MemorySettler { broker: self.broker.clone(), id: self.id })
    }

    fn cancel(&mut self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let lost = self.broker.upgrade().is_none_or(|broker| {
                broker.act(|state| {
                    state.end_consumer(self.id, ConsumeEnd::Cancelled);
                    let end = state.consumers.get(&self.id).and_then(|found| found.end.as_ref());
                    matches!(end, None | Some(ConsumeEnd::Lost(_)))
                })
            });
            if lost { Err(ended("cancel a consumer")) } else { Ok(()) }
        })
    }

    fn resume(&mut self, prefetch: u16) -> BoxFuture<'_, Result<()>> {
        self.ended = false;
        let resumed = self.act("consume again", |state, id| state.resume(id, prefetch));
        Box::pin(std::future::ready(resumed))
    }

    fn set_prefetch(&mut self, prefetch: u16) -> BoxFuture<'_, Result<()>> {
        let act = |state: &mut State, id| state.set_prefetch(id, prefetch);
        Box::pin(std::future::ready(self.act("change the prefetch", act)))
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        // Settling is done by the time it returns, so dropping is all there is to do.
        Box::pin(async move { drop(self) })
    }

    fn leave(self: Box<Self>, _alone: bool) -> BoxFuture<'static, ()> {
        self.close()
    }
}

impl Drop for MemoryChannel {
    fn drop(&mut self) {
        if let Some(broker) = self.broker.upgrade() {
            broker.act(|state| {
                state.lose(&[self.id], "the channel is closed");
                state.consumers.remove(&self.id);
            });
        }
    }
}

impl std::fmt::Debug for MemoryChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryChannel").field("id", &self.id).finish_non_exhaustive()
    }
}

/// How many unsettled deliveries a prefetch allows.
fn most(prefetch: u16) -> usize {
    if prefetch == 0 { usize::MAX } else { usize::from(prefetch) }
}

fn ended(what: &str) -> Error {
    Error::new(
        ErrorKind::Lost,
        format!("{what}: its channel has ended, and the broker has cancelled it"),
    )
}

fn delivery(tag: u64, stored: &Stored) -> Delivery {
    let message = &stored.message;
    let mut properties = message.properties.clone();
    if stored.returns > 0 {
        // Quorum queues count.
        let returns = HeaderValue::I64(stored.returns.into());
        properties.headers.insert("x-delivery-count".to_owned(), returns);
    }
    Delivery {
        tag,
        redelivered: stored.redelivered,
        exchange: message.exchange.clone(),
        routing_key: message.routing_key.clone(),
        properties,
        body: message.body.clone(),
    }
}

#[derive(Debug)]
struct MemorySettler {
    broker: Weak<Broker>,
    id: Id,
}

impl MemorySettler {
    fn settle(&self, tag: u64, settlement: Settlement) -> bool {
        self.broker
            .upgrade()
            .is_some_and(|broker| broker.act(|state| state.settle(self.id, tag, settlement)))
    }
}

impl Settler for MemorySettler {
    fn is_open(&self) -> bool {
        self.broker
            .upgrade()
            .is_some_and(|broker| broker.act(|state| state.holds_deliveries(self.id)))
    }

    fn ack(&self, tag: u64) -> bool {
        self.settle(tag, Settlement::Accept)
    }

    fn nack(&self, tag: u64, requeue: bool) -> bool {
        self.settle(tag, if requeue { Settlement::Requeue } else { Settlement::Reject })
    }
}
