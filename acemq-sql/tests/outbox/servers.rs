//! A relay on PostgreSQL while its servers go down and come back.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use acemq::{
    Client, Envelope, HandlerError, Message, OutboxRecord, OutboxRelay, OutboxStore, Queue,
    RelayOrder::{PerKey, Relaxed},
    Text,
    testing::MemoryBroker,
};
use acemq_sql::PostgresOutbox;
use sqlx::{PgPool, postgres::PgPoolOptions};
use testkit::{OwnBroker, OwnPostgres, PostgresDatabase, eventually};

const SOON: Duration = Duration::from_secs(120);
const RECORDS: usize = 3_000;

async fn pool(url: &str) -> PgPool {
    PgPoolOptions::new().max_connections(4).connect(url).await.unwrap()
}

async fn outbox_with(pool: &PgPool, queues: &[&str]) -> PostgresOutbox {
    let outbox = PostgresOutbox::new(pool.clone()).indexed_by_key();
    outbox.create_table_if_absent().await.unwrap();
    let record = |n: usize| {
        let queue = queues[n % queues.len()];
        let envelope = Envelope::new("placed");
        OutboxRecord::new("", queue, "text/plain", format!("{n:05}"), &envelope).unwrap()
    };
    let records: Vec<_> = (0..RECORDS).map(record).collect();
    let mut transaction = pool.begin().await.unwrap();
    outbox.add_all(&mut transaction, &records).await.unwrap();
    transaction.commit().await.unwrap();
    outbox
}

async fn is_empty(outbox: &PostgresOutbox) -> bool {
    outbox.pending_count().await.is_ok_and(|pending| pending == 0)
}

/// A database that is away for a moment costs no second publish: what went out is marked when it is
/// back.
// promise: OB-22
// promise: OB-6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_restarts_in_the_middle_of_a_batch_makes_nothing_go_out_twice() {
    let Some(mut server) = OwnPostgres::start().await else { return };
    let pool = pool(&server.url()).await;
    let broker = MemoryBroker::new();
    let mq = acemq::connect(broker.url()).await.unwrap();
    mq.declare_queue(&Queue::new("orders")).await.unwrap();
    let outbox = outbox_with(&pool, &["orders"]).await;
    let relay = OutboxRelay::builder(&mq, outbox.clone())
        .batch(50)
        .poll(Duration::from_millis(50))
        .lease(Duration::from_secs(2))
        .start();
    for (goal, is_killed) in [(500, false), (1_500, true)] {
        eventually("some is out", SOON, async || relay.published() >= goal).await;
        if is_killed {
            server.kill();
        }
        server.restart().await;
    }
    eventually("all is marked", SOON, async || is_empty(&outbox).await).await;
    assert_eq!(broker.queue("orders").unwrap().len(), RECORDS);
    assert_eq!((relay.published(), relay.failed()), (RECORDS as u64, 0));
    relay.close().await.unwrap();
    mq.close().await.unwrap();
}

/// What each queue hands out, in order, without what came a second time.
type Firsts = Arc<Mutex<HashMap<String, Vec<String>>>>;

async fn collect(mq: &Client, queue: &str, firsts: &Firsts, seen: &Arc<Mutex<HashSet<String>>>) {
    let waiting = async || mq.inspect_queue(queue).await.unwrap().unwrap().messages;
    // Closing a consumer hands back what it had not begun.
    while waiting().await > 0 {
        let (firsts, seen, name) = (Arc::clone(firsts), Arc::clone(seen), queue.to_owned());
        let consumer = mq
            .consumer::<String>(queue)
            .codec(Text)
            .start(move |message: Message<String>| {
                if seen.lock().unwrap().insert(message.payload().clone()) {
                    let mut firsts = firsts.lock().unwrap();
                    firsts.entry(name.clone()).or_default().push(message.payload().clone());
                }
                async { Ok::<_, HandlerError>(()) }
            })
            .await
            .unwrap();
        eventually("all is taken", SOON, async || waiting().await == 0).await;
        consumer.close().await.unwrap();
    }
}

// promise: BX-1
// promise: BX-5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_dies_in_the_middle_of_a_batch_costs_no_attempt_and_no_order() {
    let Some(database) = PostgresDatabase::create().await else { return };
    let Some(mut broker) = OwnBroker::start().await else { return };
    let pool = pool(database.url()).await;
    for order in [Relaxed, PerKey] {
        let queues = ["one", "two", "three", "four", "five"];
        let mq = acemq::connect(broker.url()).await.unwrap();
        for queue in queues {
            mq.declare_queue(&Queue::new(queue).classic()).await.unwrap();
        }
        let outbox = outbox_with(&pool, &queues).await;
        let relay = OutboxRelay::builder(&mq, outbox.clone())
            .batch(100)
            .poll(Duration::from_millis(50))
            .order(order)
            .start();
        // Killed, so that what it had not written down yet is lost, and not only its answer.
        for goal in [300, 900, 1_500] {
            eventually("some is out", SOON, async || relay.published() >= goal).await;
            broker.kill();
            broker.restart().await;
        }
        eventually("all is marked", SOON, async || is_empty(&outbox).await).await;
        assert_eq!(relay.failed(), 0);
        relay.close().await.unwrap();

        let (firsts, seen) = (Firsts::default(), Arc::default());
        for queue in queues {
            collect(&mq, queue, &firsts, &seen).await;
        }
        let firsts = std::mem::take(&mut *firsts.lock().unwrap());
        assert_eq!(firsts.values().map(Vec::len).sum::<usize>(), RECORDS);
        if order == PerKey {
            for (queue, firsts) in firsts {
                assert!(firsts.is_sorted(), "{queue}: {firsts:?}");
            }
        }
        sqlx::query("DELETE FROM acemq_outbox").execute(&pool).await.unwrap();
        for queue in queues {
            mq.delete_queue(queue).await.unwrap();
        }
        mq.close().await.unwrap();
    }
}

// promise: BX-6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listening_comes_back_after_the_database_was_away() {
    let Some(mut server) = OwnPostgres::start().await else { return };
    let pool = pool(&server.url()).await;
    let broker = MemoryBroker::new();
    let mq = acemq::connect(broker.url()).await.unwrap();
    mq.declare_queue(&Queue::new("orders")).await.unwrap();
    let outbox = PostgresOutbox::new(pool.clone()).notify(true);
    outbox.create_table_if_absent().await.unwrap();
    // So seldom that only a notification can be the reason.
    let never = Duration::from_secs(3_600);
    let relay = OutboxRelay::builder(&mq, outbox).poll(never).start();
    let writer = PostgresOutbox::new(pool.clone()).notify(true);
    for published in 1..=2 {
        let envelope = Envelope::new("placed");
        let record = OutboxRecord::new("", "orders", "text/plain", "o", &envelope).unwrap();
        let mut transaction = pool.begin().await.unwrap();
        writer.add(&mut transaction, &record).await.unwrap();
        transaction.commit().await.unwrap();
        eventually("it is out", SOON, async || relay.published() == published).await;
        if published == 1 {
            server.stop().await;
            // Longer than sqlx tries to connect by itself.
            tokio::time::sleep(Duration::from_secs(7)).await;
            server.restart().await;
        }
    }
    relay.close().await.unwrap();
    mq.close().await.unwrap();
}
