use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use testkit::{PostgresDatabase, Proxy};

database!(
    Postgres,
    PostgresOutbox,
    PostgresIdempotency,
    PostgresSchemaRegistry,
    PostgresStreamCheckpoints,
    PostgresSagaStore,
    text: "TEXT"
);

/// What ends the session that asks for it.
pub(crate) const KILL: Option<&str> = Some("SELECT pg_terminate_backend(pg_backend_pid())");

/// An hour ago and an hour ahead, in a column's type.
pub(crate) const PAST: &str = "clock_timestamp() - INTERVAL '1 hour'";
pub(crate) const FUTURE: &str = "clock_timestamp() + INTERVAL '1 hour'";
/// The same where the column has no zone.
pub(crate) const RAILS_PAST: &str = "(clock_timestamp() AT TIME ZONE 'UTC') - INTERVAL '1 hour'";
pub(crate) const RAILS_FUTURE: &str = "(clock_timestamp() AT TIME ZONE 'UTC') + INTERVAL '1 hour'";

/// What Rails 7.1 makes of the family's migration.
pub(crate) const RAILS: [&str; 2] = [
    "CREATE TABLE \"acemq_outbox\" (\
     \"id\" character varying(64) NOT NULL PRIMARY KEY, \
     \"exchange_name\" character varying(255) NOT NULL, \
     \"routing_key\" character varying(255) NOT NULL, \
     \"body\" text NOT NULL, \
     \"body_encoding\" character varying(16) NOT NULL, \
     \"content_type\" character varying(255) NOT NULL, \
     \"headers\" text NOT NULL, \
     \"created_at\" timestamp(6) NOT NULL, \
     \"published_at\" timestamp(6), \
     \"attempts\" integer DEFAULT 0 NOT NULL, \
     \"last_error\" character varying(1000), \
     \"locked_by\" character varying(64), \
     \"locked_until\" timestamp(6))",
    "CREATE INDEX \"acemq_outbox_pending\" ON \"acemq_outbox\" (\"published_at\", \"created_at\")",
];

/// A column's name that is a word of SQL's own.
pub(crate) const KEY: &str = "\"key\"";

/// Whether the database keeps to the lengths of columns.
pub(crate) const LENGTHS_COUNT: bool = true;

pub(crate) struct Database {
    pub(crate) pool: Pool,
    options: PgConnectOptions,
    database: PostgresDatabase,
}

impl Database {
    pub(crate) async fn create() -> Option<Self> {
        let database = PostgresDatabase::create().await?;
        let options: PgConnectOptions = database.url().parse().unwrap();
        // No test may depend on the session's zone being UTC, and none may be held up by a lock.
        let options = options.options([("TimeZone", "Pacific/Auckland"), ("lock_timeout", "10s")]);
        let pool = pool(8, options.clone()).await;
        Some(Self { pool, options, database })
    }

    /// Where it is, for another process.
    pub(crate) fn url(&self) -> String {
        self.database.url().to_owned()
    }

    pub(crate) fn takes_two_writers(&self) -> bool {
        true
    }

    pub(crate) async fn pool_of_one(&self) -> Pool {
        pool(1, self.options.clone()).await
    }

    /// Ends every session but one, where there are any.
    pub(crate) async fn end_other_sessions(&self) -> bool {
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";
        self.execute(end).await;
        true
    }

    /// Another process's pool.
    pub(crate) async fn another_pool(&self) -> Pool {
        pool(4, self.options.clone()).await
    }

    /// Another process's pool, whose sessions begin with a statement.
    pub(crate) async fn pool_after(&self, statement: &'static str) -> Pool {
        PgPoolOptions::new()
            .max_connections(4)
            .after_connect(move |connection, _| {
                Box::pin(
                    async move { sqlx::raw_sql(statement).execute(connection).await.map(drop) },
                )
            })
            .connect_with(self.options.clone())
            .await
            .unwrap()
    }

    /// Whose sessions do not wait for a lock for long.
    pub(crate) async fn impatient_pool(&self) -> Pool {
        pool(2, self.options.clone().options([("lock_timeout", "200ms")])).await
    }

    /// Whose connections keep no statement prepared, as behind a proxy that hands each
    /// transaction to another session.
    pub(crate) async fn pool_without_prepared_statements(&self) -> Pool {
        pool(2, self.options.clone().statement_cache_capacity(0)).await
    }

    /// Whose sessions see the database's clock so many seconds ahead of this host's.
    pub(crate) async fn pool_with_a_clock_ahead_by(&self, seconds: i64) -> Option<Pool> {
        let schema = testkit::unique("clock");
        self.execute(&format!("CREATE SCHEMA {schema}")).await;
        for clock in ["clock_timestamp", "statement_timestamp", "now"] {
            self.execute(&format!(
                "CREATE FUNCTION {schema}.{clock}() RETURNS timestamptz LANGUAGE sql STABLE AS \
                 'SELECT pg_catalog.{clock}() + interval ''{seconds} seconds'''"
            ))
            .await;
        }
        // Named first, it comes before the system's own.
        let path = format!("{schema},pg_catalog,public");
        let options = self.options.clone().options([("search_path", path)]);
        Some(pool(4, options).await)
    }

    /// What the database says about a table: its columns and its indexes.
    pub(crate) async fn describe(&self, table: &str) -> String {
        let columns = format!("FROM information_schema.columns WHERE table_name = '{table}'");
        let columns = self
            .text(
                "string_agg(concat_ws(' ', column_name, data_type, character_maximum_length, \
                 is_nullable, column_default), ', ' ORDER BY ordinal_position)",
                &columns,
            )
            .await;
        let indexes = format!("FROM pg_indexes WHERE tablename = '{table}'");
        let indexes = self.text("string_agg(indexdef, ', ' ORDER BY indexdef)", &indexes).await;
        format!("{}; {}", columns.unwrap(), indexes.unwrap()).replace(table, "TABLE")
    }

    /// One connection over a slow network.
    pub(crate) async fn distant_pool(&self) -> (Option<Proxy>, Pool) {
        let proxy = Proxy::in_front_of(self.database.url()).await;
        let options: PgConnectOptions = proxy.url_for(self.database.url()).parse().unwrap();
        let pool = pool(1, options).await;
        (Some(proxy), pool)
    }

    /// A second schema, and a pool that knows it.
    pub(crate) async fn another_schema(&self) -> (String, Pool) {
        self.execute("CREATE SCHEMA shop").await;
        ("shop".to_owned(), self.another_pool().await)
    }
}

async fn pool(size: u32, options: PgConnectOptions) -> Pool {
    PgPoolOptions::new().max_connections(size).connect_with(options).await.unwrap()
}

/// How many statements on our tables the connections of a pool keep prepared.
pub(crate) async fn prepared_statements(pool: &Pool) -> i64 {
    let mut connections = Vec::new();
    for _ in 0..pool.options().get_max_connections() {
        connections.push(pool.acquire().await.unwrap());
    }
    let mut prepared = 0;
    for mut connection in connections {
        let rows = sqlx::raw_sql(
            "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%acemq_%'",
        );
        let row = rows.fetch_one(&mut *connection).await.unwrap();
        prepared += sqlx::Row::get::<i64, _>(&row, 0);
    }
    prepared
}

/// A pool for what needs no connection.
pub(crate) fn nowhere() -> Pool {
    PgPoolOptions::new().connect_lazy("postgres://nowhere").unwrap()
}
