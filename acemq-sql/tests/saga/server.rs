//! What needs a server, with a clock of its own.

use std::time::Duration;

use acemq::{NewSaga, SagaNext, SagaStatus, SagaStore, SagaWrite};

use super::database::{Database, Sagas};

// promise: SG-9
#[tokio::test]
async fn only_the_databases_clock_counts_however_far_it_is_from_the_hosts() {
    let Some(database) = Database::create().await else { return };
    database.sagas().await;
    for years in [-5, 5] {
        let ahead = years * 365 * 24 * 3_600;
        let hour = Duration::from_secs(3_600);
        let store = Sagas::new(database.pool_with_a_clock_ahead_by(ahead).await.unwrap());
        let mut new = NewSaga::new("s/1", "s", "x", "{}");
        new.deadline = Some(hour / 2);
        let held = store.insert(&new, hour).await.unwrap().unwrap();
        let stored = &held.stored;
        assert!(stored.is_held);
        let left = stored.deadline_at.unwrap().duration_since(stored.read_at).unwrap();
        assert!(left <= hour / 2 && left > hour / 3, "{left:?}");
        assert!(store.claim_due("s", "x", 9, hour).await.unwrap().is_empty());
        assert!(store.renew(&held.claim, hour).await.unwrap());
        let waits = SagaWrite::new(SagaStatus::Waiting, "{}", SagaNext::After(hour));
        assert!(store.write(&held.claim, &waits).await.unwrap());
        assert!(store.claim("s/1", "x", hour).await.unwrap().is_none());
        // Two hours later on that clock it is due, and past its deadline.
        let later = database.pool_with_a_clock_ahead_by(ahead + 2 * 3_600).await.unwrap();
        let later = Sagas::new(later);
        let due = later.claim_due("s", "x", 9, hour).await.unwrap().remove(0);
        assert!(due.stored.deadline_at.unwrap() < due.stored.read_at);
        database.execute("DELETE FROM acemq_saga").await;
    }
}
