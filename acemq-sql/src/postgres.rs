//! PostgreSQL's SQL.
//!
//! `clock_timestamp()` writes times, since `now()` stands still inside a transaction.
//! `statement_timestamp()` compares them: it moves as well, and unlike the other may use an index.

use std::time::SystemTime;

use sqlx::{PgConnection, Postgres, Row, postgres::PgRow};

use crate::{
    database::{Batch, Dialect, IdempotencySql, OutboxSql, SqlDatabase, read_rows, run_statements},
    insert::Insert,
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
        let t = table.quoted('"');
        let (now, seen) = (written(layout.times), compared(layout.times));
        let free = format!(
            "published_at IS NULL AND attempts < {max_attempts} \
             AND (locked_until IS NULL OR locked_until <= {seen})"
        );
        let created_at = read("created_at");
        OutboxSql {
            insert: Insert::new(
                format!(
                    "INSERT INTO {t} (id, exchange_name, routing_key, body, body_encoding, \
                     content_type, headers, created_at, attempts) VALUES "
                ),
                insert_row,
                " ON CONFLICT (id) DO NOTHING",
                layout,
            ),
            // Ordered by published_at as well, because that is how the index begins: without it
            // every claim sorts the whole backlog.
            claim: Batch::at_once(format!(
                "WITH due AS MATERIALIZED (SELECT id FROM {t} WHERE {free} \
                 ORDER BY published_at, created_at, id LIMIT $1 FOR UPDATE SKIP LOCKED) \
                 UPDATE {t} AS o SET locked_by = $2, \
                 locked_until = {now} + $3 * INTERVAL '1 microsecond' \
                 FROM due WHERE o.id = due.id \
                 RETURNING o.id, o.exchange_name, o.routing_key, o.body, o.body_encoding, \
                 o.content_type, o.headers, {}, o.attempts::bigint",
                read("o.created_at")
            )),
            publish: format!(
                "UPDATE {t} SET published_at = {now}, locked_by = NULL, locked_until = NULL \
                 WHERE id = ANY($1) AND published_at IS NULL"
            )
            .into(),
            fail: format!(
                "UPDATE {t} AS o SET attempts = o.attempts + 1, last_error = f.reason, \
                 locked_by = NULL, locked_until = {now} + f.wait * INTERVAL '1 microsecond' \
                 FROM jsonb_to_recordset($1::jsonb) \
                 AS f(id text, token text, reason text, wait bigint) \
                 WHERE o.id = f.id AND o.locked_by = f.token AND o.published_at IS NULL"
            )
            .into(),
            give_back: format!(
                "UPDATE {t} SET locked_by = NULL, locked_until = NULL \
                 WHERE id = ANY($1) AND locked_by = $2 AND published_at IS NULL"
            )
            .into(),
            renew: format!(
                "UPDATE {t} SET locked_until = {now} + $3 * INTERVAL '1 microsecond' \
                 WHERE id = ANY($1) AND locked_by = $2 AND published_at IS NULL"
            )
            .into(),
            pending: format!("SELECT count(*) FROM {t} WHERE published_at IS NULL").into(),
            stuck: format!(
                "SELECT id, exchange_name, routing_key, attempts::bigint, last_error, \
                 {created_at} FROM {t} \
                 WHERE published_at IS NULL AND attempts >= {max_attempts} \
                 ORDER BY published_at, created_at, id LIMIT $1"
            )
            .into(),
            purge: Batch::at_once(format!(
                "WITH old AS MATERIALIZED (SELECT id FROM {t} \
                 WHERE published_at <= {seen} - $2 * INTERVAL '1 microsecond' \
                 ORDER BY published_at LIMIT $1 FOR UPDATE SKIP LOCKED) \
                 DELETE FROM {t} AS o USING old WHERE o.id = old.id"
            )),
            // Claims are taken at the head, so that is where others' are looked for.
            holders: format!(
                "SELECT DISTINCT locked_by FROM (SELECT locked_by, locked_until FROM {t} \
                 WHERE published_at IS NULL AND attempts < {max_attempts} \
                 ORDER BY published_at, created_at, id LIMIT 5000) AS head \
                 WHERE locked_by IS NOT NULL AND locked_until > {seen}"
            )
            .into(),
        }
    }

    fn outbox_schema(table: &Table, max_attempts: u32) -> Vec<String> {
        let (t, name) = (table.quoted('"'), table.name());
        vec![
            format!(
                "CREATE TABLE IF NOT EXISTS {t} (\
                 id VARCHAR(64) PRIMARY KEY, \
                 exchange_name VARCHAR(255) NOT NULL, \
                 routing_key VARCHAR(255) NOT NULL, \
                 body TEXT NOT NULL, \
                 body_encoding VARCHAR(16) NOT NULL, \
                 content_type VARCHAR(255) NOT NULL, \
                 headers TEXT NOT NULL, \
                 created_at TIMESTAMPTZ NOT NULL, \
                 published_at TIMESTAMPTZ, \
                 attempts INTEGER NOT NULL DEFAULT 0, \
                 last_error VARCHAR(1000), \
                 locked_by VARCHAR(64), \
                 locked_until TIMESTAMPTZ)"
            ),
            format!(
                "CREATE INDEX IF NOT EXISTS \"{name}_pending\" ON {t} (published_at, created_at)"
            ),
            // Without the exhausted records, which would be read by every claim.
            format!(
                "CREATE INDEX IF NOT EXISTS \"{name}_due\" ON {t} (published_at, created_at, id) \
                 WHERE published_at IS NULL AND attempts < {max_attempts}"
            ),
        ]
    }

    fn idempotency_sql(table: &Table, layout: &Layout) -> IdempotencySql {
        let t = table.quoted('"');
        let (now, seen) = (written(layout.times), compared(layout.times));
        IdempotencySql {
            insert: format!(
                "INSERT INTO {t} (message_id, state, claimed_by, recorded_at, expires_at) \
                 VALUES ($1, 'CLAIMED', $2, {now}, {now} + $3 * INTERVAL '1 microsecond') \
                 ON CONFLICT (message_id) DO NOTHING RETURNING 1"
            )
            .into(),
            look: format!(
                "SELECT state, (expires_at <= {seen})::int::bigint FROM {t} WHERE message_id = $1"
            )
            .into(),
            take_over: format!(
                "UPDATE {t} SET state = 'CLAIMED', claimed_by = $2, recorded_at = {now}, \
                 expires_at = {now} + $3 * INTERVAL '1 microsecond' \
                 WHERE message_id = $1 AND expires_at <= {seen}"
            )
            .into(),
            confirm: format!(
                "INSERT INTO {t} (message_id, state, claimed_by, recorded_at, expires_at) \
                 VALUES ($1, 'CONFIRMED', NULL, {now}, {now} + $2 * INTERVAL '1 microsecond') \
                 ON CONFLICT (message_id) DO UPDATE SET state = EXCLUDED.state, \
                 claimed_by = NULL, recorded_at = EXCLUDED.recorded_at, \
                 expires_at = EXCLUDED.expires_at"
            )
            .into(),
            release: format!(
                "DELETE FROM {t} WHERE message_id = $1 AND claimed_by = $2 AND state = 'CLAIMED'"
            )
            .into(),
            renew: format!(
                "UPDATE {t} SET expires_at = {now} + $3 * INTERVAL '1 microsecond' \
                 WHERE message_id = $1 AND claimed_by = $2 AND state = 'CLAIMED'"
            )
            .into(),
            purge: Batch::at_once(format!(
                "WITH old AS MATERIALIZED (SELECT message_id FROM {t} WHERE expires_at <= {seen} \
                 ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED) \
                 DELETE FROM {t} AS i USING old WHERE i.message_id = old.message_id"
            )),
            size: format!("SELECT count(*) FROM {t}").into(),
        }
    }

    fn idempotency_schema(table: &Table) -> Vec<String> {
        let (t, name) = (table.quoted('"'), table.name());
        vec![
            format!(
                "CREATE TABLE IF NOT EXISTS {t} (\
                 message_id VARCHAR(255) PRIMARY KEY, \
                 state VARCHAR(16) NOT NULL, \
                 claimed_by VARCHAR(64), \
                 recorded_at TIMESTAMPTZ NOT NULL, \
                 expires_at TIMESTAMPTZ NOT NULL)"
            ),
            format!("CREATE INDEX IF NOT EXISTS \"{name}_expiry\" ON {t} (expires_at)"),
        ]
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

fn insert_row(first: usize, times: Times) -> String {
    let [a, b, c, d, e, f, g, h] = std::array::from_fn(|n| first + n);
    let created_at = match times {
        Times::Zoned => format!("${h}::text::timestamptz"),
        Times::Zoneless => format!("(${h}::text::timestamptz AT TIME ZONE 'UTC')"),
    };
    format!("(${a}, ${b}, ${c}, ${d}, ${e}, ${f}, ${g}, {created_at}, 0)")
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
