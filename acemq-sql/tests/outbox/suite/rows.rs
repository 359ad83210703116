use std::time::Duration;

use acemq::{ErrorKind, OutboxRelay, OutboxStore, Queue};

use super::{
    add,
    database::{Database, Outbox},
};
use crate::support::{claim, ids, record};

/// What another program may have made of a row, and what is said of it.
const BROKEN: [(&str, &str); 10] = [
    ("headers = 'not json'", "headers"),
    ("headers = '[1]'", "headers"),
    ("headers = NULL", "its headers is null"),
    ("body_encoding = 'rot13'", "rot13"),
    ("body_encoding = NULL", "its body_encoding is null"),
    ("body = '***', body_encoding = 'base64'", "not base64"),
    ("body = NULL", "its body is null"),
    ("exchange_name = NULL", "its exchange_name is null"),
    ("routing_key = NULL", "its routing_key is null"),
    ("created_at = NULL", "its created_at is null"),
];

/// A table with broken rows `0`, `1`, … before and after `good-1` and `good-2`, as a hand-made one
/// might be: with columns that may be null.
async fn broken_table(database: &Database) -> Outbox {
    let outbox = Outbox::new(database.pool.clone());
    let statements = outbox.schema_statements();
    database.execute(&statements[0].replace("NOT NULL,", ",")).await;
    let mut records: Vec<_> = (0..BROKEN.len()).map(|n| record(&n.to_string())).collect();
    records.insert(3, record("good-1"));
    records.push(record("good-2"));
    add(database, &outbox, &records).await;
    for (n, (change, _)) in BROKEN.iter().enumerate() {
        let sql = format!("UPDATE acemq_outbox SET {change} WHERE id = '{n}'");
        assert_eq!(database.execute(&sql).await, 1);
    }
    outbox
}

#[tokio::test]
async fn a_row_that_cannot_be_read_is_claimed_with_what_is_wrong_with_it() {
    let Some(database) = Database::create().await else { return };
    let outbox = broken_table(&database).await;
    let claimed = claim(&outbox, 100).await;
    assert_eq!(claimed.len(), BROKEN.len() + 2);
    for (n, (_, said)) in BROKEN.iter().enumerate() {
        let id = n.to_string();
        let row = claimed.iter().find(|record| record.claim().id() == id).unwrap();
        let error = row.content().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Decode, "{error}");
        let text = error.to_string();
        assert!(text.contains(&id) && text.contains(said), "{text} does not say {said}");
    }
    let good = claimed.iter().filter(|record| record.content().is_ok());
    assert_eq!(good.map(|record| record.claim().id()).collect::<Vec<_>>(), ["good-1", "good-2"]);
}

// promise: OB-10
#[tokio::test]
async fn rows_that_cannot_be_read_fail_alone_and_the_rest_goes_out() {
    let Some(database) = Database::create().await else { return };
    let outbox = broken_table(&database).await;
    // So that one failure is the last.
    let outbox = outbox.max_attempts(1);
    let mq = acemq::connect(format!("memory://{}", testkit::unique("sql"))).await.unwrap();
    mq.declare_queue(&Queue::new("placed")).await.unwrap();
    database
        .execute(
            "UPDATE acemq_outbox SET exchange_name = '', routing_key = 'placed' \
                      WHERE id LIKE 'good%'",
        )
        .await;
    let relay = OutboxRelay::builder(&mq, outbox.clone()).batch(3).build();
    assert_eq!(relay.drain().await.unwrap(), 2);
    assert_eq!((relay.published(), relay.failed()), (2, BROKEN.len() as u64));
    let stuck = outbox.stuck(100).await.unwrap();
    assert_eq!(stuck.len(), BROKEN.len());
    for record in stuck {
        let (_, said) = BROKEN[record.id.parse::<usize>().unwrap()];
        let reason = record.last_error.unwrap();
        assert!(reason.contains(said), "{}: {reason} does not say {said}", record.id);
    }
    relay.close().await.unwrap();
    mq.close().await.unwrap();
    assert!(ids(&claim(&outbox, 100).await).is_empty());
    assert_eq!(outbox.purge_published(Duration::ZERO).await.unwrap(), 2);
}
