//! Publishing through lost connections and dead brokers.

use std::time::Duration;

use acemq::{ConnectionState, ErrorKind, Queue, testing::MemoryBroker};
use futures_util::future::join_all;
use testkit::{BrokerOptions, BrokerVersion, OwnBroker, Proxy, brokers, eventually, unique};
use tokio::time::Instant;

const SOON: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_publish_waits_out_a_lost_connection_and_the_states_tell() {
    for (_, url) in brokers() {
        let mut proxy = Proxy::in_front_of(&url).await;
        let mq = acemq::connect(proxy.url_for(&url)).await.unwrap();
        let mut states = mq.publishing();
        assert_eq!(states.current(), ConnectionState::Connected);
        let queue = unique("orders");
        mq.declare_queue(&Queue::new(&*queue)).await.unwrap();

        proxy.cut().await;
        states.wait_for(|state| matches!(state, ConnectionState::Recovering { .. })).await;
        let waiting = mq.send_to_queue(&queue, "o-1").into_future();
        let restore = async {
            states
                .wait_for(|state| {
                    matches!(state, ConnectionState::Recovering { attempt, .. } if *attempt > 2)
                })
                .await;
            proxy.restore().await;
        };
        let (sent, ()) = tokio::join!(waiting, restore);

        assert!(sent.unwrap().confirmed);
        assert_eq!(states.current(), ConnectionState::Connected);
        eventually("the other connection is back as well", SOON, async || {
            mq.consuming().current() == ConnectionState::Connected
        })
        .await;
        assert_eq!(mq.inspect_queue(&queue).await.unwrap().unwrap().messages, 1);
        mq.delete_queue(&queue).await.unwrap();
        mq.close().await.unwrap();
        assert_eq!(states.current(), ConnectionState::Closed);
    }
}

#[tokio::test]
async fn while_the_broker_is_away_a_publish_fails_in_time_and_says_it_was_not_published() {
    for (_, url) in brokers() {
        let mut proxy = Proxy::in_front_of(&url).await;
        let mq = acemq::connect(proxy.url_for(&url))
            .confirm_timeout(Duration::from_millis(300))
            .await
            .unwrap();
        proxy.cut().await;
        mq.publishing().wait_for(|state| *state != ConnectionState::Connected).await;

        let started = Instant::now();
        let error = mq.send_to_queue("orders", "o-1").id("m-1").await.unwrap_err();

        assert!(started.elapsed() < Duration::from_secs(5));
        assert_eq!(error.kind(), ErrorKind::Connect);
        assert!(error.is_transient() && !error.may_have_been_published());
        assert_eq!(error.message_id(), Some("m-1"));
        let text = error.to_string();
        assert!(text.starts_with("publish message m-1"), "{text}");
        assert!(text.ends_with("it was not published"), "{text}");
        assert!(!text.contains("guest:"), "{text}");
        mq.close().await.unwrap();
    }
}

#[tokio::test]
async fn what_was_in_flight_when_the_connection_was_lost_is_reported_as_uncertain() {
    for (_, url) in brokers() {
        let mut proxy = Proxy::in_front_of(&url).await;
        let mq = acemq::connect(proxy.url_for(&url)).max_outstanding_publishes(10).await.unwrap();
        let queue = unique("orders");
        mq.declare_queue(&Queue::new(&*queue)).await.unwrap();
        // So much longer than what stands around it that ten can be told from nine by their bytes.
        let orders = vec!["o".repeat(16 * 1024); 10];
        let send_all =
            || join_all(orders.iter().map(|n| mq.send_to_queue(&queue, n).into_future()));

        proxy.stall();
        let cut = async {
            eventually("all are on their way", SOON, async || {
                proxy.under_way() >= orders.len() * orders[0].len()
            })
            .await;
            proxy.cut().await;
        };
        let (results, ()) = tokio::join!(send_all(), cut);

        for result in results {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
            assert!(error.may_have_been_published());
            assert!(error.to_string().ends_with("it may have been published"), "{error}");
        }
        // Every place is free again.
        proxy.restore().await;
        assert!(send_all().await.iter().all(Result::is_ok));
        mq.delete_queue(&queue).await.unwrap();
        mq.close().await.unwrap();
    }
}

async fn survives_kill_and_restart(version: BrokerVersion) {
    let options = BrokerOptions { version, ..BrokerOptions::default() };
    let Some(mut broker) = OwnBroker::start_with(options).await else { return };
    let mq = acemq::connect(broker.url()).confirm_timeout(SOON).await.unwrap();
    mq.declare_queue(&Queue::new("orders").classic()).await.unwrap();
    mq.send_to_queue("orders", "o-1").await.unwrap();

    let mut states = mq.publishing();
    broker.kill();
    states.wait_for(|state| *state != ConnectionState::Connected).await;
    broker.restart().await;
    // A node that was killed may have lost the queue it had just declared.
    eventually("the queue is declared", SOON, async || {
        mq.declare_queue(&Queue::new("orders").classic()).await.is_ok()
    })
    .await;
    mq.send_to_queue("orders", "o-2").await.unwrap();

    let waiting = async {
        states.wait_for(|state| *state != ConnectionState::Connected).await;
        mq.send_to_queue("orders", "o-3").await
    };
    let (sent, ()) = tokio::join!(waiting, broker.restart());
    sent.unwrap();
    eventually(
        "both messages are there",
        SOON,
        async || matches!(mq.inspect_queue("orders").await, Ok(Some(queue)) if queue.messages >= 2),
    )
    .await;
    mq.close().await.unwrap();
}

#[tokio::test]
async fn publishing_survives_a_killed_rabbitmq_3() {
    survives_kill_and_restart(BrokerVersion::V3).await;
}

#[tokio::test]
async fn publishing_survives_a_killed_rabbitmq_4() {
    survives_kill_and_restart(BrokerVersion::V4).await;
}

#[tokio::test]
async fn in_memory_connections_come_back_and_what_was_in_flight_is_uncertain() {
    let broker = MemoryBroker::new();
    let mq = acemq::connect(broker.url()).await.unwrap();
    mq.declare_queue(&Queue::new("orders")).await.unwrap();
    broker.block("low on memory");
    let cut = async {
        tokio::task::yield_now().await;
        broker.drop_connections();
        broker.unblock();
    };
    let (sent, ()) = tokio::join!(mq.send_to_queue("orders", "o-1").into_future(), cut);
    assert!(sent.unwrap_err().may_have_been_published());

    mq.send_to_queue("orders", "o-2").await.unwrap();
    broker.restart();
    mq.send_to_queue("orders", "o-3").await.unwrap();
    assert_eq!(broker.queue("orders").unwrap().len(), 2);
}

#[tokio::test]
async fn an_exclusive_queue_without_a_name_comes_back_under_the_same_name() {
    for (_, url) in brokers() {
        let mut proxy = Proxy::in_front_of(&url).await;
        let mq = acemq::connect(proxy.url_for(&url)).await.unwrap();
        let exchange = unique("exchange");
        let queue = mq.declare_queue(&Queue::new("").exclusive()).await.unwrap().name;
        mq.declare(
            &acemq::Topology::new()
                .exchange(acemq::Exchange::direct(&*exchange))
                .bind(&*queue, &*exchange, "key"),
        )
        .await
        .unwrap();

        let mut states = mq.consuming();
        proxy.cut().await;
        states.wait_for(|state| *state != ConnectionState::Connected).await;
        proxy.restore().await;
        states.wait_for(|state| *state == ConnectionState::Connected).await;

        mq.publisher::<u32>(&*exchange, "key").send(&1).await.unwrap();
        assert_eq!(mq.inspect_queue(&queue).await.unwrap().unwrap().messages, 1);

        // An exchange that is gone does not keep the connection away.
        mq.delete_exchange(&exchange).await.unwrap();
        proxy.cut().await;
        states.wait_for(|state| *state != ConnectionState::Connected).await;
        proxy.restore().await;
        states.wait_for(|state| *state == ConnectionState::Connected).await;
        assert!(mq.inspect_queue(&queue).await.unwrap().is_some());
        mq.close().await.unwrap();
    }
}
