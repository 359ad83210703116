//! What most tests of a consumer begin with.

use std::{sync::Arc, time::Duration};

use acemq::{Client, Consumer, Decode, HandlerError, Message, Queue, Result};
use bytes::Bytes;
use testkit::eventually;
use tokio::{
    sync::{
        Notify,
        mpsc::{UnboundedReceiver, unbounded_channel},
    },
    time::timeout,
};

use crate::support::Broker;

/// Generous, for a machine whose cores are all busy.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// A client, and a quorum queue of the test's own with its dead-letter wiring.
pub(crate) struct Bench {
    pub(crate) mq: Client,
    pub(crate) queue: String,
}

impl Bench {
    pub(crate) async fn new(broker: &Broker) -> Self {
        let mq = acemq::connect(&*broker.url).await.unwrap();
        let queue = broker.name("orders");
        mq.declare_queue(&Queue::new(&*queue).dead_letters()).await.unwrap();
        Self { mq, queue }
    }

    pub(crate) async fn send(&self, payload: &str) {
        self.mq.send_to_queue(&self.queue, payload).await.unwrap();
    }

    pub(crate) fn dead_letters(&self) -> String {
        format!("{}.dlq", self.queue)
    }

    pub(crate) fn parked(&self) -> String {
        format!("{}.parked", self.queue)
    }

    /// How many messages are ready in a queue.
    pub(crate) async fn ready(&self, queue: &str) -> u64 {
        self.mq.inspect_queue(queue).await.unwrap().unwrap().messages
    }

    pub(crate) async fn eventually_ready(&self, queue: &str, count: u64) {
        let what = format!("{count} messages are ready in {queue}");
        eventually(&what, SOON, async || self.ready(queue).await == count).await;
    }

    /// Waits until the broker counts that many consumers of the queue, which it does a little late.
    pub(crate) async fn eventually_consumers(&self, count: u32) {
        let what = format!("the queue has {count} consumers");
        eventually(&what, SOON, async || {
            self.mq.inspect_queue(&self.queue).await.unwrap().unwrap().consumers == count
        })
        .await;
    }

    /// Takes the first message out of a queue, and no other.
    pub(crate) async fn take(&self, queue: &str) -> Message<Bytes> {
        let (record, mut seen) = recorder();
        let closing = Arc::new(Notify::new());
        let handler = {
            let closing = Arc::clone(&closing);
            move |message| {
                let (recorded, closing) = (record(message), Arc::clone(&closing));
                async move {
                    closing.notified().await;
                    recorded.await
                }
            }
        };
        let builder = self.mq.consumer(queue).codec(AnyBytes).prefetch(1).declare(false);
        let consumer = builder.start(handler).await.unwrap();
        let message = next(&mut seen).await;
        let (closed, ()) = tokio::join!(consumer.close(), async { closing.notify_one() });
        closed.unwrap();
        message
    }
}

/// Reads whatever a message carries.
#[derive(Debug)]
pub(crate) struct AnyBytes;

impl Decode<Bytes> for AnyBytes {
    fn accepts(&self, _content_type: Option<&str>) -> bool {
        true
    }

    async fn decode(&self, body: Bytes, _content_type: Option<&str>) -> Result<Bytes> {
        Ok(body)
    }
}

/// A handler that accepts every message, and the messages that it saw.
pub(crate) fn recorder<T: Send + 'static>() -> (
    impl Fn(Message<T>) -> std::future::Ready<Result<(), HandlerError>> + Clone + Send + Sync + 'static,
    UnboundedReceiver<Message<T>>,
) {
    let (sender, seen) = unbounded_channel();
    let handler = move |message| {
        // A test that has seen enough has let go of the other end.
        let _ = sender.send(message);
        std::future::ready(Ok(()))
    };
    (handler, seen)
}

/// Waits until that many messages are acknowledged and none is in flight. A copy may be handled
/// before its original is settled.
pub(crate) async fn settled(consumer: &Consumer, acknowledged: u64) {
    let what = format!("{acknowledged} messages are acknowledged and none is in flight");
    eventually(&what, SOON, async || {
        let counters = consumer.counters();
        (counters.acknowledged, counters.in_flight) == (acknowledged, 0)
    })
    .await;
}

pub(crate) async fn next<T>(seen: &mut UnboundedReceiver<T>) -> T {
    timeout(SOON, seen.recv()).await.expect("nothing came").expect("nothing comes any more")
}
