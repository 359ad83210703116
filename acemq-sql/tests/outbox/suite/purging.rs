use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use acemq::OutboxStore;

use super::{
    add,
    database::{Database, PAST},
};
use crate::support::{claim, record};

// promise: OB-14
#[tokio::test]
async fn a_purge_removes_old_published_records_and_nothing_else() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let records: Vec<_> = (0..1_100).map(|n| record(&format!("r{n}"))).collect();
    add(&database, &outbox, &records).await;
    add(&database, &outbox, &[record("young"), record("waiting"), record("held")]).await;
    database
        .execute(&format!("UPDATE acemq_outbox SET published_at = {PAST} WHERE id LIKE 'r%'"))
        .await;
    let claimed = claim(&outbox, 1).await;
    outbox.mark_published(&[claimed[0].claim().clone()]).await.unwrap();
    claim(&outbox, 1).await;
    assert_eq!(outbox.purge_published(Duration::MAX).await.unwrap(), 0);
    assert_eq!(outbox.purge_published(Duration::from_secs(600)).await.unwrap(), 1_100);
    assert_eq!(outbox.purge_published(Duration::ZERO).await.unwrap(), 1);
    assert_eq!(outbox.pending_count().await.unwrap(), 2);
    assert_eq!(database.count("acemq_outbox").await, 2);
}

// promise: OB-14
#[tokio::test]
async fn a_purge_holds_up_no_writer_and_no_relay() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    for part in 0..10 {
        let records: Vec<_> = (0..2_000).map(|n| record(&format!("r{part}-{n}"))).collect();
        add(&database, &outbox, &records).await;
    }
    database.execute(&format!("UPDATE acemq_outbox SET published_at = {PAST}")).await;

    let purge = outbox.purge_published(Duration::from_secs(600));
    let (writer, stop) = (outbox.clone(), Cell::new(false));
    let write = async {
        let (mut longest, mut written) = (Duration::ZERO, 0);
        while !stop.get() {
            let started = Instant::now();
            add(&database, &writer, &[record(&format!("new{written}"))]).await;
            let claimed = claim(&writer, 1).await;
            assert_eq!(claimed.len(), 1);
            writer.mark_published(&[claimed[0].claim().clone()]).await.unwrap();
            longest = longest.max(started.elapsed());
            written += 1;
        }
        (longest, written)
    };
    let purge = async {
        let purged = purge.await.unwrap();
        stop.set(true);
        purged
    };
    let ((longest, written), purged) = tokio::join!(write, purge);
    assert_eq!(purged, 20_000);
    assert!(written > 1, "nothing was written meanwhile");
    assert!(longest < Duration::from_secs(3), "{longest:?}");
}
