//! A broker that has paused publishing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use acemq::{
    Client, ConnectionState, ErrorKind, HandlerError, Message, Queue, testing::MemoryBroker,
};
use testkit::{BrokerOptions, BrokerVersion, OwnBroker, eventually};
use tokio::time::Instant;

const SOON: Duration = Duration::from_secs(30);

enum Broker {
    Memory(MemoryBroker),
    RabbitMq(OwnBroker),
}

impl Broker {
    fn url(&self) -> String {
        match self {
            Self::Memory(broker) => broker.url(),
            Self::RabbitMq(broker) => broker.url(),
        }
    }

    async fn block(&self) {
        match self {
            Self::Memory(broker) => broker.block("low on memory"),
            // As the node's own monitor does, which needs a /proc to look at.
            Self::RabbitMq(broker) => {
                alarm(broker, "set_alarm({{resource_limit, memory, node()}, []})").await
            }
        }
    }

    async fn unblock(&self) {
        match self {
            Self::Memory(broker) => broker.unblock(),
            Self::RabbitMq(broker) => {
                alarm(broker, "clear_alarm({resource_limit, memory, node()})").await
            }
        }
    }

    async fn client(&self) -> Client {
        acemq::connect(self.url())
            .confirm_timeout(Duration::from_secs(1))
            .blocked_timeout(Duration::from_secs(2))
            .drain_timeout(Duration::from_secs(2))
            .await
            .unwrap()
    }
}

async fn alarm(broker: &OwnBroker, call: &str) {
    broker.ctl(&["eval", &format!("rabbit_alarm:{call}.")]).await;
}

async fn a_pause_is_bounded_and_harms_nothing_else(broker: Broker) {
    let mq = broker.client().await;
    mq.declare_queue(&Queue::new("orders").classic()).await.unwrap();
    mq.declare_queue(&Queue::new("late").classic()).await.unwrap();
    for n in 0..20 {
        mq.send_to_queue("orders", &n.to_string()).await.unwrap();
    }
    let fresh = broker.client().await;
    broker.block().await;

    // A connection hears of it once it has published.
    let started = Instant::now();
    let written = fresh.send_to_queue("late", "o-1").await.unwrap_err();
    assert_eq!(written.kind(), ErrorKind::Blocked, "{written}");
    assert!(written.may_have_been_published() && written.is_transient());
    assert!(written.to_string().ends_with("it may have been published"), "{written}");
    assert!(written.to_string().contains("low on memory"), "{written}");
    assert!(started.elapsed() >= Duration::from_secs(2));
    assert_eq!(fresh.publishing().current(), ConnectionState::Blocked("low on memory".to_owned()));

    // Not written at all.
    let unwritten = fresh.send_to_queue("late", "o-2").await.unwrap_err();
    assert_eq!(unwritten.kind(), ErrorKind::Blocked, "{unwritten}");
    assert!(!unwritten.may_have_been_published());
    assert!(unwritten.to_string().ends_with("it was not published"), "{unwritten}");

    // Consuming and acking go on.
    let handled = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&handled);
    let consumer = mq
        .consumer::<String>("orders")
        .start(move |_: Message<String>| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, HandlerError>(()) }
        })
        .await
        .unwrap();
    eventually("everything is handled and acked", SOON, async || {
        consumer.counters().acknowledged == 20
    })
    .await;
    assert_eq!(handled.load(Ordering::SeqCst), 20);

    // Closing is bounded, also with a publish in hand.
    let other = broker.client().await;
    let sending = {
        let other = other.clone();
        tokio::spawn(async move { other.send_to_queue("late", "o-3").await })
    };
    eventually("the other client is blocked", SOON, async || {
        matches!(other.publishing().current(), ConnectionState::Blocked(_))
    })
    .await;
    let started = Instant::now();
    other.close().await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    sending.await.unwrap().unwrap_err();

    // A publish that waits goes on when the pause ends, and so does all else.
    let waiting = fresh.send_to_queue("late", "o-4").into_future();
    let (sent, ()) = tokio::join!(waiting, broker.unblock());
    match sent {
        // Lifting an alarm can take longer than the message waits.
        Err(error) => assert_eq!(error.kind(), ErrorKind::Blocked, "{error}"),
        Ok(receipt) => assert!(receipt.confirmed),
    }
    fresh.publishing().wait_for(|state| *state == ConnectionState::Connected).await;
    fresh.send_to_queue("late", "o-5").await.unwrap();
    mq.send_to_queue("late", "o-6").await.unwrap();
    fresh.close().await.unwrap();
    mq.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_memory_a_pause_is_bounded_and_harms_nothing_else() {
    a_pause_is_bounded_and_harms_nothing_else(Broker::Memory(MemoryBroker::new())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_rabbitmq_3_a_pause_is_bounded_and_harms_nothing_else() {
    if let Some(broker) = OwnBroker::start().await {
        a_pause_is_bounded_and_harms_nothing_else(Broker::RabbitMq(broker)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_rabbitmq_4_a_pause_is_bounded_and_harms_nothing_else() {
    let options = BrokerOptions { version: BrokerVersion::V4, ..BrokerOptions::default() };
    if let Some(broker) = OwnBroker::start_with(options).await {
        a_pause_is_bounded_and_harms_nothing_else(Broker::RabbitMq(broker)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_confirm_timeout_does_not_run_while_publishing_is_paused() {
    let broker = MemoryBroker::new();
    let mq = acemq::connect(broker.url()).await.unwrap();
    mq.declare_queue(&Queue::new("orders")).await.unwrap();
    broker.block("low on disk");
    let started = Instant::now();
    // The first is written, the second is not; both outlast the confirm timeout of ten seconds.
    let sends = ["o-2", "o-3"].map(|order| mq.send_to_queue("orders", order).into_future());
    let (sent, ()) = tokio::join!(futures_util::future::join_all(sends), async {
        tokio::time::sleep(Duration::from_secs(29)).await;
        broker.unblock();
    });
    assert!(sent.iter().all(Result::is_ok), "{sent:?}");
    assert_eq!(started.elapsed(), Duration::from_secs(29));
}
