//! One body of a test, run on every broker.

#![allow(dead_code, unused_macros, reason = "each test file uses its own part of this")]

pub(crate) mod logs;
pub(crate) mod stores;
pub(crate) mod wire;

use acemq::testing::MemoryBroker;

/// A broker under test.
#[derive(Debug)]
pub(crate) struct Broker {
    /// Its address.
    pub(crate) url: String,
    /// For the broker inside the process: the operator's side of it, which keeps it alive.
    pub(crate) memory: Option<MemoryBroker>,
}

impl Broker {
    /// A broker of this test's own, inside the process.
    #[must_use]
    pub(crate) fn memory() -> Self {
        let broker = MemoryBroker::new();
        Self { url: broker.url(), memory: Some(broker) }
    }

    /// A client of this broker.
    pub(crate) async fn client(&self) -> acemq::Client {
        acemq::connect(&*self.url).await.unwrap()
    }

    /// A shared RabbitMQ: `None`, said in plain sight, where there is none.
    #[must_use]
    pub(crate) fn rabbitmq(url: Option<String>) -> Option<Self> {
        url.map(|url| Self { url, memory: None })
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
                behaviour($crate::support::Broker::memory()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_rabbitmq_3() {
                if let Some(broker) = $crate::support::Broker::rabbitmq(testkit::amqp_url()) {
                    behaviour(broker).await;
                }
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_rabbitmq_4() {
                if let Some(broker) = $crate::support::Broker::rabbitmq(testkit::amqp4_url()) {
                    behaviour(broker).await;
                }
            }
        }
    )*};
}
