//! PostgreSQL's SQL.
//!
//! `clock_timestamp()` writes times, since `now()` stands still inside a transaction.
//! `statement_timestamp()` compares them: it moves as well, and unlike the other may use an index.

mod idempotency;
mod outbox;
mod transaction;

use std::time::SystemTime;

use sqlx::{PgConnection, Postgres, Row, postgres::PgRow};

use crate::{
    database::{Dialect, IdempotencySql, OutboxSql, SqlDatabase, read_rows, run_statements},
    table::{Column, Kind, Layout, Look, Table, Times},
    time,
};

impl SqlDatabase for Postgres {
    type Dialect = PostgresDialect;
}

#[derive(Debug)]
pub struct PostgresDialect;

impl Dialect<Postgres> for PostgresDialect {
    const WRITES_BEFORE_READING: bool = false;

    fn outbox_sql(table: &Table, layout: &Layout, max_attempts: u32) -> OutboxSql {
        outbox::statements(table, layout, max_attempts)
    }

    fn outbox_schema(table: &Table, max_attempts: u32) -> Vec<String> {
        outbox::schema(table, max_attempts)
    }

    fn idempotency_sql(table: &Table, layout: &Layout) -> IdempotencySql {
        idempotency::statements(table, layout)
    }

    fn idempotency_schema(table: &Table) -> Vec<String> {
        idempotency::schema(table)
    }

    async fn look(connection: &mut PgConnection, table: &Table) -> sqlx::Result<Look> {
        // The length of a varchar is its modifier without four bytes of header.
        let rows = sqlx::query(
            "SELECT attname::text, format_type(atttypid, NULL), format_type(atttypid, atttypmod), \
             NOT attnotnull, attnotnull AND NOT atthasdef, \
             EXISTS (SELECT 1 FROM pg_index WHERE indrelid = attrelid AND indisprimary \
             AND indnkeyatts = 1 AND indkey[0] = attnum), \
             CASE WHEN atttypid = 'varchar'::regtype AND atttypmod > 4 \
             THEN (atttypmod - 4)::bigint END \
             FROM pg_attribute \
             WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped",
        )
        .persistent(false)
        .bind(table.quoted('"'))
        .fetch_all(connection)
        .await?;
        let column = |row: PgRow| -> sqlx::Result<Column> {
            let chars: Option<i64> = row.try_get(6)?;
            Ok(Column {
                name: row.try_get(0)?,
                declared: row.try_get(2)?,
                kinds: vec![kind(row.try_get(1)?)],
                nullable: row.try_get(3)?,
                required: row.try_get(4)?,
                is_key: row.try_get(5)?,
                chars: chars.map(i64::unsigned_abs),
                bytes: None,
                loose: None,
            })
        };
        let columns = rows.into_iter().map(column).collect::<sqlx::Result<_>>()?;
        Ok(Look { columns, ..Look::default() })
    }

    async fn in_transaction(connection: &mut PgConnection) -> sqlx::Result<bool> {
        // The server's own answer: a savepoint is refused outside a transaction and harms none.
        match sqlx::query("SAVEPOINT acemq_in_transaction").execute(&mut *connection).await {
            Ok(_) => {
                sqlx::query("RELEASE SAVEPOINT acemq_in_transaction").execute(connection).await?;
                Ok(true)
            }
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("25P01") => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn time(time: SystemTime) -> String {
        format!("{}+00", time::text(time))
    }

    fn read_time(row: &PgRow, column: usize) -> Option<SystemTime> {
        time::from_micros(Self::integer(row, column)?)
    }

    run_statements!(Postgres, |list: Vec<String>| list);
    read_rows!(Postgres);
}

/// A time that is written, in the columns' type.
fn written(times: Times) -> &'static str {
    match times {
        Times::Zoned => "clock_timestamp()",
        Times::Zoneless => "(clock_timestamp() AT TIME ZONE 'UTC')",
    }
}

/// A time that columns are compared with.
fn compared(times: Times) -> &'static str {
    match times {
        Times::Zoned => "statement_timestamp()",
        Times::Zoneless => "(statement_timestamp() AT TIME ZONE 'UTC')",
    }
}

/// A time in microseconds since the epoch; a time without a zone counts as UTC. Null for infinity,
/// which would otherwise fail the whole statement.
fn read(column: &str) -> String {
    format!(
        "CASE WHEN isfinite({column}) \
         THEN (extract(epoch FROM {column}) * 1000000)::bigint END"
    )
}

fn kind(declared: &str) -> Kind {
    match declared {
        "character varying" | "text" => Kind::Text,
        "smallint" | "integer" | "bigint" => Kind::Integer,
        "timestamp with time zone" => Kind::Time,
        "timestamp without time zone" => Kind::ZonelessTime,
        _ => Kind::Other,
    }
}
