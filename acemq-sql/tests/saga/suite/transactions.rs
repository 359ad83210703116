use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use acemq::{OutboxStore as _, RetryPolicy, SagaStepStatus, TransactionalSagaStore as _};
use acemq_sql::HandlerTransaction;

use super::*;

type Transaction = HandlerTransaction<Db>;
type Stepped = Result<(u32, Transaction), HandlerError>;

async fn take_effect(transaction: &mut Transaction, what: &str) -> sqlx::Result<()> {
    let sql = format!("INSERT INTO effects (id) VALUES ('{what}')");
    sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut **transaction).await.map(drop)
}

async fn pay(given: u32, step: StepContext, mut transaction: Transaction) -> Stepped {
    take_effect(&mut transaction, &step.key()).await?;
    Ok((given + 1, transaction))
}

async fn refund(
    _: u32,
    step: StepContext,
    mut transaction: Transaction,
) -> Result<((), Transaction), HandlerError> {
    take_effect(&mut transaction, &format!("undo {}", step.key())).await?;
    Ok(((), transaction))
}

async fn shop() -> Option<(Database, Sagas)> {
    let database = Database::create().await?;
    database.execute("CREATE TABLE effects (id VARCHAR(64) NOT NULL)").await;
    let store = database.sagas().await;
    Some((database, store))
}

// promise: SG-16
#[tokio::test]
async fn a_steps_writes_its_messages_and_the_note_of_it_commit_together() {
    let Some((database, store)) = shop().await else { return };
    let outbox = database.outbox().await;
    let adding = outbox.clone();
    let ship = move |given: u32, step: StepContext, mut transaction: Transaction| {
        let outbox = adding.clone();
        async move {
            take_effect(&mut transaction, &step.key()).await?;
            outbox.add(&mut transaction, &crate::support::record("shipped")).await?;
            Ok((given + 1, transaction))
        }
    };
    let saga = Saga::durable("order", store)
        .step_in_transaction("pay", pay)
        .compensate_in_transaction(refund)
        .step_in_transaction("ship", ship)
        .step("refuse", |_: u32, _| std::future::ready(Err::<u32, _>(HandlerError::fatal("no"))))
        .build()
        .unwrap();
    let result = saga.run("o-1", &1).await.unwrap();
    assert_eq!(result.completed(), ["pay", "ship"]);
    assert_eq!(result.compensated(), ["pay"]);
    assert_eq!(database.count("effects").await, 3);
    assert_eq!(database.count("effects WHERE id = 'undo order/o-1/pay'").await, 1);
    assert_eq!(outbox.pending_count().await.unwrap(), 1);
}

// promise: SG-16
#[tokio::test]
async fn a_step_that_fails_panics_or_takes_too_long_leaves_nothing_and_no_doubt() {
    let Some((database, store)) = shop().await else { return };
    let tries = Arc::new(AtomicU32::new(0));
    let trying = Arc::clone(&tries);
    let step = move |given: u32, step: StepContext, mut transaction: Transaction| {
        let attempt = trying.fetch_add(1, Ordering::Relaxed);
        async move {
            take_effect(&mut transaction, &format!("{attempt}")).await?;
            match attempt {
                0 => Err(HandlerError::transient("not now")),
                1 => std::future::pending().await,
                2 => panic!("what is that"),
                _ => {
                    assert_eq!(step.attempt(), attempt + 1);
                    Ok((given, transaction))
                }
            }
        }
    };
    let saga = Saga::durable("order", store)
        .step_in_transaction("pay", step)
        .timeout(Duration::from_millis(300))
        .retry(RetryPolicy::fixed(4, Duration::from_millis(10)))
        .build()
        .unwrap();
    let result = saga.run("o-1", &1).await.unwrap();
    assert!(result.is_complete(), "{result}");
    assert_eq!(database.text("id", "FROM effects").await.as_deref(), Some("3"));
    assert_eq!(database.count("effects").await, 1);
    let instance = saga.instances().find("o-1").await.unwrap().unwrap();
    assert!(!instance.step("pay").unwrap().is_in_doubt);
}

// promises: SG-11, SG-16
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_lost_its_lease_commits_nothing_of_its_step() {
    let Some((database, store)) = shop().await else { return };
    // SQLite lets nobody write while a step's transaction is open.
    if !database.takes_two_writers() {
        return;
    }
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let waiting = Arc::new(AtomicU32::new(0));
    let build = |store: Sagas| {
        let (gate, waiting) = (Arc::clone(&gate), Arc::clone(&waiting));
        let step = move |given: u32, step: StepContext, mut transaction: Transaction| {
            let (gate, waiting) = (Arc::clone(&gate), Arc::clone(&waiting));
            async move {
                take_effect(&mut transaction, &format!("#{}", step.attempt())).await?;
                if step.attempt() == 1 {
                    waiting.store(1, Ordering::Relaxed);
                    drop(gate.acquire().await);
                }
                Ok((given, transaction))
            }
        };
        Saga::durable("order", store).step_in_transaction("pay", step).build().unwrap()
    };
    let slow = build(store.clone());
    let running = tokio::spawn(async move { slow.run("o-1", &1).await });
    eventually("the step has begun", SOON, async || waiting.load(Ordering::Relaxed) == 1).await;
    make_due(&database).await;
    let other = build(Sagas::new(database.another_pool().await));
    let _worker = other.worker().start();
    let instance = until(&store, "o-1", SagaStatus::Completed).await;
    gate.add_permits(1);
    // It finds out, and gives the other's result.
    assert!(running.await.unwrap().unwrap().is_complete());
    assert_eq!(instance.step("pay").unwrap().status, SagaStepStatus::Done);
    assert_eq!(database.count("effects").await, 1);
    assert_eq!(database.text("id", "FROM effects").await.as_deref(), Some("#2"));
}

#[tokio::test]
async fn a_transaction_that_is_not_given_back_whole_is_a_failure_that_says_so() {
    let Some((database, store)) = shop().await else { return };
    let ends = |given: u32, _: StepContext, mut transaction: Transaction| async move {
        sqlx::raw_sql("COMMIT").execute(&mut *transaction).await?;
        Ok((given, transaction))
    };
    let saga_store = store.clone();
    let saga = Saga::durable("order", store).step_in_transaction("pay", ends).build().unwrap();
    let result = saga.run("o-1", &1).await.unwrap();
    let failure = result.failure().unwrap();
    assert!(failure.reason().contains("has ended the transaction"), "{}", failure.reason());
    assert!(failure.is_fatal());
    assert!(failure.is_in_doubt(), "what it had done may be committed");
    until(&saga_store, "o-1", SagaStatus::Unresolved).await;
    assert!(database.pool.acquire().await.is_ok());
}

// promise: SG-16
#[tokio::test]
async fn whoever_renews_a_claim_waits_for_a_write_under_it_that_is_under_way() {
    let Some((database, store)) = shop().await else { return };
    if !database.takes_two_writers() {
        return;
    }
    let held = insert(&store, "1", LEASE).await;
    let (mut transaction, hold) = store.open().await.unwrap();
    let sql = "UPDATE acemq_saga SET state = 'committed soon' WHERE instance = 's/1'";
    sqlx::query(sql).execute(&mut *transaction).await.unwrap();
    let renewing = store.clone();
    let mut renewed = tokio::spawn(async move { renewing.renew(&held.claim, LEASE).await });
    let waiting = tokio::time::timeout(Duration::from_millis(300), &mut renewed).await;
    assert!(waiting.is_err(), "it did not wait");
    // Whoever only reads does not.
    assert_eq!(store.find("s/1").await.unwrap().unwrap().state, "{}");
    drop(transaction);
    store.roll_back(hold).await;
    assert!(renewed.await.unwrap().unwrap());
}
