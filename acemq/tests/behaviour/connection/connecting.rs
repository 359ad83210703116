//! Connecting, watching, closing, and what is left afterwards.

use std::time::Duration;

use acemq::{
    ConnectionState, ErrorKind, HandlerError, MemoryOutboxStore, Message, OutboxRelay, Queue,
};
use testkit::{OwnBroker, eventually, unique};
use tokio::runtime::Handle;

use crate::on_every_broker;

const SOON: Duration = Duration::from_secs(30);

fn alive_tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

#[tokio::test]
async fn a_lazy_client_dials_when_it_is_first_used() {
    // Nothing listens there, and nobody notices yet.
    let nowhere = acemq::connect_lazy("amqp://guest:guest@127.0.0.1:1").unwrap();
    assert_eq!(nowhere.publishing().current(), ConnectionState::Idle);
    assert_eq!(nowhere.consuming().current(), ConnectionState::Idle);
    nowhere.close().await.unwrap();

    let broker = crate::support::Broker::memory();
    let mq = acemq::connect_lazy(&*broker.url).unwrap();
    assert_eq!(mq.publishing().current(), ConnectionState::Idle);
    mq.declare_queue(&Queue::new("orders")).await.unwrap();
    assert_eq!(mq.publishing().current(), ConnectionState::Idle);
    mq.send_to_queue("orders", "o-1").await.unwrap();
    assert_eq!(mq.publishing().current(), ConnectionState::Connected);
    mq.close().await.unwrap();
}

on_every_broker! {
    async fn after_close_every_use_is_a_typed_error(broker: Broker) {
        let mq = broker.client().await;
        let queue = unique("orders");
        let publisher = mq.publisher::<String>("", &*queue);
        assert!(!mq.is_closed());
        let mut states = mq.publishing();

        mq.close().await.unwrap();
        mq.close().await.unwrap();

        assert!(mq.is_closed());
        assert_eq!(states.changed().await, ConnectionState::Closed);
        assert_eq!(mq.consuming().current(), ConnectionState::Closed);
        let error = publisher.send(&"o-1".into()).id("m-1").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert_eq!(error.message_id(), Some("m-1"));
        assert!(!error.may_have_been_published() && !error.is_transient());
        let closed = |error: acemq::Error| assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        closed(mq.declare_queue(&Queue::new(&*queue)).await.unwrap_err());
        let consumer = mq
            .consumer::<String>(&*queue)
            .start(|_: Message<String>| async { Ok::<_, HandlerError>(()) });
        closed(consumer.await.unwrap_err());
        let outbox = MemoryOutboxStore::new();
        outbox.add(&publisher.record(&"o-1".into()).await.unwrap());
        let relay = OutboxRelay::builder(&mq, outbox).start();
        assert!(!relay.is_running());
        closed(relay.drain_once().await.unwrap_err());
        relay.close().await.unwrap();
    }

    async fn a_closed_or_dropped_client_leaves_no_task(broker: Broker) {
        let before = alive_tasks();
        for dropped in [false, true] {
            let mq = broker.client().await;
            let queue = unique("orders");
            mq.declare_queue(&Queue::new(&*queue)).await.unwrap();
            mq.send_to_queue(&queue, "o-1").await.unwrap();
            mq.delete_queue(&queue).await.unwrap();
            let mut states = mq.publishing();
            if dropped {
                drop(mq);
                states.wait_for(|state| *state == ConnectionState::Closed).await;
                assert_eq!(states.current(), ConnectionState::Closed);
            } else {
                mq.close().await.unwrap();
            }
            eventually("no task is left", SOON, async || alive_tasks() <= before).await;
        }
    }
}

async fn connections(broker: &OwnBroker) -> String {
    broker.ctl(&["list_connections", "client_properties"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_has_two_named_connections_and_none_once_it_is_gone() {
    let Some(broker) = OwnBroker::start().await else { return };
    for dropped in [false, true] {
        let mq = acemq::connect(broker.url()).client_name("shop").await.unwrap();
        let listed = connections(&broker).await;
        assert_eq!(listed.matches("\"connection_name\"").count(), 2, "{listed}");
        for name in ["shop (publishing)", "shop (consuming)"] {
            assert!(listed.contains(name), "{name}: {listed}");
        }
        if dropped {
            drop(mq);
        } else {
            mq.close().await.unwrap();
        }
        eventually("no connection is left", SOON, async || {
            !connections(&broker).await.contains("shop")
        })
        .await;
    }
}
