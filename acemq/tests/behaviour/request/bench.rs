//! What most tests of requests begin with.

use std::{sync::Arc, time::Duration};

use acemq::{Client, HandlerError, Message, Queue, Requester, Requests, Responder};
use tokio::sync::Semaphore;

use crate::support::Broker;

/// Longer than any test runs.
pub(super) const VERY_LONG: Duration = Duration::from_secs(1_000);

/// A client, and a queue of the test's own for requests.
pub(super) struct Bench {
    pub(super) mq: Client,
    pub(super) queue: String,
}

impl Bench {
    pub(super) async fn new(broker: &Broker) -> Self {
        let mq = broker.client().await;
        let queue = broker.name("requests");
        mq.declare_queue(&Queue::new(&*queue).dead_letters()).await.unwrap();
        Self { mq, queue }
    }

    /// A requester that waits longer than the test runs.
    pub(super) async fn requester(&self) -> Requester {
        self.mq.requester().timeout(VERY_LONG).await.unwrap()
    }

    /// Requests to the queue.
    pub(super) fn requests(&self, requester: &Requester) -> Requests<String, String> {
        requester.to("", &*self.queue)
    }

    /// Answers with the request's payload, in capitals.
    pub(super) async fn shouter(&self) -> Responder {
        self.mq.consumer::<String>(&*self.queue).concurrency(8).respond(shout).await.unwrap()
    }

    pub(super) async fn ready(&self, queue: &str) -> u64 {
        self.mq.inspect_queue(queue).await.unwrap().unwrap().messages
    }

    pub(super) fn dead_letters(&self) -> String {
        format!("{}.dlq", self.queue)
    }
}

pub(super) async fn shout(message: Message<String>) -> Result<String, HandlerError> {
    Ok(message.payload().to_uppercase())
}

/// A handler that answers once it is let go.
pub(super) fn gated(
    gate: &Arc<Semaphore>,
) -> impl Fn(Message<String>) -> futures_util::future::BoxFuture<'static, Result<String, HandlerError>>
+ Send
+ Sync
+ 'static {
    let gate = Arc::clone(gate);
    move |message| {
        let gate = Arc::clone(&gate);
        Box::pin(async move {
            gate.acquire().await?.forget();
            shout(message).await
        })
    }
}
