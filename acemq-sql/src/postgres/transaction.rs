//! Claims in transactions of PostgreSQL.

use std::time::Duration;

use sqlx::{PgConnection, Postgres, error::DatabaseError};

use super::{PostgresDialect, compared, written};
use crate::{
    database::{CheckpointsSql, Dialect as _},
    statement::Statement,
    table::{Layout, Table},
    transaction::dialect::{ClaimSql, Fault, TransactionDialect},
};

impl TransactionDialect<Postgres> for PostgresDialect {
    fn claim_row(
        sql: &ClaimSql,
        key: &str,
        _: String,
        retention: i64,
        wait: Duration,
    ) -> Statement {
        Statement::new(&sql.insert).text(key).integer(milliseconds(wait)).integer(retention)
    }

    fn lock_row(sql: &ClaimSql, key: &str, wait: Duration) -> Statement {
        Statement::new(&sql.look).text(key).integer(milliseconds(wait))
    }

    fn advance_row(
        sql: &CheckpointsSql,
        (stream, reader): (&str, &str),
        offset: i64,
        wait: Duration,
    ) -> Statement {
        let statement = Statement::new(&sql.advance).text(stream).integer(milliseconds(wait));
        statement.text(reader).integer(offset)
    }

    fn make_row(sql: &CheckpointsSql, (stream, reader): (&str, &str), wait: Duration) -> Statement {
        Statement::new(&sql.make).text(stream).integer(milliseconds(wait)).text(reader)
    }

    async fn changes_one(
        connection: &mut PgConnection,
        statement: Statement,
    ) -> sqlx::Result<bool> {
        let rows = Self::fetch(connection, statement).await?;
        Ok(rows.first().and_then(|row| Self::integer(row, 0)) == Some(1))
    }

    fn refusal(error: &dyn DatabaseError) -> Fault {
        let code = error.code().unwrap_or_default();
        match &*code {
            "40001" | "40P01" => Fault::Conflict,
            "55P03" => Fault::LockTimeout,
            // The server ends the session, or does not know.
            "40003" | "57P01" | "57P02" | "57P03" | "57P05" | "25P03" => Fault::Lost,
            code if code.starts_with("08") => Fault::Lost,
            _ => Fault::Other,
        }
    }
}

pub(super) fn claim_sql(table: &Table, layout: &Layout) -> ClaimSql {
    let t = table.quoted('"');
    let (now, seen) = (written(layout.times), compared(layout.times));
    let columns = "(message_id, state, claimed_by, recorded_at, expires_at)";
    let confirmed = |retention: &str| {
        let expiry = format!("{now} + {retention} * INTERVAL '1 microsecond'");
        format!("$1, 'CONFIRMED', NULL, {now}, {expiry}")
    };
    let insert = format!(
        "INSERT INTO {t} {columns} SELECT {} FROM patience \
         ON CONFLICT (message_id) DO NOTHING RETURNING 1",
        confirmed("$3")
    );
    let look = format!(
        "SELECT i.state, (i.expires_at <= {seen})::int::bigint AS expired \
         FROM patience, {t} AS i WHERE i.message_id = $1 FOR UPDATE OF i"
    );
    ClaimSql {
        insert: patiently(&insert, "count(*)", "").into(),
        // No row where there is none: an aggregate over nothing would make one.
        look: patiently(&look, "max(state), max(expired)", "HAVING count(*) > 0").into(),
        confirm: format!(
            "INSERT INTO {t} {columns} VALUES ({}) ON CONFLICT (message_id) DO UPDATE \
             SET state = EXCLUDED.state, claimed_by = NULL, \
             recorded_at = EXCLUDED.recorded_at, expires_at = EXCLUDED.expires_at",
            confirmed("$2")
        )
        .into(),
    }
}

/// None would be no bound at all.
fn milliseconds(wait: Duration) -> i64 {
    i64::try_from(wait.as_millis()).unwrap_or(i64::MAX).clamp(1, i32::MAX.into())
}

/// A statement that waits for locks no longer than `$2` milliseconds, with the session's own
/// setting in force again after it: the handler's statements do not inherit it.
pub(super) fn patiently(statement: &str, result: &str, condition: &str) -> String {
    // Each part is read by the next, which orders them; an aggregate has seen all of its input
    // before anything beside it is worked out.
    format!(
        "WITH usual AS MATERIALIZED (SELECT current_setting('lock_timeout') AS setting), \
         patience AS MATERIALIZED \
         (SELECT set_config('lock_timeout', $2::bigint::text, true) FROM usual), \
         done AS ({statement}) \
         SELECT {result}, set_config('lock_timeout', (SELECT setting FROM usual), true) \
         FROM done {condition}"
    )
}
