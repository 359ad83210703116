//! Claims in a kept order, and claims that are bounded in bytes.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use acemq::{
    ClaimRequest, ClaimedRecord, OutboxRecord, OutboxStore, RelayOrder,
    RelayOrder::{PerKey, Relaxed, Strict},
};

use super::{
    LEASE, add,
    database::{Database, FUTURE, Outbox},
    failure,
};
use crate::support::{claim, ids, record, record_to, record_with_body};

async fn claim_in(outbox: &Outbox, order: RelayOrder, size: usize) -> Vec<ClaimedRecord> {
    outbox.claim(ClaimRequest::new(size, LEASE).order(order)).await.unwrap()
}

async fn give_back(outbox: &Outbox, records: &[ClaimedRecord]) {
    let claims: Vec<_> = records.iter().map(|record| record.claim().clone()).collect();
    outbox.give_back(&claims).await.unwrap();
}

/// Records `a1 b1 a2 b2 …`, made in that order, each to a key of its letter.
fn in_turn(keys: &str, rounds: usize) -> Vec<OutboxRecord> {
    let round = |n| keys.chars().map(move |key| record_to(&format!("{key}{n}"), &key.to_string()));
    (1..=rounds).flat_map(round).collect()
}

async fn outbox_with(database: &Database, records: &[OutboxRecord]) -> Outbox {
    let outbox = Outbox::new(database.pool.clone()).indexed_by_key();
    outbox.create_table_if_absent().await.unwrap();
    add(database, &outbox, records).await;
    outbox
}

/// What makes a record hold up those behind it: another relay has it, it is not due, it is
/// exhausted.
fn blockers() -> [String; 3] {
    [
        format!("locked_by = 'other', locked_until = {FUTURE}"),
        format!("attempts = 1, locked_until = {FUTURE}"),
        "attempts = 10".to_owned(),
    ]
}

// promise: OB-10
#[tokio::test]
async fn what_is_not_free_holds_up_its_key_and_in_the_strict_order_everything() {
    let Some(database) = Database::create().await else { return };
    let outbox = outbox_with(&database, &in_turn("ab", 3)).await;
    for blocker in blockers() {
        database.execute(&format!("UPDATE acemq_outbox SET {blocker} WHERE id = 'a2'")).await;

        let claimed = claim_in(&outbox, Strict, 10).await;
        assert_eq!(ids(&claimed), ["a1", "b1"], "{blocker}");
        // Held by a claim now, the first of each holds up the rest.
        assert!(claim_in(&outbox, Strict, 10).await.is_empty());
        assert!(claim_in(&outbox, PerKey, 10).await.is_empty());
        give_back(&outbox, &claimed).await;

        let claimed = claim_in(&outbox, PerKey, 10).await;
        assert_eq!(ids(&claimed), ["a1", "b1", "b2", "b3"], "{blocker}");
        give_back(&outbox, &claimed).await;

        // In no kept order it is overtaken.
        let claimed = claim_in(&outbox, Relaxed, 10).await;
        assert_eq!(ids(&claimed), ["a1", "b1", "b2", "a3", "b3"], "{blocker}");
        give_back(&outbox, &claimed).await;
        database
            .execute("UPDATE acemq_outbox SET attempts = 0, locked_by = NULL, locked_until = NULL")
            .await;
    }
    assert_eq!(claim_in(&outbox, Strict, 10).await.len(), 6);
}

// promise: OB-10
#[tokio::test]
async fn a_failed_record_holds_up_what_is_behind_it_until_it_is_retried_or_discarded() {
    let Some(database) = Database::create().await else { return };
    let outbox = outbox_with(&database, &in_turn("a", 3)).await.max_attempts(1);
    let first = claim_in(&outbox, PerKey, 1).await;
    outbox.mark_failed(&[failure(first[0].claim(), "no", Duration::ZERO)]).await.unwrap();
    assert!(claim_in(&outbox, PerKey, 10).await.is_empty());
    assert!(claim_in(&outbox, Strict, 10).await.is_empty());

    assert!(outbox.retry("a1").await.unwrap());
    let again = claim_in(&outbox, Strict, 1).await;
    assert_eq!(ids(&again), ["a1"]);
    outbox.mark_failed(&[failure(again[0].claim(), "no", Duration::ZERO)]).await.unwrap();
    assert_eq!(outbox.discard("a1").await.unwrap(), acemq::Discard::Removed);
    assert_eq!(ids(&claim_in(&outbox, PerKey, 10).await), ["a2", "a3"]);
}

// promise: BX-5
#[tokio::test]
async fn a_key_with_many_records_leaves_room_for_the_others() {
    let Some(database) = Database::create().await else { return };
    let mut records: Vec<_> = (0..400).map(|n| record_to(&format!("m{n:03}"), "m")).collect();
    records.extend("bcnz".chars().map(|key| record_to(&key.to_string(), &key.to_string())));
    let outbox = outbox_with(&database, &records).await;

    let claimed = claim_in(&outbox, PerKey, 50).await;
    let claimed = ids(&claimed);
    assert_eq!(claimed.len(), 50);
    let hot: Vec<String> = (0..46).map(|n| format!("m{n:03}")).collect();
    assert_eq!(claimed[..46], hot);
    assert_eq!(claimed[46..], ["b", "c", "n", "z"]);
}

#[tokio::test]
async fn keys_with_many_records_take_turns() {
    let Some(database) = Database::create().await else { return };
    let record = |n: usize| record_to(&format!("r{n:03}"), &format!("k{:02}", n % 30));
    let outbox = outbox_with(&database, &(0..600).map(record).collect::<Vec<_>>()).await;
    let mut keys = HashSet::new();
    for _ in 0..3 {
        let claimed = claim_in(&outbox, PerKey, 10).await;
        keys.extend(claimed.iter().map(|one| one.content().unwrap().routing_key().to_owned()));
        let claims: Vec<_> = claimed.iter().map(|one| one.claim().clone()).collect();
        outbox.mark_published(&claims).await.unwrap();
    }
    assert_eq!(keys.len(), 30);
}

// promise: BX-5
#[tokio::test]
async fn every_key_has_its_turn_however_many_there_are_and_nothing_overtakes() {
    let Some(database) = Database::create().await else { return };
    let key = |n: usize| format!("k{:03}", n % 300);
    let records: Vec<_> = (0..900).map(|n| record_to(&format!("r{n:03}"), &key(n))).collect();
    let outbox = outbox_with(&database, &records).await;
    database.execute("UPDATE acemq_outbox SET attempts = 10 WHERE id IN ('r007', 'r320')").await;

    let mut order: BTreeMap<String, Vec<String>> = BTreeMap::new();
    loop {
        let claimed = claim_in(&outbox, PerKey, 64).await;
        if claimed.is_empty() {
            break;
        }
        for record in &claimed {
            let key = record.content().unwrap().routing_key().to_owned();
            order.entry(key).or_default().push(record.claim().id().to_owned());
        }
        let claims: Vec<_> = claimed.iter().map(|record| record.claim().clone()).collect();
        outbox.mark_published(&claims).await.unwrap();
    }
    // All of a key whose first is exhausted waits, and of one whose second is, all but the first.
    assert_eq!(order.len(), 299);
    assert_eq!(order.values().map(Vec::len).sum::<usize>(), 900 - 3 - 2);
    assert_eq!(order["k020"], ["r020"]);
    for ids in order.values() {
        assert!(ids.is_sorted(), "{ids:?}");
    }
}

// promise: BX-5
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ordered_claims_that_race_never_take_one_record_past_another() {
    let Some(database) = Database::create().await else { return };
    let outbox = outbox_with(&database, &in_turn("abc", 60)).await;
    // What is about to be marked, and so what a claim may find out of its way.
    let done = Arc::new(Mutex::new(HashSet::new()));
    let mut relays = tokio::task::JoinSet::new();
    for (order, size) in [(PerKey, 3), (Strict, 5), (PerKey, 7), (Strict, 11)] {
        let (store, done) = (outbox.clone(), Arc::clone(&done));
        relays.spawn(async move {
            for _ in 0..40 {
                let claimed = claim_in(&store, order, size).await;
                for record in &claimed {
                    let id = record.claim().id();
                    let place: usize = id[1..].parse().unwrap();
                    let before = format!("{}{}", &id[..1], place - 1);
                    let mut done = done.lock().unwrap();
                    assert!(place == 1 || done.contains(&before), "{:?}", ids(&claimed));
                    done.insert(id.to_owned());
                }
                let claims: Vec<_> = claimed.iter().map(|one| one.claim().clone()).collect();
                store.mark_published(&claims).await.unwrap();
            }
        });
    }
    while let Some(ended) = relays.join_next().await {
        ended.unwrap();
    }
}

#[tokio::test]
async fn a_claim_takes_no_more_bytes_than_it_may_and_at_least_one_record() {
    let Some(database) = Database::create().await else { return };
    let sizes = [10, 2_000_000, 400, 500, 600];
    let records: Vec<_> = sizes
        .iter()
        .enumerate()
        .map(|(n, size)| record_with_body(&n.to_string(), &vec![b'x'; *size]))
        .collect();
    let outbox = outbox_with(&database, &records).await;
    for order in [Relaxed, PerKey, Strict] {
        let request = ClaimRequest::new(10, LEASE).bytes(1_000).order(order);
        let mut batches = Vec::new();
        loop {
            let claimed = outbox.claim(request).await.unwrap();
            if claimed.is_empty() {
                break;
            }
            batches.push(ids(&claimed).join(" "));
            let claims: Vec<_> = claimed.iter().map(|record| record.claim().clone()).collect();
            outbox.mark_published(&claims).await.unwrap();
        }
        assert_eq!(batches, ["0", "1", "2 3", "4"], "{order:?}");
        database.execute("UPDATE acemq_outbox SET published_at = NULL").await;
    }
}

#[tokio::test]
async fn a_table_without_the_index_by_key_keeps_the_order_all_the_same() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    add(&database, &outbox, &[record("a"), record_to("b", "other"), record("c")]).await;
    assert_eq!(ids(&claim(&outbox, 1).await), ["a"]);
    assert_eq!(ids(&claim_in(&outbox, PerKey, 10).await), ["b"]);
}
