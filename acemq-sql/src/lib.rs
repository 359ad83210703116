//! acemq's outbox and idempotency store in the application's own database, over `sqlx`.
//!
//! [`SqlOutbox`] adds messages in the caller's transaction and hands them to the relay;
//! [`SqlIdempotency`] remembers which messages were handled. Both share their tables with the
//! family's other libraries, and both run on PostgreSQL (feature `postgres`) and SQLite (feature
//! `sqlite`). Leases follow the database's clock, whatever the hosts' clocks say.
//!
//! The tables are made by the application's migrations; `schema_statements()` prints what they
//! are, and `create_table_if_absent()` makes them in development and tests.

mod body;
mod database;
mod idempotency;
mod name;
mod outbox;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
mod table;
mod time;

pub use crate::{
    database::SqlDatabase,
    idempotency::SqlIdempotency,
    outbox::{RecordStatement, SqlOutbox},
};

/// The outbox on PostgreSQL.
#[cfg(feature = "postgres")]
pub type PostgresOutbox = SqlOutbox<sqlx::Postgres>;

/// The idempotency store on PostgreSQL.
#[cfg(feature = "postgres")]
pub type PostgresIdempotency = SqlIdempotency<sqlx::Postgres>;

/// The outbox on SQLite.
#[cfg(feature = "sqlite")]
pub type SqliteOutbox = SqlOutbox<sqlx::Sqlite>;

/// The idempotency store on SQLite.
#[cfg(feature = "sqlite")]
pub type SqliteIdempotency = SqlIdempotency<sqlx::Sqlite>;

/// The code in the README and the guide compiles and runs.
#[cfg(all(doctest, feature = "sqlite"))]
mod documents {
    #[doc = include_str!("../../README.md")]
    struct Readme;

    #[doc = include_str!("../../docs/guide.md")]
    struct Guide;
}
