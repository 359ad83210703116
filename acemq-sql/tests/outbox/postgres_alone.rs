//! What only PostgreSQL does, above all `NOTIFY`, or only there has to be looked after.

use std::time::{Duration, Instant};

use acemq::{Client, ErrorKind, Exchange, OutboxRelay, OutboxStore, Queue, RelayOrder, Topology};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use testkit::eventually;

use super::database::{Database, Outbox, nowhere};
use crate::support::{claim, record, record_to};

const SOON: Duration = Duration::from_secs(20);
/// So long that only a notification can be the reason.
const NEVER: Duration = Duration::from_secs(3_600);

async fn broker() -> Client {
    let mq = acemq::connect(format!("memory://{}", testkit::unique("notify"))).await.unwrap();
    let topology = Topology::new()
        .exchange(Exchange::topic("orders"))
        .queue(Queue::new("placed"))
        .bind("placed", "orders", "#");
    mq.declare(&topology).await.unwrap();
    mq
}

/// Another process's way in: a pool of its own, and no wire to the relay.
async fn writer(database: &Database) -> Outbox {
    Outbox::new(database.another_pool().await).notify(true)
}

async fn add(database: &Database, outbox: &Outbox, id: &str) {
    let mut transaction = database.pool.begin().await.unwrap();
    outbox.add(&mut transaction, &record_to(id, "placed")).await.unwrap();
    transaction.commit().await.unwrap();
}

// promise: BX-6
// promise: OB-27
#[tokio::test]
async fn what_another_process_commits_is_at_the_broker_in_milliseconds() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await.notify(true);
    let writer = writer(&database).await;
    let mq = broker().await;
    let relay = OutboxRelay::builder(&mq, outbox.clone()).poll(NEVER).start();
    add(&database, &writer, "first").await;
    eventually("it listens", SOON, async || relay.published() == 1).await;

    let mut delays = Vec::new();
    for n in 0..50 {
        add(&database, &writer, &format!("r{n}")).await;
        let committed = Instant::now();
        while relay.published() < n + 2 {
            assert!(committed.elapsed() < SOON, "nothing was announced");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        delays.push(committed.elapsed());
    }
    delays.sort();
    assert!(delays[25] < Duration::from_millis(100), "{:?}", delays[25]);
    relay.close().await.unwrap();
    mq.close().await.unwrap();
}

// promise: BX-6
#[tokio::test]
async fn listening_comes_back_and_needs_no_connection_of_the_pool() {
    let Some(database) = Database::create().await else { return };
    database.outbox().await;
    let outbox = Outbox::new(database.pool_of_one().await).notify(true);
    let mq = broker().await;
    let relay = OutboxRelay::builder(&mq, outbox.clone()).poll(NEVER).start();
    for (n, id) in (1..).zip(["before", "after"]) {
        add(&database, &writer(&database).await, id).await;
        eventually("it is out", SOON, async || relay.published() == n).await;
        database.end_other_sessions().await;
    }
    relay.close().await.unwrap();
    mq.close().await.unwrap();
}

#[tokio::test]
async fn only_a_commit_announces_and_only_where_it_is_asked_for() {
    let Some(database) = Database::create().await else { return };
    let silent = database.outbox().await;
    let told = silent.clone().notify(true);
    let mut listener = sqlx::postgres::PgListener::connect_with(&database.pool).await.unwrap();
    listener.listen("acemq_outbox@").await.unwrap();

    add(&database, &silent, "silent").await;
    let mut rolled_back = database.pool.begin().await.unwrap();
    told.add(&mut rolled_back, &record_to("rolled back", "placed")).await.unwrap();
    rolled_back.rollback().await.unwrap();
    // Many records, and one again: one announcement each, and no second row.
    let mut transaction = database.pool.begin().await.unwrap();
    let records: Vec<_> = (0..20).map(|n| record_to(&format!("r{n}"), "placed")).collect();
    told.add_all(&mut transaction, &records).await.unwrap();
    told.add_all(&mut transaction, &records).await.unwrap();
    transaction.commit().await.unwrap();
    // Through another client.
    let statement = told.statement(&record_to("by hand", "placed")).await.unwrap();
    let insert = sqlx::query(sqlx::AssertSqlSafe(statement.sql));
    let insert = statement.values.into_iter().fold(insert, |insert, value| insert.bind(value));
    insert.execute(&database.pool).await.unwrap();

    for _ in 0..2 {
        tokio::time::timeout(SOON, listener.recv()).await.unwrap().unwrap();
    }
    let more = tokio::time::timeout(Duration::from_millis(300), listener.recv()).await;
    assert!(more.is_err(), "{more:?}");
    assert_eq!(silent.pending_count().await.unwrap(), 22);
}

#[tokio::test]
async fn a_listening_relay_whose_database_is_away_closes_at_once() {
    let mq = broker().await;
    let relay = OutboxRelay::builder(&mq, Outbox::new(nowhere()).notify(true)).start();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let closing = Instant::now();
    drop(relay);
    mq.close().await.unwrap();
    assert!(closing.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_runtime_that_ends_under_a_listening_relay_ends_quietly() {
    for mut runtime in
        [tokio::runtime::Builder::new_current_thread(), tokio::runtime::Builder::new_multi_thread()]
    {
        let runtime = runtime.enable_all().build().unwrap();
        let relay = runtime.block_on(async {
            let database = Database::create().await?;
            let outbox = database.outbox().await.notify(true);
            let mq = broker().await;
            let relay = OutboxRelay::builder(&mq, outbox).order(RelayOrder::Strict).start();
            add(&database, &writer(&database).await, "first").await;
            eventually("it listens", SOON, async || relay.published() == 1).await;
            Some(relay)
        });
        drop(runtime);
        drop(relay);
    }
}

#[tokio::test]
async fn what_waiting_does_not_mend_is_no_outage_and_says_what_the_database_said() {
    let Some(database) = Database::create().await else { return };
    let there: PgConnectOptions = database.url().parse().unwrap();
    for (kind, said, options) in [
        (ErrorKind::NotFound, "nowhere", there.clone().database("nowhere")),
        (ErrorKind::Authentication, "nobody", there.clone().username("nobody").password("secret")),
    ] {
        let pool = PgPoolOptions::new().connect_lazy_with(options);
        let error = Outbox::new(pool).pending_count().await.unwrap_err();
        assert_eq!((error.kind(), error.is_transient()), (kind, false), "{error}");
        assert!(error.to_string().contains(said), "{error}");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
    let away = PgPoolOptions::new().acquire_timeout(Duration::from_secs(1));
    let away = away.connect_lazy_with(there.port(1));
    let away = Outbox::new(away).pending_count().await.unwrap_err();
    assert_eq!((away.kind(), away.is_transient()), (ErrorKind::Store, true), "{away}");
}

// A row is found again by its place, and each part of a partitioned table has places of its own.
#[tokio::test]
async fn a_claim_on_a_partitioned_table_takes_the_rows_that_it_hands_out_and_no_others() {
    let Some(database) = Database::create().await else { return };
    let outbox = Outbox::new(database.pool.clone());
    let create = outbox.schema_statements().swap_remove(0);
    let create = create.replace(" WITH (fillfactor = 50)", " PARTITION BY HASH (id)");
    database.execute(&create).await;
    for part in 0..4 {
        let part = format!(
            "CREATE TABLE part_{part} PARTITION OF acemq_outbox \
             FOR VALUES WITH (MODULUS 4, REMAINDER {part})"
        );
        database.execute(&part).await;
    }
    let records: Vec<_> = (0..40).map(|n| record(&format!("r{n:02}"))).collect();
    let mut transaction = database.pool.begin().await.unwrap();
    outbox.add_all(&mut transaction, &records).await.unwrap();
    transaction.commit().await.unwrap();
    for taken in 1..=4 {
        assert_eq!(claim(&outbox, 10).await.len(), 10);
        let claimed = database.text("count(*)", "FROM acemq_outbox WHERE locked_by IS NOT NULL");
        assert_eq!(claimed.await.unwrap(), (taken * 10).to_string());
    }
}
