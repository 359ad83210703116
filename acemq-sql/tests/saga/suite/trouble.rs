use acemq::{ErrorKind, SagaWorkerState};

use super::*;

// promise: SG-7
#[tokio::test]
async fn a_database_that_is_away_is_a_typed_error_and_a_workers_state() {
    let Some(database) = Database::create().await else { return };
    let store = database.sagas().await;
    let saga = three_steps(store);
    database.pool.close().await;
    let error = saga.run("o-1", &1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    assert!(error.to_string().contains("not known whether it was begun"), "{error}");
    let worker = saga.worker().start();
    let mut states = worker.states();
    let failing = states.wait_for(|state| matches!(state, SagaWorkerState::Failing { .. }));
    tokio::time::timeout(SOON, failing).await.unwrap().unwrap();
    worker.close().await.unwrap();
}

#[tokio::test]
async fn one_connection_that_keeps_no_statement_prepared_is_enough() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    database.sagas().await;
    let unprepared = database.pool_without_prepared_statements().await;
    for (n, pool) in [database.pool_of_one().await, unprepared.clone()].into_iter().enumerate() {
        let store = Sagas::new(pool.clone()).outbox(Outbox::new(pool));
        let saga = three_steps(store.clone());
        let id = format!("o-{n}");
        assert_eq!(saga.run(&id, &1).await.unwrap().output(), Some(&4));
        let held = insert(&store, &id, LEASE).await;
        let mut write = acemq::SagaWrite::new(SagaStatus::Running, "{}", acemq::SagaNext::Never);
        write.records = vec![crate::support::record(&id)];
        assert!(store.write(&held.claim, &write).await.unwrap());
    }
    assert_eq!(database::prepared_statements(&unprepared).await, 0);
    drop(outbox);
}

#[tokio::test]
async fn values_come_back_as_they_were_whatever_they_hold() {
    let Some(database) = Database::create().await else { return };
    let store = database.sagas().await;
    let same = |given: (String, f64, u128), _: StepContext| {
        std::future::ready(Ok::<_, HandlerError>(given))
    };
    let saga = Saga::durable("order", store).step("a", same).step("b", same).build().unwrap();
    let texts = ["", "it's \\ \"gone\"\u{0}\u{1}", "grüße 漢字 🦀", &"x".repeat(300_000)];
    for (n, text) in texts.into_iter().enumerate() {
        let given = (text.to_owned(), 0.1 + 0.2, u128::MAX);
        let result = saga.run(&format!("o-{n}"), &given).await.unwrap();
        assert_eq!(result.into_result().unwrap(), given);
    }
}
