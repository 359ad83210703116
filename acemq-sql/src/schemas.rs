//! The schema registry's tables.
//!
//! A schema is found by the fingerprint of its definition. A new one takes its id from a row that
//! counts: whoever counts on holds that row until its transaction ends, so that ids have no order
//! but that of the commits, no gaps, and one owner each.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use acemq::{Error, ErrorKind, RegisteredSchema, Result, SchemaFormat, SchemaId, SchemaRegistry};
use sqlx::Pool;

use crate::{
    database::{Dialect, DialectOf, SchemasSql, SqlDatabase},
    failure::failed,
    session::Session,
    statement::{Planned, Statement},
    table::{self, Table},
    transaction::{Guarded, dialect::Fault},
};

const DEFAULT_TABLE: &str = "acemq_schema_registry";
/// How often a schema is registered while others do the same under its hands.
const TRIES: usize = 5;

/// Gives schemas their numbers in tables of the application's database.
///
/// Ids begin at 1 and never change; the same definition has the same id whoever registers it, also
/// the family's library for Java, whose tables these are. A lookup costs one statement. Wrapped in
/// a [`SharedSchemaRegistry`](acemq::SharedSchemaRegistry), as codecs do, each schema is asked for
/// once in a process. Cheap to clone.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use acemq::{SchemaFormat, SchemaRegistry};
/// use acemq_sql::SqliteSchemaRegistry;
///
/// # let pool = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await?;
/// let registry = SqliteSchemaRegistry::new(pool);
/// registry.create_table_if_absent().await?; // in production, a migration does this
///
/// let id = registry.register("shop.Order", &SchemaFormat::Avro, r#""string""#).await?;
/// assert_eq!(id.get(), 1);
/// assert_eq!(registry.latest("shop.Order").await?.unwrap().id, id);
/// # Ok(()) }
/// # #[cfg(not(feature = "sqlite"))] fn main() {}
/// ```
pub struct SqlSchemaRegistry<DB: SqlDatabase> {
    pool: Pool<DB>,
    /// Whether connections keep statements prepared.
    keeps: bool,
    table: Table,
    /// The statements, once the tables have been looked at.
    prepared: Arc<OnceLock<Arc<Prepared>>>,
}

struct Prepared {
    sql: SchemasSql,
    /// The most bytes of a definition, where the column limits them.
    largest_definition: Option<u64>,
}

/// A schema on its way into the table.
struct Offer<'a> {
    subject: &'a str,
    format: &'a SchemaFormat,
    definition: &'a str,
    fingerprint: String,
}

impl<DB: SqlDatabase> SqlSchemaRegistry<DB> {
    /// A registry in table `acemq_schema_registry`, which counts in `acemq_schema_registry_seq`.
    #[must_use]
    pub fn new(pool: Pool<DB>) -> Self {
        Self {
            keeps: DialectOf::<DB>::keeps_statements(&pool),
            pool,
            table: Table::new(DEFAULT_TABLE),
            prepared: Arc::default(),
        }
    }

    /// Another table, exactly as written; `acemq_schema_registry` unless set. The one that counts
    /// has the same name and `_seq`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a name that is not a plain identifier of at most 50 characters.
    pub fn table(mut self, name: &str) -> Result<Self> {
        self.table.set_name(name)?;
        self.prepared = Arc::default();
        Ok(self)
    }

    /// The schema the tables are in (on MariaDB: the database, on SQLite: the attached one); unless
    /// set, the connection's own.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a name that is not a plain identifier of at most 50 characters.
    pub fn schema(mut self, name: &str) -> Result<Self> {
        self.table.set_schema(name)?;
        self.prepared = Arc::default();
        Ok(self)
    }

    /// The statements that make the tables, the index and the row that counts, for a migration.
    #[must_use]
    pub fn schema_statements(&self) -> Vec<String> {
        DialectOf::<DB>::schemas_schema(&self.table)
    }

    /// Makes the tables if they are not there, for development and tests.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] where the login may not, [`ErrorKind::NotFound`] where the schema is
    /// missing, [`ErrorKind::Config`] where there is a table of that name and another shape,
    /// [`ErrorKind::Store`] where the database fails.
    pub async fn create_table_if_absent(&self) -> Result<()> {
        let mut session = self.session("create the tables").await?;
        let created = session
            .create(self.schema_statements())
            .await
            .map_err(failed(|| self.doing("create the tables")));
        table::made(created, self.prepare(&mut session).await)
    }

    fn statement(&self, sql: &Arc<str>) -> Statement {
        Statement::new(sql).kept_where(self.keeps, Planned::InOnePiece)
    }

    async fn session(&self, doing: &str) -> Result<Session<DB>> {
        Session::open(&self.pool).await.map_err(failed(|| self.doing(doing)))
    }

    /// A session, and the statements for the tables, which are looked at once.
    async fn prepared(&self, doing: &str) -> Result<(Session<DB>, Arc<Prepared>)> {
        let mut session = self.session(doing).await?;
        let prepared = self.prepare(&mut session).await?;
        Ok((session, prepared))
    }

    async fn prepare(&self, session: &mut Session<DB>) -> Result<Arc<Prepared>> {
        if let Some(prepared) = self.prepared.get() {
            return Ok(Arc::clone(prepared));
        }
        let sequence = self.table.beside("_seq");
        let look = async |session: &mut Session<DB>, table: &Table| {
            let look = DialectOf::<DB>::look(session, table).await;
            look.map_err(failed(|| self.doing("look at the tables")))
        };
        let create = self.schema_statements();
        let schemas = look(session, &self.table).await?;
        let layout = table::SCHEMAS.check(&self.table, schemas, &create)?;
        let counter = look(session, &sequence).await?;
        table::SCHEMA_SEQUENCE.check(&sequence, counter, &create)?;
        let prepared = Arc::new(Prepared {
            largest_definition: layout.column("definition").and_then(|column| column.bytes),
            sql: DialectOf::<DB>::schemas_sql(&self.table, &layout),
        });
        Ok(Arc::clone(self.prepared.get_or_init(|| prepared)))
    }

    /// The id of a schema that is there.
    async fn find(
        &self,
        connection: &mut DB::Connection,
        sql: &SchemasSql,
        offer: &Offer<'_>,
    ) -> Result<Option<SchemaId>> {
        let doing = || self.doing(&offer.to_string());
        let find = self.statement(&sql.find).text(offer.fingerprint.as_str());
        let rows = DialectOf::<DB>::fetch(connection, find).await.map_err(failed(doing))?;
        let Some(row) = rows.first() else { return Ok(None) };
        let id = id::<DB>(row).ok_or_else(|| self.unreadable(&offer.to_string()))?;
        let format = DialectOf::<DB>::text(row, 1).unwrap_or_default();
        if format != offer.format.as_str() {
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "{} as {}: the same text is there as {format}, with id {id}",
                    doing(),
                    offer.format
                ),
            ));
        }
        Ok(Some(id))
    }

    /// Registers a schema that is not there, or none where somebody was quicker.
    async fn add(&self, sql: &SchemasSql, offer: &Offer<'_>) -> Result<Option<SchemaId>> {
        let mut connection =
            Guarded::open(&self.pool).await.map_err(failed(|| self.doing(&offer.to_string())))?;
        let added = self.add_in(&mut connection, sql, offer).await;
        let added = match added {
            Ok(id) => connection.commit().await.map(|()| id),
            Err(error) => {
                connection.roll_back().await;
                Err(error)
            }
        };
        match added {
            Ok(id) => {
                let id = u32::try_from(id).ok().and_then(SchemaId::new);
                id.map(Some).ok_or_else(|| self.unreadable(&offer.to_string()))
            }
            Err(error) if somebody_was_quicker::<DB>(&error) => Ok(None),
            Err(error) => Err(failed(|| self.doing(&offer.to_string()))(error)),
        }
    }

    async fn add_in(
        &self,
        connection: &mut Guarded<DB>,
        sql: &SchemasSql,
        offer: &Offer<'_>,
    ) -> sqlx::Result<i64> {
        connection.begin().await?;
        let count = || self.statement(&sql.count);
        if DialectOf::<DB>::run(connection, count()).await? == 0 {
            DialectOf::<DB>::run(connection, self.statement(&sql.begin_count)).await?;
            DialectOf::<DB>::run(connection, count()).await?;
        }
        let counted = DialectOf::<DB>::fetch(connection, self.statement(&sql.counted)).await?;
        let id = counted.first().and_then(|row| DialectOf::<DB>::integer(row, 0));
        let id = id.ok_or(sqlx::Error::RowNotFound)?;
        let insert = self.statement(&sql.insert).integer(id).text(offer.fingerprint.as_str());
        let insert = insert.text(offer.format.as_str()).text(offer.subject).text(offer.definition);
        DialectOf::<DB>::run(connection, insert).await?;
        Ok(id)
    }

    /// Some databases would cut what does not fit.
    fn check_size(&self, offer: &Offer<'_>, largest: Option<u64>) -> Result<()> {
        let bytes = offer.definition.len() as u64;
        match largest {
            Some(largest) if bytes > largest => Err(Error::new(
                ErrorKind::TooLarge,
                format!(
                    "{}: its definition has {bytes} bytes, and the table's column holds {largest}; \
                     make the column larger",
                    self.doing(&offer.to_string())
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Schemas as a statement returns them.
    async fn schemas(
        &self,
        doing: &str,
        statement: impl FnOnce(&SchemasSql) -> Statement,
    ) -> Result<Vec<RegisteredSchema>> {
        let (mut session, prepared) = self.prepared(doing).await?;
        let rows = session.fetch(statement(&prepared.sql)).await;
        let rows = rows.map_err(failed(|| self.doing(doing)))?;
        let schema = |row| schema::<DB>(row).ok_or_else(|| self.unreadable(doing));
        rows.iter().map(schema).collect()
    }

    fn unreadable(&self, doing: &str) -> Error {
        let doing = self.doing(doing);
        let fault = "a row holds what no registry writes: an id below 1, or no text";
        Error::new(ErrorKind::Config, format!("{doing}: {fault}"))
    }

    fn doing(&self, what: &str) -> String {
        format!("{what} in schema registry {}", self.table)
    }
}

impl<DB: SqlDatabase> SchemaRegistry for SqlSchemaRegistry<DB> {
    async fn register(
        &self,
        subject: &str,
        format: &SchemaFormat,
        definition: &str,
    ) -> Result<SchemaId> {
        RegisteredSchema::check(subject, format, definition)?;
        let fingerprint = RegisteredSchema::fingerprint(definition);
        let offer = Offer { subject, format, definition, fingerprint };
        for _ in 0..TRIES {
            let (mut session, prepared) = self.prepared(&offer.to_string()).await?;
            if let Some(id) = self.find(&mut session, &prepared.sql, &offer).await? {
                return Ok(id);
            }
            // A pool may have one connection.
            drop(session);
            self.check_size(&offer, prepared.largest_definition)?;
            if let Some(id) = self.add(&prepared.sql, &offer).await? {
                return Ok(id);
            }
        }
        Err(Error::new(
            ErrorKind::Store,
            format!(
                "{}: {TRIES} times the database refused the next id or the fingerprint as taken; \
                 is the count in {} behind the ids that are there?",
                self.doing(&offer.to_string()),
                self.table.beside("_seq")
            ),
        ))
    }

    async fn by_id(&self, id: SchemaId) -> Result<Option<RegisteredSchema>> {
        let by_id = |sql: &SchemasSql| self.statement(&sql.by_id).integer(id.get().into());
        Ok(self.schemas(&format!("look up schema {id}"), by_id).await?.pop())
    }

    async fn versions(&self, subject: &str) -> Result<Vec<RegisteredSchema>> {
        if subject.contains('\0') {
            return Ok(Vec::new());
        }
        let versions = |sql: &SchemasSql| self.statement(&sql.versions).text(subject);
        self.schemas(&format!("look up the schemas of subject {subject:?}"), versions).await
    }
}

/// What is being done with it.
impl fmt::Display for Offer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "register a schema of subject {:?}", self.subject)
    }
}

/// Whether somebody has the id or the fingerprint since, or the database undid this for the sake
/// of another: then the fingerprint may be there now.
fn somebody_was_quicker<DB: SqlDatabase>(error: &sqlx::Error) -> bool {
    let taken = error.as_database_error().is_some_and(|refusal| refusal.is_unique_violation());
    taken || Fault::of::<DB>(error) == Fault::Conflict
}

fn id<DB: SqlDatabase>(row: &DB::Row) -> Option<SchemaId> {
    SchemaId::new(u32::try_from(DialectOf::<DB>::integer(row, 0)?).ok()?)
}

fn schema<DB: SqlDatabase>(row: &DB::Row) -> Option<RegisteredSchema> {
    let text = |column| DialectOf::<DB>::text(row, column);
    let format = SchemaFormat::from(text(2)?.as_str());
    let version = u32::try_from(DialectOf::<DB>::integer(row, 4)?).ok()?;
    Some(RegisteredSchema::new(id::<DB>(row)?, text(1)?, format, text(3)?, version))
}

impl<DB: SqlDatabase> Clone for SqlSchemaRegistry<DB> {
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            keeps: self.keeps,
            table: self.table.clone(),
            prepared: Arc::clone(&self.prepared),
        }
    }
}

impl<DB: SqlDatabase> fmt::Debug for SqlSchemaRegistry<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlSchemaRegistry")
            .field("database", &DB::NAME)
            .field("table", &self.table.to_string())
            .finish_non_exhaustive()
    }
}
