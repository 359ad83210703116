//! The outbox table, and the way in for the application.

mod claim;
mod store;

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use acemq::{Error, ErrorKind, OutboxRecord, OutboxSignal, Result};
use sqlx::Pool;
use tokio::sync::Mutex;

use self::claim::LastKey;
use crate::{
    database::{Dialect, DialectOf, OutboxOptions, OutboxSql, SqlDatabase},
    failure::failed,
    insert::Insert,
    name::HolderName,
    session::Session,
    statement::{Planned, Statement},
    table::{self, Layout, Table},
    transaction::OpenTransaction,
};

const DEFAULT_TABLE: &str = "acemq_outbox";
const DEFAULT_MAX_ATTEMPTS: u32 = 10;

/// How often a relay that stands by asks whether the lock of the active one is free.
pub(crate) const ASK: Duration = Duration::from_millis(250);

/// An outbox in a table of the application's database.
///
/// [`add`](Self::add) writes into the caller's transaction, and what it writes commits or rolls
/// back with it. The relay uses the pool. The table is the family's, and may be one that Rails
/// made: its columns are looked at on first use, and a table of another shape is refused.
///
/// Cheap to clone. Clones share the pool and wake one relay; each claims under a name of its own.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use acemq::{Envelope, OutboxRecord, OutboxStore};
/// use acemq_sql::SqliteOutbox;
///
/// # let pool = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await?;
/// let outbox = SqliteOutbox::new(pool.clone());
/// outbox.create_table_if_absent().await?;     // in production, a migration does this
///
/// let envelope = Envelope::new("order.placed");
/// let record = OutboxRecord::new("orders", "order.placed", "text/plain", "o-1", &envelope)?;
/// let mut transaction = pool.begin().await?;
/// // … the application's own writes …
/// outbox.add(&mut transaction, &record).await?;
/// transaction.commit().await?;
/// outbox.wake();                              // optional: the relay looks by itself
/// assert_eq!(outbox.pending_count().await?, 1);
/// # Ok(()) }
/// # #[cfg(not(feature = "sqlite"))] fn main() {}
/// ```
pub struct SqlOutbox<DB: SqlDatabase> {
    pool: Pool<DB>,
    /// Whether connections keep statements prepared.
    keeps: bool,
    table: Table,
    options: OutboxOptions,
    name: HolderName,
    signal: OutboxSignal,
    last_key: LastKey,
    /// Whose guard the one active relay has, on a database that only this process can see.
    alone: Arc<Mutex<()>>,
    /// The statements, once the table has been looked at.
    sql: Arc<OnceLock<Arc<OutboxSql>>>,
}

/// The insert of one record, for a database client other than `sqlx`. All values are text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordStatement {
    /// The SQL, with one placeholder a value: `$1`, `$2`, … or, on MariaDB, `?`.
    pub sql: String,
    /// The values in the placeholders' order.
    pub values: Vec<String>,
}

impl<DB: SqlDatabase> SqlOutbox<DB> {
    /// An outbox in table `acemq_outbox`. The pool is for the relay: adding uses the caller's
    /// transaction.
    #[must_use]
    pub fn new(pool: Pool<DB>) -> Self {
        Self {
            keeps: DialectOf::<DB>::keeps_statements(&pool),
            pool,
            table: Table::new(DEFAULT_TABLE),
            options: OutboxOptions {
                max_attempts: DEFAULT_MAX_ATTEMPTS,
                indexed_by_key: false,
                notify: false,
            },
            name: HolderName::new(),
            signal: OutboxSignal::new(),
            last_key: LastKey::default(),
            alone: Arc::default(),
            sql: Arc::default(),
        }
    }

    /// Another table, exactly as written; `acemq_outbox` unless set.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a name that is not a plain identifier of at most 50 characters.
    pub fn table(mut self, name: &str) -> Result<Self> {
        self.table.set_name(name)?;
        self.sql = Arc::default();
        Ok(self)
    }

    /// The schema the table is in (on MariaDB: the database, on SQLite: the attached one); unless
    /// set, the connection's own.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a name that is not a plain identifier of at most 50 characters.
    pub fn schema(mut self, name: &str) -> Result<Self> {
        self.table.set_schema(name)?;
        self.sql = Arc::default();
        Ok(self)
    }

    /// How many failures a record may have before it is left for somebody to look at, at least
    /// one; 10 unless set. The table's second index leaves out exhausted records up to this
    /// number, so set it before the table is made.
    #[must_use]
    pub fn max_attempts(self, max_attempts: u32) -> Self {
        self.with(|options| options.max_attempts = max_attempts.max(1))
    }

    /// Makes the table with a third index, by exchange and routing key, which a relay in the order
    /// [`PerKey`](acemq::RelayOrder::PerKey) reads: with it a claim costs the same however many
    /// records wait, also behind one that holds them up; without it every claim reads all that
    /// wait. It costs each insert and each mark a little, and is left out unless asked for.
    #[must_use]
    pub fn indexed_by_key(self) -> Self {
        self.with(|options| options.indexed_by_key = true)
    }

    pub(crate) fn with(mut self, choose: impl FnOnce(&mut OutboxOptions)) -> Self {
        choose(&mut self.options);
        self.sql = Arc::default();
        self
    }

    /// Adds a record in the caller's transaction, sqlx's own or a
    /// [`HandlerTransaction`](crate::HandlerTransaction): it goes out if and when that commits. A
    /// record whose id is in the table already changes nothing, and the transaction stays usable.
    ///
    /// A pool, or a connection outside of a transaction, does not compile in its place:
    ///
    /// ```compile_fail,E0277
    /// # use acemq_sql::SqliteOutbox;
    /// # async fn example(outbox: SqliteOutbox, mut pool: sqlx::SqlitePool, record: acemq::OutboxRecord) {
    /// // promise: OB-2
    /// outbox.add(&mut pool, &record).await.unwrap();
    /// # }
    /// ```
    ///
    /// ```compile_fail,E0277
    /// # use acemq_sql::SqliteOutbox;
    /// # async fn example(outbox: SqliteOutbox, connection: &mut sqlx::SqliteConnection, record: acemq::OutboxRecord) {
    /// // promise: OB-2
    /// outbox.add(connection, &record).await.unwrap();
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Store`] where the database fails (roll back then: PostgreSQL does not go on, and
    /// MariaDB may have rolled back by itself); [`ErrorKind::NotFound`] and
    /// [`ErrorKind::Config`] where the table is missing or has another shape;
    /// [`ErrorKind::TooLarge`] for what the table or the database has no room for, which leaves
    /// the transaction as it was; [`ErrorKind::Config`] for an id that the table takes for
    /// another record's, because its collation is not byte for byte.
    ///
    /// # Cancel safety
    /// Dropped on the way, it may or may not have added the record: roll back, or add it again.
    pub async fn add(
        &self,
        transaction: &mut impl OpenTransaction<DB>,
        record: &OutboxRecord,
    ) -> Result<()> {
        self.insert(transaction.connection(), std::slice::from_ref(record)).await
    }

    /// Adds records in the caller's transaction, as [`add`](Self::add) does, in few statements.
    ///
    /// # Errors
    /// Those of [`add`](Self::add). Where one record is too large, none is added.
    pub async fn add_all(
        &self,
        transaction: &mut impl OpenTransaction<DB>,
        records: &[OutboxRecord],
    ) -> Result<()> {
        self.insert(transaction.connection(), records).await
    }

    /// Adds a record on a connection whose transaction was opened by other means, such as an
    /// own `BEGIN`. The database is asked whether there is one.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where no transaction is open: the record would not commit with
    /// anything. Otherwise those of [`add`](Self::add).
    pub async fn add_on_connection(
        &self,
        connection: &mut DB::Connection,
        record: &OutboxRecord,
    ) -> Result<()> {
        let open =
            DialectOf::<DB>::in_transaction(&mut *connection).await.map_err(failed(|| {
                format!("add record {} to the outbox: ask for the open transaction", record.id())
            }))?;
        if !open {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "add record {} to the outbox: the connection has no open transaction, so the \
                     record would commit by itself; begin one first",
                    record.id()
                ),
            ));
        }
        self.insert(connection, std::slice::from_ref(record)).await
    }

    /// The insert of a record as SQL and values, for Diesel and others: run it in the transaction
    /// of the application's work. The relay is told to look for the record soon.
    ///
    /// Ask for it before that transaction opens: on first use it takes a connection of the pool to
    /// look at the table, and waits in vain where the transaction has the only one.
    ///
    /// # Errors
    /// Those of [`add`](Self::add): the table is looked at on first use, over the pool.
    pub async fn statement(&self, record: &OutboxRecord) -> Result<RecordStatement> {
        let sql = match self.sql.get() {
            Some(sql) => Arc::clone(sql),
            None => self.sql_from(&mut *self.session("look at the table").await?).await?,
        };
        let (sql, values) = sql.insert.one::<DB>(record)?;
        self.signal.arm(record.id());
        Ok(RecordStatement {
            sql: DialectOf::<DB>::placeholders(&sql).into_owned(),
            values: values.into(),
        })
    }

    /// Says that a transaction with records has committed: the relay looks at once. Without it,
    /// the relay looks at short, growing intervals after an [`add`](Self::add).
    pub fn wake(&self) {
        self.signal.wake();
    }

    /// The statements that make the table and its indexes, for a migration.
    #[must_use]
    pub fn schema_statements(&self) -> Vec<String> {
        DialectOf::<DB>::outbox_schema(&self.table, &self.options)
    }

    /// Makes the table if it is not there, for development and tests.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] where the login may not, [`ErrorKind::NotFound`] where the schema is
    /// missing, [`ErrorKind::Config`] where there is a table of that name and another shape,
    /// [`ErrorKind::Store`] where the database fails.
    pub async fn create_table_if_absent(&self) -> Result<()> {
        let mut session = self.session("create the table").await?;
        let created = session
            .create(self.schema_statements())
            .await
            .map_err(failed(|| self.doing("create the table")));
        table::made(created, self.sql_from(&mut session).await)
    }

    pub(crate) async fn insert(
        &self,
        connection: &mut DB::Connection,
        records: &[OutboxRecord],
    ) -> Result<()> {
        let looked_at = self.sql.get().map(Arc::clone);
        match looked_at {
            Some(sql) => self.insert_with(&sql.insert, connection, records).await?,
            None if DialectOf::<DB>::WRITES_BEFORE_READING => {
                let sql =
                    DialectOf::<DB>::outbox_sql(&self.table, &Layout::default(), &self.options);
                let inserted = self.insert_with(&sql.insert, &mut *connection, records).await;
                // What the table's shape says comes before what the insert made of it.
                self.sql_from(connection).await?;
                inserted?;
            }
            None => {
                let sql = self.sql_from(&mut *connection).await?;
                self.insert_with(&sql.insert, connection, records).await?;
            }
        }
        for record in records {
            self.signal.arm(record.id());
        }
        Ok(())
    }

    async fn insert_with(
        &self,
        insert: &Insert,
        connection: &mut DB::Connection,
        records: &[OutboxRecord],
    ) -> Result<()> {
        for (batch, statement) in insert.batches::<DB>(records)? {
            let doing = || match batch {
                [record] => self.doing(&format!("add record {}", record.id())),
                _ => self.doing(&format!("add {} records", batch.len())),
            };
            let statement = statement.kept_where(self.keeps, Planned::EachTime);
            DialectOf::<DB>::run(&mut *connection, statement).await.map_err(failed(doing))?;
            let Some(present) = &insert.present else { continue };
            let ids = batch.iter().map(|record| record.id().to_owned()).collect();
            let present = Statement::new(present).planned_each_time().list(ids);
            let rows =
                DialectOf::<DB>::fetch(&mut *connection, present).await.map_err(failed(doing))?;
            let present: BTreeSet<_> =
                rows.iter().filter_map(|row| DialectOf::<DB>::text(row, 0)).collect();
            if let Some(clash) = batch.iter().find(|record| !present.contains(record.id())) {
                return Err(self.clash(clash));
            }
        }
        Ok(())
    }

    fn clash(&self, record: &OutboxRecord) -> Error {
        let doing = self.doing(&format!("add record {}", record.id()));
        Error::new(
            ErrorKind::Config,
            format!(
                "{doing}: its id is the same as another record's for the collation of the table, \
                 so that it was not added; give the column id a collation that compares byte for \
                 byte, such as utf8mb4_nopad_bin"
            ),
        )
    }

    async fn session(&self, doing: &str) -> Result<Session<DB>> {
        Session::open(&self.pool).await.map_err(failed(|| self.doing(doing)))
    }

    /// The statements for this table, which is looked at once.
    async fn sql_from(&self, connection: &mut DB::Connection) -> Result<Arc<OutboxSql>> {
        if let Some(sql) = self.sql.get() {
            return Ok(Arc::clone(sql));
        }
        let look = DialectOf::<DB>::look(connection, &self.table)
            .await
            .map_err(failed(|| self.doing("look at the table")))?;
        let layout = table::OUTBOX.check(&self.table, look, &self.schema_statements())?;
        let sql = DialectOf::<DB>::outbox_sql(&self.table, &layout, &self.options);
        Ok(Arc::clone(self.sql.get_or_init(|| Arc::new(sql))))
    }

    fn doing(&self, what: &str) -> String {
        format!("{what} in outbox {}", self.table)
    }
}

impl<DB: SqlDatabase> Clone for SqlOutbox<DB> {
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            keeps: self.keeps,
            table: self.table.clone(),
            options: self.options.clone(),
            // Two relays on two clones are two relays.
            name: HolderName::new(),
            signal: self.signal.clone(),
            last_key: LastKey::default(),
            alone: Arc::clone(&self.alone),
            sql: Arc::clone(&self.sql),
        }
    }
}

impl<DB: SqlDatabase> fmt::Debug for SqlOutbox<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlOutbox")
            .field("database", &DB::NAME)
            .field("table", &self.table.to_string())
            .field("max_attempts", &self.options.max_attempts)
            .field("name", &self.name.as_str())
            .finish_non_exhaustive()
    }
}
