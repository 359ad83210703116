use std::time::Duration;

use acemq::{Claim, IdempotencyStore};

use super::{
    database::{Database, FUTURE, Idempotency, PAST},
    own,
};

const TWO_HOURS: i64 = 7_200;

// promise: BX-2
#[tokio::test]
async fn leases_and_retention_follow_the_databases_clock_whatever_the_hosts_clock_says() {
    for ahead in [TWO_HOURS, -TWO_HOURS] {
        let Some(database) = Database::create().await else { return };
        let Some(pool) = database.pool_with_a_clock_ahead_by(ahead).await else { return };
        let minute = Duration::from_secs(60);
        database.idempotency().await;
        let store = Idempotency::new(pool.clone()).lease(minute).retention(minute);
        let other = store.clone();
        let of_this_hour = async || {
            let rows = format!(
                "acemq_idempotency WHERE expires_at > {PAST} AND expires_at < {FUTURE} \
                 AND recorded_at > {PAST} AND recorded_at < {FUTURE}"
            );
            Database::count_in(&pool, &rows).await
        };

        let lease = own(&store, "k").await;
        assert_eq!(of_this_hour().await, 1, "{ahead} s ahead: claimed");
        let claimed = other.try_claim("k").await.unwrap();
        assert_eq!(claimed, Claim::InProgress, "{ahead} s ahead");
        assert!(store.renew(&lease).await.unwrap(), "{ahead} s ahead");
        assert_eq!(of_this_hour().await, 1, "{ahead} s ahead: renewed");
        let claimed = other.try_claim("k").await.unwrap();
        assert_eq!(claimed, Claim::InProgress, "{ahead} s ahead: renewed");
        store.confirm(&lease).await.unwrap();
        assert_eq!(of_this_hour().await, 1, "{ahead} s ahead: confirmed");
        assert!(other.is_confirmed("k").await.unwrap(), "{ahead} s ahead");
        let claimed = other.try_claim("k").await.unwrap();
        assert_eq!(claimed, Claim::AlreadyConfirmed, "{ahead} s ahead");
        assert_eq!(store.purge_expired().await.unwrap(), 0, "{ahead} s ahead");
        assert_eq!(store.size().await.unwrap(), 1);
    }
}
