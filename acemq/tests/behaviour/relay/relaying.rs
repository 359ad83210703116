//! What an outbox relay promises, on every broker.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use acemq::{
    BoxError, Client, Envelope, Error, ErrorKind, MemoryOutboxStore, OutboxRecord, OutboxRelay,
    OutboxStore, PublishContext, PublishInterceptor, Queue, Receipt, testing::MemoryBroker,
};
use testkit::{eventually, unique};

use crate::{
    on_every_broker,
    support::{
        stores::{Faulty, Minimal},
        wire::take,
    },
};

const SOON: Duration = Duration::from_secs(20);

async fn queue(mq: &Client) -> String {
    let queue = unique("orders");
    mq.declare_queue(&Queue::new(&*queue).classic()).await.unwrap();
    queue
}

async fn record(mq: &Client, queue: &str, payload: &str) -> OutboxRecord {
    mq.publisher::<String>("", queue).record(&payload.to_owned()).await.unwrap()
}

async fn messages(mq: &Client, queue: &str) -> u64 {
    mq.inspect_queue(queue).await.unwrap().unwrap().messages
}

async fn tidy(mq: &Client, queue: &str) {
    mq.delete_queue(queue).await.unwrap();
    mq.close().await.unwrap();
}

on_every_broker! {
    // promise: OB-6
    // promise: OB-10
    async fn only_what_reached_a_queue_is_marked_also_without_confirms(broker: Broker) {
        for confirms in [true, false] {
            let connect = acemq::connect(&*broker.url);
            let connect = if confirms { connect } else { connect.without_confirms() };
            let mq = connect.await.unwrap();
            let queue = queue(&mq).await;
            let outbox = MemoryOutboxStore::new();
            for target in [&unique("nobody"), &queue, &unique("nobody"), &queue] {
                outbox.add(&record(&mq, target, "o-1").await);
            }
            let relay = OutboxRelay::builder(&mq, outbox.clone()).build();

            assert_eq!(relay.drain_once().await.unwrap(), 2);

            assert_eq!((relay.published(), relay.failed()), (2, 2));
            assert_eq!(outbox.pending_count().await.unwrap(), 2);
            assert_eq!(messages(&mq, &queue).await, 2);
            tidy(&mq, &queue).await;
        }
    }

    async fn a_full_batch_that_failed_is_written_down_before_the_relay_waits(broker: Broker) {
        let mq = broker.client().await;
        let (nobody, store) = (unique("nobody"), Faulty::new());
        for _ in 0..10 {
            store.inner.add(&record(&mq, &nobody, "o-1").await);
        }
        let poll = Duration::from_secs(3_600);
        let relay = OutboxRelay::builder(&mq, store.clone()).batch(10).poll(poll).start();
        eventually("all have failed", SOON, async || relay.failed() == 10).await;
        // Before their lease runs out.
        eventually("they are free", SOON, async || {
            let lease = Duration::from_secs(60);
            let free = store.inner.claim_batch(100, lease).await.unwrap();
            !free.is_empty() && free.iter().all(|one| one.attempts() == 1)
        })
        .await;
        relay.close().await.unwrap();
        mq.close().await.unwrap();
    }

    // promise: OB-7
    // promise: OB-21
    async fn a_record_nobody_receives_stays_visible_with_its_reason(broker: Broker) {
        let mq = broker.client().await;
        let nobody = unique("nobody");
        let outbox = MemoryOutboxStore::new().max_attempts(1);
        let record = record(&mq, &nobody, "o-1").await;
        outbox.add(&record);
        let told = Arc::new(AtomicU32::new(0));
        let (count, key) = (Arc::clone(&told), nobody.clone());
        let relay = OutboxRelay::builder(&mq, outbox.clone())
            .on_error(move |error| {
                assert_eq!((error.exchange(), error.routing_key()), (Some(""), Some(&*key)));
                count.fetch_add(1, Ordering::SeqCst);
            })
            .build();

        assert_eq!(relay.drain_once().await.unwrap(), 0);
        assert_eq!(relay.drain_once().await.unwrap(), 0);

        assert_eq!(told.load(Ordering::SeqCst), 1);
        let stuck = outbox.stuck(10).await.unwrap();
        assert_eq!(stuck.len(), 1);
        assert_eq!((&*stuck[0].id, stuck[0].attempts), (record.id(), 1));
        let reason = stuck[0].last_error.as_deref().unwrap();
        assert!(reason.contains("reached no queue") && reason.contains(&nobody), "{reason}");
        mq.close().await.unwrap();
    }

    // promise: OB-8
    async fn a_relay_that_ends_before_its_marks_means_the_same_message_again(broker: Broker) {
        let mq = broker.client().await;
        let queue = queue(&mq).await;
        let store = Faulty::new();
        store.faults.marks_that_fail.store(1, Ordering::SeqCst);
        let record = record(&mq, &queue, "o-1").await;
        store.inner.add(&record);
        let relay = || {
            OutboxRelay::builder(&mq, store.clone())
                .lease(Duration::from_secs(1))
                .poll(Duration::from_millis(20))
        };

        let first = relay().build();
        assert_eq!(first.drain_once().await.unwrap_err().kind(), ErrorKind::Store);
        assert_eq!(store.pending_count().await.unwrap(), 1);
        drop(first);
        let second = relay().start();
        eventually("it is marked", SOON, async || store.pending_count().await.unwrap() == 0).await;

        let sent = take(&broker, &queue).await;
        assert_eq!(sent.len(), 2);
        assert!(sent.iter().all(|message| message.properties["message-id"] == record.id()));
        second.close().await.unwrap();
        tidy(&mq, &queue).await;
    }

    // promise: OB-9
    // promise: OB-29
    async fn bytes_go_out_exactly_as_they_were_stored(broker: Broker) {
        let mq = broker.client().await;
        let queue = queue(&mq).await;
        let outbox = MemoryOutboxStore::new();
        let bodies = [&b"{\"order\": \"o-1\"}"[..], b"\"text\"", &[0, 159, 146, 150, 255], b""];
        for body in bodies {
            let envelope = Envelope::new("order.placed");
            let record = OutboxRecord::new("", &*queue, "application/json", body, &envelope);
            outbox.add(&record.unwrap());
        }

        let relay = OutboxRelay::builder(&mq, outbox).build();
        assert_eq!(relay.drain().await.unwrap(), 4);

        let sent = take(&broker, &queue).await;
        assert_eq!(sent.iter().map(|message| &*message.body).collect::<Vec<_>>(), bodies);
        tidy(&mq, &queue).await;
    }

    // promise: OB-12
    async fn records_go_out_in_the_order_in_which_they_were_made(broker: Broker) {
        let mq = broker.client().await;
        let queue = queue(&mq).await;
        let outbox = MemoryOutboxStore::new();
        let mut ids = Vec::new();
        for n in 0..1_000 {
            let record = record(&mq, &queue, &n.to_string()).await;
            ids.push(record.id().to_owned());
            outbox.add(&record);
        }

        let relay = OutboxRelay::builder(&mq, outbox.clone()).batch(300).start();
        eventually("all is out", SOON, async || outbox.pending_count().await.unwrap() == 0).await;

        let sent = take(&broker, &queue).await;
        let order: Vec<&str> = sent.iter().map(|m| &*m.properties["message-id"]).collect();
        assert_eq!(order, ids);
        relay.close().await.unwrap();
        tidy(&mq, &queue).await;
    }

    // promise: OB-24
    async fn two_relays_on_one_outbox_send_everything_once(broker: Broker) {
        let clients = [broker.client().await, broker.client().await];
        let queue = queue(&clients[0]).await;
        let outbox = MemoryOutboxStore::new();
        for n in 0..1_000 {
            outbox.add(&record(&clients[0], &queue, &n.to_string()).await);
        }
        let relays =
            clients.each_ref().map(|mq| OutboxRelay::builder(mq, outbox.clone()).batch(10).start());
        eventually("all is out", SOON, async || outbox.pending_count().await.unwrap() == 0).await;
        for relay in &relays {
            relay.close().await.unwrap();
        }
        assert_eq!(relays[0].published() + relays[1].published(), 1_000);
        assert!(relays.iter().all(|relay| relay.published() > 0));
        assert_eq!(messages(&clients[0], &queue).await, 1_000);
        clients[1].close().await.unwrap();
        tidy(&clients[0], &queue).await;
    }

    // promise: OB-27
    async fn a_record_that_was_added_is_at_the_broker_within_milliseconds(broker: Broker) {
        let mq = broker.client().await;
        let queue = queue(&mq).await;
        let outbox = MemoryOutboxStore::new();
        let relay =
            OutboxRelay::builder(&mq, outbox.clone()).poll(Duration::from_secs(3_600)).start();
        for n in 1..=20 {
            outbox.add(&record(&mq, &queue, "o-1").await);
            eventually("it is out", SOON, async || relay.published() == n).await;
        }
        relay.close().await.unwrap();
        tidy(&mq, &queue).await;
    }

    // promise: OB-28
    async fn a_store_with_the_three_methods_drives_the_relay_by_polling(broker: Broker) {
        let mq = broker.client().await;
        let queue = queue(&mq).await;
        let store = Minimal::default();
        let relay = OutboxRelay::builder(&mq, store.clone())
            .poll(Duration::from_millis(20))
            .batch(7)
            .start();
        let mut ids = Vec::new();
        for n in 0..50 {
            let record = record(&mq, &queue, &n.to_string()).await;
            ids.push(record.id().to_owned());
            store.lists().waiting.push_back(record);
        }
        eventually("all is marked", SOON, async || store.lists().published.len() == 50).await;
        assert_eq!(store.lists().published, ids);
        assert_eq!(messages(&mq, &queue).await, 50);
        relay.close().await.unwrap();
        tidy(&mq, &queue).await;
    }

    // promise: OB-20
    async fn publish_interceptors_do_not_see_a_record(broker: Broker) {
        #[derive(Clone, Default)]
        struct Calls(Arc<AtomicU32>);
        impl PublishInterceptor for Calls {
            fn before_publish(&self, _: &mut PublishContext) -> Result<(), BoxError> {
                self.0.fetch_add(1, Ordering::SeqCst);
                Ok(())
            }

            fn after_confirm(&self, _: &PublishContext, _: &Receipt) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }

            fn on_error(&self, _: &PublishContext, _: &Error) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let calls = Calls::default();
        let mq = acemq::connect(&*broker.url).intercept_publish(calls.clone()).await.unwrap();
        let queue = queue(&mq).await;
        let outbox = MemoryOutboxStore::new();
        for target in [&queue, &unique("nobody")] {
            outbox.add(&record(&mq, target, "o-1").await);
        }
        let relay = OutboxRelay::builder(&mq, outbox).build();
        assert_eq!(relay.drain_once().await.unwrap(), 1);
        assert_eq!((relay.failed(), calls.0.load(Ordering::SeqCst)), (1, 0));
        // It sees what does not come out of an outbox.
        mq.send_to_queue(&queue, "o-2").await.unwrap();
        assert_eq!(calls.0.load(Ordering::SeqCst), 2);
        tidy(&mq, &queue).await;
    }

    // promise: OB-11
    async fn a_drain_is_bounded_and_the_numbers_tell(broker: Broker) {
        let mq = broker.client().await;
        let queue = queue(&mq).await;
        let outbox = MemoryOutboxStore::new();
        for n in 0..100 {
            outbox.add(&record(&mq, &queue, &n.to_string()).await);
        }
        let relay = OutboxRelay::builder(&mq, outbox.clone()).batch(10).max_batches(3).build();

        assert!(!relay.is_running());
        assert_eq!(relay.drain_once().await.unwrap(), 10);
        assert_eq!(relay.drain().await.unwrap(), 30);
        assert_eq!((relay.published(), relay.failed()), (40, 0));

        relay.start();
        relay.start();
        assert!(relay.is_running());
        eventually("all is out", SOON, async || relay.published() == 100).await;
        relay.close().await.unwrap();
        assert!(!relay.is_running());
        relay.start();
        assert!(!relay.is_running());
        assert_eq!(relay.drain_once().await.unwrap(), 0);
        assert_eq!(messages(&mq, &queue).await, 100);
        tidy(&mq, &queue).await;
    }
}

// promise: OB-6
#[tokio::test]
async fn a_record_that_a_full_queue_rejects_is_not_marked() {
    for (_, url) in testkit::brokers() {
        let mq = acemq::connect(url).await.unwrap();
        let full = unique("orders");
        let holds_one = Queue::new(&*full)
            .classic()
            .argument("x-max-length", 1)
            .argument("x-overflow", "reject-publish");
        mq.declare_queue(&holds_one).await.unwrap();
        let outbox = MemoryOutboxStore::new();
        for payload in ["fits", "rejected"] {
            outbox.add(&record(&mq, &full, payload).await);
        }
        let relay = OutboxRelay::builder(&mq, outbox.clone()).build();

        assert_eq!(relay.drain_once().await.unwrap(), 1);

        assert_eq!((relay.published(), relay.failed()), (1, 1));
        assert_eq!(outbox.pending_count().await.unwrap(), 1);
        tidy(&mq, &full).await;
    }
}

// promise: OB-6, OB-8
#[tokio::test(start_paused = true)]
async fn a_record_whose_connection_was_lost_before_its_confirm_is_not_marked() {
    let broker = MemoryBroker::new();
    let mq = acemq::connect(broker.url()).await.unwrap();
    let queue = queue(&mq).await;
    let outbox = MemoryOutboxStore::new();
    outbox.add(&record(&mq, &queue, "o-1").await);
    let relay = OutboxRelay::builder(&mq, outbox.clone()).build();

    // It is written, and the answer does not come.
    broker.block("low on memory");
    let mut drain = Box::pin(relay.drain_once());
    tokio::time::timeout(Duration::from_secs(1), &mut drain).await.unwrap_err();
    broker.drop_connections();
    assert_eq!(drain.await.unwrap_err().kind(), ErrorKind::Lost);

    assert_eq!((relay.published(), outbox.pending_count().await.unwrap()), (0, 1));
    broker.unblock();
    assert_eq!(relay.drain_once().await.unwrap(), 1);
    assert_eq!(messages(&mq, &queue).await, 1);
    tidy(&mq, &queue).await;
}

// promise: OB-11
#[tokio::test(start_paused = true)]
async fn a_relay_that_was_started_twice_looks_as_often_as_one_started_once() {
    let broker = MemoryBroker::new();
    let mq = acemq::connect(broker.url()).await.unwrap();
    let mut looks = Vec::new();
    for starts in [1, 2] {
        let store = Faulty::new();
        let relay = OutboxRelay::builder(&mq, store.clone()).build();
        for _ in 0..starts {
            relay.start();
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        relay.close().await.unwrap();
        looks.push(store.faults.claims.load(Ordering::SeqCst));
    }
    assert!(looks[0] >= 60 && looks[0] == looks[1], "{looks:?} looks in a minute");
}
