//! A relay on the table, through faults of the database.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use acemq::{
    Client, Envelope, OutboxRecord, OutboxRelay, OutboxStore, Queue, RelayOrder,
    RelayOrder::{PerKey, Relaxed, Strict},
    testing::MemoryBroker,
};
use testkit::eventually;

use super::{
    add,
    database::{Database, Outbox, PAST},
};

const SOON: Duration = Duration::from_secs(60);
const QUEUES: [&str; 3] = ["one", "two", "three"];

async fn connected(broker: &MemoryBroker) -> Client {
    let mq = acemq::connect(broker.url()).await.unwrap();
    for queue in QUEUES {
        mq.declare_queue(&Queue::new(queue)).await.unwrap();
    }
    mq
}

fn to(queue: &str, body: &str) -> OutboxRecord {
    OutboxRecord::new("", queue, "text/plain", body.to_owned(), &Envelope::new("placed")).unwrap()
}

/// What a queue holds, without what came a second time.
fn firsts(broker: &MemoryBroker, queue: &str) -> Vec<String> {
    let mut seen = HashSet::new();
    let messages = broker.queue(queue).unwrap();
    let bodies = messages.iter().map(|m| String::from_utf8(m.body().to_vec()).unwrap());
    bodies.filter(|body| seen.insert(body.clone())).collect()
}

fn sent(broker: &MemoryBroker) -> usize {
    QUEUES.iter().map(|queue| broker.queue(queue).unwrap().len()).sum()
}

// promise: BX-5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_that_lose_their_sessions_lose_no_record_and_keep_the_order() {
    let Some(database) = Database::create().await else { return };
    let outbox = Outbox::new(database.pool.clone()).indexed_by_key();
    outbox.create_table_if_absent().await.unwrap();
    for order in [PerKey, Strict] {
        let broker = MemoryBroker::new();
        let mq = connected(&broker).await;
        let records: Vec<_> = (0..300).map(|n| to(QUEUES[n % 3], &format!("{n:04}"))).collect();
        add(&database, &outbox, &records).await;
        let relays = [(); 2].map(|()| {
            OutboxRelay::builder(&mq, outbox.clone())
                .order(order)
                .batch(10)
                .poll(Duration::from_millis(50))
                .lease(Duration::from_secs(1))
                .start()
        });
        for goal in [30, 90, 180] {
            eventually("some is out", SOON, async || sent(&broker) >= goal).await;
            if !database.end_other_sessions().await {
                break;
            }
        }
        let pending = async || outbox.pending_count().await.is_ok_and(|pending| pending == 0);
        eventually("all is out", SOON, pending).await;
        for queue in QUEUES {
            let firsts = firsts(&broker, queue);
            assert_eq!(firsts.len(), 100);
            assert!(firsts.is_sorted(), "{order:?}: {firsts:?}");
        }
        for relay in relays {
            relay.close().await.unwrap();
        }
        mq.close().await.unwrap();
    }
}

// promise: OB-22
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_that_waits_in_vain_for_a_lock_is_tried_again_and_nothing_goes_out_twice() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let record = to("one", "o-1");
    add(&database, &outbox, std::slice::from_ref(&record)).await;
    // Written, and confirmed when the pause is over.
    broker.block("low on memory");
    let impatient = Outbox::new(database.impatient_pool().await);
    let failures = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&failures);
    let relay = OutboxRelay::builder(&mq, impatient)
        .poll(Duration::from_millis(50))
        .on_error(move |_| _ = counted.fetch_add(1, Ordering::SeqCst))
        .start();
    let is_claimed = async || outbox.counts().await.unwrap().claimed == 1;
    eventually("it is claimed", SOON, is_claimed).await;
    let mut lock = database.pool.begin().await.unwrap();
    let update =
        format!("UPDATE acemq_outbox SET last_error = 'held' WHERE id = '{}'", record.id());
    sqlx::query(sqlx::AssertSqlSafe(update)).execute(&mut *lock).await.unwrap();
    broker.unblock();
    eventually("it is published", SOON, async || relay.published() == 1).await;
    let several = failures.load(Ordering::SeqCst) + 3;
    let failed = async || failures.load(Ordering::SeqCst) >= several;
    eventually("several marks have failed", SOON, failed).await;
    lock.rollback().await.unwrap();

    eventually("it is marked", SOON, async || outbox.pending_count().await.unwrap() == 0).await;
    assert_eq!((relay.published(), sent(&broker)), (1, 1));
    relay.close().await.unwrap();
    mq.close().await.unwrap();
}

// promise: OB-10
#[tokio::test]
async fn one_batch_of_good_and_bad_records_sends_the_good_and_says_what_is_wrong() {
    let Some(database) = Database::create().await else { return };
    for order in [Relaxed, PerKey] {
        let outbox = database.outbox().await.max_attempts(1);
        let broker = MemoryBroker::new();
        let mq = connected(&broker).await;
        let too_large = Envelope::new("placed").with_header("x-note", "n".repeat(200_000)).unwrap();
        let too_large = OutboxRecord::new("", "two", "text/plain", "o", &too_large).unwrap();
        let unreadable = to("three", "o");
        let unroutable = to("nobody", "o");
        let records = [
            to("one", "1"),
            unroutable.clone(),
            to("one", "2"),
            too_large.clone(),
            unreadable.clone(),
            to("one", "3"),
        ];
        add(&database, &outbox, &records).await;
        let spoil =
            format!("UPDATE acemq_outbox SET headers = 'no JSON' WHERE id = '{}'", unreadable.id());
        assert_eq!(database.execute(&spoil).await, 1);

        let relay = OutboxRelay::builder(&mq, outbox.clone()).order(order).build();
        assert_eq!(relay.drain().await.unwrap(), 3, "{order:?}");
        assert_eq!((relay.failed(), firsts(&broker, "one").len()), (3, 3));
        let reason = |record: &OutboxRecord| {
            let (outbox, id) = (outbox.clone(), record.id().to_owned());
            async move {
                let stuck = outbox.stuck(10).await.unwrap();
                stuck.into_iter().find(|stuck| stuck.id == id).unwrap().last_error.unwrap()
            }
        };
        for (record, said) in
            [(&unroutable, "reached no queue"), (&too_large, "header"), (&unreadable, "not JSON")]
        {
            let reason = reason(record).await;
            assert!(reason.contains(said), "{reason} does not say {said}");
        }
        database.execute("DELETE FROM acemq_outbox").await;
        mq.close().await.unwrap();
    }
}

#[tokio::test]
async fn two_tables_in_one_database_have_relays_of_their_own() {
    let Some(database) = Database::create().await else { return };
    let outboxes = ["first_outbox", "second_outbox"]
        .map(|name| Outbox::new(database.pool.clone()).table(name).unwrap());
    let broker = MemoryBroker::new();
    let mq = connected(&broker).await;
    let mut relays = Vec::new();
    for (outbox, queue) in outboxes.iter().zip(QUEUES) {
        outbox.create_table_if_absent().await.unwrap();
        let records: Vec<_> = (0..50).map(|n| to(queue, &format!("{n:04}"))).collect();
        add(&database, outbox, &records).await;
        relays.push(OutboxRelay::builder(&mq, outbox.clone()).order(Strict).start());
    }
    for outbox in &outboxes {
        eventually("all is out", SOON, async || outbox.pending_count().await.unwrap() == 0).await;
    }
    for relay in relays {
        assert_eq!(relay.published(), 50);
        relay.close().await.unwrap();
    }
    mq.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_of_one_connection_serves_a_relay_in_every_order() {
    let Some(database) = Database::create().await else { return };
    database.outbox().await;
    let outbox = Outbox::new(database.pool_of_one().await);
    for order in [Relaxed, PerKey, Strict] {
        let broker = MemoryBroker::new();
        let mq = connected(&broker).await;
        let relay = start(&mq, &outbox, order);
        let records: Vec<_> = (0..40).map(|n| to("one", &format!("{n:04}"))).collect();
        add(&database, &outbox, &records).await;
        eventually("all is out", SOON, async || relay.published() == 40).await;
        assert!(firsts(&broker, "one").is_sorted());
        relay.close().await.unwrap();
        mq.close().await.unwrap();
    }
    let published = format!("FROM acemq_outbox WHERE published_at > {PAST}");
    assert_eq!(database.text("count(*)", &published).await.unwrap(), "120");
}

fn start(mq: &Client, outbox: &Outbox, order: RelayOrder) -> OutboxRelay {
    OutboxRelay::builder(mq, outbox.clone()).order(order).poll(Duration::from_millis(50)).start()
}
