//! A database of the test's own on the shared PostgreSQL.

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::runtime;
use url::Url;

use crate::{postgres_url, unique};

/// An empty database on the shared PostgreSQL, dropped with this value.
#[derive(Debug)]
pub struct PostgresDatabase {
    name: String,
    server: String,
    url: String,
}

impl PostgresDatabase {
    /// Creates a database, or says that the test is left out.
    ///
    /// # Panics
    ///
    /// When the server does not create it, or is missing and `ACEMQ_TEST_REQUIRE` lists
    /// `postgres`.
    pub async fn create() -> Option<Self> {
        let server = postgres_url()?;
        let name = unique("acemq_test");
        let mut url = Url::parse(&server).expect("ACEMQ_TEST_POSTGRES_URL is a URL");
        url.set_path(&name);
        execute(&server, format!("CREATE DATABASE {name}")).await.expect("create a database");
        Some(Self { name, server, url: url.into() })
    }

    /// Where it is, with credentials.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for PostgresDatabase {
    fn drop(&mut self) {
        // FORCE ends the connections of a pool that is dropped later.
        let drop = execute(&self.server, format!("DROP DATABASE {} WITH (FORCE)", self.name));
        // A thread of its own, since the test's may be running a runtime.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let runtime = runtime::Builder::new_current_thread().enable_all().build();
                if let Err(error) = runtime.expect("start a runtime").block_on(drop) {
                    eprintln!("drop database {}: {error}", self.name);
                }
            });
        });
    }
}

async fn execute(server: &str, statement: String) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect(server).await?;
    // The statement holds no word but ours: names cannot be bound.
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await?;
    connection.close().await
}
