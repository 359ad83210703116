//! What needs messages that no publisher of ours would send, or a look at every header and
//! property.

mod carried;
mod declared;
mod properties;
mod replayed;

use std::{
    future::poll_fn,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::timeout;

use crate::{
    Client, HandlerError, Message, Queue, Topology,
    envelope::{HeaderValue, Headers},
    support::Broker,
    transport::{ConsumeEvent, Delivery, Outgoing, Properties, Subscription},
};

const SOON: Duration = Duration::from_secs(30);

/// A client, and the names of a pipeline of the test's own.
struct Bench {
    mq: Client,
    name: String,
}

impl Bench {
    async fn new(broker: &Broker, steps: &[&str]) -> Self {
        let mq = crate::connect(&*broker.url).await.unwrap();
        Self { mq, name: broker.pipeline(steps) }
    }

    /// Declares a step as another library does that declares the pipeline.
    async fn declare_elsewhere(&self, step: &str) {
        self.mq.declare(&crate::Exchange::direct(&*self.name).into()).await.unwrap();
        let queue = self.queue(step);
        let topology = Topology::new().queue(Queue::new(&*queue)).bind(&*queue, &*self.name, step);
        self.mq.declare(&topology).await.unwrap();
    }

    fn queue(&self, step: &str) -> String {
        format!("{}.{step}", self.name)
    }

    /// Publishes a message that was made by hand to a step.
    async fn publish(&self, step: &str, properties: Properties, body: &'static str) {
        let message = Outgoing {
            exchange: self.name.clone(),
            routing_key: step.to_owned(),
            mandatory: true,
            properties,
            body: Bytes::from_static(body.as_bytes()),
        };
        self.mq.publish(Arc::new(message)).await.unwrap();
    }

    /// Takes the first message out of a queue, whole.
    async fn take(&self, queue: &str) -> Delivery {
        let link = self.mq.consuming_link().await.unwrap();
        let subscription = Subscription {
            queue: queue.to_owned(),
            prefetch: 1,
            exclusive: false,
            arguments: Headers::new(),
        };
        let mut channel = link.subscribe(subscription).await.unwrap();
        let event = timeout(SOON, poll_fn(|context| channel.poll_next(context))).await;
        let ConsumeEvent::Delivery(delivery) = event.expect("nothing came") else {
            panic!("the subscription ended")
        };
        channel.settler().ack(delivery.tag);
        channel.close().await;
        delivery
    }

    async fn take_at(&self, step: &str) -> Delivery {
        self.take(&self.queue(step)).await
    }

    /// Takes the first dead letter of a step, and the reason on it.
    async fn take_dead(&self, step: &str) -> (Delivery, String) {
        let dead = self.take(&format!("{}.dlq", self.queue(step))).await;
        let reason = dead.properties.headers["x-acemq-error"].as_str().unwrap().to_owned();
        (dead, reason)
    }
}

fn with_headers<const N: usize>(headers: [(&str, HeaderValue); N]) -> Properties {
    let headers = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Properties {
        headers,
        content_type: Some("application/json".to_owned()),
        message_id: Some("m-1".to_owned()),
        ..Properties::default()
    }
}

/// A step that makes something else of a text.
async fn shout(message: Message<String>) -> Result<Option<String>, HandlerError> {
    Ok(Some(message.payload().to_uppercase()))
}

/// The last step of a route: it writes down what arrived.
#[expect(clippy::type_complexity, reason = "a handler, and what it has seen")]
fn arrivals() -> (
    impl Fn(Message<String>) -> std::future::Ready<Result<(), HandlerError>> + Send + Sync + 'static,
    Arc<Mutex<Vec<String>>>,
) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let handler = move |message: Message<String>| {
        noted.lock().unwrap().push(message.into_payload());
        std::future::ready(Ok(()))
    };
    (handler, seen)
}
