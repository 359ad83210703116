use std::{
    pin::Pin,
    time::{Duration, Instant},
};

use acemq::{Claim, ErrorKind, IdempotencyStore, Lease};

use super::{
    database::{self, Database, FUTURE, Idempotency, PAST},
    expire, own,
};

// promise: ID-10
#[tokio::test]
async fn a_failure_is_raised_and_is_never_an_answer() {
    let Some(database) = Database::create().await else { return };
    let store = database.idempotency().await;
    own(&store, "k").await;
    database.execute("DROP TABLE acemq_idempotency").await;
    let error = store.try_claim("k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("acemq_idempotency"), "{error}");
    // The database's own words once, and its own error for whoever wants to look at it.
    testkit::said_once(&error);
    assert!(error.get_ref().unwrap().is::<sqlx::Error>());
    database.pool.close().await;
    assert_eq!(store.try_claim("k").await.unwrap_err().kind(), ErrorKind::Store);
    assert_eq!(store.is_confirmed("k").await.unwrap_err().kind(), ErrorKind::Store);
}

// promise: ID-10
#[tokio::test]
async fn a_lock_that_does_not_come_free_is_an_error_and_never_an_answer() {
    let Some(database) = Database::create().await else { return };
    let store = database.idempotency().await;
    let held = own(&store, "held").await;
    own(&store, "dead").await;
    expire(&database, "dead").await;
    let impatient = Idempotency::new(database.impatient_pool().await);

    let mut open = database.pool.begin().await.unwrap();
    let insert = format!(
        "INSERT INTO acemq_idempotency (message_id, state, recorded_at, expires_at) \
         VALUES ('new', 'CONFIRMED', {PAST}, {FUTURE})"
    );
    sqlx::query(sqlx::AssertSqlSafe(insert)).execute(&mut *open).await.unwrap();
    sqlx::query("UPDATE acemq_idempotency SET claimed_by = 'x'").execute(&mut *open).await.unwrap();
    for refused in [
        impatient.try_claim("new").await.map(drop),
        impatient.try_claim("dead").await.map(drop),
        impatient.confirm(&held).await,
        impatient.release(&held).await,
        impatient.renew(&held).await.map(drop),
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Store, "{error}");
        assert!(error.is_transient());
    }
    open.rollback().await.unwrap();
    own(&impatient, "new").await;
    own(&impatient, "dead").await;
    assert!(impatient.renew(&held).await.unwrap());
    impatient.confirm(&held).await.unwrap();
    assert_eq!(store.try_claim("held").await.unwrap(), Claim::AlreadyConfirmed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn claims_releases_confirmations_and_purges_at_once_never_fail() {
    let Some(database) = Database::create().await else { return };
    let store = database.idempotency().await;
    let other = Idempotency::new(database.another_pool().await);
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8 {
        let store = if task % 2 == 0 { store.clone() } else { other.clone() };
        // Claims and confirmations that run out at once are taken over and purged all the time.
        let store = if task < 4 { store.lease(Duration::from_millis(1)) } else { store };
        tasks.spawn(async move {
            for n in 0..60 {
                if let Claim::Owned(lease) = store.try_claim(&format!("k{}", n % 7)).await.unwrap()
                {
                    match (task + n) % 3 {
                        0 => store.confirm(&lease).await.unwrap(),
                        1 => store.release(&lease).await.unwrap(),
                        _ => drop(store.renew(&lease).await.unwrap()),
                    }
                }
                if n % 5 == 0 {
                    store.purge_expired().await.unwrap();
                }
            }
        });
    }
    let done = async {
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(120), done).await.unwrap();
}

#[tokio::test]
async fn one_connection_that_keeps_no_statement_prepared_is_enough() {
    let Some(database) = Database::create().await else { return };
    database.idempotency().await;
    let unprepared = database.pool_without_prepared_statements().await;
    for pool in [database.pool_of_one().await, unprepared.clone()] {
        let store = Idempotency::new(pool);
        for _ in 0..2 {
            let lease = own(&store, "k").await;
            assert_eq!(store.try_claim("k").await.unwrap(), Claim::InProgress);
            store.release(&lease).await.unwrap();
            let lease = own(&store, "k").await;
            assert!(store.renew(&lease).await.unwrap());
            store.confirm(&lease).await.unwrap();
            assert!(store.is_confirmed("k").await.unwrap());
            expire(&database, "k").await;
            assert_eq!(store.purge_expired().await.unwrap(), 1);
        }
        assert_eq!(store.size().await.unwrap(), 0);
    }
    assert_eq!(database::prepared_statements(&unprepared).await, 0);
}

/// Over a network slow enough that each drop meets another step of the way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_future_dropped_at_any_step_leaves_the_pools_one_connection_usable() {
    let Some(database) = Database::create().await else { return };
    database.idempotency().await;
    let (proxy, pool) = database.distant_pool().await;
    if let Some(proxy) = &proxy {
        proxy.delay(Duration::from_millis(8));
    }
    for step in 0..12 {
        let patience = Duration::from_millis(step * 8 + 4);
        let cut_short = async |what: &str, work: Pin<Box<dyn Future<Output = ()> + Send>>| {
            let _ = tokio::time::timeout(patience, work).await;
            let begun = Instant::now();
            let confirmed = Idempotency::new(pool.clone()).is_confirmed("never").await;
            assert!(!confirmed.unwrap_or_else(|error| panic!("{what} at {step}: {error}")));
            assert!(begun.elapsed() < Duration::from_secs(10), "{what} at {step}");
        };
        let (store, key) = (Idempotency::new(pool.clone()), format!("k{step}"));
        let work = async move {
            let _ = store.try_claim(&key).await;
        };
        cut_short("claiming", Box::pin(work)).await;
        let store = Idempotency::new(pool.clone());
        let lease = Lease::new(format!("k{step}"), "not its token");
        let work = async move {
            let _ = store.renew(&lease).await;
            let _ = store.release(&lease).await;
        };
        cut_short("releasing", Box::pin(work)).await;
    }
}
