//! What only a real broker can show.

mod consuming;
mod crossing;
mod declaring;
mod dialling;
mod peer;
mod publishing;

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::AmqpTransport;
use crate::{
    envelope::Headers,
    transport::{
        ConsumeChannel, ConsumeEvent, DialOptions, Link, Outgoing, Properties, Publish,
        PublishAnswer, PublishFailure, QueueSpec, Subscription, Transport as _,
    },
};

const BOUND: Duration = Duration::from_secs(20);

async fn dial(url: &str) -> Arc<dyn Link> {
    AmqpTransport::new(url).unwrap().dial(options()).await.unwrap()
}

fn options() -> DialOptions {
    DialOptions {
        connection_name: "acemq-test".to_owned(),
        step_timeout: Duration::from_secs(10),
        body_max: None,
        publishes: true,
    }
}

/// A queue on a broker, deleted again by [`Queue::delete`].
async fn declare(link: &Arc<dyn Link>, arguments: Headers) -> String {
    let name = testkit::unique("amqp");
    let queue = QueueSpec {
        name: name.clone(),
        durable: true,
        exclusive: false,
        auto_delete: false,
        arguments,
    };
    link.declare_queue(&queue).await.unwrap();
    name
}

fn quorum() -> Headers {
    Headers::from([("x-queue-type".to_owned(), "quorum".into())])
}

fn message(exchange: &str, routing_key: &str, id: &str) -> Outgoing {
    Outgoing {
        exchange: exchange.to_owned(),
        routing_key: routing_key.to_owned(),
        mandatory: true,
        properties: Properties {
            message_id: Some(id.to_owned()),
            delivery_mode: Some(Properties::PERSISTENT),
            ..Properties::default()
        },
        body: bytes::Bytes::from_static(b"body"),
    }
}

type Verdict = oneshot::Receiver<Result<(), PublishFailure>>;

fn send(link: &Arc<dyn Link>, message: Outgoing) -> Verdict {
    let (sender, verdict) = oneshot::channel();
    link.publish(Publish::new(Arc::new(message), PublishAnswer { sender, permit: None }));
    verdict
}

async fn verdict(verdict: Verdict) -> Result<(), PublishFailure> {
    tokio::time::timeout(BOUND, verdict).await.expect("a verdict in time").expect("a verdict")
}

async fn subscribe(link: &Arc<dyn Link>, queue: &str, prefetch: u16) -> Box<dyn ConsumeChannel> {
    link.subscribe(Subscription {
        queue: queue.to_owned(),
        prefetch,
        exclusive: false,
        arguments: Headers::new(),
    })
    .await
    .unwrap()
}

async fn next(channel: &mut Box<dyn ConsumeChannel>) -> ConsumeEvent {
    let event = std::future::poll_fn(|context| channel.poll_next(context));
    tokio::time::timeout(BOUND, event).await.expect("an event in time")
}
