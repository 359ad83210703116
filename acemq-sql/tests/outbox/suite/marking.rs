use std::time::Duration;

use acemq::OutboxStore;

use super::{
    LEASE, add,
    database::{Database, PAST},
    failure,
};
use crate::support::{claim, ids, record};

// promise: OB-7, OB-13, OB-26
#[tokio::test]
async fn a_failing_record_waits_is_tried_again_and_is_left_visible_at_the_maximum() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await.max_attempts(2);
    add(&database, &outbox, &[record("bad"), record("good")]).await;

    let first = claim(&outbox, 1).await;
    outbox.mark_failed(&[failure(first[0].claim(), "no queue", LEASE)]).await.unwrap();
    assert_eq!(database.text("locked_by", "FROM acemq_outbox WHERE id = 'bad'").await, None);
    assert_eq!(ids(&claim(&outbox, 10).await), ["good"], "the failed one waits");

    database.execute(&format!("UPDATE acemq_outbox SET locked_until = {PAST}")).await;
    let second = claim(&outbox, 1).await;
    assert_eq!((second[0].claim().id(), second[0].attempts()), ("bad", 1));
    let given_up = failure(second[0].claim(), "still no queue", Duration::ZERO);
    outbox.mark_failed(&[given_up]).await.unwrap();

    assert_eq!(ids(&claim(&outbox, 10).await), ["good"]);
    let stuck = outbox.stuck(10).await.unwrap();
    assert_eq!(stuck.len(), 1);
    assert_eq!((stuck[0].id.as_str(), stuck[0].attempts), ("bad", 2));
    assert_eq!(stuck[0].last_error.as_deref(), Some("still no queue"));
    assert!(stuck[0].created_at.is_some());
    assert_eq!(outbox.pending_count().await.unwrap(), 2);
}

// promise: OB-15
#[tokio::test]
async fn the_last_error_is_cut_at_a_thousand_characters_not_bytes() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await.max_attempts(1);
    add(&database, &outbox, &[record("a")]).await;
    let claimed = claim(&outbox, 1).await;
    let reason = format!("nul \0{}", "ü".repeat(2_000));
    outbox.mark_failed(&[failure(claimed[0].claim(), &reason, LEASE)]).await.unwrap();
    let stuck = outbox.stuck(1).await.unwrap();
    let expected = format!("nul \u{fffd}{}", "ü".repeat(995));
    assert_eq!(stuck[0].last_error.as_deref(), Some(expected.as_str()));
}

// promise: BX-3
#[tokio::test]
async fn a_lost_claim_changes_nothing_but_what_was_published_is_recorded_for_good() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    add(&database, &outbox, &[record("a")]).await;
    let lost = claim(&outbox, 1).await[0].claim().clone();
    database.execute(&format!("UPDATE acemq_outbox SET locked_until = {PAST}")).await;
    let held = claim(&outbox, 1).await[0].claim().clone();

    outbox.mark_failed(&[failure(&lost, "late", Duration::ZERO)]).await.unwrap();
    outbox.give_back(std::slice::from_ref(&lost)).await.unwrap();
    outbox.renew(std::slice::from_ref(&lost), Duration::ZERO).await.unwrap();
    assert!(claim(&outbox, 1).await.is_empty(), "the new holder still has it");
    assert_eq!(database.text("attempts", "FROM acemq_outbox").await.unwrap(), "0");

    outbox.mark_published(&[lost]).await.unwrap();
    let published_at = database.text("published_at", "FROM acemq_outbox").await;
    assert!(published_at.is_some());
    outbox.mark_failed(&[failure(&held, "too late", Duration::ZERO)]).await.unwrap();
    outbox.give_back(std::slice::from_ref(&held)).await.unwrap();
    outbox.mark_published(&[held]).await.unwrap();
    assert_eq!(database.text("published_at", "FROM acemq_outbox").await, published_at);
    assert_eq!(outbox.pending_count().await.unwrap(), 0);
    assert!(claim(&outbox, 1).await.is_empty());
}

#[tokio::test]
async fn a_record_given_back_is_free_at_once_without_an_attempt_and_a_renewed_one_stays() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    add(&database, &outbox, &[record("a"), record("b")]).await;
    let claims: Vec<_> =
        claim(&outbox, 10).await.iter().map(|record| record.claim().clone()).collect();
    database.execute(&format!("UPDATE acemq_outbox SET locked_until = {PAST}")).await;
    outbox.renew(&claims[1..], LEASE).await.unwrap();
    outbox.give_back(&claims[..1]).await.unwrap();
    let again = claim(&outbox, 10).await;
    assert_eq!(ids(&again), ["a"]);
    assert_eq!(again[0].attempts(), 0);
}
