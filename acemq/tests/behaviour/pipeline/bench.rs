//! What most tests of a pipeline begin with.

use std::sync::{Arc, Mutex};

use acemq::{Client, HandlerError, Message};
use testkit::eventually;

use crate::{
    consumer::bench::SOON,
    support::{Broker, wire},
};

/// A client, and the name of a pipeline of the test's own.
pub(crate) struct Bench {
    pub(crate) mq: Client,
    pub(crate) name: String,
    broker: Broker,
}

impl Bench {
    pub(crate) async fn new(broker: &Broker, steps: &[&str]) -> Self {
        let mq = broker.client().await;
        Self { mq, name: broker.pipeline(steps), broker: broker.clone() }
    }

    pub(crate) fn queue(&self, step: &str) -> String {
        format!("{}.{step}", self.name)
    }

    /// How many messages are ready in a queue.
    pub(crate) async fn ready(&self, queue: &str) -> u64 {
        self.mq.inspect_queue(queue).await.unwrap().unwrap().messages
    }

    /// Waits for a step's dead letters and gives the reasons on them.
    pub(crate) async fn reasons(&self, step: &str, count: u64) -> Vec<String> {
        let queue = format!("{}.dlq", self.queue(step));
        let what = format!("{count} messages are in {queue}");
        eventually(&what, SOON, async || self.ready(&queue).await == count).await;
        let dead = wire::take(&self.broker, &queue).await;
        dead.iter().map(|dead| dead.headers["x-acemq-error"].clone()).collect()
    }
}

/// What steps have seen, in order.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    pub(crate) fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) async fn eventually(&self, expected: &[&str]) {
        let what = format!("they have seen {expected:?}");
        eventually(&what, SOON, async || self.all() == expected).await;
    }

    /// A step that adds its mark to a text.
    pub(crate) fn step(
        &self,
        mark: &'static str,
    ) -> impl Fn(Message<String>) -> std::future::Ready<Result<Option<String>, HandlerError>>
    + Send
    + Sync
    + use<> {
        let seen = self.clone();
        move |message| {
            let marked = format!("{}{mark}", message.payload());
            seen.note(&*marked);
            std::future::ready(Ok(Some(marked)))
        }
    }

    /// A last step.
    pub(crate) fn last(
        &self,
    ) -> impl Fn(Message<String>) -> std::future::Ready<Result<(), HandlerError>> + Send + Sync + use<>
    {
        let seen = self.clone();
        move |message| {
            seen.note(format!("{}.", message.payload()));
            std::future::ready(Ok(()))
        }
    }
}
