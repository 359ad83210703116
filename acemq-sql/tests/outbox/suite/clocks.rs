use std::time::Duration;

use acemq::{OutboxRelay, OutboxStore};

use super::{
    add,
    database::{Database, FUTURE, Outbox, PAST},
    failure,
};
use crate::support::{claim, ids, record};

const TWO_HOURS: i64 = 7_200;

// promise: BX-2
#[tokio::test]
async fn leases_follow_the_databases_clock_whatever_the_hosts_clock_says() {
    for ahead in [TWO_HOURS, -TWO_HOURS] {
        let Some(database) = Database::create().await else { return };
        let Some(pool) = database.pool_with_a_clock_ahead_by(ahead).await else { return };
        database.outbox().await;
        let outbox = Outbox::new(pool.clone());
        add(&database, &outbox, &[record("a"), record("b")]).await;
        let other = outbox.clone();
        let of_this_hour = async |time: &str| {
            let rows = format!("acemq_outbox WHERE {time} > {PAST} AND {time} < {FUTURE}");
            Database::count_in(&pool, &rows).await
        };

        let held = claim(&outbox, 1).await;
        assert_eq!(ids(&claim(&other, 2).await), ["b"], "{ahead} s ahead: a is held");
        assert_eq!(of_this_hour("locked_until").await, 2, "{ahead} s ahead: claimed");
        outbox.renew(&[held[0].claim().clone()], Duration::from_secs(60)).await.unwrap();
        assert_eq!(of_this_hour("locked_until").await, 2, "{ahead} s ahead: renewed");
        assert!(claim(&other, 2).await.is_empty(), "{ahead} s ahead: both are held");
        assert_eq!(other.other_relays().await.unwrap().len(), 1, "{ahead} s ahead");

        let minute = Duration::from_secs(60);
        outbox.mark_failed(&[failure(held[0].claim(), "no queue", minute)]).await.unwrap();
        assert_eq!(of_this_hour("locked_until").await, 2, "{ahead} s ahead: put off");
        assert!(claim(&other, 2).await.is_empty(), "{ahead} s ahead: a waits a minute");
        outbox.mark_published(&[held[0].claim().clone()]).await.unwrap();
        assert_eq!(of_this_hour("published_at").await, 1, "{ahead} s ahead");
        assert_eq!(outbox.purge_published(minute).await.unwrap(), 0, "{ahead} s ahead");
        assert_eq!(outbox.purge_published(Duration::ZERO).await.unwrap(), 1, "{ahead} s ahead");
    }
}

// promise: OB-27
#[tokio::test]
async fn a_row_of_another_process_is_found_within_the_poll_interval_with_nobody_calling() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let mq = acemq::connect(format!("memory://{}", testkit::unique("sql"))).await.unwrap();
    mq.declare_queue(&acemq::Queue::new("orders.new")).await.unwrap();
    let poll = Duration::from_millis(100);
    let relay = OutboxRelay::builder(&mq, outbox).poll(poll).start();
    let elsewhere = Outbox::new(database.another_pool().await);
    let placed = mq.publisher::<String>("", "orders.new");
    for published in 1..=3 {
        let record = placed.record(&"an order".to_owned()).await.unwrap();
        add(&database, &elsewhere, &[record]).await;
        let all = async || relay.published() == published;
        testkit::eventually("the record is published", poll * 20, all).await;
    }
    relay.close().await.unwrap();

    // Nor does a relay that was down miss what came meanwhile.
    let record = placed.record(&"an order".to_owned()).await.unwrap();
    add(&database, &elsewhere, &[record]).await;
    database.execute(&format!("UPDATE acemq_outbox SET created_at = {PAST}")).await;
    let relay = OutboxRelay::builder(&mq, elsewhere).poll(Duration::from_secs(3_600)).start();
    let all = async || relay.published() == 1;
    testkit::eventually("the record is published", Duration::from_secs(10), all).await;
    mq.close().await.unwrap();
}
