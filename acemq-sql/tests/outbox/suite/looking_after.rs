//! Counting, retrying and discarding records.

use std::time::Duration;

use acemq::{Discard, OutboxCounts, OutboxStore};

use super::{
    add,
    database::{Database, FUTURE, PAST},
    failure,
};
use crate::support::{claim, ids, record};

// promise: OB-13
#[tokio::test]
async fn records_are_counted_by_what_they_wait_for() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    assert_eq!(outbox.counts().await.unwrap(), OutboxCounts::default());

    let records: Vec<_> = (0..10).map(|n| record(&format!("r{n}"))).collect();
    add(&database, &outbox, &records).await;
    database.execute(&format!("UPDATE acemq_outbox SET created_at = {PAST} WHERE id = 'r1'")).await;
    // r1 is the oldest and published; r0 waits; two are claimed; r4 is not due; three are exhausted;
    // a claim has run out.
    for change in [
        format!("published_at = {PAST} WHERE id = 'r1'"),
        format!("locked_by = 'x', locked_until = {FUTURE} WHERE id IN ('r2', 'r3')"),
        format!("attempts = 1, locked_until = {FUTURE} WHERE id = 'r4'"),
        "attempts = 10 WHERE id IN ('r5', 'r6', 'r7')".to_owned(),
        format!("locked_by = 'x', locked_until = {PAST} WHERE id = 'r8'"),
    ] {
        database.execute(&format!("UPDATE acemq_outbox SET {change}")).await;
    }
    let counts = outbox.counts().await.unwrap();
    assert_eq!((counts.waiting, counts.claimed, counts.exhausted), (4, 2, 3));
    assert_eq!(counts.pending(), outbox.pending_count().await.unwrap());
    assert!(counts.oldest.unwrap() < Duration::from_secs(60), "{counts:?}");

    database.execute(&format!("UPDATE acemq_outbox SET created_at = {PAST} WHERE id = 'r5'")).await;
    let oldest = outbox.counts().await.unwrap().oldest.unwrap();
    assert!((3_590..3_700).contains(&oldest.as_secs()), "{oldest:?}");
}

// promise: OB-7
#[tokio::test]
async fn an_exhausted_record_is_given_new_attempts_and_no_other_is() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await.max_attempts(2);
    add(&database, &outbox, &[record("stuck"), record("waiting"), record("claimed")]).await;
    for _ in 0..2 {
        let claimed = claim(&outbox, 1).await;
        let failed = failure(claimed[0].claim(), "no queue", Duration::ZERO);
        outbox.mark_failed(&[failed]).await.unwrap();
    }
    database
        .execute(&format!(
            "UPDATE acemq_outbox SET locked_by = 'x', locked_until = {FUTURE} WHERE id = 'claimed'"
        ))
        .await;

    for (id, is_stuck) in [("waiting", false), ("claimed", false), ("none", false), ("stuck", true)]
    {
        assert_eq!(outbox.retry(id).await.unwrap(), is_stuck, "{id}");
        assert!(!outbox.retry(id).await.unwrap(), "{id}");
    }
    let claimed = claim(&outbox, 10).await;
    assert_eq!(ids(&claimed), ["stuck", "waiting"]);
    assert_eq!(claimed[0].attempts(), 0);
}

#[tokio::test]
async fn all_exhausted_records_are_given_new_attempts() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let records: Vec<_> = (0..2_500).map(|n| record(&format!("r{n:04}"))).collect();
    add(&database, &outbox, &records).await;
    database.execute("UPDATE acemq_outbox SET attempts = 10 WHERE id <> 'r0000'").await;
    assert_eq!(outbox.retry_all().await.unwrap(), 2_499);
    assert_eq!(outbox.retry_all().await.unwrap(), 0);
    assert_eq!(outbox.counts().await.unwrap().waiting, 2_500);
}

#[tokio::test]
async fn a_record_is_discarded_unless_a_relay_holds_it() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let names = ["published", "claimed", "waiting", "stuck", "late"];
    add(&database, &outbox, &names.map(record)).await;
    for change in [
        format!("published_at = {PAST} WHERE id = 'published'"),
        format!("locked_by = 'x', locked_until = {FUTURE} WHERE id = 'claimed'"),
        "attempts = 10 WHERE id = 'stuck'".to_owned(),
        format!("attempts = 1, locked_until = {FUTURE} WHERE id = 'late'"),
    ] {
        database.execute(&format!("UPDATE acemq_outbox SET {change}")).await;
    }
    for (id, outcome) in [
        ("published", Discard::NotFound),
        ("none", Discard::NotFound),
        ("claimed", Discard::Claimed),
        ("waiting", Discard::Removed),
        ("stuck", Discard::Removed),
        ("late", Discard::Removed),
    ] {
        assert_eq!(outbox.discard(id).await.unwrap(), outcome, "{id}");
    }
    assert_eq!(database.count("acemq_outbox").await, 2);
}
