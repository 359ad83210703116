//! Databases and clusters of the test's own.

use std::time::Duration;

use sqlx::{Connection as _, PgConnection};
use testkit::{OwnPostgres, PostgresDatabase, postgres_url};
use tokio::time::timeout;

#[tokio::test]
async fn a_database_is_empty_of_its_own_and_goes_with_its_value() {
    let Some(database) = PostgresDatabase::create().await else {
        return;
    };
    let other = PostgresDatabase::create().await.expect("the server is there");
    assert_ne!(database.url(), other.url());
    run(database.url(), "CREATE TABLE t (id int)").await.unwrap();
    run(other.url(), "CREATE TABLE t (id int)").await.unwrap();

    // A connection that is still open does not keep the database.
    let open = PgConnection::connect(database.url()).await.unwrap();
    let url = database.url().to_owned();
    drop(database);
    drop(open);
    assert!(PgConnection::connect(&url).await.is_err());
    let server = postgres_url().expect("the server is there");
    run(&server, "SELECT 1").await.unwrap();
}

#[tokio::test]
async fn a_cluster_keeps_its_data_through_stop_kill_and_restart() {
    let Some(mut server) = OwnPostgres::start().await else {
        return;
    };
    run(&server.url(), "CREATE TABLE t (id int)").await.unwrap();
    run(&server.url(), "INSERT INTO t VALUES (1)").await.unwrap();
    server.stop().await;
    assert!(PgConnection::connect(&server.url()).await.is_err());
    server.restart().await;
    run(&server.url(), "INSERT INTO t VALUES (2)").await.unwrap();

    server.pause();
    let url = server.url();
    let moment = Duration::from_millis(300);
    assert!(timeout(moment, PgConnection::connect(&url)).await.is_err());
    server.resume();

    let mut open = PgConnection::connect(&url).await.unwrap();
    server.kill();
    assert!(sqlx::raw_sql("SELECT 1").execute(&mut open).await.is_err());
    server.restart().await;
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    let sum: i64 =
        sqlx::query_scalar("SELECT sum(id) FROM t").fetch_one(&mut connection).await.unwrap();
    assert_eq!(sum, 3);
}

async fn run(url: &str, statement: &'static str) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    sqlx::raw_sql(statement).execute(&mut connection).await?;
    connection.close().await
}
