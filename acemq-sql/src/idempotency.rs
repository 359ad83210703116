//! The idempotency table.
//!
//! Whether a key is new, taken or done is decided by the row, never by a driver's error: an insert
//! that changes nothing where the key exists, then a look at the row, then an update that takes
//! over only what has expired.

mod transactional;

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use acemq::{Claim, Error, ErrorKind, IdempotencyStore, Lease, Result};
use sqlx::Pool;
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};

use crate::{
    database::{Dialect, DialectOf, IdempotencySql, SqlDatabase},
    failure::failed,
    name::HolderName,
    session::Session,
    statement::{Planned, Statement},
    table::{self, Table},
    time::micros,
    transaction::dialect::TransactionDialect,
};

const DEFAULT_TABLE: &str = "acemq_idempotency";
const DEFAULT_LEASE: Duration = Duration::from_secs(5 * 60);
const DEFAULT_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
/// A lease or retention of nothing would let everybody own everything.
const SHORTEST: Duration = Duration::from_millis(1);
/// The longest key in bytes; the column is that wide.
const MAX_KEY: usize = 255;
const PURGED_A_STATEMENT: u32 = 1_000;
/// How often a claim is tried while others claim and release the key under its hands.
const TRIES: usize = 3;
const CONFIRMED: &str = "CONFIRMED";

/// Remembers handled messages in a table of the application's database.
///
/// It serves [`idempotent`](acemq::ConsumerBuilder::idempotent) consumers, and those whose handlers
/// write in a transaction of the same database
/// ([`start_in_transaction`](acemq::ConsumerBuilder::start_in_transaction)).
///
/// A claim is a lease of five minutes on the database's clock, a confirmation is remembered for a
/// day. A new key costs one statement. Nothing on a message's way deletes a row: schedule
/// [`purge_expired`](IdempotencyStore::purge_expired). Cheap to clone.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use acemq::{Claim, IdempotencyStore};
/// use acemq_sql::SqliteIdempotency;
///
/// # let pool = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await?;
/// let store = SqliteIdempotency::new(pool);
/// store.create_table_if_absent().await?;      // in production, a migration does this
///
/// let Claim::Owned(lease) = store.try_claim("order-1").await? else { panic!("a new key") };
/// store.confirm(&lease).await?;
/// assert_eq!(store.try_claim("order-1").await?, Claim::AlreadyConfirmed);
/// # Ok(()) }
/// # #[cfg(not(feature = "sqlite"))] fn main() {}
/// ```
pub struct SqlIdempotency<DB: SqlDatabase> {
    pool: Pool<DB>,
    /// Whether connections keep statements prepared.
    keeps: bool,
    table: Table,
    lease: Duration,
    retention: Duration,
    name: HolderName,
    /// The statements, once the table has been looked at.
    sql: Arc<OnceLock<Arc<IdempotencySql>>>,
    /// Where only one transaction at a time can write: who is next, in order and without polling.
    turn: Option<Arc<Semaphore>>,
}

impl<DB: SqlDatabase> SqlIdempotency<DB> {
    /// A store in table `acemq_idempotency`.
    #[must_use]
    pub fn new(pool: Pool<DB>) -> Self {
        Self {
            keeps: DialectOf::<DB>::keeps_statements(&pool),
            pool,
            table: Table::new(DEFAULT_TABLE),
            lease: DEFAULT_LEASE,
            retention: DEFAULT_RETENTION,
            name: HolderName::new(),
            sql: Arc::default(),
            turn: DialectOf::<DB>::ONE_AT_A_TIME.then(|| Arc::new(Semaphore::new(1))),
        }
    }

    /// Another table, exactly as written; `acemq_idempotency` unless set.
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

    /// How long a claim is held before another consumer may take it over. Never longer than the
    /// retention; 5 minutes unless set.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(SHORTEST);
        self
    }

    /// How long a confirmation is remembered; 24 hours unless set.
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention.max(SHORTEST);
        self
    }

    /// The statements that make the table and its index, for a migration.
    #[must_use]
    pub fn schema_statements(&self) -> Vec<String> {
        DialectOf::<DB>::idempotency_schema(&self.table)
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

    /// A statement for a session of the pool.
    fn statement(&self, sql: &Arc<str>) -> Statement {
        Statement::new(sql).kept_where(self.keeps, Planned::InOnePiece)
    }

    fn held_for(&self) -> Duration {
        self.lease.min(self.retention)
    }

    async fn session(&self, doing: &str) -> Result<Session<DB>> {
        Session::open(&self.pool).await.map_err(failed(|| self.doing(doing)))
    }

    async fn prepared(&self, doing: &str) -> Result<(Session<DB>, Arc<IdempotencySql>)> {
        let mut session = self.session(doing).await?;
        let sql = self.sql_from(&mut session).await?;
        Ok((session, sql))
    }

    /// The statements for this table, which is looked at once.
    async fn sql_from(&self, connection: &mut DB::Connection) -> Result<Arc<IdempotencySql>> {
        if let Some(sql) = self.sql.get() {
            return Ok(Arc::clone(sql));
        }
        let look = DialectOf::<DB>::look(connection, &self.table)
            .await
            .map_err(failed(|| self.doing("look at the table")))?;
        let layout = table::IDEMPOTENCY.check(&self.table, look, &self.schema_statements())?;
        let sql = DialectOf::<DB>::idempotency_sql(&self.table, &layout);
        Ok(Arc::clone(self.sql.get_or_init(|| Arc::new(sql))))
    }

    fn warn_of_taking_over(&self, key: &str) {
        tracing::warn!(
            key,
            table = %self.table,
            "took over an expired claim: its holder died or was too slow"
        );
    }

    fn doing(&self, what: &str) -> String {
        format!("{what} in idempotency table {}", self.table)
    }

    /// What the row says: nothing, its state, and whether that has expired.
    async fn look(
        &self,
        session: &mut Session<DB>,
        sql: &IdempotencySql,
        key: &str,
    ) -> Result<Option<(bool, bool)>> {
        let rows = session
            .fetch(self.statement(&sql.look).text(key))
            .await
            .map_err(failed(|| self.doing(&format!("look at key {key:?}"))))?;
        let Some(row) = rows.first() else { return Ok(None) };
        let confirmed = DialectOf::<DB>::text(row, 0).as_deref() == Some(CONFIRMED);
        Ok(Some((confirmed, DialectOf::<DB>::integer(row, 1) == Some(1))))
    }
}

impl<DB: SqlDatabase> IdempotencyStore for SqlIdempotency<DB> {
    async fn claim(&self, key: &str) -> Result<bool> {
        Ok(matches!(self.try_claim(key).await?, Claim::Owned(_)))
    }

    async fn is_confirmed(&self, key: &str) -> Result<bool> {
        check_key(key)?;
        let (mut session, sql) = self.prepared("look at a key").await?;
        Ok(self.look(&mut session, &sql, key).await? == Some((true, false)))
    }

    async fn confirm(&self, lease: &Lease) -> Result<()> {
        check_key(lease.key())?;
        let (mut session, sql) = self.prepared("confirm a key").await?;
        let confirm =
            self.statement(&sql.confirm).text(lease.key()).integer(micros(self.retention));
        session
            .run(confirm)
            .await
            .map_err(failed(|| self.doing(&format!("confirm key {:?}", lease.key()))))?;
        Ok(())
    }

    async fn confirm_batch(&self, leases: &[Lease]) -> Result<()> {
        if leases.is_empty() {
            return Ok(());
        }
        for lease in leases {
            check_key(lease.key())?;
        }
        let (mut session, sql) = self.prepared("confirm keys").await?;
        let keys = leases.iter().map(|lease| lease.key().to_owned()).collect();
        let confirm = Statement::new(&sql.confirm_batch).in_one_piece();
        let confirmed = session
            .run(confirm.list(keys).integer(micros(self.retention)))
            .await
            .map_err(failed(|| {
                self.doing(&match leases {
                    [lease] => format!("confirm key {:?}", lease.key()),
                    _ => format!("confirm {} keys", leases.len()),
                })
            }))?;
        drop(session);
        if confirmed != leases.len() as u64 {
            // Some of their rows were purged meanwhile: those have to be made again.
            for lease in leases {
                self.confirm(lease).await?;
            }
        }
        Ok(())
    }

    async fn release(&self, lease: &Lease) -> Result<()> {
        let (mut session, sql) = self.prepared("release a key").await?;
        let release = self.statement(&sql.release).text(lease.key()).text(lease.token());
        session
            .run(release)
            .await
            .map_err(failed(|| self.doing(&format!("release key {:?}", lease.key()))))?;
        Ok(())
    }

    async fn try_claim(&self, key: &str) -> Result<Claim> {
        check_key(key)?;
        let doing = || self.doing(&format!("claim key {key:?}"));
        let (mut session, sql) = self.prepared("claim a key").await?;
        let token = self.name.token();
        let with_values = |sql: &Arc<str>| {
            let statement = self.statement(sql).text(key).text(token.as_str());
            statement.integer(micros(self.held_for()))
        };
        for _ in 0..TRIES {
            let inserted = session.fetch(with_values(&sql.insert)).await;
            if !inserted.map_err(failed(doing))?.is_empty() {
                return Ok(Claim::Owned(Lease::new(key, token)));
            }
            let Some((confirmed, expired)) = self.look(&mut session, &sql, key).await? else {
                continue;
            };
            if !expired {
                return Ok(if confirmed { Claim::AlreadyConfirmed } else { Claim::InProgress });
            }
            let taken = session.run(with_values(&sql.take_over)).await;
            if taken.map_err(failed(doing))? == 1 {
                if !confirmed {
                    self.warn_of_taking_over(key);
                }
                return Ok(Claim::Owned(Lease::new(key, token)));
            }
        }
        // Others claim and release it all the time: whoever has it now is at work.
        Ok(Claim::InProgress)
    }

    async fn renew(&self, lease: &Lease) -> Result<bool> {
        let (mut session, sql) = self.prepared("renew a claim").await?;
        let renew = self.statement(&sql.renew).text(lease.key()).text(lease.token());
        let renewed = session
            .run(renew.integer(micros(self.held_for())))
            .await
            .map_err(failed(|| self.doing(&format!("renew the claim on key {:?}", lease.key()))))?;
        Ok(renewed == 1)
    }

    async fn check(&self) -> Result<()> {
        self.prepared("look at the table").await.map(drop)
    }

    fn lease(&self) -> Option<Duration> {
        Some(self.held_for())
    }

    fn retention(&self) -> Option<Duration> {
        Some(self.retention)
    }

    async fn purge_expired(&self) -> Result<u64> {
        let doing = || self.doing("purge expired keys");
        let most = i64::from(PURGED_A_STATEMENT);
        let mut purged = 0;
        loop {
            let started = Instant::now();
            let (mut session, sql) = self.prepared("purge expired keys").await?;
            let pick = sql.purge.pick(most);
            let Some(target) = session.target(pick, most).await.map_err(failed(doing))? else {
                return Ok(purged);
            };
            let removed = session.run(sql.purge.change(target)).await.map_err(failed(doing))?;
            purged += removed;
            if removed < PURGED_A_STATEMENT.into() {
                return Ok(purged);
            }
            // Whoever waits for a lock or a connection has its turn.
            drop(session);
            sleep(started.elapsed()).await;
        }
    }

    async fn size(&self) -> Result<u64> {
        let (mut session, sql) = self.prepared("count the keys").await?;
        let rows = session
            .fetch(self.statement(&sql.size))
            .await
            .map_err(failed(|| self.doing("count the keys")))?;
        Ok(rows
            .first()
            .and_then(|row| DialectOf::<DB>::integer(row, 0))
            .unwrap_or_default()
            .unsigned_abs())
    }
}

impl<DB: SqlDatabase> Clone for SqlIdempotency<DB> {
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            keeps: self.keeps,
            table: self.table.clone(),
            lease: self.lease,
            retention: self.retention,
            name: self.name.clone(),
            sql: Arc::clone(&self.sql),
            turn: self.turn.clone(),
        }
    }
}

impl<DB: SqlDatabase> fmt::Debug for SqlIdempotency<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlIdempotency")
            .field("database", &DB::NAME)
            .field("table", &self.table.to_string())
            .field("lease", &self.held_for())
            .field("retention", &self.retention)
            .finish_non_exhaustive()
    }
}

fn check_key(key: &str) -> Result<()> {
    let (kind, fault) = if key.is_empty() {
        (ErrorKind::Config, "it is empty; give every message an id".to_owned())
    } else if key.len() > MAX_KEY {
        let fault = format!(
            "it has {} bytes, and at most {MAX_KEY} fit; use a shorter key or a hash of it",
            key.len()
        );
        (ErrorKind::TooLarge, fault)
    } else if key.contains('\0') {
        (
            ErrorKind::Encode,
            "it holds U+0000, which no text column can; use a hash of it".to_owned(),
        )
    } else {
        return Ok(());
    };
    Err(Error::new(kind, format!("use an idempotency key: {fault}")))
}
