//! Databases of the test's own.

use sqlx::{Connection as _, MySqlConnection};
use testkit::{MariaDbDatabase, mariadb_url};

#[tokio::test]
async fn a_database_is_empty_of_its_own_and_goes_with_its_value() {
    let Some(database) = MariaDbDatabase::create().await else {
        return;
    };
    let other = MariaDbDatabase::create().await.expect("the server is there");
    assert_ne!(database.url(), other.url());
    run(database.url(), "CREATE TABLE t (id int)").await.unwrap();
    run(other.url(), "CREATE TABLE t (id int)").await.unwrap();

    // A connection that is still open does not keep the database.
    let open = MySqlConnection::connect(database.url()).await.unwrap();
    let url = database.url().to_owned();
    drop(database);
    drop(open);
    assert!(MySqlConnection::connect(&url).await.is_err());
    run(&mariadb_url().expect("the server is there"), "SELECT 1").await.unwrap();
}

async fn run(url: &str, statement: &'static str) -> Result<(), sqlx::Error> {
    let mut connection = MySqlConnection::connect(url).await?;
    sqlx::raw_sql(statement).execute(&mut connection).await?;
    connection.close().await
}
