//! SQLite's SQL.
//!
//! Times are UTC text of one width, `2026-09-26 00:00:00.000000`, which sorts and is what Rails
//! writes. Each change is one statement outside a transaction, which takes the write lock at once
//! and honours the busy timeout.

mod checkpoints;
mod idempotency;
mod lead;
mod outbox;
mod saga;
mod schemas;
mod transaction;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use acemq::RelayLock;
use sqlx::{Row, Sqlite, SqliteConnection, SqlitePool, sqlite::SqliteRow};
use tokio::sync::Mutex;

use crate::{
    database::{
        CheckpointsSql, Dialect, IdempotencySql, OutboxOptions, OutboxSql, SagaSql, SchemasSql,
        SqlDatabase, bound, read_rows,
    },
    statement::Statement,
    table::{Column, Kind, Layout, Look, Table},
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

    fn outbox_sql(table: &Table, layout: &Layout, options: &OutboxOptions) -> OutboxSql {
        outbox::statements(table, layout, options)
    }

    fn outbox_schema(table: &Table, options: &OutboxOptions) -> Vec<String> {
        outbox::schema(table, options)
    }

    fn idempotency_sql(table: &Table, layout: &Layout) -> IdempotencySql {
        idempotency::statements(table, layout)
    }

    fn idempotency_schema(table: &Table) -> Vec<String> {
        idempotency::schema(table)
    }

    fn saga_sql(table: &Table, layout: &Layout) -> SagaSql {
        saga::statements(table, layout)
    }

    fn saga_schema(table: &Table) -> Vec<String> {
        saga::schema(table)
    }

    fn schemas_sql(table: &Table, _: &Layout) -> SchemasSql {
        schemas::statements(table)
    }

    fn schemas_schema(table: &Table) -> Vec<String> {
        schemas::schema(table)
    }

    fn checkpoints_sql(table: &Table, _: &Layout) -> CheckpointsSql {
        checkpoints::statements(table)
    }

    fn checkpoints_schema(table: &Table) -> Vec<String> {
        checkpoints::schema(table)
    }

    async fn look(connection: &mut SqliteConnection, table: &Table) -> sqlx::Result<Look> {
        // `pk` counts the columns of the primary key from one.
        let rows = sqlx::query(
            "SELECT name, type, \"notnull\" = 0, \"notnull\" = 1 AND dflt_value IS NULL, \
             CASE WHEN pk > 0 \
             THEN (SELECT count(*) FROM pragma_table_info($1, $2) WHERE pk > 0) END \
             FROM pragma_table_info($1, $2)",
        )
        .persistent(false)
        .bind(table.name().to_owned())
        .bind(table.schema().unwrap_or("main").to_owned())
        .fetch_all(connection)
        .await?;
        let column = |row: SqliteRow| -> sqlx::Result<Column> {
            let declared: String = row.try_get_unchecked(1)?;
            let key_of: Option<i64> = row.try_get_unchecked(4)?;
            Ok(Column {
                name: row.try_get_unchecked(0)?,
                kinds: kinds(&declared),
                declared,
                nullable: row.try_get_unchecked(2)?,
                required: row.try_get_unchecked(3)?,
                key_of: key_of.map(i64::unsigned_abs),
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

    async fn lead(
        pool: &SqlitePool,
        table: &Table,
        alone: &Arc<Mutex<()>>,
        wait: Duration,
    ) -> sqlx::Result<Option<RelayLock>> {
        lead::lead(pool, table, alone, wait).await
    }

    fn time(time: SystemTime) -> String {
        time::text(time)
    }

    fn read_time(row: &SqliteRow, column: usize) -> Option<SystemTime> {
        time::parse(&Self::text(row, column)?)
    }

    async fn run(connection: &mut SqliteConnection, statement: Statement) -> sqlx::Result<u64> {
        Ok(bound!(Sqlite, statement, json).execute(connection).await?.rows_affected())
    }

    async fn fetch(
        connection: &mut SqliteConnection,
        statement: Statement,
    ) -> sqlx::Result<Vec<SqliteRow>> {
        bound!(Sqlite, statement, json).fetch_all(connection).await
    }

    read_rows!(Sqlite);
}

/// A list as SQLite reads one, by `json_each`.
fn json(list: Vec<String>) -> String {
    serde_json::Value::from(list).to_string()
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
    use crate::{database::Claim, statement::Statement};

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
        let options = OutboxOptions { max_attempts: 10, indexed_by_key: true, notify: false };
        for statement in SqliteDialect::outbox_schema(&table, &options) {
            SqliteDialect::run(&mut connection, Statement::new(&statement.into())).await.unwrap();
        }
        let sql = SqliteDialect::outbox_sql(&table, &Layout::default(), &options);
        let Claim::Picked(pick) = &sql.claim else { panic!("SQLite picks first") };
        for (in_order, index, search) in [
            (pick, "o_due", "published_at=?"),
            (&sql.by_age, "o_pending", "published_at=?"),
            (&sql.by_key, "o_key", "published_at=?"),
            (&sql.after_key, "o_key", "published_at=? AND (exchange_name,routing_key)>(?,?)"),
        ] {
            let plan = plan(&mut connection, in_order).await;
            assert!(plan.contains(&format!("USING INDEX {index}")), "{plan}");
            assert!(plan.contains(search), "{plan}");
            let sorts = plan.replace("USE TEMP B-TREE FOR LAST TERM OF ORDER BY", "");
            assert!(!sorts.contains("TEMP B-TREE"), "the backlog is sorted: {plan}");
        }
        for by_id in [
            &sql.take,
            &sql.publish,
            &sql.fail,
            &sql.give_back,
            &sql.renew,
            &sql.retry,
            &sql.discard,
            &sql.unpublished,
        ] {
            let plan = plan(&mut connection, by_id).await;
            assert!(!plan.contains("published_at=?"), "the backlog is read: {plan}");
            assert!(plan.contains("(id=?)"), "{plan}");
        }
    }
}
