//! The tables of a run, in whichever database it uses: the application's own, and acemq's.

use std::{sync::Arc, time::Duration};

use acemq::{
    ConsumerBuilder, Message, OutboxRecord, SharedIdempotencyStore, SharedOutboxStore,
    StartConsumer,
};
use acemq_sql::{HandlerTransaction, SqlDatabase, SqlIdempotency, SqlOutbox};
use anyhow::{Context as _, Result, bail};
use futures_util::future::BoxFuture;
use sqlx::{AssertSqlSafe, Database as _, Pool, Row as _, pool::PoolOptions};

use crate::role::{Fuse, Fused, Order, Point};

/// A row of text; nulls are empty.
pub(crate) type Row = Vec<String>;

/// What a run does with its database, whichever it is.
pub(crate) trait Tables: Send + Sync {
    fn create(&self) -> BoxFuture<'_, Result<()>>;

    fn remove(&self) -> BoxFuture<'_, Result<()>>;

    fn outbox(&self) -> SharedOutboxStore;

    fn idempotency(&self) -> SharedIdempotencyStore;

    /// Saves an order for each record and adds the record to the outbox, in one transaction.
    fn place<'a>(
        &'a self,
        records: &'a [OutboxRecord],
        intent: Intent,
        fuse: &'a Fuse,
    ) -> BoxFuture<'a, Result<()>>;

    /// Waits until it is decided, for each of these orders, whether its transaction committed.
    fn decide<'a>(&'a self, orders: &'a [String]) -> BoxFuture<'a, Result<()>>;

    /// A handler's effect: one more row each time.
    fn act<'a>(&'a self, order: &'a str, life: &'a str) -> BoxFuture<'a, Result<()>>;

    /// Starts a consumer whose handler has the same effect in the transaction of the claim.
    fn act_in_transactions(
        &self,
        consumer: ConsumerBuilder<Order>,
        life: String,
        fuse: Arc<Fuse>,
    ) -> StartConsumer;

    /// The rows of a table, as text.
    fn rows(&self, table: Table) -> BoxFuture<'_, Result<Vec<Row>>>;

    /// How many records the outbox has not marked.
    fn backlog(&self) -> BoxFuture<'_, Result<usize>>;
}

/// How a transaction is meant to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    Commit,
    RollBack,
}

/// One of a run's tables. The checks read all of them with plain SQL, acemq's as well: what is
/// tested does not report on itself.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Table {
    /// The order's id.
    Orders,
    /// The record's id, when it was published, how many attempts failed, why the last one did.
    Outbox,
    /// The key, and its state.
    Idempotency,
    /// The order's id, and which life of which consumer had the effect.
    Effects,
}

impl Table {
    pub(crate) const ALL: [Self; 4] =
        [Self::Orders, Self::Outbox, Self::Idempotency, Self::Effects];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Orders => "orders",
            Self::Outbox => "outbox",
            Self::Idempotency => "idempotency",
            Self::Effects => "effects",
        }
    }

    fn of(self, run: &str) -> String {
        format!("crash_{run}_{}", self.name())
    }

    fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Orders => &["id"],
            Self::Outbox => &["id", "published_at", "attempts", "last_error"],
            Self::Idempotency => &["message_id", "state"],
            Self::Effects => &["order_id", "life"],
        }
    }
}

/// A database by its URL's scheme. All that a further one needs is its line here, where sqlx's
/// bounds can only be met one database at a time.
macro_rules! databases {
    ($($($scheme:literal)|+ => $database:ty,)+) => {
        /// Opens the tables of a run. Nothing is connected yet.
        ///
        /// # Errors
        /// For a URL that no database here reads.
        pub(crate) fn open(url: &str, run: &str, lease: Duration) -> Result<Arc<dyn Tables>> {
            let (scheme, _) = url.split_once(':').unwrap_or_default();
            match scheme {
                $($($scheme)|+ => Ok(Arc::new(Sql::<$database>::open(url, run, lease)?)),)+
                _ => bail!(
                    "the database's URL must begin with one of {:?}",
                    [$($($scheme),+),+]
                ),
            }
        }

        $(impl Database for $database {
            async fn execute(connection: &mut Self::Connection, sql: String) -> sqlx::Result<()> {
                let query = sqlx::query::<Self>(AssertSqlSafe(sql)).persistent(false);
                query.execute(connection).await.map(drop)
            }

            async fn rows(
                connection: &mut Self::Connection,
                sql: String,
                columns: usize,
            ) -> sqlx::Result<Vec<Row>> {
                let query = sqlx::query::<Self>(AssertSqlSafe(sql)).persistent(false);
                let rows = query.fetch_all(connection).await?;
                let text = |row: &<Self as sqlx::Database>::Row, column: usize| {
                    let text: Option<String> = row.try_get_unchecked(column)?;
                    Ok(text.unwrap_or_default())
                };
                rows.iter().map(|row| (0..columns).map(|column| text(row, column)).collect()).collect()
            }
        })+
    };
}

databases! {
    "postgres" | "postgresql" => sqlx::Postgres,
    "sqlite" => sqlx::Sqlite,
    "mysql" | "mariadb" => sqlx::MySql,
}

/// Statements without values: the harness makes every word of them itself.
trait Database: SqlDatabase {
    fn execute(
        connection: &mut Self::Connection,
        sql: String,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    fn rows(
        connection: &mut Self::Connection,
        sql: String,
        columns: usize,
    ) -> impl Future<Output = sqlx::Result<Vec<Row>>> + Send;
}

struct Sql<DB: SqlDatabase> {
    pool: Pool<DB>,
    run: String,
    outbox: SqlOutbox<DB>,
    idempotency: SqlIdempotency<DB>,
}

impl<DB: Database> Sql<DB> {
    fn open(url: &str, run: &str, lease: Duration) -> Result<Self> {
        // SQLite has one writer, and connections that wait for each other by polling.
        let connections = if DB::NAME == sqlx::Sqlite::NAME { 1 } else { 8 };
        let pool = PoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(Duration::from_secs(10))
            .connect_lazy(url)
            .context("read the database's URL")?;
        Ok(Self {
            outbox: SqlOutbox::new(pool.clone()).table(&Table::Outbox.of(run))?,
            idempotency: SqlIdempotency::new(pool.clone())
                .table(&Table::Idempotency.of(run))?
                .lease(lease),
            pool,
            run: run.to_owned(),
        })
    }

    async fn execute(&self, sql: String) -> Result<()> {
        Ok(DB::execute(&mut *self.pool.acquire().await?, sql).await?)
    }

    async fn select(&self, table: Table, columns: &[&str], only: &str) -> Result<Vec<Row>> {
        // Text, on every database.
        let texts: Vec<String> =
            columns.iter().map(|column| format!("CONCAT({column}, '')")).collect();
        let sql = format!("SELECT {} FROM {} {only}", texts.join(", "), table.of(&self.run));
        Ok(DB::rows(&mut *self.pool.acquire().await?, sql, columns.len()).await?)
    }
}

impl<DB: Database> Tables for Sql<DB> {
    fn create(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if DB::NAME == sqlx::Sqlite::NAME {
                self.execute("PRAGMA journal_mode = WAL".to_owned()).await?;
            }
            let (orders, effects) = (Table::Orders.of(&self.run), Table::Effects.of(&self.run));
            self.execute(format!("CREATE TABLE {orders} (id VARCHAR(64) PRIMARY KEY)")).await?;
            let columns = "order_id VARCHAR(64) NOT NULL, life VARCHAR(64) NOT NULL";
            self.execute(format!("CREATE TABLE {effects} ({columns})")).await?;
            self.outbox.create_table_if_absent().await?;
            self.idempotency.create_table_if_absent().await?;
            Ok(())
        })
    }

    fn remove(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            for table in Table::ALL {
                self.execute(format!("DROP TABLE {}", table.of(&self.run))).await?;
            }
            Ok(())
        })
    }

    fn outbox(&self) -> SharedOutboxStore {
        SharedOutboxStore::new(self.outbox.clone())
    }

    fn idempotency(&self) -> SharedIdempotencyStore {
        SharedIdempotencyStore::new(self.idempotency.clone())
    }

    fn place<'a>(
        &'a self,
        records: &'a [OutboxRecord],
        intent: Intent,
        fuse: &'a Fuse,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let ids = || records.iter().map(OutboxRecord::id);
            let orders = Table::Orders.of(&self.run);
            let mut transaction = self.pool.begin().await?;
            for id in ids() {
                let sql = format!("INSERT INTO {orders} (id) VALUES ('{id}')");
                DB::execute(&mut transaction, sql).await?;
            }
            match records {
                [one] => self.outbox.add(&mut transaction, one).await?,
                several => self.outbox.add_all(&mut transaction, several).await?,
            }
            fuse.reached(Point::BeforeCommit, ids());
            match intent {
                Intent::Commit => {
                    fuse.during(Point::InCommit, ids(), transaction.commit()).await?;
                }
                Intent::RollBack => transaction.rollback().await?,
            }
            Ok(())
        })
    }

    fn decide<'a>(&'a self, orders: &'a [String]) -> BoxFuture<'a, Result<()>> {
        let table = Table::Orders.of(&self.run);
        Box::pin(async move {
            for id in orders {
                // Another row of that key waits for the transaction that has the first one.
                let mut transaction = self.pool.begin().await?;
                let sql = format!("INSERT INTO {table} (id) VALUES ('{id}')");
                match DB::execute(&mut transaction, sql).await {
                    Err(sqlx::Error::Database(error)) if error.is_unique_violation() => {}
                    tried => tried?,
                }
                transaction.rollback().await?;
            }
            Ok(())
        })
    }

    fn act<'a>(&'a self, order: &'a str, life: &'a str) -> BoxFuture<'a, Result<()>> {
        let effects = Table::Effects.of(&self.run);
        let sql = format!("INSERT INTO {effects} (order_id, life) VALUES ('{order}', '{life}')");
        Box::pin(self.execute(sql))
    }

    fn act_in_transactions(
        &self,
        consumer: ConsumerBuilder<Order>,
        life: String,
        fuse: Arc<Fuse>,
    ) -> StartConsumer {
        let store = Fused::new(self.idempotency.clone(), Arc::clone(&fuse));
        let effects = Table::Effects.of(&self.run);
        let handler = move |message: Message<Order>, mut transaction: HandlerTransaction<DB>| {
            let fuse = Arc::clone(&fuse);
            let order = message.into_payload().order;
            let insert =
                format!("INSERT INTO {effects} (order_id, life) VALUES ('{order}', '{life}')");
            async move {
                fuse.reached(Point::InHandler, std::iter::once(&*order));
                DB::execute(&mut transaction, insert).await?;
                Ok(transaction)
            }
        };
        consumer.start_in_transaction(store, handler)
    }

    fn rows(&self, table: Table) -> BoxFuture<'_, Result<Vec<Row>>> {
        Box::pin(self.select(table, table.columns(), ""))
    }

    fn backlog(&self) -> BoxFuture<'_, Result<usize>> {
        Box::pin(async move {
            let waiting = self.select(Table::Outbox, &["id"], "WHERE published_at IS NULL").await?;
            Ok(waiting.len())
        })
    }
}
