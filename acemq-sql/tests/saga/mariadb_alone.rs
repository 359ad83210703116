//! What only MariaDB tells: how many statements a session was sent.

use super::{database::Database, database::Sagas, suite::three_steps};

// promise: SG-5
#[tokio::test]
async fn an_instance_of_three_local_steps_costs_at_most_six_statements() {
    let Some(database) = Database::create().await else { return };
    database.sagas().await;
    let pool = database.pool_of_one().await;
    let saga = three_steps(Sagas::new(pool.clone()));
    // The table is looked at once.
    assert!(saga.run("o-0", &1).await.unwrap().is_complete());
    let sent = async || {
        let status = "SELECT CAST(VARIABLE_VALUE AS SIGNED) FROM information_schema.SESSION_STATUS \
                      WHERE VARIABLE_NAME = 'QUESTIONS'";
        sqlx::query_scalar::<_, i64>(status).persistent(false).fetch_one(&pool).await.unwrap()
    };
    let asking = {
        let before = sent().await;
        sent().await - before
    };
    let before = sent().await;
    for n in 1..=10 {
        assert!(saga.run(&format!("o-{n}"), &1).await.unwrap().is_complete());
    }
    let statements = sent().await - before - asking;
    assert!(statements <= 60, "{statements} for ten");
}
