//! Many at once, and what goes wrong on the way.

use std::{
    pin::Pin,
    time::{Duration, Instant},
};

use acemq::{ErrorKind, OutboxStore, RecordClaim};

use super::{
    LEASE, add,
    database::{self, Database, Outbox, PAST},
    failure,
};
use crate::support::{claim, ids, record};

// promise: OB-4
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_writers_and_eight_relays_at_once_lose_nothing_and_hold_nobody_up() {
    const RECORDS: usize = 8 * 20 * 2;
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let published = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let (outbox, pool) = (outbox.clone(), database.pool.clone());
        writers.spawn(async move {
            for n in 0..20 {
                let mut transaction = pool.begin().await.unwrap();
                for part in ["a", "b"] {
                    let record = record(&format!("{writer}-{n}-{part}"));
                    outbox.add(&mut transaction, &record).await.unwrap();
                }
                transaction.commit().await.unwrap();
            }
        });
    }
    let mut relays = tokio::task::JoinSet::new();
    let pool = database.another_pool().await;
    for _ in 0..8 {
        let (relay, published) = (Outbox::new(pool.clone()), published.clone());
        relays.spawn(async move {
            while published.lock().unwrap().len() < RECORDS {
                let batch = claim(&relay, 5).await;
                let Some((first, rest)) = batch.split_first() else {
                    tokio::task::yield_now().await;
                    continue;
                };
                // Of each batch one fails and is taken again, and one is given back.
                if first.attempts() == 0 {
                    let failed = failure(first.claim(), "no queue", Duration::ZERO);
                    relay.mark_failed(&[failed]).await.unwrap();
                } else {
                    relay.mark_published(&[first.claim().clone()]).await.unwrap();
                    published.lock().unwrap().push(first.claim().id().to_owned());
                }
                let Some((last, rest)) = rest.split_last() else { continue };
                relay.give_back(&[last.claim().clone()]).await.unwrap();
                let rest: Vec<_> = rest.iter().map(|record| record.claim().clone()).collect();
                relay.renew(&rest, LEASE).await.unwrap();
                relay.mark_published(&rest).await.unwrap();
                published.lock().unwrap().extend(rest.iter().map(|claim| claim.id().to_owned()));
                relay.purge_published(Duration::from_secs(3_600)).await.unwrap();
            }
        });
    }
    let done = async {
        // A lock that nobody gives up shows as an error of whoever waits for it.
        while let Some(writer) = writers.join_next().await {
            writer.unwrap();
        }
        while let Some(relay) = relays.join_next().await {
            relay.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(120), done).await.unwrap();
    let mut published = published.lock().unwrap().clone();
    published.sort();
    published.dedup();
    assert_eq!(published.len(), RECORDS, "one was held by two relays at once");
    assert_eq!(outbox.pending_count().await.unwrap(), 0);
}

#[tokio::test]
async fn a_transaction_that_stays_open_holds_up_neither_relays_nor_other_writers() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    add(&database, &outbox, &["a", "b", "c", "d"].map(record)).await;
    if !database.takes_two_writers() {
        return;
    }
    // What waits for a lock here fails at once.
    let impatient = Outbox::new(database.impatient_pool().await);
    let published = claim(&impatient, 1).await;
    impatient.mark_published(&[published[0].claim().clone()]).await.unwrap();

    let mut open = database.pool.begin().await.unwrap();
    outbox.add(&mut open, &record("open")).await.unwrap();
    // Somebody looks into a record, and takes his time.
    sqlx::query("SELECT id FROM acemq_outbox WHERE id = 'b' FOR UPDATE")
        .fetch_one(&mut *open)
        .await
        .unwrap();

    let batch = claim(&impatient, 10).await;
    assert_eq!(ids(&batch), ["c", "d"]);
    impatient.renew(&[batch[0].claim().clone()], LEASE).await.unwrap();
    impatient.mark_published(&[batch[0].claim().clone()]).await.unwrap();
    let failed = failure(batch[1].claim(), "no queue", Duration::ZERO);
    impatient.mark_failed(&[failed]).await.unwrap();
    assert_eq!(impatient.purge_published(Duration::ZERO).await.unwrap(), 2);
    assert_eq!(impatient.pending_count().await.unwrap(), 2);
    assert!(impatient.other_relays().await.unwrap().is_empty());
    add(&database, &impatient, &[record("e")]).await;

    open.commit().await.unwrap();
    let mut left: Vec<_> = claim(&impatient, 10).await;
    left.sort_by(|a, b| a.claim().id().cmp(b.claim().id()));
    assert_eq!(ids(&left), ["b", "d", "e", "open"]);
}

#[tokio::test]
async fn a_lock_that_does_not_come_free_is_an_error_that_loses_nothing() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    add(&database, &outbox, &[record("a")]).await;
    let impatient = Outbox::new(database.impatient_pool().await);
    let held = claim(&impatient, 1).await[0].claim().clone();

    let mut open = database.pool.begin().await.unwrap();
    sqlx::query("UPDATE acemq_outbox SET last_error = 'looking'")
        .execute(&mut *open)
        .await
        .unwrap();
    outbox.add(&mut open, &record("b")).await.unwrap();
    let failed = failure(&held, "no queue", LEASE);
    let lease = Duration::from_secs(7_200);
    let waiting = database.impatient_pool().await;
    for refused in [
        impatient.mark_published(std::slice::from_ref(&held)).await,
        impatient.mark_failed(&[failed]).await,
        impatient.give_back(std::slice::from_ref(&held)).await,
        impatient.renew(std::slice::from_ref(&held), lease).await,
        {
            // The same record in two transactions at once.
            let mut transaction = waiting.begin().await.unwrap();
            let added = impatient.add(&mut transaction, &record("b")).await;
            transaction.rollback().await.unwrap();
            added
        },
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Store, "{error}");
        assert!(error.is_transient());
    }
    open.rollback().await.unwrap();

    assert_eq!(impatient.pending_count().await.unwrap(), 1);
    assert!(claim(&outbox, 1).await.is_empty(), "it is still held");
    impatient.mark_published(&[held]).await.unwrap();
    assert_eq!(impatient.pending_count().await.unwrap(), 0);
}

#[tokio::test]
async fn one_connection_is_enough() {
    let Some(database) = Database::create().await else { return };
    let pool = database.pool_of_one().await;
    let outbox = Outbox::new(pool.clone());
    outbox.create_table_if_absent().await.unwrap();
    let mq = acemq::connect(format!("memory://{}", testkit::unique("sql"))).await.unwrap();
    mq.declare_queue(&acemq::Queue::new("orders.new")).await.unwrap();
    let relay = acemq::OutboxRelay::builder(&mq, outbox.clone()).batch(7).start();
    let placed = mq.publisher::<String>("", "orders.new");
    for n in 0..20 {
        let record = placed.record(&format!("o-{n}")).await.unwrap();
        let mut transaction = pool.begin().await.unwrap();
        outbox.add(&mut transaction, &record).await.unwrap();
        transaction.commit().await.unwrap();
    }
    let all = async || relay.published() == 20;
    testkit::eventually("everything is published", Duration::from_secs(30), all).await;
    relay.close().await.unwrap();
    mq.close().await.unwrap();
    assert_eq!(outbox.pending_count().await.unwrap(), 0);
    assert_eq!(outbox.purge_published(Duration::ZERO).await.unwrap(), 20);
}

#[tokio::test]
async fn connections_that_keep_no_statement_prepared_serve_as_well() {
    let Some(database) = Database::create().await else { return };
    database.outbox().await;
    let pool = database.pool_without_prepared_statements().await;
    let outbox = Outbox::new(pool.clone());
    let mut transaction = pool.begin().await.unwrap();
    outbox.add_all(&mut transaction, &["a", "b", "c"].map(record)).await.unwrap();
    outbox.add(&mut transaction, &record("d")).await.unwrap();
    outbox.add_on_connection(&mut transaction, &record("d")).await.unwrap();
    transaction.commit().await.unwrap();
    let batch = claim(&outbox, 3).await;
    assert_eq!(ids(&batch), ["a", "b", "c"]);
    let claims: Vec<_> = batch.iter().map(|record| record.claim().clone()).collect();
    outbox.renew(&claims, LEASE).await.unwrap();
    outbox.mark_published(&claims[..1]).await.unwrap();
    outbox.mark_failed(&[failure(&claims[1], "no queue", LEASE)]).await.unwrap();
    outbox.give_back(&claims[2..]).await.unwrap();
    assert_eq!(ids(&claim(&outbox, 10).await), ["c", "d"]);
    assert!(outbox.stuck(10).await.unwrap().is_empty());
    assert!(outbox.other_relays().await.unwrap().is_empty());
    assert_eq!(outbox.purge_published(Duration::ZERO).await.unwrap(), 1);
    assert_eq!(outbox.pending_count().await.unwrap(), 3);
    assert_eq!(database::prepared_statements(&pool).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn futures_dropped_on_the_way_leave_no_transaction_open_and_lose_nothing() {
    let Some(database) = Database::create().await else { return };
    let creator = database.outbox().await;
    let records: Vec<_> = (0..50).map(|n| record(&format!("r{n}"))).collect();
    add(&database, &creator, &records).await;
    let outbox = Outbox::new(database.pool_of_one().await);
    let claims: Vec<_> = (0..5).map(|n| RecordClaim::new(format!("r{n}"), "t")).collect();
    for step in 0..60 {
        let patience = Duration::from_micros(step * 50);
        let _ = tokio::time::timeout(patience, outbox.claim_batch(1, LEASE)).await;
        let _ = tokio::time::timeout(patience, outbox.give_back(&claims)).await;
        let _ = tokio::time::timeout(patience, outbox.mark_published(&claims)).await;
        let _ = tokio::time::timeout(patience, outbox.purge_published(LEASE)).await;
    }
    // What the one connection does next is committed, and seen by others.
    outbox.mark_published(&[RecordClaim::new("r49", "t")]).await.unwrap();
    let published = "FROM acemq_outbox WHERE id = 'r49' AND published_at IS NOT NULL";
    assert_eq!(database.text("count(*)", published).await.unwrap(), "1");
    database.execute(&format!("UPDATE acemq_outbox SET locked_until = {PAST}")).await;
    let pending = outbox.pending_count().await.unwrap();
    assert_eq!(claim(&creator, 100).await.len() as u64, pending);
    assert!(pending >= 44);
}

/// Over a network slow enough that each drop meets another step of the way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_future_dropped_at_any_step_leaves_the_pools_one_connection_usable() {
    let Some(database) = Database::create().await else { return };
    let near = database.outbox().await;
    add(&database, &near, &[record("a")]).await;
    let (proxy, pool) = database.distant_pool().await;
    if let Some(proxy) = &proxy {
        proxy.delay(Duration::from_millis(8));
    }
    // Each way to the database and back takes two steps.
    for step in 0..14 {
        let patience = Duration::from_millis(step * 8 + 4);
        let cut_short = async |what: &str, work: Pin<Box<dyn Future<Output = ()> + Send>>| {
            let _ = tokio::time::timeout(patience, work).await;
            let begun = Instant::now();
            let pending = Outbox::new(pool.clone()).pending_count().await;
            let pending = pending.unwrap_or_else(|error| panic!("{what} at {step}: {error}"));
            assert_eq!(pending, 1, "{what} at {step}");
            assert!(begun.elapsed() < Duration::from_secs(10), "{what} at {step}");
        };
        // Each with an outbox of its own, so that the look at the table is on the way, too.
        let outbox = Outbox::new(pool.clone());
        let mut transaction = pool.begin().await.unwrap();
        let work = async move {
            let _ = outbox.add(&mut transaction, &record(&format!("never-{step}"))).await;
        };
        cut_short("adding", Box::pin(work)).await;
        let outbox = Outbox::new(pool.clone());
        let work = async move {
            let _ = outbox.claim_batch(1, LEASE).await;
        };
        cut_short("claiming", Box::pin(work)).await;
        let outbox = Outbox::new(pool.clone());
        let work = async move {
            let claim = RecordClaim::new("a", "not its token");
            let _ = outbox.mark_failed(&[failure(&claim, "no queue", LEASE)]).await;
        };
        cut_short("marking", Box::pin(work)).await;
    }
    database.execute(&format!("UPDATE acemq_outbox SET locked_until = {PAST}")).await;
    assert_eq!(ids(&claim(&near, 10).await), ["a"]);
}
