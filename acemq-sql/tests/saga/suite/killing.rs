//! Workers that are killed, as processes are: at once and anywhere.

use std::process::{Child, Command, Stdio};

use acemq_sql::HandlerTransaction;

use super::*;

/// Tells a child process which database to work on.
const CHILD: &str = "ACEMQ_TEST_SAGA_CHILD";
const SAGAS: u32 = 60;
/// How many children are killed, at most.
const KILLS: u32 = 8;

async fn effect(
    connection: &mut <Db as sqlx::Database>::Connection,
    what: &str,
) -> sqlx::Result<()> {
    let sql = format!("INSERT INTO effects (id) VALUES ('{what}')");
    sqlx::query(sqlx::AssertSqlSafe(sql)).execute(connection).await.map(drop)
}

/// A step on its own connection, one in the saga's transaction, and one that fails for every third
/// order, so that what was done is undone.
fn orders(pool: &Pool) -> Numbers {
    let own = pool.clone();
    let note = move |given: u32, step: StepContext| {
        let pool = own.clone();
        async move {
            let mut connection = pool.acquire().await?;
            effect(&mut connection, &format!("note {}", step.id())).await?;
            tokio::time::sleep(Duration::from_millis(3)).await;
            Ok::<_, HandlerError>(given)
        }
    };
    let pay = |given: u32, step: StepContext, mut transaction: HandlerTransaction<Db>| async move {
        effect(&mut transaction, &format!("pay {}", step.id())).await?;
        Ok((given, transaction))
    };
    let refund = |_: u32, step: StepContext, mut transaction: HandlerTransaction<Db>| async move {
        effect(&mut transaction, &format!("refund {}", step.id())).await?;
        Ok(((), transaction))
    };
    let ship = |given: u32, _: StepContext, transaction: HandlerTransaction<Db>| async move {
        if given.is_multiple_of(3) {
            return Err(HandlerError::fatal("no ship goes there"));
        }
        Ok((given, transaction))
    };
    Saga::durable("order", Sagas::new(pool.clone()))
        .lease(Duration::from_millis(700))
        .step("note", note)
        .step_in_transaction("pay", pay)
        .compensate_in_transaction(refund)
        .step_in_transaction("ship", ship)
        .build()
        .unwrap()
}

/// Does nothing, unless it runs in a child process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn works_until_it_is_killed() {
    let Ok(database) = std::env::var(CHILD) else { return };
    let pool = Pool::connect(&database).await.unwrap();
    let _worker = orders(&pool).worker().concurrency(4).poll(Duration::from_millis(50)).start();
    std::future::pending::<()>().await;
}

fn child(database: &str) -> Child {
    let test = module_path!().split_once("::").unwrap().1;
    Command::new(std::env::current_exe().unwrap())
        .args([&format!("{test}::works_until_it_is_killed"), "--exact", "--nocapture"])
        .env(CHILD, database)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

// promises: SG-5, SG-16
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_killed_anywhere_leave_nothing_unresolved_and_double_no_transaction() {
    let Some(database) = Database::create().await else { return };
    database.execute("CREATE TABLE effects (id VARCHAR(64) NOT NULL)").await;
    let store = database.sagas().await;
    let saga = orders(&database.pool);
    for n in 0..SAGAS {
        let _ = saga.start(&format!("o-{n}"), &n).await.unwrap();
    }
    let over =
        async || database.count("acemq_saga WHERE status IN ('COMPLETED', 'COMPENSATED')").await;
    let mut kills = 0;
    while kills < KILLS && over().await < u64::from(SAGAS) - 10 {
        let before = database.count("effects").await;
        let mut child = child(&database.url());
        eventually("it gets something done", SOON, async || {
            database.count("effects").await > before + 5
        })
        .await;
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
    }
    assert!(kills >= 3, "they were too fast for the test");
    let _worker = saga.worker().poll(Duration::from_millis(50)).start();
    eventually("all are over", SOON * 2, async || over().await == u64::from(SAGAS)).await;
    assert_eq!(database.count("acemq_saga WHERE status = 'COMPENSATED'").await, 20);
    // Exactly once what is in a transaction, at least once what is not.
    assert_eq!(database.count("effects WHERE id LIKE 'pay %'").await, u64::from(SAGAS));
    assert_eq!(database.count("effects WHERE id LIKE 'refund %'").await, 20);
    let distinct = "(SELECT DISTINCT id FROM effects) AS ids";
    assert_eq!(database.count(distinct).await, u64::from(2 * SAGAS + 20), "{kills} kills");
    drop(store);
}
