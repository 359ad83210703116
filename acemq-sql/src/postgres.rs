//! PostgreSQL's SQL.
//!
//! What the stores run by themselves goes out in one piece, its values in the text: one trip, a
//! plan that fits the values, settings for that plan beside it, and no session that has to stay the
//! same from one trip to the next, which a pooler would not promise.
//!
//! `clock_timestamp()` writes times, since `now()` stands still inside a transaction.
//! `statement_timestamp()` compares them: it moves as well, and unlike the other may use an index.

mod checkpoints;
mod idempotency;
mod notify;
mod outbox;
mod saga;
mod schemas;
mod text;
mod transaction;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use acemq::{OutboxSignal, RelayLock};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Executor, PgConnection, PgPool, Postgres, Row, postgres::PgRow,
};
use tokio::sync::Mutex;

use crate::{
    database::{
        CheckpointsSql, Dialect, IdempotencySql, OutboxOptions, OutboxSql, SagaSql, SchemasSql,
        SqlDatabase, bound,
    },
    lead,
    statement::{Planned, Statement, in_parts},
    table::{Column, Kind, Layout, Look, Table, Times},
    time,
    unheard::unheard,
};

/// The space of our advisory locks' keys: `acem` in its upper half.
const RELAYS: i64 = 0x6163_656d << 32;

impl SqlDatabase for Postgres {
    type Dialect = PostgresDialect;
}

#[derive(Debug)]
pub struct PostgresDialect;

impl Dialect<Postgres> for PostgresDialect {
    const WRITES_BEFORE_READING: bool = false;

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

    fn schemas_sql(table: &Table, layout: &Layout) -> SchemasSql {
        schemas::statements(table, layout)
    }

    fn schemas_schema(table: &Table) -> Vec<String> {
        schemas::schema(table)
    }

    fn checkpoints_sql(table: &Table, layout: &Layout) -> CheckpointsSql {
        checkpoints::statements(table, layout)
    }

    fn checkpoints_schema(table: &Table) -> Vec<String> {
        checkpoints::schema(table)
    }

    fn keeps_statements(pool: &PgPool) -> bool {
        // The only way in which sqlx tells.
        let options = pool.connect_options().to_url_lossy();
        !options.query_pairs().any(|(name, size)| name == "statement-cache-capacity" && size == "0")
    }

    async fn look(connection: &mut PgConnection, table: &Table) -> sqlx::Result<Look> {
        // The length of a varchar is its modifier without four bytes of header.
        let rows = sqlx::raw_sql(AssertSqlSafe(format!(
            "SELECT attname::text, format_type(atttypid, NULL), format_type(atttypid, atttypmod), \
             NOT attnotnull, attnotnull AND NOT atthasdef, \
             (SELECT indnkeyatts::bigint FROM pg_index WHERE indrelid = attrelid AND indisprimary \
             AND attnum = ANY ((indkey::smallint[])[0:indnkeyatts - 1])), \
             CASE WHEN atttypid = 'varchar'::regtype AND atttypmod > 4 \
             THEN (atttypmod - 4)::bigint END \
             FROM pg_attribute \
             WHERE attrelid = to_regclass({}) AND attnum > 0 AND NOT attisdropped",
            text::literal(&table.quoted('"'))
        )))
        .fetch_all(connection)
        .await?;
        let column = |row: PgRow| -> sqlx::Result<Column> {
            let (key_of, chars): (Option<i64>, Option<i64>) = (row.try_get(5)?, row.try_get(6)?);
            Ok(Column {
                name: row.try_get(0)?,
                declared: row.try_get(2)?,
                kinds: vec![kind(row.try_get(1)?)],
                nullable: row.try_get(3)?,
                required: row.try_get(4)?,
                key_of: key_of.map(i64::unsigned_abs),
                chars: chars.map(i64::unsigned_abs),
                bytes: None,
                loose: None,
            })
        };
        let columns = rows.into_iter().map(column).collect::<sqlx::Result<_>>()?;
        Ok(Look { columns, ..Look::default() })
    }

    async fn in_transaction(connection: &mut PgConnection) -> sqlx::Result<bool> {
        // The server's own answer: a savepoint is refused outside a transaction and harms none. Both
        // statements go in one piece, so that no await stands between them.
        let savepoint = "SAVEPOINT acemq_in_transaction; RELEASE SAVEPOINT acemq_in_transaction";
        match sqlx::raw_sql(savepoint).execute(connection).await {
            Ok(_) => Ok(true),
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("25P01") => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    async fn lead(
        pool: &PgPool,
        table: &Table,
        _: &Arc<Mutex<()>>,
        wait: Duration,
    ) -> sqlx::Result<Option<RelayLock>> {
        // The table's number is the key, whatever the search path calls it.
        let take = Statement::new(
            &"SELECT pg_try_advisory_lock($2 \
              + COALESCE(to_regclass($1)::oid::bigint, hashtext($1)::bigint))::integer::bigint"
                .into(),
        );
        let take = take.text(table.quoted('"')).integer(RELAYS);
        // Versions before 14 have no such setting, and wait for what TCP says of the connection.
        let end_in_silence = format!(
            "SELECT set_config(name, '{}s', false) FROM pg_settings \
             WHERE name = 'idle_session_timeout'",
            lead::SILENCE
        );
        let end_in_silence = Statement::new(&end_in_silence.into()).in_one_piece();
        lead::by_session::<Postgres>(pool, end_in_silence, take.in_one_piece(), wait).await
    }

    async fn listen(pool: &PgPool, table: &Table, signal: &OutboxSignal) {
        notify::listen(pool, table, signal).await;
    }

    fn in_parts(list: Vec<String>) -> Vec<Vec<String>> {
        in_parts(list)
    }

    fn time(time: SystemTime) -> String {
        format!("{}+00", time::text(time))
    }

    fn read_time(row: &PgRow, column: usize) -> Option<SystemTime> {
        time::from_micros(Self::integer(row, column)?)
    }

    async fn run(connection: &mut PgConnection, statement: Statement) -> sqlx::Result<u64> {
        if statement.planned == Planned::InOnePiece {
            let sql = AssertSqlSafe(text::with_values(&statement));
            return Ok(unheard(connection.execute(sqlx::raw_sql(sql))).await?.rows_affected());
        }
        let query = bound!(Postgres, statement, |list: Vec<String>| list);
        Ok(query.execute(connection).await?.rows_affected())
    }

    async fn fetch(
        connection: &mut PgConnection,
        statement: Statement,
    ) -> sqlx::Result<Vec<PgRow>> {
        if statement.planned == Planned::InOnePiece {
            let sql = AssertSqlSafe(text::with_values(&statement));
            return unheard(connection.fetch_all(sqlx::raw_sql(sql))).await;
        }
        let query = bound!(Postgres, statement, |list: Vec<String>| list);
        query.fetch_all(connection).await
    }

    /// As text or as bytes, whichever way it came.
    fn bytes(row: &PgRow, column: usize) -> Option<Vec<u8>> {
        let value = row.try_get_raw(column).ok()?;
        Some(value.as_bytes().ok()?.to_vec())
    }

    fn integer(row: &PgRow, column: usize) -> Option<i64> {
        row.try_get_unchecked(column).ok().flatten()
    }
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

#[cfg(test)]
mod tests {
    use sqlx::Connection;
    use testkit::PostgresDatabase;

    use super::{outbox::BY_INDEX, *};
    use crate::{
        database::{Claim, Failure},
        statement::Value,
    };

    async fn run(connection: &mut PgConnection, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.unwrap();
    }

    /// How PostgreSQL goes about a statement.
    async fn plan(connection: &mut PgConnection, statement: Statement) -> String {
        let sql = text::with_values(&statement);
        let explain = match sql.strip_prefix(BY_INDEX) {
            Some(sql) => format!("{BY_INDEX}EXPLAIN {sql}"),
            None => format!("EXPLAIN {sql}"),
        };
        let rows = connection.fetch_all(sqlx::raw_sql(AssertSqlSafe(explain))).await.unwrap();
        rows.iter().filter_map(|row| PostgresDialect::text(row, 0)).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn marks_of_many_records_each_fit_a_record_of_tls() {
        let table = Table::new(&"t".repeat(50));
        let options = OutboxOptions { max_attempts: 10, indexed_by_key: true, notify: false };
        let sql = PostgresDialect::outbox_sql(&table, &Layout::default(), &options);
        for ids in PostgresDialect::in_parts((0..1_000).map(|n| format!("{n:036}")).collect()) {
            let mark = text::with_values(&Statement::new(&sql.publish).list(ids));
            assert!(mark.len() < 16 * 1024, "{}", mark.len());
        }
    }

    #[tokio::test]
    async fn plans_do_not_depend_on_what_is_believed_of_a_table_that_was_just_drained() {
        let Some(database) = PostgresDatabase::create().await else { return };
        let mut connection = PgConnection::connect(database.url()).await.unwrap();
        let table = Table::new("o");
        let options = OutboxOptions { max_attempts: 10, indexed_by_key: true, notify: false };
        for statement in PostgresDialect::outbox_schema(&table, &options) {
            run(&mut connection, &statement).await;
        }
        let fill = |published_at: &str| {
            format!(
                "INSERT INTO o (id, exchange_name, routing_key, body, body_encoding, \
                 content_type, headers, created_at, published_at, attempts) \
                 SELECT gen_random_uuid()::text, '', '', repeat('.', 256), '', '', '', now(), \
                 {published_at}, 0 FROM generate_series(1, 20000)"
            )
        };
        // Looked at while nothing waits, then filled.
        run(&mut connection, &fill("now()")).await;
        run(&mut connection, "VACUUM ANALYZE o").await;
        run(&mut connection, &fill("NULL")).await;
        let sql = PostgresDialect::outbox_sql(&table, &Layout::default(), &options);

        #[allow(clippy::infallible_destructuring_match, reason = "so it is with one database")]
        let claim = match &sql.claim {
            Claim::AtOnce(claim) => claim,
            #[cfg(any(feature = "mysql", feature = "sqlite"))]
            Claim::Picked(_) => panic!("a claim is one statement"),
        };
        let count = |sql| Statement::new(sql).integer(500);
        for (ordered, index) in [
            (count(claim).text("t").integer(1).integer(1), "o_due"),
            (count(&sql.by_age), "o_pending"),
            (count(&sql.by_key), "o_key"),
            (count(&sql.after_key).text("e").text("k"), "o_key"),
            (sql.purge.change(Value::Integer(500)).integer(1), "o_pending"),
            (Statement::new(&sql.holders), "o_due"),
        ] {
            let plan = plan(&mut connection, ordered).await;
            assert!(plan.contains(&format!("Index Scan using {index} ")), "{plan}");
            assert!(!plan.contains("Bitmap"), "{plan}");
        }
        let ids = || Value::List((0..500).map(|n| n.to_string()).collect());
        let named = |sql| Statement::new(sql).value(ids()).text("t").integer(1);
        let failure = Failure {
            id: "1".to_owned(),
            token: "t".to_owned(),
            reason: "it's \\ gone".to_owned(),
            wait: 1,
        };
        let failures = PostgresDialect::failures(vec![failure]);
        for by_id in [
            named(&sql.publish),
            named(&sql.give_back),
            named(&sql.renew),
            named(&sql.take),
            named(&sql.retry),
            Statement::new(&sql.discard).text("1"),
            Statement::new(&sql.unpublished).text("1"),
            failures.into_iter().fold(Statement::new(&sql.fail), Statement::value),
        ] {
            let plan = plan(&mut connection, by_id).await;
            assert!(plan.contains("o_pkey") && !plan.contains("o_pending"), "{plan}");
            assert!(!["o_due", "o_key", "Seq Scan"].iter().any(|it| plan.contains(it)), "{plan}");
        }
    }
}
