//! Claims in transactions of MariaDB.

use std::time::Duration;

use sqlx::{MySql, MySqlConnection, error::DatabaseError, mysql::MySqlDatabaseError};

use super::{MariaDbDialect, NOW, cast};
use crate::{
    database::{CheckpointsSql, Dialect as _},
    statement::Statement,
    table::Table,
    transaction::dialect::{ClaimSql, Fault, TransactionDialect},
};

impl TransactionDialect<MySql> for MariaDbDialect {
    fn claim_row(
        sql: &ClaimSql,
        key: &str,
        token: String,
        retention: i64,
        wait: Duration,
    ) -> Statement {
        let statement = Statement::new(&sql.insert).text(key).text(token);
        statement.integer(retention).integer(seconds(wait))
    }

    fn lock_row(sql: &ClaimSql, key: &str, wait: Duration) -> Statement {
        Statement::new(&sql.look).text(key).integer(seconds(wait))
    }

    fn advance_row(
        sql: &CheckpointsSql,
        (stream, reader): (&str, &str),
        offset: i64,
        wait: Duration,
    ) -> Statement {
        let statement = Statement::new(&sql.advance).text(stream).text(reader);
        statement.integer(offset).integer(seconds(wait))
    }

    fn make_row(sql: &CheckpointsSql, (stream, reader): (&str, &str), wait: Duration) -> Statement {
        // In the place of the offset, which is none.
        let statement = Statement::new(&sql.make).text(stream).text(reader).integer(-1);
        statement.integer(seconds(wait))
    }

    async fn changes_one(
        connection: &mut MySqlConnection,
        statement: Statement,
    ) -> sqlx::Result<bool> {
        Ok(Self::run(connection, statement).await? == 1)
    }

    fn refusal(error: &dyn DatabaseError) -> Fault {
        match error.try_downcast_ref::<MySqlDatabaseError>().map(MySqlDatabaseError::number) {
            // A deadlock; a row that changed after the transaction's snapshot.
            Some(1213 | 1020) => Fault::Conflict,
            Some(1205) => Fault::LockTimeout,
            // The server stops, or was told to stop this.
            Some(1053 | 1317 | 1927) => Fault::Lost,
            _ => Fault::Other,
        }
    }
}

pub(super) fn claim_sql(table: &Table) -> ClaimSql {
    let t = table.quoted('`');
    let after = |span: &str| format!("{NOW} + INTERVAL {span} MICROSECOND");
    ClaimSql {
        // The first statement of the transaction writes, and the looks that follow lock: no
        // snapshot is taken that would hide from the handler what has just been committed. How many
        // rows an insert changed does not tell a new one; the token does.
        insert: format!(
            "SET STATEMENT innodb_lock_wait_timeout = $4 FOR INSERT INTO {t} \
             (message_id, state, claimed_by, recorded_at, expires_at) \
             VALUES ($1, 'CONFIRMED', $2, {NOW}, {}) \
             ON DUPLICATE KEY UPDATE message_id = message_id; \
             SELECT 1 FROM {t} WHERE message_id = $1 AND claimed_by = $2 FOR UPDATE; \
             UPDATE {t} SET claimed_by = NULL WHERE message_id = $1 AND claimed_by = $2",
            after("$3")
        )
        .into(),
        look: format!(
            "SET STATEMENT innodb_lock_wait_timeout = $2 FOR \
             SELECT {}, expires_at <= {NOW} FROM {t} WHERE message_id = $1 FOR UPDATE",
            cast("state")
        )
        .into(),
        confirm: format!(
            "UPDATE {t} SET state = 'CONFIRMED', claimed_by = NULL, recorded_at = {NOW}, \
             expires_at = {} WHERE message_id = $1",
            after("$2")
        )
        .into(),
    }
}

/// In whole seconds, and at least one.
fn seconds(wait: Duration) -> i64 {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    i64::try_from(seconds).unwrap_or(i64::MAX).max(1)
}
