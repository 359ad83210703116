//! What most tests of a scheduler begin with.

use std::time::Duration;

use acemq::{Client, Consumer, Message, Queue, Scheduler};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::{
    consumer::bench::{next, recorder},
    support::Broker,
};

/// Long enough that it is not delivered at once, and hardly longer.
pub(super) const MOMENT: Duration = Duration::from_millis(1_100);

/// The queue in which schedulers find what comes out of the ladder.
pub(super) const DUE: &str = "acemq.schedule.due";

/// A scheduler, and a queue of the test's own that messages are delivered to.
pub(super) struct Bench {
    pub(super) mq: Client,
    pub(super) scheduler: Scheduler,
    pub(super) queue: String,
}

impl Bench {
    pub(super) async fn new(broker: &Broker) -> Self {
        let mq = broker.client().await;
        let queue = broker.name("later");
        mq.declare_queue(&Queue::new(&*queue).dead_letters()).await.unwrap();
        Self { scheduler: mq.scheduler().await.unwrap(), mq, queue }
    }

    pub(super) async fn receive(&self) -> Arrivals {
        Arrivals::at(&self.mq, &self.queue).await
    }

    pub(super) async fn after(&self, delay: Duration, payload: &str) {
        self.scheduler.after(delay, "", &*self.queue, payload).await.unwrap();
    }

    /// How many messages are ready in a queue.
    pub(super) async fn ready(&self, queue: &str) -> u64 {
        self.mq.inspect_queue(queue).await.unwrap().unwrap().messages
    }
}

/// What arrives in a queue.
pub(super) struct Arrivals {
    seen: UnboundedReceiver<Message<String>>,
    _consumer: Consumer,
}

impl Arrivals {
    pub(super) async fn at(mq: &Client, queue: &str) -> Self {
        let (record, seen) = recorder::<String>();
        let consumer = mq.consumer::<String>(queue).prefetch(200).declare(false).start(record);
        Self { seen, _consumer: consumer.await.unwrap() }
    }

    pub(super) async fn next(&mut self) -> Message<String> {
        next(&mut self.seen).await
    }

    /// The next one, however long it takes: where the clock is paused, or a server starts meanwhile.
    pub(super) async fn whenever(&mut self) -> Message<String> {
        self.seen.recv().await.unwrap()
    }

    /// What has arrived and was not asked for.
    pub(super) fn rest(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.seen.try_recv().ok()).map(Message::into_payload).collect()
    }
}
