//! Consumers that are killed, as processes are: at once and anywhere.

use std::{
    process::{Child, Command, Stdio},
    time::Duration,
};

use acemq::{Client, ConsumerBuilder, Message, OutboxStore, StartConsumer};
use testkit::eventually;

use super::{Idempotency, Outbox, Pool, SOON, Shop, Transaction, take_effect};

/// Tells a child process where to consume: the broker, the queue and the database.
const CHILD: &str = "ACEMQ_TEST_TRANSACTION_CHILD";

const ORDERS: u64 = 120;
/// How much a child gets done before it is killed, at least.
const SHIFT: u64 = 9;

fn start(mq: &Client, consumer: ConsumerBuilder<String>, pool: &Pool) -> StartConsumer {
    let outbox = Outbox::new(pool.clone());
    let ship = mq.publisher::<String>("", "shipping");
    let handler = move |message: Message<String>, mut transaction: Transaction| {
        let (outbox, ship) = (outbox.clone(), ship.clone());
        async move {
            let record = ship.record(message.payload()).await?;
            take_effect(&mut transaction, &message).await?;
            tokio::time::sleep(Duration::from_millis(2)).await;
            outbox.add(&mut transaction, &record).await?;
            Ok(transaction)
        }
    };
    let consumer = consumer.prefetch(10).concurrency(4);
    consumer.start_in_transaction(Idempotency::new(pool.clone()), handler)
}

/// Does nothing, unless it runs in a child process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumes_until_it_is_killed() {
    let Ok(task) = std::env::var(CHILD) else { return };
    let [broker, queue, database] = *task.split(' ').collect::<Vec<_>>() else { return };
    let pool = Pool::connect(database).await.unwrap();
    let mq = acemq::connect(broker).await.unwrap();
    let _consumer = start(&mq, mq.consumer::<String>(queue), &pool).await.unwrap();
    std::future::pending::<()>().await;
}

fn child(task: &str) -> Child {
    let test = module_path!().split_once("::").unwrap().1;
    Command::new(std::env::current_exe().unwrap())
        .args([&format!("{test}::consumes_until_it_is_killed"), "--exact", "--nocapture"])
        .env(CHILD, task)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

// promise: BX-8, ID-19, ID-18
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_killed_while_they_handle_double_nothing_and_lose_nothing() {
    let Some(broker) = testkit::amqp_url() else { return };
    let Some(shop) = Shop::open_at(&broker).await else { return };
    let ids: Vec<_> = (0..ORDERS).map(|n| format!("o-{n}")).collect();
    for id in &ids {
        // The sender was not sure.
        shop.send(id).await;
        shop.send(id).await;
    }
    let task = format!("{broker} {} {}", shop.queue, shop.database.url());
    let mut kills = 0;
    while shop.effects().await + SHIFT < ORDERS {
        let before = shop.effects().await;
        let mut child = child(&task);
        eventually("it gets something done", SOON, async || {
            shop.effects().await >= (before + SHIFT).min(ORDERS)
        })
        .await;
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
    }
    assert!(kills >= 3, "they were too fast for the test");

    let consumer = start(&shop.mq, shop.consumer(), &shop.database.pool).await.unwrap();
    eventually("all is handled", SOON * 2, async || {
        let idle = consumer.counters().in_flight == 0 && shop.ready("").await == 0;
        idle && shop.confirmed().await == ORDERS
    })
    .await;
    consumer.close().await.unwrap();
    assert_eq!(shop.ready("").await, 0);
    assert_eq!(shop.ready(".dlq").await, 0);
    assert_eq!(shop.effects().await, ORDERS, "after {kills} kills");
    assert_eq!(shop.database.count("(SELECT DISTINCT id FROM effects) AS ids").await, ORDERS);
    assert_eq!(shop.outbox.pending_count().await.unwrap(), ORDERS);
    shop.remove_queues().await;
}
