//! acemq's outbox and idempotency store in the application's own database, over `sqlx`.
//!
//! [`SqlOutbox`] adds messages in the caller's transaction and hands them to the relay;
//! [`SqlIdempotency`] remembers which messages were handled. Both share their tables with the
//! family's other libraries, and both run on PostgreSQL (feature `postgres`) and SQLite (feature
//! `sqlite`). Leases follow the database's clock, whatever the hosts' clocks say.
//!
//! With neither feature there is no store to name.
//!
//! The tables are made by the application's migrations; `schema_statements()` prints what they
//! are, and `create_table_if_absent()` makes them in development and tests.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod body;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod database;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod idempotency;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod name;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod outbox;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod table;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod time;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
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
