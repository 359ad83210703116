//! The table of the places that readers have in streams.
//!
//! A place never goes back: each change compares it with the one that is there, in the same statement.

mod transactional;

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use acemq::{Error, ErrorKind, Result, StreamCheckpointStore};
use sqlx::Pool;
use tokio::sync::Semaphore;

use crate::{
    database::{CheckpointsSql, Dialect, DialectOf, SqlDatabase},
    failure::failed,
    session::Session,
    statement::{Planned, Statement},
    table::{self, Table},
    transaction::dialect::TransactionDialect,
};

const DEFAULT_TABLE: &str = "acemq_stream_checkpoint";
/// The longest name in bytes; the columns are that wide.
const MAX_NAME: usize = 255;

/// Keeps the places of streams' readers in a table of the application's database.
///
/// It serves [`checkpoint`](acemq::StreamConsumerBuilder::checkpoint), and handlers that write in a
/// transaction of the same database
/// ([`start_in_transaction`](acemq::StreamConsumerBuilder::start_in_transaction)). A reader has one
/// row. Cheap to clone.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use acemq::StreamCheckpointStore;
/// use acemq_sql::SqliteStreamCheckpoints;
///
/// # let pool = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await?;
/// let checkpoints = SqliteStreamCheckpoints::new(pool);
/// checkpoints.create_table_if_absent().await?; // in production, a migration does this
///
/// checkpoints.save("orders.log", "billing", 41).await?;
/// assert_eq!(checkpoints.load("orders.log", "billing").await?, Some(41));
/// # Ok(()) }
/// # #[cfg(not(feature = "sqlite"))] fn main() {}
/// ```
///
/// A projection, whose rows and whose place in the stream commit together:
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # mod example {
/// use acemq::{Client, HandlerError, Message, Result, StreamConsumer, StreamOffset};
/// use acemq_sql::{HandlerTransaction, SqliteStreamCheckpoints};
///
/// async fn project(
///     message: Message<i64>,
///     mut transaction: HandlerTransaction<sqlx::Sqlite>,
/// ) -> Result<HandlerTransaction<sqlx::Sqlite>, HandlerError> {
///     sqlx::query("UPDATE turnover SET cents = cents + $1")
///         .bind(*message.payload())
///         .execute(&mut *transaction)
///         .await?;
///     Ok(transaction)
/// }
///
/// async fn start(mq: &Client, pool: sqlx::SqlitePool) -> Result<StreamConsumer> {
///     mq.stream_consumer::<i64>("payments.log")
///         .from(StreamOffset::First)
///         .reader("turnover")
///         .start_in_transaction(SqliteStreamCheckpoints::new(pool), project)
///         .await
/// }
/// # }
/// ```
pub struct SqlStreamCheckpoints<DB: SqlDatabase> {
    pool: Pool<DB>,
    /// Whether connections keep statements prepared.
    keeps: bool,
    table: Table,
    /// The statements, once the table has been looked at.
    sql: Arc<OnceLock<Arc<CheckpointsSql>>>,
    /// Where only one transaction at a time can write: who is next, in order and without polling.
    turn: Option<Arc<Semaphore>>,
}

impl<DB: SqlDatabase> SqlStreamCheckpoints<DB> {
    /// A store in table `acemq_stream_checkpoint`.
    #[must_use]
    pub fn new(pool: Pool<DB>) -> Self {
        Self {
            keeps: DialectOf::<DB>::keeps_statements(&pool),
            pool,
            table: Table::new(DEFAULT_TABLE),
            sql: Arc::default(),
            turn: DialectOf::<DB>::ONE_AT_A_TIME.then(|| Arc::new(Semaphore::new(1))),
        }
    }

    /// Another table, exactly as written; `acemq_stream_checkpoint` unless set.
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

    /// The statement that makes the table, for a migration.
    #[must_use]
    pub fn schema_statements(&self) -> Vec<String> {
        DialectOf::<DB>::checkpoints_schema(&self.table)
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

    async fn look_up(
        &self,
        session: &mut Session<DB>,
        sql: &CheckpointsSql,
        stream: &str,
        reader: &str,
    ) -> Result<Option<u64>> {
        let doing = || self.doing(&format!("look up reader {reader:?} of {stream:?}"));
        let load = self.statement(&sql.load).text(stream).text(reader);
        let rows = session.fetch(load).await.map_err(failed(doing))?;
        let last = rows.first().and_then(|row| DialectOf::<DB>::integer(row, 0));
        // Below 0 is a reader that begins with the first message.
        Ok(last.map(|last| u64::try_from(last).map_or(0, |last| last + 1)))
    }

    /// A statement for a session of the pool.
    fn statement(&self, sql: &Arc<str>) -> Statement {
        Statement::new(sql).kept_where(self.keeps, Planned::InOnePiece)
    }

    async fn session(&self, doing: &str) -> Result<Session<DB>> {
        Session::open(&self.pool).await.map_err(failed(|| self.doing(doing)))
    }

    async fn prepared(&self, doing: &str) -> Result<(Session<DB>, Arc<CheckpointsSql>)> {
        let mut session = self.session(doing).await?;
        let sql = self.sql_from(&mut session).await?;
        Ok((session, sql))
    }

    /// The statements for this table, which is looked at once.
    async fn sql_from(&self, connection: &mut DB::Connection) -> Result<Arc<CheckpointsSql>> {
        if let Some(sql) = self.sql.get() {
            return Ok(Arc::clone(sql));
        }
        let look = DialectOf::<DB>::look(connection, &self.table)
            .await
            .map_err(failed(|| self.doing("look at the table")))?;
        let layout = table::CHECKPOINTS.check(&self.table, look, &self.schema_statements())?;
        let sql = DialectOf::<DB>::checkpoints_sql(&self.table, &layout);
        Ok(Arc::clone(self.sql.get_or_init(|| Arc::new(sql))))
    }

    fn doing(&self, what: &str) -> String {
        format!("{what} in stream checkpoint table {}", self.table)
    }
}

impl<DB: SqlDatabase> StreamCheckpointStore for SqlStreamCheckpoints<DB> {
    async fn load(&self, stream: &str, reader: &str) -> Result<Option<u64>> {
        check_names(stream, reader)?;
        let (mut session, sql) = self.prepared("look up a reader").await?;
        self.look_up(&mut session, &sql, stream, reader).await
    }

    async fn load_or_insert(&self, stream: &str, reader: &str, next: u64) -> Result<u64> {
        check_names(stream, reader)?;
        let doing = || self.doing(&format!("make a place for reader {reader:?} in {stream:?}"));
        let before = before(next)?;
        let (mut session, sql) = self.prepared("make a place").await?;
        let insert = self.statement(&sql.insert).text(stream).text(reader).integer(before);
        session.run(insert).await.map_err(failed(doing))?;
        let place = self.look_up(&mut session, &sql, stream, reader).await?;
        place.ok_or_else(|| {
            Error::new(ErrorKind::Store, format!("{}: it was removed meanwhile", doing()))
        })
    }

    async fn save(&self, stream: &str, reader: &str, next: u64) -> Result<()> {
        check_names(stream, reader)?;
        let doing = || self.doing(&format!("save the place of reader {reader:?} in {stream:?}"));
        let before = before(next)?;
        let (mut session, sql) = self.prepared("save a place").await?;
        let save = self.statement(&sql.save).text(stream).text(reader).integer(before);
        session.run(save).await.map_err(failed(doing)).map(drop)
    }

    async fn forget(&self, stream: &str, reader: &str) -> Result<bool> {
        check_names(stream, reader)?;
        let doing = || self.doing(&format!("remove reader {reader:?} of {stream:?}"));
        let (mut session, sql) = self.prepared("remove a reader").await?;
        let forget = self.statement(&sql.forget).text(stream).text(reader);
        Ok(session.run(forget).await.map_err(failed(doing))? > 0)
    }
}

impl<DB: SqlDatabase> Clone for SqlStreamCheckpoints<DB> {
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            keeps: self.keeps,
            table: self.table.clone(),
            sql: Arc::clone(&self.sql),
            turn: self.turn.clone(),
        }
    }
}

impl<DB: SqlDatabase> fmt::Debug for SqlStreamCheckpoints<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlStreamCheckpoints")
            .field("database", &DB::NAME)
            .field("table", &self.table.to_string())
            .finish_non_exhaustive()
    }
}

/// The last offset before one, as its column holds it: -1 before the first.
fn before(next: u64) -> Result<i64> {
    next.checked_sub(1).map_or(Ok(-1), whole)
}

/// An offset as its column holds it.
fn whole(offset: u64) -> Result<i64> {
    offset.try_into().map_err(|_| {
        let fault = format!("save offset {offset}: an offset fits a signed 64-bit integer");
        Error::new(ErrorKind::Config, fault)
    })
}

fn check_names(stream: &str, reader: &str) -> Result<()> {
    for (what, name) in [("stream", stream), ("reader", reader)] {
        let (kind, fault) = if name.is_empty() {
            (ErrorKind::Config, "it is empty".to_owned())
        } else if name.len() > MAX_NAME {
            let fault = format!("it has {} bytes, and at most {MAX_NAME} fit", name.len());
            (ErrorKind::TooLarge, fault)
        } else if name.contains('\0') {
            (ErrorKind::Encode, "it holds U+0000, which no text column can".to_owned())
        } else {
            continue;
        };
        return Err(Error::new(kind, format!("use the name {name:?} of a {what}: {fault}")));
    }
    Ok(())
}
