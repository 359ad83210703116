use std::time::Duration;

use acemq::{ErrorKind, OutboxStore};

use super::{add, database::Database};
use crate::support::{claim, ids, record, record_with_body};

// promise: OB-1
#[tokio::test]
async fn a_record_commits_or_rolls_back_with_the_callers_transaction() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    database.execute("CREATE TABLE orders (id VARCHAR(20) PRIMARY KEY)").await;

    let mut transaction = database.pool.begin().await.unwrap();
    sqlx::query("INSERT INTO orders VALUES ('kept')").execute(&mut *transaction).await.unwrap();
    outbox.add(&mut transaction, &record("kept")).await.unwrap();
    transaction.commit().await.unwrap();

    let mut transaction = database.pool.begin().await.unwrap();
    sqlx::query("INSERT INTO orders VALUES ('lost')").execute(&mut *transaction).await.unwrap();
    outbox.add(&mut transaction, &record("lost")).await.unwrap();
    transaction.rollback().await.unwrap();

    assert_eq!(database.count("orders").await, 1);
    assert_eq!(ids(&claim(&outbox, 10).await), ["kept"]);
}

// promise: OB-2, OB-3
#[tokio::test]
async fn adding_neither_commits_nor_closes_and_the_relays_side_is_on_other_connections() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let mut transaction = database.pool.begin().await.unwrap();
    outbox.add(&mut transaction, &record("a")).await.unwrap();
    assert_eq!(outbox.pending_count().await.unwrap(), 0, "not committed by adding");
    assert!(claim(&outbox, 10).await.is_empty());
    outbox.add(&mut transaction, &record("b")).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(outbox.pending_count().await.unwrap(), 2);
}

// promise: OB-2
#[tokio::test]
async fn a_connection_without_an_open_transaction_is_refused() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let mut connection = database.pool.acquire().await.unwrap();
    let refused = outbox.add_on_connection(&mut connection, &record("a")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert_eq!(outbox.pending_count().await.unwrap(), 0);

    // A transaction that sqlx knows nothing of, and that lives on after the question.
    for end in ["ROLLBACK", "COMMIT"] {
        sqlx::query("BEGIN").execute(&mut *connection).await.unwrap();
        outbox.add_on_connection(&mut connection, &record("a")).await.unwrap();
        assert_eq!(outbox.pending_count().await.unwrap(), 0, "still open");
        sqlx::query(end).execute(&mut *connection).await.unwrap();
    }
    assert_eq!(outbox.pending_count().await.unwrap(), 1);
}

// promise: OB-18
#[tokio::test]
async fn a_record_added_twice_is_one_and_leaves_the_transaction_usable() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    add(&database, &outbox, &[record("a")]).await;
    let mut transaction = database.pool.begin().await.unwrap();
    outbox.add(&mut transaction, &record("a")).await.unwrap();
    outbox.add_all(&mut transaction, &[record("b"), record("a"), record("b")]).await.unwrap();
    transaction.commit().await.unwrap();
    let mut claimed = claim(&outbox, 10).await;
    claimed.sort_by(|a, b| a.claim().id().cmp(b.claim().id()));
    assert_eq!(ids(&claimed), ["a", "b"]);
}

// promise: BX-11
#[tokio::test]
async fn ids_that_differ_in_case_accents_or_spaces_are_different_records() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let names = ["A1", "a1", "A1 ", "Á1", "A\u{301}1", "Ａ１"];
    add(&database, &outbox, &names.map(record)).await;
    let claimed = claim(&outbox, 10).await;
    assert_eq!(ids(&claimed), names);
    outbox.mark_published(&[claimed[1].claim().clone()]).await.unwrap();
    assert_eq!(outbox.pending_count().await.unwrap(), 5);
}

#[tokio::test]
async fn more_records_than_one_statement_holds_are_added_in_one_transaction() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let records: Vec<_> = (0..2_345).map(|n| record(&format!("r{n}"))).collect();
    add(&database, &outbox, &records).await;
    assert_eq!(outbox.pending_count().await.unwrap(), 2_345);
}

#[tokio::test]
async fn a_statement_for_another_client_inserts_the_same_row() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let record = record_with_body("a", b"\xff");
    let statement = outbox.statement(&record).await.unwrap();
    let mut query = sqlx::query(sqlx::AssertSqlSafe(statement.sql));
    for value in statement.values {
        query = query.bind(value);
    }
    let mut transaction = database.pool.begin().await.unwrap();
    query.execute(&mut *transaction).await.unwrap();
    transaction.commit().await.unwrap();
    let claimed = claim(&outbox, 1).await;
    assert_eq!(claimed[0].content().unwrap(), &record);
}

// promise: OB-1, OB-27
#[tokio::test]
async fn adding_arms_the_relay_which_publishes_after_the_commit_without_a_poll() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let mq = acemq::connect(format!("memory://{}", testkit::unique("sql"))).await.unwrap();
    mq.declare_queue(&acemq::Queue::new("orders.new")).await.unwrap();
    let hour = Duration::from_secs(3_600);
    let relay = acemq::OutboxRelay::builder(&mq, outbox.clone()).poll(hour).start();
    let placed = mq.publisher::<String>("", "orders.new");

    let kept = placed.record(&"kept".to_owned()).await.unwrap();
    let mut transaction = database.pool.begin().await.unwrap();
    outbox.add(&mut transaction, &kept).await.unwrap();
    transaction.commit().await.unwrap();
    let published = async || relay.published() == 1;
    testkit::eventually("the record is published", Duration::from_secs(30), published).await;

    let lost = placed.record(&"lost".to_owned()).await.unwrap();
    let mut transaction = database.pool.begin().await.unwrap();
    outbox.add(&mut transaction, &lost).await.unwrap();
    transaction.rollback().await.unwrap();
    outbox.wake();
    relay.close().await.unwrap();
    assert_eq!((relay.published(), relay.failed()), (1, 0));
    assert_eq!(outbox.pending_count().await.unwrap(), 0);
    mq.close().await.unwrap();
}
