//! acemq's outbox, idempotency store, schema registry, stream checkpoints and saga store in the
//! application's own database, over `sqlx`.
//!
//! [`SqlOutbox`] adds messages in the caller's transaction and hands them to the relay;
//! [`SqlIdempotency`] remembers which messages were handled, and gives handlers a
//! [`HandlerTransaction`] in which their work and that memory commit together;
//! [`SqlSchemaRegistry`] gives schemas their numbers. They share their tables with the family's
//! other libraries. [`SqlStreamCheckpoints`] keeps the places of streams' readers, and
//! [`SqlSagaStore`] what durable sagas have done. Leases follow the
//! database's clock, whatever the hosts' clocks say.
//!
//! | database | feature | types |
//! |---|---|---|
//! | PostgreSQL | `postgres` | `PostgresOutbox`, `PostgresIdempotency`, `PostgresSchemaRegistry`, `PostgresStreamCheckpoints`, `PostgresSagaStore` |
//! | SQLite | `sqlite` | `SqliteOutbox`, `SqliteIdempotency`, `SqliteSchemaRegistry`, `SqliteStreamCheckpoints`, `SqliteSagaStore` |
//! | MariaDB | `mysql` | `MySqlOutbox`, `MySqlIdempotency`, `MySqlSchemaRegistry`, `MySqlStreamCheckpoints`, `MySqlSagaStore` |
//!
//! MariaDB has to be 10.6 or later; the tests run on 10.11. MySQL is untested, and does not know
//! the collation of the tables that are made for MariaDB. With none of the features there is
//! nothing to name.
//!
//! The tables are made by the application's migrations; `schema_statements()` prints what they
//! are, and `create_table_if_absent()` makes them in development and tests.

#![cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]

mod body;
mod checkpoints;
mod database;
mod failure;
mod idempotency;
mod insert;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod lead;
#[cfg(feature = "mysql")]
mod mariadb;
mod name;
mod outbox;
#[cfg(feature = "postgres")]
mod postgres;
mod saga;
mod schemas;
mod session;
#[cfg(feature = "sqlite")]
mod sqlite;
mod statement;
mod table;
mod time;
mod transaction;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod unheard;

pub use crate::{
    checkpoints::SqlStreamCheckpoints,
    database::SqlDatabase,
    idempotency::SqlIdempotency,
    outbox::{RecordStatement, SqlOutbox},
    saga::SqlSagaStore,
    schemas::SqlSchemaRegistry,
    transaction::{HandlerTransaction, OpenTransaction, TransactionHold},
};

/// The outbox on PostgreSQL.
#[cfg(feature = "postgres")]
pub type PostgresOutbox = SqlOutbox<sqlx::Postgres>;

/// The idempotency store on PostgreSQL.
#[cfg(feature = "postgres")]
pub type PostgresIdempotency = SqlIdempotency<sqlx::Postgres>;

/// The schema registry on PostgreSQL.
#[cfg(feature = "postgres")]
pub type PostgresSchemaRegistry = SqlSchemaRegistry<sqlx::Postgres>;

/// The places of streams' readers on PostgreSQL.
#[cfg(feature = "postgres")]
pub type PostgresStreamCheckpoints = SqlStreamCheckpoints<sqlx::Postgres>;

/// The store of durable sagas on PostgreSQL.
#[cfg(feature = "postgres")]
pub type PostgresSagaStore = SqlSagaStore<sqlx::Postgres>;

/// The outbox on SQLite.
#[cfg(feature = "sqlite")]
pub type SqliteOutbox = SqlOutbox<sqlx::Sqlite>;

/// The idempotency store on SQLite.
#[cfg(feature = "sqlite")]
pub type SqliteIdempotency = SqlIdempotency<sqlx::Sqlite>;

/// The schema registry on SQLite.
#[cfg(feature = "sqlite")]
pub type SqliteSchemaRegistry = SqlSchemaRegistry<sqlx::Sqlite>;

/// The places of streams' readers on SQLite.
#[cfg(feature = "sqlite")]
pub type SqliteStreamCheckpoints = SqlStreamCheckpoints<sqlx::Sqlite>;

/// The store of durable sagas on SQLite.
#[cfg(feature = "sqlite")]
pub type SqliteSagaStore = SqlSagaStore<sqlx::Sqlite>;

/// The outbox on MariaDB, over the driver that sqlx calls [`MySql`](sqlx::MySql).
#[cfg(feature = "mysql")]
pub type MySqlOutbox = SqlOutbox<sqlx::MySql>;

/// The idempotency store on MariaDB, over the driver that sqlx calls [`MySql`](sqlx::MySql).
#[cfg(feature = "mysql")]
pub type MySqlIdempotency = SqlIdempotency<sqlx::MySql>;

/// The schema registry on MariaDB, over the driver that sqlx calls [`MySql`](sqlx::MySql).
#[cfg(feature = "mysql")]
pub type MySqlSchemaRegistry = SqlSchemaRegistry<sqlx::MySql>;

/// The places of streams' readers on MariaDB, over the driver that sqlx calls
/// [`MySql`](sqlx::MySql).
#[cfg(feature = "mysql")]
pub type MySqlStreamCheckpoints = SqlStreamCheckpoints<sqlx::MySql>;

/// The store of durable sagas on MariaDB, over the driver that sqlx calls [`MySql`](sqlx::MySql).
#[cfg(feature = "mysql")]
pub type MySqlSagaStore = SqlSagaStore<sqlx::MySql>;

/// The code in the README and the guide compiles and runs.
#[cfg(all(doctest, feature = "sqlite"))]
mod documents {
    #[doc = include_str!("../../README.md")]
    struct Readme;

    #[doc = include_str!("../../docs/guide.md")]
    struct Guide;
}
