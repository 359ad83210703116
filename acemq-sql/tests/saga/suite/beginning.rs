use acemq::SagaBegun;

use super::*;

// promise: SG-5
#[tokio::test]
async fn a_run_goes_through_the_table_and_another_process_reads_what_it_made() {
    let Some(database) = Database::create().await else { return };
    let store = database.sagas().await;
    let saga = three_steps(store.clone());
    let result = saga.run("o-1", &1).await.unwrap();
    assert_eq!((result.output(), result.completed().len()), (Some(&4), 3));
    let other = Sagas::new(database.another_pool().await);
    assert_eq!(three_steps(other.clone()).run("o-1", &9).await.unwrap().output(), Some(&4));
    let instance = SagaInstances::of("order", &other).find("o-1").await.unwrap().unwrap();
    assert_eq!(instance.status, SagaStatus::Completed);
    assert_eq!(instance.step("reserve").unwrap().made.as_deref(), Some("3"));
    assert!(instance.step("pay").unwrap().attempts.first_at.is_some());
}

// promise: SG-6
#[tokio::test]
async fn a_saga_begun_in_a_transaction_exists_exactly_if_that_commits() {
    let Some(database) = Database::create().await else { return };
    database.execute("CREATE TABLE effects (id VARCHAR(64) NOT NULL)").await;
    database.sagas().await;
    // Looked at by nobody yet: the first use is in the transaction.
    let store = Sagas::new(database.pool.clone());
    let saga = three_steps(store.clone());
    let effect = async |transaction: &mut sqlx::Transaction<'_, Db>, id: &str| {
        let sql = format!("INSERT INTO effects (id) VALUES ('{id}')");
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut **transaction).await.unwrap();
    };
    let mut transaction = database.pool.begin().await.unwrap();
    effect(&mut transaction, "rolled back").await;
    assert_eq!(saga.begin(&mut transaction, "o-1", &1).await.unwrap(), SagaBegun::New);
    transaction.rollback().await.unwrap();
    assert_eq!(database.count("acemq_saga").await, 0);

    let mut transaction = database.pool.begin().await.unwrap();
    assert_eq!(saga.begin(&mut transaction, "o-1", &1).await.unwrap(), SagaBegun::New);
    // A second time is harmless and told, and the transaction stays usable.
    let again = saga.begin(&mut transaction, "o-1", &50).await.unwrap();
    assert_eq!(again, SagaBegun::AlreadyThere);
    effect(&mut transaction, "committed").await;
    transaction.commit().await.unwrap();
    let _worker = saga.worker().start();
    saga.wake();
    let instance = until(&store, "o-1", SagaStatus::Completed).await;
    assert_eq!(instance.input, "1");

    let mut transaction = database.pool.begin().await.unwrap();
    let again = saga.begin(&mut transaction, "o-1", &50).await.unwrap();
    assert_eq!(again, SagaBegun::AlreadyThere);
    effect(&mut transaction, "afterwards").await;
    transaction.commit().await.unwrap();
    assert_eq!(database.count("effects").await, 2);
}

// promise: SG-5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_of_several_processes_share_what_was_begun() {
    let Some(database) = Database::create().await else { return };
    let store = database.sagas().await;
    let other = Sagas::new(database.another_pool().await);
    let saga = three_steps(store.clone());
    for id in 0..60 {
        assert_eq!(saga.start(&format!("o-{id}"), &id).await.unwrap(), SagaBegun::New);
    }
    let workers = [three_steps(store.clone()), three_steps(other)]
        .map(|saga| saga.worker().concurrency(4).start());
    eventually("all are complete", SOON, async || {
        database.count("acemq_saga WHERE status = 'COMPLETED'").await == 60
    })
    .await;
    let counters = workers.each_ref().map(acemq::SagaWorker::counters);
    assert_eq!(counters.iter().map(|it| it.completed).sum::<u64>(), 60, "{counters:?}");
    assert_eq!(counters.iter().map(|it| it.lost + it.failed).sum::<u64>(), 0, "{counters:?}");
    for worker in workers {
        worker.close().await.unwrap();
    }
}
