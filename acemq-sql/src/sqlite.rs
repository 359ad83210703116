//! SQLite's SQL.
//!
//! Times are UTC text of one width, `2026-09-26 00:00:00.000000`, which sorts and is what Rails
//! writes. Each change is one statement outside a transaction, which takes the write lock at once
//! and honours the busy timeout.

use std::time::SystemTime;

use sqlx::{Row, Sqlite, SqliteConnection, sqlite::SqliteRow};

use crate::{
    database::{Batch, Dialect, IdempotencySql, OutboxSql, SqlDatabase, read_rows, run_statements},
    insert::Insert,
    table::{Column, Kind, Layout, Look, Table, Times},
    time,
};

/// Three digits of milliseconds and three zeros: as wide as what others write.
const NOW: &str = "strftime('%Y-%m-%d %H:%M:%f000', 'now')";

impl SqlDatabase for Sqlite {
    type Dialect = SqliteDialect;
}

#[derive(Debug)]
pub struct SqliteDialect;

impl Dialect<Sqlite> for SqliteDialect {
    // A deferred transaction that has read cannot always write, whatever the busy timeout.
    const WRITES_BEFORE_READING: bool = true;

    fn outbox_sql(table: &Table, layout: &Layout, max_attempts: u32) -> OutboxSql {
        let t = table.quoted('"');
        let free = format!(
            "published_at IS NULL AND attempts < {max_attempts} \
             AND (locked_until IS NULL OR locked_until <= {NOW})"
        );
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
            // Picked first, since an update that finds nothing takes the write lock all the same.
            // From there on a plus keeps the index of the backlog out of it: the ids say which
            // rows.
            claim: Batch::picked(
                format!(
                    "SELECT CAST(id AS TEXT) FROM {t} WHERE {free} \
                     ORDER BY published_at, created_at, id LIMIT $1"
                ),
                format!(
                    "UPDATE {t} SET locked_by = $2, locked_until = {} \
                     WHERE id IN (SELECT value FROM json_each($1)) AND +{free} \
                     RETURNING CAST(id AS TEXT), CAST(exchange_name AS TEXT), \
                     CAST(routing_key AS TEXT), CAST(body AS BLOB), CAST(body_encoding AS TEXT), \
                     CAST(content_type AS TEXT), CAST(headers AS TEXT), \
                     CAST(created_at AS TEXT), CAST(attempts AS INTEGER)",
                    later("$3")
                ),
            ),
            publish: format!(
                "UPDATE {t} SET published_at = {NOW}, locked_by = NULL, locked_until = NULL \
                 WHERE id IN (SELECT value FROM json_each($1)) AND +published_at IS NULL"
            )
            .into(),
            fail: format!(
                "UPDATE {t} AS o SET attempts = o.attempts + 1, last_error = f.value ->> 'reason', \
                 locked_by = NULL, locked_until = {} FROM json_each($1) AS f \
                 WHERE o.id = f.value ->> 'id' AND o.locked_by = f.value ->> 'token' \
                 AND +o.published_at IS NULL",
                later("(f.value ->> 'wait')")
            )
            .into(),
            give_back: format!(
                "UPDATE {t} SET locked_by = NULL, locked_until = NULL \
                 WHERE id IN (SELECT value FROM json_each($1)) \
                 AND locked_by = $2 AND +published_at IS NULL"
            )
            .into(),
            renew: format!(
                "UPDATE {t} SET locked_until = {} \
                 WHERE id IN (SELECT value FROM json_each($1)) \
                 AND locked_by = $2 AND +published_at IS NULL",
                later("$3")
            )
            .into(),
            pending: format!("SELECT count(*) FROM {t} WHERE published_at IS NULL").into(),
            stuck: format!(
                "SELECT CAST(id AS TEXT), CAST(exchange_name AS TEXT), CAST(routing_key AS TEXT), \
                 CAST(attempts AS INTEGER), CAST(last_error AS TEXT), CAST(created_at AS TEXT) \
                 FROM {t} WHERE published_at IS NULL AND attempts >= {max_attempts} \
                 ORDER BY published_at, created_at, id LIMIT $1"
            )
            .into(),
            purge: Batch::at_once(format!(
                "DELETE FROM {t} WHERE id IN (SELECT id FROM {t} WHERE published_at <= {} \
                 ORDER BY published_at LIMIT $1)",
                later("-$2")
            )),
            // Claims are taken at the head, so that is where others' are looked for.
            holders: format!(
                "SELECT DISTINCT CAST(locked_by AS TEXT) FROM (\
                 SELECT locked_by, locked_until FROM {t} \
                 WHERE published_at IS NULL AND attempts < {max_attempts} \
                 ORDER BY published_at, created_at, id LIMIT 5000) \
                 WHERE locked_by IS NOT NULL AND locked_until > {NOW}"
            )
            .into(),
        }
    }

    fn outbox_schema(table: &Table, max_attempts: u32) -> Vec<String> {
        let (t, schema, name) = (table.quoted('"'), table.prefix('"'), table.name());
        vec![
            format!(
                "CREATE TABLE IF NOT EXISTS {t} (\
                 id VARCHAR(64) NOT NULL PRIMARY KEY, \
                 exchange_name VARCHAR(255) NOT NULL, \
                 routing_key VARCHAR(255) NOT NULL, \
                 body TEXT NOT NULL, \
                 body_encoding VARCHAR(16) NOT NULL, \
                 content_type VARCHAR(255) NOT NULL, \
                 headers TEXT NOT NULL, \
                 created_at TIMESTAMP NOT NULL, \
                 published_at TIMESTAMP, \
                 attempts INTEGER NOT NULL DEFAULT 0, \
                 last_error VARCHAR(1000), \
                 locked_by VARCHAR(64), \
                 locked_until TIMESTAMP)"
            ),
            format!(
                "CREATE INDEX IF NOT EXISTS {schema}\"{name}_pending\" \
                 ON \"{name}\" (published_at, created_at)"
            ),
            // Without the exhausted records, which would be read by every claim.
            format!(
                "CREATE INDEX IF NOT EXISTS {schema}\"{name}_due\" \
                 ON \"{name}\" (published_at, created_at, id) \
                 WHERE published_at IS NULL AND attempts < {max_attempts}"
            ),
        ]
    }

    fn idempotency_sql(table: &Table, _: &Layout) -> IdempotencySql {
        let t = table.quoted('"');
        let (after_2, after_3) = (later("$2"), later("$3"));
        IdempotencySql {
            insert: format!(
                "INSERT INTO {t} (message_id, state, claimed_by, recorded_at, expires_at) \
                 VALUES ($1, 'CLAIMED', $2, {NOW}, {after_3}) \
                 ON CONFLICT (message_id) DO NOTHING RETURNING 1"
            )
            .into(),
            look: format!(
                "SELECT CAST(state AS TEXT), expires_at <= {NOW} FROM {t} WHERE message_id = $1"
            )
            .into(),
            take_over: format!(
                "UPDATE {t} SET state = 'CLAIMED', claimed_by = $2, recorded_at = {NOW}, \
                 expires_at = {after_3} WHERE message_id = $1 AND expires_at <= {NOW}"
            )
            .into(),
            confirm: format!(
                "INSERT INTO {t} (message_id, state, claimed_by, recorded_at, expires_at) \
                 VALUES ($1, 'CONFIRMED', NULL, {NOW}, {after_2}) \
                 ON CONFLICT (message_id) DO UPDATE SET state = excluded.state, \
                 claimed_by = NULL, recorded_at = excluded.recorded_at, \
                 expires_at = excluded.expires_at"
            )
            .into(),
            release: format!(
                "DELETE FROM {t} WHERE message_id = $1 AND claimed_by = $2 AND state = 'CLAIMED'"
            )
            .into(),
            renew: format!(
                "UPDATE {t} SET expires_at = {after_3} \
                 WHERE message_id = $1 AND claimed_by = $2 AND state = 'CLAIMED'"
            )
            .into(),
            purge: Batch::at_once(format!(
                "DELETE FROM {t} WHERE message_id IN (SELECT message_id FROM {t} \
                 WHERE expires_at <= {NOW} ORDER BY expires_at LIMIT $1)"
            )),
            size: format!("SELECT count(*) FROM {t}").into(),
        }
    }

    fn idempotency_schema(table: &Table) -> Vec<String> {
        let (t, schema, name) = (table.quoted('"'), table.prefix('"'), table.name());
        vec![
            format!(
                "CREATE TABLE IF NOT EXISTS {t} (\
                 message_id VARCHAR(255) NOT NULL PRIMARY KEY, \
                 state VARCHAR(16) NOT NULL, \
                 claimed_by VARCHAR(64), \
                 recorded_at TIMESTAMP NOT NULL, \
                 expires_at TIMESTAMP NOT NULL)"
            ),
            format!(
                "CREATE INDEX IF NOT EXISTS {schema}\"{name}_expiry\" ON \"{name}\" (expires_at)"
            ),
        ]
    }

    async fn look(connection: &mut SqliteConnection, table: &Table) -> sqlx::Result<Look> {
        // `pk` counts the columns of the primary key from one.
        let rows = sqlx::query(
            "SELECT name, type, \"notnull\" = 0, \"notnull\" = 1 AND dflt_value IS NULL, \
             pk = 1 AND 1 = (SELECT count(*) FROM pragma_table_info($1, $2) WHERE pk > 0) \
             FROM pragma_table_info($1, $2)",
        )
        .persistent(false)
        .bind(table.name().to_owned())
        .bind(table.schema().unwrap_or("main").to_owned())
        .fetch_all(connection)
        .await?;
        let column = |row: SqliteRow| -> sqlx::Result<Column> {
            let declared: String = row.try_get_unchecked(1)?;
            Ok(Column {
                name: row.try_get_unchecked(0)?,
                kinds: kinds(&declared),
                declared,
                nullable: row.try_get_unchecked(2)?,
                required: row.try_get_unchecked(3)?,
                is_key: row.try_get_unchecked(4)?,
                // Lengths are declared and not enforced.
                chars: None,
                bytes: None,
                loose: None,
            })
        };
        let columns = rows.into_iter().map(column).collect::<sqlx::Result<_>>()?;
        Ok(Look { columns, ..Look::default() })
    }

    async fn in_transaction(connection: &mut SqliteConnection) -> sqlx::Result<bool> {
        // SQLite refuses a transaction within a transaction, and the open one goes on. A deferred
        // one takes no lock. Both statements in one call, so that no await stands between them.
        match sqlx::raw_sql("BEGIN DEFERRED; ROLLBACK").execute(connection).await {
            Ok(_) => Ok(false),
            Err(sqlx::Error::Database(error)) if error.message().contains("transaction") => {
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    fn time(time: SystemTime) -> String {
        time::text(time)
    }

    fn read_time(row: &SqliteRow, column: usize) -> Option<SystemTime> {
        time::parse(&Self::text(row, column)?)
    }

    run_statements!(Sqlite, |list: Vec<String>| serde_json::Value::from(list).to_string());
    read_rows!(Sqlite);
}

fn insert_row(first: usize, _: Times) -> String {
    let [a, b, c, d, e, f, g, h] = std::array::from_fn(|n| first + n);
    format!("(${a}, ${b}, ${c}, ${d}, ${e}, ${f}, ${g}, ${h}, 0)")
}

/// The time that many microseconds from now.
fn later(micros: &str) -> String {
    format!(
        "strftime('%Y-%m-%d %H:%M:%f000', 'now', printf('%+.3f seconds', {micros} / 1000000.0))"
    )
}

/// SQLite holds anything anywhere; the declared type says what the table's maker puts there.
fn kinds(declared: &str) -> Vec<Kind> {
    let declared = declared.to_ascii_uppercase();
    let has = |part: &str| declared.contains(part);
    if has("INT") {
        vec![Kind::Integer]
    } else if has("CHAR") || has("TEXT") || has("CLOB") {
        vec![Kind::Text, Kind::Time]
    } else if has("DATE") || has("TIME") {
        vec![Kind::Time]
    } else {
        vec![Kind::Other]
    }
}

#[cfg(test)]
mod tests {
    use sqlx::Connection;

    use super::*;
    use crate::statement::{Statement, Value};

    /// How SQLite goes about a statement.
    async fn plan(connection: &mut SqliteConnection, sql: &str) -> String {
        let explain = Statement::new(&format!("EXPLAIN QUERY PLAN {sql}").into());
        let rows = SqliteDialect::fetch(connection, explain).await.unwrap();
        rows.iter().filter_map(|row| SqliteDialect::text(row, 3)).collect::<Vec<_>>().join("; ")
    }

    #[tokio::test]
    async fn claims_read_the_index_of_due_records_and_marks_go_by_id() {
        let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        let table = Table::new("o");
        for statement in SqliteDialect::outbox_schema(&table, 10) {
            SqliteDialect::run(&mut connection, Statement::new(&statement.into())).await.unwrap();
        }
        let sql = SqliteDialect::outbox_sql(&table, &Layout::default(), 10);
        let pick = plan(&mut connection, &sql.claim.pick(1).unwrap().sql).await;
        assert!(pick.contains("USING INDEX o_due") || pick.contains("COVERING INDEX o_due"));
        assert!(!pick.contains("TEMP B-TREE"), "the backlog is sorted: {pick}");
        let claim = sql.claim.change(Value::Integer(1)).sql;
        for by_id in [&claim, &sql.publish, &sql.fail, &sql.give_back, &sql.renew] {
            let plan = plan(&mut connection, by_id).await;
            assert!(!plan.contains("published_at=?"), "the backlog is read: {plan}");
            assert!(plan.contains("(id=?)"), "{plan}");
        }
    }
}
