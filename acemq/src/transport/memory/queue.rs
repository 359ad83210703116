//! A queue: messages in order, and the consumers that wait for them.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::state::{Id, QueueName};
use crate::{
    envelope::Headers,
    transport::{Outgoing, Properties, QueueInfo, QueueSpec},
};

pub(super) struct Queue {
    pub(super) id: Id,
    pub(super) name: QueueName,
    pub(super) durable: bool,
    pub(super) auto_delete: bool,
    /// The link that declared it for itself.
    pub(super) owner: Option<Id>,
    /// As declared, for comparing with another declaration.
    pub(super) arguments: Headers,
    pub(super) rules: Rules,
    pub(super) ready: VecDeque<Stored>,
    /// Every consumer that has not been cancelled.
    pub(super) consumers: Vec<Id>,
    /// Whether the one consumer there is wants no other beside it.
    pub(super) taken: bool,
    /// Consumers that have room for a delivery, in their turn.
    pub(super) waiting: VecDeque<Id>,
    /// This queue's entry among the broker's deadlines.
    pub(super) deadline: Option<Instant>,
    next_position: u64,
}

/// What a queue's arguments ask for.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    pub(super) ttl: Option<Duration>,
    pub(super) dead_letter_exchange: Option<String>,
    pub(super) dead_letter_routing_key: Option<String>,
    pub(super) quorum: bool,
    /// Only one consumer at a time is given messages: the one that has been there longest.
    pub(super) single_active: bool,
    /// How many times a message may be returned; for quorum queues only.
    pub(super) delivery_limit: Option<u32>,
}

/// A message in a queue, or out of it and not settled yet.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) message: Arc<Outgoing>,
    /// Where in the queue it belongs; it comes back there.
    position: u64,
    pub(super) expires: Option<Instant>,
    pub(super) redelivered: bool,
    /// How many times it was returned to the queue.
    pub(super) returns: u32,
}

impl Queue {
    pub(super) fn new(
        id: Id,
        name: QueueName,
        owner: Option<Id>,
        spec: &QueueSpec,
        rules: Rules,
    ) -> Self {
        Self {
            id,
            name,
            durable: spec.durable,
            auto_delete: spec.auto_delete,
            owner,
            arguments: spec.arguments.clone(),
            rules,
            ready: VecDeque::new(),
            consumers: Vec::new(),
            taken: false,
            waiting: VecDeque::new(),
            deadline: None,
            next_position: 0,
        }
    }

    /// Gives a message the next position and the time at which it expires: the shorter of the
    /// queue's lifetime and its own.
    pub(super) fn store(&mut self, message: Arc<Outgoing>) -> Stored {
        let own = message.properties.expiration.as_deref().and_then(|text| text.parse().ok());
        let ttl = match (self.rules.ttl, own.map(Duration::from_millis)) {
            (Some(queue), Some(own)) => Some(queue.min(own)),
            (queue, own) => queue.or(own),
        };
        let position = self.next_position;
        self.next_position += 1;
        Stored {
            message,
            position,
            expires: ttl.and_then(|ttl| Instant::now().checked_add(ttl)),
            redelivered: false,
            returns: 0,
        }
    }

    /// Takes out the first message if it has expired. One that expired further back waits for
    /// its turn, as in RabbitMQ.
    pub(super) fn pop_expired(&mut self) -> Option<Stored> {
        let expires = self.ready.front()?.expires?;
        if expires > Instant::now() {
            return None;
        }
        self.ready.pop_front()
    }

    /// Puts a message back where it was. `Err` gives back one that was returned too often.
    pub(super) fn put_back(&mut self, mut stored: Stored) -> Result<(), Stored> {
        stored.redelivered = true;
        if self.rules.quorum {
            stored.returns += 1;
        }
        if self.rules.delivery_limit.is_some_and(|limit| stored.returns > limit) {
            return Err(stored);
        }
        // What is out was taken from the head, so its place is at or near the front.
        let place = self.ready.partition_point(|ready| ready.position < stored.position);
        self.ready.insert(place, stored);
        Ok(())
    }

    /// The consumer that is to have the next message, out of those with room.
    pub(super) fn next_consumer(&mut self) -> Option<Id> {
        if !self.rules.single_active {
            return self.waiting.pop_front();
        }
        let active = *self.consumers.first()?;
        let at = self.waiting.iter().position(|&waiting| waiting == active)?;
        self.waiting.remove(at)
    }

    pub(super) fn remove_consumer(&mut self, id: Id) {
        self.consumers.retain(|&consumer| consumer != id);
        self.waiting.retain(|&consumer| consumer != id);
        self.taken &= !self.consumers.is_empty();
    }

    pub(super) fn info(&self) -> QueueInfo {
        QueueInfo {
            name: (*self.name).to_owned(),
            messages: self.ready.len() as u64,
            consumers: u32::try_from(self.consumers.len()).unwrap_or(u32::MAX),
        }
    }

    /// Loses what does not survive a restart of the broker.
    pub(super) fn restart(&mut self) {
        self.ready.retain(|stored| {
            self.rules.quorum
                || stored.message.properties.delivery_mode == Some(Properties::PERSISTENT)
        });
    }
}
