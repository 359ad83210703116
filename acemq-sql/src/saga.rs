//! The table of durable sagas.
//!
//! A row is an instance. Who may go on with it is one column's affair, `due_at`: from then on anybody
//! may. While somebody holds it, that is when the lease runs out; while it waits, when it is due; and
//! when it is over, never.

mod store;
mod transactional;

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use acemq::{ClaimedSaga, Error, ErrorKind, Result, SagaClaim, SagaNext, SagaStatus, StoredSaga};
use sqlx::Pool;
use tokio::sync::Semaphore;

use crate::{
    database::{Dialect, DialectOf, SagaSql, SqlDatabase},
    failure::failed,
    name::HolderName,
    outbox::SqlOutbox,
    session::Session,
    statement::Statement,
    table::{self, Layout, Table},
    time::micros,
    transaction::dialect::TransactionDialect,
};

const DEFAULT_TABLE: &str = "acemq_saga";
/// What a statement has beside the state, generously.
const BESIDE_THE_STATE: u64 = 4_096;

/// Keeps the instances of durable sagas in a table of the application's database.
///
/// Leases and due times are the database's clock's. Workers pass over what others are about to take.
/// Nothing on an instance's way deletes a row: give it to
/// [`MaintenanceBuilder::sagas`](acemq::MaintenanceBuilder::sagas), which removes those that are over.
/// Cheap to clone.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use acemq::{HandlerError, Saga, SagaBegun, StepContext};
/// use acemq_sql::SqliteSagaStore;
///
/// async fn reserve(room: u32, step: StepContext) -> Result<String, HandlerError> {
///     Ok(format!("room {room}, for {}", step.id()))
/// }
///
/// # let pool = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await?;
/// let store = SqliteSagaStore::new(pool.clone());
/// store.create_table_if_absent().await?;     // in production, a migration does this
/// let booking = Saga::durable("booking", store).step("reserve", reserve).build()?;
///
/// // With the business's own writes: it exists exactly if they do.
/// let mut transaction = pool.begin().await?;
/// // … the application's own writes …
/// assert_eq!(booking.begin(&mut transaction, "trip-1", &7).await?, SagaBegun::New);
/// transaction.commit().await?;
///
/// let result = booking.run("trip-1", &7).await?; // or leave it to `booking.worker()`
/// assert_eq!(result.output().map(String::as_str), Some("room 7, for trip-1"));
/// # Ok(()) }
/// # #[cfg(not(feature = "sqlite"))] fn main() {}
/// ```
///
/// A pool, or a connection outside of a transaction, does not compile where a saga is begun:
///
/// ```compile_fail,E0277
/// # use acemq_sql::SqliteSagaStore;
/// # async fn example(saga: acemq::DurableSaga<u32, u32, SqliteSagaStore>, mut pool: sqlx::SqlitePool) {
/// // promise: SG-6
/// saga.begin(&mut pool, "trip-1", &7).await.unwrap();
/// # }
/// ```
pub struct SqlSagaStore<DB: SqlDatabase> {
    pool: Pool<DB>,
    /// Whether connections keep statements prepared.
    keeps: bool,
    table: Table,
    outbox: Option<SqlOutbox<DB>>,
    name: HolderName,
    /// The statements, once the table has been looked at.
    sql: Arc<OnceLock<Arc<Prepared>>>,
    /// Where only one transaction at a time can write: who is next, in order and without polling.
    turn: Option<Arc<Semaphore>>,
}

/// The statements, and what fits into them.
struct Prepared {
    sql: SagaSql,
    /// How many bytes of a state fit: into the column, and on the way.
    column: Option<u64>,
    sent: Option<u64>,
}

impl<DB: SqlDatabase> SqlSagaStore<DB> {
    /// A store in table `acemq_saga`.
    #[must_use]
    pub fn new(pool: Pool<DB>) -> Self {
        Self {
            keeps: DialectOf::<DB>::keeps_statements(&pool),
            pool,
            table: Table::new(DEFAULT_TABLE),
            outbox: None,
            name: HolderName::new(),
            sql: Arc::default(),
            turn: DialectOf::<DB>::ONE_AT_A_TIME.then(|| Arc::new(Semaphore::new(1))),
        }
    }

    /// Another table, exactly as written; `acemq_saga` unless set.
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

    /// Where the messages of steps go: an outbox in the same database, which a relay publishes from.
    /// They are added in the transaction that says that they are sent. Steps that send messages need
    /// one.
    #[must_use]
    pub fn outbox(mut self, outbox: SqlOutbox<DB>) -> Self {
        self.outbox = Some(outbox);
        self
    }

    /// The statements that make the table and its indexes, for a migration.
    #[must_use]
    pub fn schema_statements(&self) -> Vec<String> {
        DialectOf::<DB>::saga_schema(&self.table)
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

    async fn session(&self, doing: &str) -> Result<Session<DB>> {
        Session::open(&self.pool).await.map_err(failed(|| self.doing(doing)))
    }

    async fn prepared(&self, doing: &str) -> Result<(Session<DB>, Arc<Prepared>)> {
        let mut session = self.session(doing).await?;
        let sql = self.sql_from(&mut session).await?;
        Ok((session, sql))
    }

    /// The statements for this table, which is looked at once.
    async fn sql_from(&self, connection: &mut DB::Connection) -> Result<Arc<Prepared>> {
        if let Some(sql) = self.sql.get() {
            return Ok(Arc::clone(sql));
        }
        let look = DialectOf::<DB>::look(connection, &self.table)
            .await
            .map_err(failed(|| self.doing("look at the table")))?;
        let layout = table::SAGA.check(&self.table, look, &self.schema_statements())?;
        let sql = self.sql_for(&layout);
        Ok(Arc::clone(self.sql.get_or_init(|| Arc::new(sql))))
    }

    fn sql_for(&self, layout: &Layout) -> Prepared {
        Prepared {
            sql: DialectOf::<DB>::saga_sql(&self.table, layout),
            column: layout.column("state").and_then(|column| column.bytes),
            sent: layout.largest_statement,
        }
    }

    fn doing(&self, what: &str) -> String {
        format!("{what} in saga table {}", self.table)
    }
}

impl Prepared {
    /// Refuses a state that the table or the database has no room for: some databases would cut it,
    /// others end the connection.
    fn check<DB: SqlDatabase>(&self, key: &str, state: &str) -> Result<()> {
        let refused = |fault: String| {
            let text =
                format!("write saga {key}: {fault}; let its steps make less, or a reference");
            Err(Error::new(ErrorKind::TooLarge, text))
        };
        let bytes = state.len() as u64;
        if self.column.is_some_and(|holds| bytes > holds) {
            return refused(format!(
                "its state takes {bytes} bytes, which the table's column `state` does not hold"
            ));
        }
        let sent = DialectOf::<DB>::sent_bytes(state) + BESIDE_THE_STATE;
        match self.sent {
            Some(largest) if sent > largest => refused(format!(
                "its statement takes {sent} bytes, and the database takes {largest}, its \
                 max_allowed_packet"
            )),
            _ => Ok(()),
        }
    }
}

/// What becomes of a claim, as the statements take it: a span, and which of three ways.
fn next(statement: Statement, next: SagaNext) -> Statement {
    let (span, way) = match next {
        SagaNext::Keep(lease) => (micros(lease), 0),
        SagaNext::After(wait) => (micros(wait), 1),
        SagaNext::Never => (0, 2),
    };
    statement.integer(span).integer(way)
}

/// A row as [`SagaSql`] has it, and its holder's token.
fn read<DB: SqlDatabase>(row: &DB::Row) -> Result<(StoredSaga, Option<String>)> {
    let key = DialectOf::<DB>::text(row, 0).unwrap_or_default();
    let unreadable = |what: &str| {
        Error::new(
            ErrorKind::Decode,
            format!("read the row of saga {key}: its {what} cannot be read"),
        )
    };
    let text = |column: usize, name: &str| {
        DialectOf::<DB>::text(row, column).ok_or_else(|| unreadable(name))
    };
    let time = |column: usize, name: &str| {
        DialectOf::<DB>::read_time(row, column).ok_or_else(|| unreadable(name))
    };
    let claims = DialectOf::<DB>::integer(row, 6).unwrap_or_default().max(0);
    let stored = StoredSaga {
        saga: text(1, "saga")?,
        steps: text(2, "steps")?,
        status: SagaStatus::from_stored(&text(3, "status")?).ok_or_else(|| unreadable("status"))?,
        state: text(4, "state")?,
        version: DialectOf::<DB>::integer(row, 5).unwrap_or_default(),
        claims: u32::try_from(claims).unwrap_or(u32::MAX),
        is_held: DialectOf::<DB>::integer(row, 7) == Some(1),
        due_at: DialectOf::<DB>::read_time(row, 8),
        deadline_at: DialectOf::<DB>::read_time(row, 9),
        created_at: time(10, "created_at")?,
        updated_at: time(11, "updated_at")?,
        read_at: time(12, "database's time")?,
        key,
    };
    Ok((stored, DialectOf::<DB>::text(row, 13)))
}

/// A row that was claimed by that token.
fn claimed<DB: SqlDatabase>(row: &DB::Row, token: &str) -> Result<ClaimedSaga> {
    let (stored, _) = read::<DB>(row)?;
    Ok(ClaimedSaga { claim: SagaClaim::new(stored.key.as_str(), token), stored })
}

impl<DB: SqlDatabase> Clone for SqlSagaStore<DB> {
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            keeps: self.keeps,
            table: self.table.clone(),
            outbox: self.outbox.clone(),
            name: self.name.clone(),
            sql: Arc::clone(&self.sql),
            turn: self.turn.clone(),
        }
    }
}

impl<DB: SqlDatabase> fmt::Debug for SqlSagaStore<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlSagaStore")
            .field("database", &DB::NAME)
            .field("table", &self.table.to_string())
            .field("outbox", &self.outbox)
            .finish_non_exhaustive()
    }
}
