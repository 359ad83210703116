//! What a broker holds.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use tokio::time::Instant;

use super::{
    broker::Effects,
    consumer::Consumer,
    death::Reason,
    exchange::Exchange,
    link::Attached,
    message::MemoryMessage,
    queue::{Queue, Stored},
};
use crate::{
    clock::Clock,
    transport::{ExchangeKind, Outgoing},
};

/// How many of the last publishes [`MemoryBroker::published`](super::MemoryBroker::published)
/// remembers.
pub(super) const PUBLISHED_KEPT: usize = 10_000;

/// Names a link, a consumer or a queue for as long as the broker lives. A queue has one because
/// another may take its name while deliveries of the first are still unsettled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Id(u64);

pub(super) type QueueName = Arc<str>;

pub(super) struct State {
    pub(super) clock: Clock,
    pub(super) exchanges: HashMap<String, Exchange>,
    pub(super) queues: HashMap<QueueName, Queue>,
    pub(super) consumers: BTreeMap<Id, Consumer>,
    /// Links that have not ended.
    pub(super) links: BTreeMap<Id, Attached>,
    /// Why publishing is paused, while it is.
    pub(super) blocked: Option<String>,
    /// When the first message of a queue expires; at most one entry a queue.
    pub(super) deadlines: BTreeSet<(Instant, QueueName)>,
    pub(super) published: VecDeque<MemoryMessage>,
    pub(super) effects: Effects,
    last_id: u64,
}

impl State {
    pub(super) fn new() -> Self {
        let exchanges = [
            ("amq.direct", ExchangeKind::Direct),
            ("amq.fanout", ExchangeKind::Fanout),
            ("amq.topic", ExchangeKind::Topic),
        ];
        Self {
            clock: Clock::start(),
            exchanges: exchanges
                .map(|(name, kind)| (name.to_owned(), Exchange::predeclared(kind)))
                .into(),
            queues: HashMap::new(),
            consumers: BTreeMap::new(),
            links: BTreeMap::new(),
            blocked: None,
            deadlines: BTreeSet::new(),
            published: VecDeque::new(),
            effects: Effects::default(),
            last_id: 0,
        }
    }

    pub(super) fn next_id(&mut self) -> Id {
        self.last_id += 1;
        Id(self.last_id)
    }

    /// The time at which something has to be done next.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Lets everything expire whose time has come.
    pub(super) fn expire_due(&mut self) {
        if self.deadlines.is_empty() {
            return;
        }
        let now = Instant::now();
        while self.next_deadline().is_some_and(|deadline| deadline <= now) {
            if let Some((_, queue)) = self.deadlines.pop_first() {
                if let Some(queue) = self.queues.get_mut(&queue) {
                    queue.deadline = None;
                }
                self.run(&queue);
            }
        }
    }

    /// Puts a message into a queue, if the queue is there.
    pub(super) fn enqueue(&mut self, name: &str, message: Arc<Outgoing>) {
        let Some(queue) = self.queues.get_mut(name) else { return };
        let stored = queue.store(message);
        // Straight to a consumer that waits, so that a message with a lifetime of zero reaches
        // it; otherwise in line, where such a message expires at once.
        if queue.ready.is_empty()
            && let Some(consumer) = queue.next_consumer()
        {
            self.deliver(consumer, stored);
        } else {
            queue.ready.push_back(stored);
            self.run(name);
        }
    }

    /// Does what there is to do in a queue: drops what has expired at its head, delivers while
    /// consumers have room, and notes when the message now at the head expires.
    pub(super) fn run(&mut self, name: &str) {
        loop {
            let Some(queue) = self.queues.get_mut(name) else { return };
            if let Some(expired) = queue.pop_expired() {
                self.bury(name, &expired, Reason::Expired);
            } else if queue.ready.is_empty() {
                break;
            } else if let Some(consumer) = queue.next_consumer()
                && let Some(stored) = queue.ready.pop_front()
            {
                self.deliver(consumer, stored);
            } else {
                break;
            }
        }
        self.note_deadline(name);
    }

    /// Gives a message to a consumer that was waiting for one.
    fn deliver(&mut self, id: Id, stored: Stored) {
        let Some(consumer) = self.consumers.get_mut(&id) else { return };
        self.effects.wake.extend(consumer.take(stored));
        if consumer.has_room()
            && let Some(queue) = self.queues.get_mut(&consumer.queue)
        {
            queue.waiting.push_back(id);
        }
    }

    fn note_deadline(&mut self, name: &str) {
        let Some(queue) = self.queues.get_mut(name) else { return };
        let expires = queue.ready.front().and_then(|head| head.expires);
        // A deadline that is too early costs one look at the queue; most heads are taken before
        // theirs, so moving it with every head would cost more.
        let Some(expires) = expires.filter(|&at| queue.deadline.is_none_or(|noted| at < noted))
        else {
            return;
        };
        if let Some(noted) = queue.deadline.replace(expires) {
            self.deadlines.remove(&(noted, queue.name.clone()));
        }
        self.deadlines.insert((expires, queue.name.clone()));
        self.effects.new_deadline = true;
    }

    /// Remembers a publish for users' tests.
    pub(super) fn remember(&mut self, message: MemoryMessage) {
        if self.published.len() == PUBLISHED_KEPT {
            self.published.pop_front();
        }
        self.published.push_back(message);
    }
}
