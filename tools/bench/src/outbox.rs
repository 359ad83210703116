//! The outbox tables of the rows.

use acemq::Client;
use acemq_sql::{SqlDatabase, SqlOutbox};
use anyhow::{Context as _, Result};
use sqlx::{
    AssertSqlSafe, MySql, MySqlPool, PgPool, Pool, Postgres, Sqlite,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqliteSynchronous},
};

use crate::bench::{Bench, body, publisher};

/// How many records one transaction adds.
const ADDED_TOGETHER: usize = 5_000;

/// An outbox in a table of its own.
pub(crate) struct Outbox<DB: SqlDatabase> {
    pub(crate) pool: Pool<DB>,
    pub(crate) table: String,
    pub(crate) store: SqlOutbox<DB>,
}

/// Measures on an outbox in PostgreSQL.
pub(crate) async fn in_postgres<T>(
    bench: &Bench,
    measure: impl AsyncFnOnce(&Outbox<Postgres>) -> Result<T>,
) -> Result<T> {
    let pool = PgPool::connect(&bench.postgres)
        .await
        .context("connect to PostgreSQL; name a database with --postgres")?;
    let outbox = Outbox::create(pool).await?;
    let measured = measure(&outbox).await;
    sqlx::query(outbox.drop_table()).execute(&outbox.pool).await?;
    outbox.pool.close().await;
    measured
}

/// Measures on an outbox in MariaDB.
pub(crate) async fn in_mariadb<T>(
    bench: &Bench,
    measure: impl AsyncFnOnce(&Outbox<MySql>) -> Result<T>,
) -> Result<T> {
    let pool = MySqlPool::connect(&bench.mariadb)
        .await
        .context("connect to MariaDB; name a database with --mariadb")?;
    let outbox = Outbox::create(pool).await?;
    let measured = measure(&outbox).await;
    sqlx::query(outbox.drop_table()).execute(&outbox.pool).await?;
    outbox.pool.close().await;
    measured
}

/// Measures on an outbox in an SQLite file of its own, which every commit is written through to.
pub(crate) async fn in_sqlite<T>(
    measure: impl AsyncFnOnce(&Outbox<Sqlite>) -> Result<T>,
) -> Result<T> {
    let folder = tempfile::tempdir()?;
    let options = SqliteConnectOptions::new()
        .filename(folder.path().join("outbox.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full);
    let outbox = Outbox::create(SqlitePool::connect_with(options).await?).await?;
    let measured = measure(&outbox).await;
    outbox.pool.close().await;
    measured
}

impl<DB: SqlDatabase> Outbox<DB> {
    async fn create(pool: Pool<DB>) -> Result<Self> {
        // A name of its own on a server that others use as well.
        let id = uuid::Uuid::new_v4().simple().to_string();
        let table = format!("acemq_bench_{}", &id[..12]);
        let store = SqlOutbox::new(pool.clone()).table(&table)?;
        store.create_table_if_absent().await?;
        Ok(Self { pool, table, store })
    }

    fn drop_table(&self) -> AssertSqlSafe<String> {
        AssertSqlSafe(format!("DROP TABLE IF EXISTS {}", self.table))
    }

    /// Adds that many records for a queue.
    pub(crate) async fn fill(&self, mq: &Client, queue: &str, records: usize) -> Result<()> {
        let (publisher, body) = (publisher(mq, queue.to_owned()), body());
        let mut left = records;
        while left > 0 {
            let together = left.min(ADDED_TOGETHER);
            let mut records = Vec::with_capacity(together);
            for _ in 0..together {
                records.push(publisher.record(&body).await?);
            }
            let mut transaction = self.pool.begin().await?;
            self.store.add_all(&mut transaction, &records).await?;
            transaction.commit().await?;
            left -= together;
        }
        Ok(())
    }
}

impl Outbox<Postgres> {
    /// The same outbox as another process has it.
    pub(crate) fn apart(&self) -> Result<SqlOutbox<Postgres>> {
        Ok(SqlOutbox::new(self.pool.clone()).table(&self.table)?)
    }

    /// Adds records that were published an hour ago.
    pub(crate) async fn fill_published(&self, records: usize) -> Result<()> {
        self.generate(records, "now() - INTERVAL '1 hour'", "0").await
    }

    /// Adds records that wait, for no queue.
    pub(crate) async fn fill_waiting(&self, records: usize) -> Result<()> {
        self.generate(records, "NULL", "0").await
    }

    /// Adds records that are older than all others and have used up their attempts.
    pub(crate) async fn fill_exhausted(&self, records: usize) -> Result<()> {
        self.generate(records, "NULL", "10").await
    }

    async fn generate(&self, records: usize, published_at: &str, attempts: &str) -> Result<()> {
        let sql = format!(
            "INSERT INTO {} (id, exchange_name, routing_key, body, body_encoding, content_type, \
             headers, created_at, published_at, attempts) \
             SELECT gen_random_uuid()::text, '', 'nowhere', repeat('.', 256), 'utf-8', \
             'text/plain', '{{}}', now() - INTERVAL '2 hours' + n * INTERVAL '1 microsecond', \
             {published_at}, {attempts} FROM generate_series(1, $1) AS n",
            self.table
        );
        let records = i64::try_from(records)?;
        sqlx::query(AssertSqlSafe(sql)).bind(records).execute(&self.pool).await?;
        self.tidy().await
    }

    /// Takes every claim back, so that the next reading finds what this one found.
    pub(crate) async fn give_all_back(&self) -> Result<()> {
        let sql = format!(
            "UPDATE {} SET locked_by = NULL, locked_until = NULL WHERE locked_by IS NOT NULL",
            self.table
        );
        sqlx::query(AssertSqlSafe(sql)).execute(&self.pool).await?;
        self.tidy().await
    }

    /// Leaves the table as it is after the database has looked after it.
    async fn tidy(&self) -> Result<()> {
        let sql = format!("VACUUM ANALYZE {}", self.table);
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&self.pool).await?;
        Ok(())
    }
}
