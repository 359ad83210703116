use std::{collections::HashMap, time::Duration};

use acemq::OutboxStore;

use super::{
    add,
    database::{Database, FUTURE, Outbox, PAST},
};
use crate::support::{claim, ids, record};

// promise: OB-12
#[tokio::test]
async fn records_are_claimed_oldest_first_and_those_of_a_transaction_in_order() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let names = ["z", "m", "a", "q", "b", "y"];
    let records: Vec<_> = names.iter().map(|name| record(name)).collect();
    add(&database, &outbox, &records[3..]).await;
    add(&database, &outbox, &records[..3]).await;
    assert_eq!(ids(&claim(&outbox, 4).await), names[..4]);
    assert_eq!(ids(&claim(&outbox, 4).await), names[4..]);
}

// promise: OB-4
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn relays_that_race_never_hold_one_record_at_once() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let records: Vec<_> = (0..400).map(|n| record(&format!("r{n}"))).collect();
    add(&database, &outbox, &records).await;
    let other = Outbox::new(database.another_pool().await);
    let mut relays = tokio::task::JoinSet::new();
    for n in 0..8 {
        let store = if n % 2 == 0 { outbox.clone() } else { other.clone() };
        relays.spawn(async move {
            let mut taken = Vec::new();
            loop {
                let batch = claim(&store, 7).await;
                if batch.is_empty() {
                    return taken;
                }
                taken.extend(batch.iter().map(|record| record.claim().id().to_owned()));
            }
        });
    }
    let mut holders: HashMap<String, usize> = HashMap::new();
    while let Some(taken) = relays.join_next().await {
        for id in taken.unwrap() {
            *holders.entry(id).or_default() += 1;
        }
    }
    // A relay may find nothing while another's claim is in the making; the rest is free still.
    for record in claim(&outbox, 1_000).await {
        *holders.entry(record.claim().id().to_owned()).or_default() += 1;
    }
    assert_eq!(holders.len(), 400);
    assert!(holders.values().all(|times| *times == 1));
}

#[tokio::test]
async fn a_record_whose_transaction_commits_late_is_not_skipped() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let (early, late) = (record("early"), record("late"));
    if database.takes_two_writers() {
        let mut open = database.pool.begin().await.unwrap();
        outbox.add(&mut open, &early).await.unwrap();
        add(&database, &outbox, &[late]).await;
        assert_eq!(ids(&claim(&outbox, 10).await), ["late"]);
        open.commit().await.unwrap();
    } else {
        // One writer at a time: the earlier record can only be written later.
        add(&database, &outbox, &[late]).await;
        assert_eq!(ids(&claim(&outbox, 10).await), ["late"]);
        add(&database, &outbox, &[early]).await;
    }
    assert_eq!(ids(&claim(&outbox, 10).await), ["early"]);
}

// promise: OB-4
#[tokio::test]
async fn a_lease_that_ran_out_is_anothers_to_take() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    add(&database, &outbox, &[record("a")]).await;
    assert_eq!(claim(&outbox, 10).await.len(), 1);
    assert!(claim(&outbox, 10).await.is_empty());
    database.execute(&format!("UPDATE acemq_outbox SET locked_until = {PAST}")).await;
    assert_eq!(claim(&outbox, 10).await.len(), 1);
    assert!(claim(&outbox, 10).await.is_empty());
}

// promise: BX-2
#[tokio::test]
async fn a_lease_is_written_by_the_databases_clock() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    add(&database, &outbox, &[record("a")]).await;
    outbox.claim_batch(1, Duration::from_secs(7_200)).await.unwrap();
    let beyond = format!("FROM acemq_outbox WHERE locked_until > {FUTURE}");
    assert_eq!(database.text("count(*)", &beyond).await.unwrap(), "1");
}

#[tokio::test]
async fn another_relay_is_named_while_it_holds_a_claim() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let other = outbox.clone();
    add(&database, &outbox, &[record("a"), record("b")]).await;
    claim(&other, 1).await;
    let named = outbox.other_relays().await.unwrap();
    assert_eq!(named.len(), 1);
    assert!(format!("{other:?}").contains(&named[0]), "{named:?} is not {other:?}");
    assert!(other.other_relays().await.unwrap().is_empty());

    // Another library's token is a name of its own.
    database
        .execute(&format!(
            "UPDATE acemq_outbox SET locked_by = '0b9c', locked_until = {FUTURE} WHERE id = 'b'"
        ))
        .await;
    assert_eq!(outbox.other_relays().await.unwrap().len(), 2);
    database.execute(&format!("UPDATE acemq_outbox SET locked_until = {PAST}")).await;
    assert!(outbox.other_relays().await.unwrap().is_empty());
}
