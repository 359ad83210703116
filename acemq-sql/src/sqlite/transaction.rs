//! Claims in transactions of SQLite.

use std::time::Duration;

use sqlx::{Sqlite, SqliteConnection, error::DatabaseError};

use super::{NOW, SqliteDialect, later};
use crate::{
    database::{CheckpointsSql, Dialect as _},
    statement::Statement,
    table::Table,
    transaction::dialect::{ClaimSql, Fault, TransactionDialect},
};

/// The primary result codes, in the low byte of the extended ones, for a database or a table that
/// somebody else has locked.
const BUSY: i32 = 5;
const LOCKED: i32 = 6;

impl TransactionDialect<Sqlite> for SqliteDialect {
    // With the write lock from the beginning on: one that reads first cannot always write.
    const BEGIN: Option<&'static str> = Some("BEGIN IMMEDIATE");
    const ONE_AT_A_TIME: bool = true;

    // Nobody else writes meanwhile: there is nothing to wait for.
    fn claim_row(sql: &ClaimSql, key: &str, _: String, retention: i64, _: Duration) -> Statement {
        Statement::new(&sql.insert).text(key).integer(retention)
    }

    fn lock_row(sql: &ClaimSql, key: &str, _: Duration) -> Statement {
        Statement::new(&sql.look).text(key)
    }

    fn advance_row(
        sql: &CheckpointsSql,
        (stream, reader): (&str, &str),
        offset: i64,
        _: Duration,
    ) -> Statement {
        Statement::new(&sql.advance).text(stream).text(reader).integer(offset)
    }

    fn make_row(sql: &CheckpointsSql, (stream, reader): (&str, &str), _: Duration) -> Statement {
        Statement::new(&sql.make).text(stream).text(reader)
    }

    async fn changes_one(
        connection: &mut SqliteConnection,
        statement: Statement,
    ) -> sqlx::Result<bool> {
        Ok(Self::run(connection, statement).await? == 1)
    }

    fn refusal(error: &dyn DatabaseError) -> Fault {
        match error.code().and_then(|code| code.parse::<i32>().ok()).map(|code| code & 0xff) {
            Some(BUSY | LOCKED) => Fault::Conflict,
            _ => Fault::Other,
        }
    }
}

pub(super) fn claim_sql(table: &Table) -> ClaimSql {
    let t = table.quoted('"');
    let expiry = later("$2");
    ClaimSql {
        insert: format!(
            "INSERT INTO {t} (message_id, state, claimed_by, recorded_at, expires_at) \
             VALUES ($1, 'CONFIRMED', NULL, {NOW}, {expiry}) \
             ON CONFLICT (message_id) DO NOTHING RETURNING 1"
        )
        .into(),
        look: format!(
            "SELECT CAST(state AS TEXT), expires_at <= {NOW} FROM {t} WHERE message_id = $1"
        )
        .into(),
        confirm: format!(
            "UPDATE {t} SET state = 'CONFIRMED', claimed_by = NULL, recorded_at = {NOW}, \
             expires_at = {expiry} WHERE message_id = $1"
        )
        .into(),
    }
}
