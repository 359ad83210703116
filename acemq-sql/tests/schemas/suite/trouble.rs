use std::time::{Duration, Instant};

use acemq::{ErrorKind, SchemaId, SchemaRegistry};

use super::{
    avro,
    database::{self, Database, Schemas},
    known, versions,
};

#[tokio::test]
async fn a_registry_that_cannot_be_asked_is_an_error_that_may_pass_and_never_an_answer() {
    let Some(database) = Database::create().await else { return };
    let registry = database.schemas().await;
    avro(&registry, "s", "d").await.unwrap();
    database.pool.close().await;
    let id = SchemaId::new(1).unwrap();
    for error in [
        registry.by_id(id).await.unwrap_err(),
        registry.latest("s").await.unwrap_err(),
        avro(&registry, "s", "d").await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Store, "{error}");
        assert!(error.is_transient());
        // The database's own words once, and its own error for whoever wants to look at it.
        testkit::said_once(&error);
        assert!(error.get_ref().unwrap().is::<sqlx::Error>());
    }
}

#[tokio::test]
async fn one_connection_that_keeps_no_statement_prepared_is_enough() {
    let Some(database) = Database::create().await else { return };
    database.schemas().await;
    let unprepared = database.pool_without_prepared_statements().await;
    for (n, pool) in (1..).zip([database.pool_of_one().await, unprepared.clone()]) {
        let registry = Schemas::new(pool);
        for _ in 0..2 {
            assert_eq!(avro(&registry, "s", &format!("d{n}")).await.unwrap(), n);
            assert_eq!(known(&registry, n).await.unwrap().version, n);
        }
        assert_eq!(versions(&registry, "s").await.len(), n as usize);
    }
    assert_eq!(database::prepared_statements(&unprepared).await, 0);
}

#[tokio::test]
async fn a_lock_that_does_not_come_free_is_an_error_and_the_id_is_not_lost() {
    let Some(database) = Database::create().await else { return };
    let registry = database.schemas().await;
    let impatient = Schemas::new(database.impatient_pool().await);
    avro(&impatient, "s", "1").await.unwrap();
    let mut open = database.pool.begin().await.unwrap();
    let count = "UPDATE acemq_schema_registry_seq SET last_id = last_id + 1";
    sqlx::query(count).execute(&mut *open).await.unwrap();
    let error = avro(&impatient, "s", "2").await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    // What is there is read and registered all the same.
    assert_eq!(avro(&impatient, "s", "1").await.unwrap(), 1);
    assert_eq!(known(&impatient, 1).await.unwrap().definition, "1");
    open.rollback().await.unwrap();
    assert_eq!(avro(&registry, "s", "2").await.unwrap(), 2);
}

/// Over a network slow enough that each drop meets another step of the way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_future_dropped_at_any_step_leaves_the_pools_one_connection_usable_and_no_gap() {
    let Some(database) = Database::create().await else { return };
    database.schemas().await;
    let (proxy, pool) = database.distant_pool().await;
    if let Some(proxy) = &proxy {
        proxy.delay(Duration::from_millis(8));
    }
    let registry = Schemas::new(pool);
    for step in 0..16 {
        let patience = Duration::from_millis(step * 8 + 4);
        let definition = format!("d{step}");
        let _ = tokio::time::timeout(patience, avro(&registry, "s", &definition)).await;
        let begun = Instant::now();
        let id = avro(&registry, "s", &definition)
            .await
            .unwrap_or_else(|error| panic!("after {step} steps: {error}"));
        assert_eq!(u64::from(id), step + 1);
        assert!(begun.elapsed() < Duration::from_secs(10), "after {step} steps");
    }
}
