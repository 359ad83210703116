//! One body of a test, run on every broker.

#![allow(dead_code, reason = "each test crate uses its own part of this")]

use std::{
    panic::{AssertUnwindSafe, resume_unwind},
    sync::{Arc, Mutex},
};

use acemq::testing::MemoryBroker;
use futures_util::FutureExt as _;

/// A broker under test.
#[derive(Clone, Debug)]
pub(crate) struct Broker {
    /// Its address.
    pub(crate) url: String,
    /// For the broker inside the process: the operator's side of it, which keeps it alive.
    pub(crate) memory: Option<MemoryBroker>,
    leftovers: Arc<Mutex<Leftovers>>,
}

/// What is deleted after a test.
#[derive(Debug, Default)]
struct Leftovers {
    queues: Vec<String>,
    exchanges: Vec<String>,
}

impl Broker {
    /// A broker of this test's own, inside the process.
    #[must_use]
    pub(crate) fn memory() -> Self {
        let broker = MemoryBroker::new();
        Self { url: broker.url(), memory: Some(broker), leftovers: Arc::default() }
    }

    /// A shared RabbitMQ: `None`, said in plain sight, where there is none.
    #[must_use]
    pub(crate) fn rabbitmq(url: Option<String>) -> Option<Self> {
        url.map(|url| Self { url, memory: None, leftovers: Arc::default() })
    }

    /// A client of this broker.
    pub(crate) async fn client(&self) -> acemq::Client {
        acemq::connect(&*self.url).await.unwrap()
    }

    /// A queue name of the test's own. What is there under it, and under those that a consumer
    /// makes of it, is deleted after the test.
    pub(crate) fn name(&self, prefix: &str) -> String {
        let name = testkit::unique(prefix);
        for suffix in ["", ".dlq", ".parked"] {
            self.leaves(format!("{name}{suffix}"));
        }
        name
    }

    /// Has a queue deleted after the test.
    pub(crate) fn leaves(&self, queue: impl Into<String>) {
        self.leftovers.lock().unwrap().queues.push(queue.into());
    }

    /// An exchange name of the test's own. What is there under it is deleted after the test.
    pub(crate) fn exchange(&self, prefix: &str) -> String {
        let name = testkit::unique(prefix);
        self.leftovers.lock().unwrap().exchanges.push(name.clone());
        name
    }

    /// The name of a pipeline of the test's own. Its exchange and the queues of these steps, and
    /// what consumers make of those, are deleted after the test.
    pub(crate) fn pipeline(&self, steps: &[&str]) -> String {
        let name = testkit::unique("line");
        self.leftovers.lock().unwrap().exchanges.push(name.clone());
        for step in steps {
            for suffix in ["", ".dlq", ".parked"] {
                self.leaves(format!("{name}.{step}{suffix}"));
            }
        }
        name
    }

    /// Runs a test's body and cleans up after it, also where it failed.
    pub(crate) async fn run<F: Future<Output = ()>>(self, behaviour: impl FnOnce(Self) -> F) {
        let outcome = AssertUnwindSafe(behaviour(self.clone())).catch_unwind().await;
        let leftovers = std::mem::take(&mut *self.leftovers.lock().unwrap());
        let Leftovers { queues, exchanges } = leftovers;
        if self.memory.is_none() && !(queues.is_empty() && exchanges.is_empty()) {
            let mq = acemq::connect(&*self.url).await.unwrap();
            for queue in queues {
                mq.delete_queue(&queue).await.unwrap();
            }
            for exchange in exchanges {
                mq.delete_exchange(&exchange).await.unwrap();
            }
            mq.close().await.unwrap();
        }
        if let Err(failed) = outcome {
            resume_unwind(failed);
        }
    }
}

/// Stamps a test for `memory://`, RabbitMQ 3.x and RabbitMQ 4.x each. Names the body's broker.
#[macro_export]
macro_rules! on_every_broker {
    ($($(#[$attribute:meta])* async fn $name:ident($broker:ident: Broker) $body:block)*) => {$(
        $(#[$attribute])*
        mod $name {
            use super::*;

            async fn behaviour($broker: $crate::support::Broker) $body

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn in_memory() {
                $crate::support::Broker::memory().run(behaviour).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_rabbitmq_3() {
                if let Some(broker) = $crate::support::Broker::rabbitmq(testkit::amqp_url()) {
                    broker.run(behaviour).await;
                }
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_rabbitmq_4() {
                if let Some(broker) = $crate::support::Broker::rabbitmq(testkit::amqp4_url()) {
                    broker.run(behaviour).await;
                }
            }
        }
    )*};
}

/// Stamps a test for RabbitMQ 3.x and RabbitMQ 4.x, where memory has no such thing. Names the body's
/// broker.
#[macro_export]
macro_rules! on_every_rabbitmq {
    ($($(#[$attribute:meta])* async fn $name:ident($broker:ident: Broker) $body:block)*) => {$(
        $(#[$attribute])*
        mod $name {
            use super::*;

            async fn behaviour($broker: $crate::support::Broker) $body

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_rabbitmq_3() {
                if let Some(broker) = $crate::support::Broker::rabbitmq(testkit::amqp_url()) {
                    broker.run(behaviour).await;
                }
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_rabbitmq_4() {
                if let Some(broker) = $crate::support::Broker::rabbitmq(testkit::amqp4_url()) {
                    broker.run(behaviour).await;
                }
            }
        }
    )*};
}
