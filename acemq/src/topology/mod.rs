//! Declaring exchanges, queues and bindings.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> acemq::Result<()> {
//! use acemq::{Exchange, Queue, Topology};
//!
//! let mq = acemq::connect("memory://topology-example").await?;
//! mq.declare(
//!     &Topology::new()
//!         .exchange(Exchange::topic("orders"))
//!         .queue(Queue::new("orders.new").dead_letters())
//!         .bind("orders.new", "orders", "order.*"),
//! )
//! .await?;
//! # mq.close().await
//! # }
//! ```

mod check;
mod compare;
mod declare;
mod names;
mod objects;
mod plan;
mod stream;

use std::time::Duration;

pub(crate) use self::declare::declare_for_consumer;
pub(crate) use self::names::{
    DEAD_LETTER_EXCHANGE, RETRY_EXCHANGE, dead_letter_queue, parking_queue,
};
pub use self::{
    plan::{PlannedObject, PlannedStatus, TopologyObject, TopologyPlan},
    stream::Stream,
};
use crate::{
    envelope::{HeaderValue, Headers},
    retry::RetryPolicy,
    transport::{BindingSpec, ExchangeKind, ExchangeSpec, QueueSpec},
};

/// An exchange to declare. Durable unless said otherwise.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "an exchange is declared by `Client::declare`"]
pub struct Exchange(pub(crate) ExchangeSpec);

impl Exchange {
    /// An exchange of that kind.
    pub fn new(name: impl Into<String>, kind: ExchangeKind) -> Self {
        Self(ExchangeSpec {
            name: name.into(),
            kind,
            durable: true,
            auto_delete: false,
            internal: false,
            arguments: Headers::new(),
        })
    }

    /// Routes to the queues bound with exactly the routing key.
    pub fn direct(name: impl Into<String>) -> Self {
        Self::new(name, ExchangeKind::Direct)
    }

    /// Routes to every bound queue.
    pub fn fanout(name: impl Into<String>) -> Self {
        Self::new(name, ExchangeKind::Fanout)
    }

    /// Routes by pattern: `*` is one word, `#` any number of words.
    pub fn topic(name: impl Into<String>) -> Self {
        Self::new(name, ExchangeKind::Topic)
    }

    /// Does not survive a restart of the broker.
    pub fn transient(mut self) -> Self {
        self.0.durable = false;
        self
    }

    /// Goes when its last binding goes.
    pub fn auto_delete(mut self) -> Self {
        self.0.auto_delete = true;
        self
    }

    /// An argument of the broker's, such as `alternate-exchange`.
    pub fn argument(mut self, name: impl Into<String>, value: impl Into<HeaderValue>) -> Self {
        self.0.arguments.insert(name.into(), value.into());
        self
    }
}

/// A queue to declare. Durable and a quorum queue unless said otherwise.
///
/// A quorum queue drops a message that has come back more often than its delivery limit (20 by
/// default from RabbitMQ 4.0), unless it has a dead-letter target: say
/// [`dead_letters`](Self::dead_letters). Declaring one without is logged as a warning.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a queue is declared by `Client::declare`"]
pub struct Queue {
    pub(crate) spec: QueueSpec,
    pub(crate) dead_letters: bool,
    pub(crate) retries: Option<RetryPolicy>,
}

impl Queue {
    /// A durable quorum queue.
    pub fn new(name: impl Into<String>) -> Self {
        let queue = Self {
            spec: QueueSpec {
                name: name.into(),
                durable: true,
                exclusive: false,
                auto_delete: false,
                arguments: Headers::new(),
            },
            dead_letters: false,
            retries: None,
        };
        queue.argument("x-queue-type", "quorum")
    }

    /// A classic queue: for exclusive, auto-delete and short-lived ones, or where the broker has
    /// no quorum queues.
    pub fn classic(mut self) -> Self {
        self.spec.arguments.remove("x-queue-type");
        self
    }

    /// A classic queue of this connection alone; it goes with the connection and comes back by
    /// itself when the connection does.
    pub fn exclusive(mut self) -> Self {
        self.spec.exclusive = true;
        self.spec.durable = false;
        self.classic()
    }

    /// A classic queue that goes when its last consumer goes, and comes back by itself with a
    /// consumer of this client.
    pub fn auto_delete(mut self) -> Self {
        self.spec.auto_delete = true;
        self.classic()
    }

    /// How long a message stays before it expires, in whole milliseconds.
    pub fn message_ttl(self, ttl: Duration) -> Self {
        let millis = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        self.argument("x-message-ttl", millis)
    }

    /// An argument of the broker's, such as `x-delivery-limit`.
    pub fn argument(mut self, name: impl Into<String>, value: impl Into<HeaderValue>) -> Self {
        self.spec.arguments.insert(name.into(), value.into());
        self
    }

    /// Declares the queue's dead-letter wiring as well: the exchange `acemq.dlx`, the queues
    /// `{queue}.dlq` and `{queue}.parked`, and what the broker itself gives up on goes to the
    /// former.
    pub fn dead_letters(mut self) -> Self {
        self.dead_letters = true;
        self
    }

    /// Declares the queues as well in which messages wait for their next attempt under this policy,
    /// those that a consumer of the queue declares for itself: for consumers that may not. A policy
    /// that contradicts itself is an error when the queue is declared.
    pub fn retries(mut self, policy: RetryPolicy) -> Self {
        self.retries = Some(policy);
        self
    }
}

/// What to declare: exchanges, then queues, then bindings.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "a topology is declared by `Client::declare`"]
pub struct Topology {
    pub(crate) exchanges: Vec<Exchange>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) bindings: Vec<BindingSpec>,
}

impl Topology {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an exchange.
    pub fn exchange(mut self, exchange: Exchange) -> Self {
        self.exchanges.push(exchange);
        self
    }

    /// Adds a queue.
    pub fn queue(mut self, queue: Queue) -> Self {
        self.queues.push(queue);
        self
    }

    /// Binds a queue to an exchange.
    pub fn bind(
        mut self,
        queue: impl Into<String>,
        exchange: impl Into<String>,
        routing_key: impl Into<String>,
    ) -> Self {
        self.bindings.push(BindingSpec {
            queue: queue.into(),
            exchange: exchange.into(),
            routing_key: routing_key.into(),
            arguments: Headers::new(),
        });
        self
    }
}

impl From<Exchange> for Topology {
    fn from(exchange: Exchange) -> Self {
        Self::new().exchange(exchange)
    }
}

impl From<Queue> for Topology {
    fn from(queue: Queue) -> Self {
        Self::new().queue(queue)
    }
}
