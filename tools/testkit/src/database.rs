//! A database of the test's own on a shared server.

use std::future::Future;

use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, PgConnection};
use tokio::runtime;
use url::Url;

use crate::{mariadb_url, postgres_url, unique};

/// An empty database on the shared PostgreSQL, dropped with this value.
#[derive(Debug)]
pub struct PostgresDatabase(Database);

/// An empty database on the shared MariaDB, dropped with this value.
#[derive(Debug)]
pub struct MariaDbDatabase(Database);

#[derive(Debug)]
struct Database {
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
        let database = Database::on(postgres_url()?);
        let create = format!("CREATE DATABASE {}", database.name);
        on_postgres(database.server.clone(), create).await.expect("create a database");
        Some(Self(database))
    }

    /// Where it is, with credentials.
    pub fn url(&self) -> &str {
        &self.0.url
    }
}

impl Drop for PostgresDatabase {
    fn drop(&mut self) {
        // FORCE ends the connections of a pool that is dropped later.
        let drop = format!("DROP DATABASE {} WITH (FORCE)", self.0.name);
        self.0.drop_with(on_postgres(self.0.server.clone(), drop));
    }
}

impl MariaDbDatabase {
    /// Creates a database, or says that the test is left out.
    ///
    /// # Panics
    ///
    /// When the server does not create it, or is missing and `ACEMQ_TEST_REQUIRE` lists
    /// `mariadb`.
    pub async fn create() -> Option<Self> {
        let database = Database::on(mariadb_url()?);
        let create = format!("CREATE DATABASE {}", database.name);
        on_mariadb(database.server.clone(), create).await.expect("create a database");
        Some(Self(database))
    }

    /// Where it is, with credentials.
    pub fn url(&self) -> &str {
        &self.0.url
    }
}

impl Drop for MariaDbDatabase {
    fn drop(&mut self) {
        // An open transaction of a pool that is dropped later would hold it up.
        let drop = format!("SET lock_wait_timeout = 5; DROP DATABASE {}", self.0.name);
        self.0.drop_with(on_mariadb(self.0.server.clone(), drop));
    }
}

impl Database {
    /// A name for a database on that server.
    fn on(server: String) -> Self {
        let name = unique("acemq_test");
        let mut url = Url::parse(&server).expect("the URL of a server");
        url.set_path(&name);
        Self { name, server, url: url.into() }
    }

    fn drop_with(&self, drop: impl Future<Output = Result<(), sqlx::Error>> + Send) {
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

// The statements hold no word but ours: names cannot be bound.

async fn on_postgres(server: String, statement: String) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect(&server).await?;
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await?;
    connection.close().await
}

async fn on_mariadb(server: String, statement: String) -> Result<(), sqlx::Error> {
    let mut connection = MySqlConnection::connect(&server).await?;
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await?;
    connection.close().await
}
