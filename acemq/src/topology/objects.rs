//! What a declaration comes to, object by object.

use super::{
    DEAD_LETTER_EXCHANGE, Exchange, Queue, RETRY_EXCHANGE, Topology, dead_letter_queue,
    parking_queue,
};
use crate::{
    envelope::Headers,
    error::{Error, ErrorKind, Result},
    retry::RetryPolicy,
    transport::{BindingSpec, ExchangeSpec, Link, QueueSpec},
};

/// Exchanges, queues and bindings, each once, in the order in which they are declared.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Objects {
    pub(super) exchanges: Vec<ExchangeSpec>,
    pub(super) queues: Vec<QueueSpec>,
    pub(super) bindings: Vec<BindingSpec>,
}

impl Objects {
    /// All that a topology has, with what belongs to its queues.
    pub(super) fn of(topology: &Topology) -> Result<Self> {
        let mut objects = Self::default();
        for exchange in &topology.exchanges {
            objects.exchange(exchange.0.clone());
        }
        for queue in &topology.queues {
            let (before, after) = Self::beside(queue)?;
            objects.add(before);
            objects.queue(with_dead_letters(queue));
            objects.add(after);
        }
        for binding in &topology.bindings {
            objects.binding(binding.clone());
        }
        Ok(objects)
    }

    /// What a queue asks for beside itself: what has to be there before it, and what it is bound to.
    pub(super) fn beside(queue: &Queue) -> Result<(Self, Self)> {
        let (mut before, mut after) = (Self::default(), Self::default());
        let name = &*queue.spec.name;
        let refuse = |why: &str| {
            let text = format!("declare queue \"{name}\": {why}");
            Err(Error::new(ErrorKind::Config, text).with_queue(name))
        };
        let is_nameless = name.is_empty();
        if queue.dead_letters {
            if is_nameless {
                return refuse("with dead letters it needs a name of its own");
            }
            if queue.spec.arguments.contains_key("x-dead-letter-exchange") {
                return refuse(
                    "it has both `dead_letters()` and a dead-letter exchange of its own; choose one",
                );
            }
            before = Self::set_aside(name);
        }
        if let Some(policy) = &queue.retries {
            if is_nameless {
                return refuse("with waiting queues it needs a name of its own");
            }
            policy.check()?;
            after = Self::waiting(name, policy);
        }
        Ok((before, after))
    }

    /// Where the failed messages of a queue go.
    pub(super) fn set_aside(queue: &str) -> Self {
        let mut objects = Self::default();
        objects.exchange(Exchange::direct(DEAD_LETTER_EXCHANGE).0);
        for name in [dead_letter_queue(queue), parking_queue(queue)] {
            objects.bindings.push(binding(&name, DEAD_LETTER_EXCHANGE, &name));
            objects.queues.push(Queue::new(name).classic().spec);
        }
        objects
    }

    /// Where the messages of a queue wait for their next attempt. The same objects, argument for
    /// argument, in every library of the family.
    pub(super) fn waiting(queue: &str, policy: &RetryPolicy) -> Self {
        let mut objects = Self::default();
        objects.exchange(Exchange::direct(RETRY_EXCHANGE).0);
        for rung in policy.rungs(queue) {
            let waiting = Queue::new(&*rung.name)
                .classic()
                .message_ttl(rung.wait)
                .argument("x-dead-letter-exchange", RETRY_EXCHANGE)
                .argument("x-dead-letter-routing-key", queue);
            objects.queues.push(waiting.spec);
            objects.binding(binding(queue, RETRY_EXCHANGE, queue));
        }
        objects
    }

    pub(super) async fn declare(&self, link: &dyn Link) -> Result<()> {
        for exchange in &self.exchanges {
            link.declare_exchange(exchange).await?;
        }
        for queue in &self.queues {
            link.declare_queue(queue).await?;
        }
        for binding in &self.bindings {
            link.bind_queue(binding).await?;
        }
        Ok(())
    }

    pub(super) fn add(&mut self, others: Self) {
        others.exchanges.into_iter().for_each(|it| self.exchange(it));
        others.queues.into_iter().for_each(|it| self.queue(it));
        others.bindings.into_iter().for_each(|it| self.binding(it));
    }

    fn exchange(&mut self, exchange: ExchangeSpec) {
        if !self.exchanges.contains(&exchange) {
            self.exchanges.push(exchange);
        }
    }

    fn queue(&mut self, queue: QueueSpec) {
        if !self.queues.contains(&queue) {
            self.queues.push(queue);
        }
    }

    fn binding(&mut self, binding: BindingSpec) {
        if !self.bindings.contains(&binding) {
            self.bindings.push(binding);
        }
    }
}

/// The queue itself: what the broker gives up on goes where the library's own failures go.
pub(super) fn with_dead_letters(queue: &Queue) -> QueueSpec {
    let mut spec = queue.spec.clone();
    if queue.dead_letters {
        let target = dead_letter_queue(&spec.name);
        spec.arguments.insert("x-dead-letter-exchange".to_owned(), DEAD_LETTER_EXCHANGE.into());
        spec.arguments.insert("x-dead-letter-routing-key".to_owned(), target.into());
    }
    spec
}

pub(super) fn binding(queue: &str, exchange: &str, routing_key: &str) -> BindingSpec {
    BindingSpec {
        queue: queue.to_owned(),
        exchange: exchange.to_owned(),
        routing_key: routing_key.to_owned(),
        arguments: Headers::new(),
    }
}
