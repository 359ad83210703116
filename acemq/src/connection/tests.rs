//! What can only be seen from inside: permits, dials, and what a future that is dropped leaves.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Waker},
    time::Duration,
};

use testkit::eventually;

use super::{Client, connect, keeper::LinkKeeper};
use crate::{
    error::Result,
    topology::Queue,
    transport::{BoxFuture, DialOptions, Link, MemoryBroker, MemoryTransport, Transport},
};

const PERMITS: usize = 5;
const SOON: Duration = Duration::from_secs(20);

async fn all_permits_are_back(client: &Client) {
    eventually("no publish is outstanding", SOON, async || {
        client.0.permits.available_permits() == PERMITS
    })
    .await;
}

async fn brokers() -> Vec<String> {
    testkit::brokers().into_iter().map(|(_, url)| url).collect()
}

#[tokio::test]
async fn a_send_that_is_dropped_at_any_poll_gives_its_permit_back() {
    let memory = MemoryBroker::new();
    for url in brokers().await.into_iter().chain([memory.url()]) {
        let client = connect(url).max_outstanding_publishes(PERMITS).await.unwrap();
        let queue = testkit::unique("orders");
        client.declare_queue(&Queue::new(&*queue)).await.unwrap();
        for polls in 0..20 {
            let payload = "o-1";
            let mut send = pin!(client.send_to_queue(&queue, payload).into_future());
            for _ in 0..polls {
                let waker = Waker::noop();
                if send.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        all_permits_are_back(&client).await;
        client.send_to_queue(&queue, "o-2").await.unwrap();
        client.delete_queue(&queue).await.unwrap();
        client.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_publish_that_failed_in_any_way_gives_its_permit_back() {
    let broker = MemoryBroker::new();
    let short = || {
        connect(broker.url())
            .max_outstanding_publishes(PERMITS)
            .confirm_timeout(Duration::from_millis(20))
            .blocked_timeout(Duration::from_millis(40))
    };
    let client = short().await.unwrap();
    client.declare_queue(&Queue::new("orders")).await.unwrap();

    client.send_to_queue("nobody", "o-1").await.unwrap_err();
    client.publisher::<u32>("no-exchange", "key").send(&1).await.unwrap_err();
    all_permits_are_back(&client).await;

    broker.block("low on memory");
    let sends = (0..20).map(|_| client.send_to_queue("orders", "o-2").into_future());
    for sent in futures_util::future::join_all(sends).await {
        sent.unwrap_err();
    }
    all_permits_are_back(&client).await;

    // A connection that hears of the pause only once it has published.
    let other = short().await.unwrap();
    assert!(other.send_to_queue("orders", "o-3").await.unwrap_err().may_have_been_published());
    // What the broker may still answer stays counted until it has.
    assert_eq!(other.0.permits.available_permits(), PERMITS - 1);
    broker.unblock();
    all_permits_are_back(&other).await;

    broker.block("low on disk");
    let other = short().await.unwrap();
    assert!(other.send_to_queue("orders", "o-4").await.unwrap_err().may_have_been_published());
    broker.drop_connections();
    all_permits_are_back(&other).await;
}

/// Dials brokers whose connections end at once.
#[derive(Debug)]
struct EndsAtOnce {
    broker: MemoryBroker,
    transport: MemoryTransport,
    dials: AtomicU32,
}

impl EndsAtOnce {
    fn new() -> Arc<Self> {
        let broker = MemoryBroker::new();
        let transport = MemoryTransport::new(&broker.url()["memory://".len()..]).unwrap();
        Arc::new(Self { broker, transport, dials: AtomicU32::new(0) })
    }
}

impl Transport for EndsAtOnce {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn dial(&self, options: DialOptions) -> BoxFuture<'_, Result<Arc<dyn Link>>> {
        Box::pin(async move {
            self.dials.fetch_add(1, Ordering::SeqCst);
            let link = self.transport.dial(options).await;
            self.broker.drop_connections();
            link
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_ends_at_once_every_time_is_not_dialled_in_a_tight_loop() {
    let transport = EndsAtOnce::new();
    let keeper = LinkKeeper::new(
        Arc::<EndsAtOnce>::clone(&transport),
        DialOptions {
            connection_name: "test".to_owned(),
            step_timeout: Duration::from_secs(10),
            body_max: None,
            publishes: true,
        },
    );
    keeper.connect().await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let dials = transport.dials.load(Ordering::SeqCst);
    assert!((8..20).contains(&dials), "{dials} dials in a minute");
}

#[tokio::test]
async fn the_longest_of_all_bounds_are_taken() {
    let client = connect(MemoryBroker::new().url())
        .connect_timeout(Duration::MAX)
        .confirm_timeout(Duration::MAX)
        .blocked_timeout(Duration::MAX)
        .drain_timeout(Duration::MAX)
        .await
        .unwrap();
    client.declare_queue(&Queue::new("q")).await.unwrap();
    client.send_to_queue("q", "m").await.unwrap();
    client.close().await.unwrap();
}
