//! MariaDB's SQL, over the driver that sqlx calls MySql.
//!
//! Statements go out as text with their values in it, not prepared. A future that is dropped while
//! sqlx prepares a statement leaves the connection out of step with the server, and its pool one
//! connection short for good; and only so can several statements go out in one piece. The price is
//! that the text holds messages, which no log should: see [`unheard`].
//!
//! Changes go by primary key, at READ COMMITTED: they lock no gap, they take their locks in one
//! order, and they never meet the rows of a transaction that is still open. The level is set for
//! the one statement that follows, never for the session.

mod checkpoints;
mod idempotency;
mod outbox;
mod saga;
mod schemas;
mod text;
mod transaction;

use std::{
    borrow::Cow,
    sync::Arc,
    time::{Duration, SystemTime},
};

use acemq::RelayLock;
use sqlx::{AssertSqlSafe, Executor, MySql, MySqlConnection, MySqlPool, mysql::MySqlRow};
use tokio::sync::Mutex;

use self::text::{literal, literal_size, with_question_marks, with_values};
use crate::{
    database::{
        CheckpointsSql, Dialect, Failure, IdempotencySql, OutboxOptions, OutboxSql, SagaSql,
        SchemasSql, SqlDatabase, read_rows,
    },
    lead,
    statement::{Statement, Value, in_parts},
    table::{Column, Kind, Layout, Look, Table},
    time,
    unheard::unheard,
};

/// The same in every session, whatever its zone.
const NOW: &str = "UTC_TIMESTAMP(6)";

/// For the next statement alone, and sent with it.
const READ_COMMITTED: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; ";

/// The tables that we make: every Unicode character, compared byte for byte and to the last space,
/// with transactions.
const OPTIONS: &str = "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin";

impl SqlDatabase for MySql {
    type Dialect = MariaDbDialect;
}

#[derive(Debug)]
pub struct MariaDbDialect;

impl Dialect<MySql> for MariaDbDialect {
    const WRITES_BEFORE_READING: bool = false;
    // The isolation level, where the statement that it was for did not come to run.
    const SETS_THE_SESSION: bool = true;

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

    async fn look(connection: &mut MySqlConnection, table: &Table) -> sqlx::Result<Look> {
        let schema = table.schema().map_or_else(|| "DATABASE()".to_owned(), literal);
        let sql = format!(
            "SELECT {}, {}, {}, {}, {}, c.character_maximum_length, c.character_octet_length, \
             c.is_nullable = 'YES', c.is_nullable = 'NO' AND c.column_default IS NULL \
             AND c.extra NOT LIKE '%auto_increment%' AND c.extra NOT LIKE '%GENERATED%', \
             c.column_key = 'PRI', {}, @@max_allowed_packet \
             FROM information_schema.columns AS c \
             JOIN information_schema.tables AS t USING (table_schema, table_name) \
             WHERE c.table_schema = {schema} AND c.table_name = {}",
            cast("c.column_name"),
            cast("c.column_type"),
            cast("c.data_type"),
            cast("c.character_set_name"),
            cast("c.collation_name"),
            cast("t.engine"),
            literal(table.name()),
        );
        let rows = Self::fetch(connection, Statement::new(&sql.into())).await?;
        let truth = |row, column| Self::integer(row, column) == Some(1);
        let keys = rows.iter().filter(|row| truth(row, 9)).count();
        let columns = rows.iter().map(|row| {
            let charset = Self::text(row, 3);
            let kind = kind(&Self::text(row, 2).unwrap_or_default(), charset.as_deref());
            let mut declared = Self::text(row, 1).unwrap_or_default();
            if let (Kind::Other, Some(charset)) = (kind, charset) {
                declared = format!("{declared} CHARACTER SET {charset}");
            }
            let collation = Self::text(row, 4);
            Column {
                name: Self::text(row, 0).unwrap_or_default(),
                declared,
                kinds: vec![kind],
                nullable: truth(row, 7),
                required: truth(row, 8),
                key_of: truth(row, 9).then_some(keys as u64),
                chars: Self::integer(row, 5).map(i64::unsigned_abs),
                bytes: Self::integer(row, 6).map(i64::unsigned_abs),
                loose: collation.filter(|name| !compares_bytes(name)),
            }
        });
        let columns = columns.collect();
        let first = rows.first();
        let engine = first.and_then(|row| Self::text(row, 10)).unwrap_or_default();
        Ok(Look {
            columns,
            fault: (engine != "InnoDB").then(|| format!("its engine is {engine:?}, not InnoDB")),
            largest_statement: first.and_then(|row| Self::integer(row, 11)).map(i64::unsigned_abs),
        })
    }

    async fn in_transaction(connection: &mut MySqlConnection) -> sqlx::Result<bool> {
        let asked = Statement::new(&"SELECT @@in_transaction".into());
        let rows = Self::fetch(connection, asked).await?;
        Ok(rows.first().and_then(|row| Self::integer(row, 0)) == Some(1))
    }

    async fn lead(
        pool: &MySqlPool,
        table: &Table,
        _: &Arc<Mutex<()>>,
        wait: Duration,
    ) -> sqlx::Result<Option<RelayLock>> {
        // The names of locks are the server's, and at most 64 characters long.
        let schema = table.schema().map_or_else(|| "DATABASE()".to_owned(), literal);
        let take = format!(
            "SELECT GET_LOCK(CONCAT('acemq-relay-', SHA1(CONCAT({schema}, '.', {}))), 0)",
            literal(table.name())
        );
        let end_in_silence = format!("SET SESSION wait_timeout = {}", lead::SILENCE);
        let end_in_silence = Statement::new(&end_in_silence.into());
        lead::by_session::<MySql>(pool, end_in_silence, Statement::new(&take.into()), wait).await
    }

    fn time(time: SystemTime) -> String {
        time::text(time)
    }

    fn sent_bytes(value: &str) -> u64 {
        literal_size(value) as u64
    }

    fn in_parts(list: Vec<String>) -> Vec<Vec<String>> {
        in_parts(list)
    }

    fn failures(failures: Vec<Failure>) -> Vec<Value> {
        let (mut ids, mut tokens, mut reasons, mut waits) = (vec![], vec![], vec![], vec![]);
        for Failure { id, token, reason, wait } in failures {
            ids.push(id);
            tokens.push(token);
            reasons.push(reason);
            waits.push(wait.to_string());
        }
        [ids, tokens, reasons, waits].map(Value::List).into()
    }

    fn placeholders(sql: &str) -> Cow<'_, str> {
        Cow::Owned(with_question_marks(sql))
    }

    async fn run(connection: &mut MySqlConnection, statement: Statement) -> sqlx::Result<u64> {
        let sql = AssertSqlSafe(with_values(&statement));
        Ok(unheard(connection.execute(sqlx::raw_sql(sql))).await?.rows_affected())
    }

    async fn fetch(
        connection: &mut MySqlConnection,
        statement: Statement,
    ) -> sqlx::Result<Vec<MySqlRow>> {
        let sql = AssertSqlSafe(with_values(&statement));
        unheard(connection.fetch_all(sqlx::raw_sql(sql))).await
    }

    fn read_time(row: &MySqlRow, column: usize) -> Option<SystemTime> {
        time::parse(&Self::text(row, column)?)
    }

    read_rows!(MySql);
}

/// A column as its bytes, whatever character set the session would have it in.
fn cast(column: &str) -> String {
    format!("CAST({column} AS BINARY)")
}

fn kind(data_type: &str, charset: Option<&str>) -> Kind {
    match data_type {
        // Other character sets would make question marks of what they do not hold, and `char` drops
        // spaces.
        "varchar" | "tinytext" | "text" | "mediumtext" | "longtext"
            if charset == Some("utf8mb4") =>
        {
            Kind::Text
        }
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" => Kind::Integer,
        // Not `timestamp`, whose values depend on the zone of the session.
        "datetime" => Kind::ZonelessTime,
        _ => Kind::Other,
    }
}

/// Whether different text is never the same for a collation, not even by its last spaces.
fn compares_bytes(collation: &str) -> bool {
    collation.ends_with("_nopad_bin") || collation == "utf8mb4_0900_bin"
}

#[cfg(test)]
mod tests {
    use sqlx::Connection;
    use testkit::MariaDbDatabase;

    use super::*;
    use crate::database::Claim;

    async fn run(connection: &mut MySqlConnection, sql: &str) {
        MariaDbDialect::run(connection, Statement::new(&sql.into())).await.unwrap();
    }

    /// How MariaDB goes about the first statement of some: the index it uses, and what else it
    /// has to do.
    async fn plan(connection: &mut MySqlConnection, statement: Statement) -> (String, String) {
        let sql = statement.sql.trim_start_matches(READ_COMMITTED);
        let first = sql.split(';').next().unwrap_or_default();
        let explain = Statement { sql: format!("EXPLAIN {first}").into(), ..statement };
        let rows = MariaDbDialect::fetch(connection, explain).await.unwrap();
        let text = |column| MariaDbDialect::text(&rows[0], column).unwrap_or_default();
        (text(5), text(9))
    }

    #[test]
    fn marks_of_many_records_each_fit_a_record_of_tls() {
        let table = Table::new(&"t".repeat(50));
        let options = OutboxOptions { max_attempts: 10, indexed_by_key: true, notify: false };
        let sql = MariaDbDialect::outbox_sql(&table, &Layout::default(), &options);
        for ids in MariaDbDialect::in_parts((0..1_000).map(|n| format!("{n:036}")).collect()) {
            let mark = with_values(&Statement::new(&sql.publish).list(ids));
            assert!(mark.len() < 16 * 1024, "{}", mark.len());
        }
    }

    #[tokio::test]
    async fn claims_read_an_index_in_order_and_changes_go_by_primary_key() {
        let Some(database) = MariaDbDatabase::create().await else { return };
        let mut connection = MySqlConnection::connect(database.url()).await.unwrap();
        let table = Table::new("o");
        let options = OutboxOptions { max_attempts: 10, indexed_by_key: true, notify: false };
        let schema = MariaDbDialect::outbox_schema(&table, &options);
        let [ours, by_key] = schema.try_into().unwrap();
        // As Rails makes it: without the column of what is due, and so without its index.
        let due = ours.find("due_10").unwrap()..ours.find("INDEX `o_pending`").unwrap();
        let rails = ours.replace(", INDEX `o_due` (due_10, created_at, id)", "");
        let rails = rails.replace(&ours[due], "");
        for (create, index) in [(ours, "o_due"), (rails, "o_pending")] {
            run(&mut connection, "DROP TABLE IF EXISTS o").await;
            run(&mut connection, &create).await;
            run(&mut connection, &by_key).await;
            run(
                &mut connection,
                "INSERT INTO o (id, exchange_name, routing_key, body, body_encoding, \
                 content_type, headers, created_at, published_at, attempts) \
                 SELECT seq, '', '', '', '', '', '', UTC_TIMESTAMP(6), \
                 IF(seq % 3 = 0, UTC_TIMESTAMP(6), NULL), IF(seq % 3 = 1, 10, 0) \
                 FROM seq_1_to_3000",
            )
            .await;
            run(&mut connection, "ANALYZE TABLE o").await;
            let look = MariaDbDialect::look(&mut connection, &table).await.unwrap();
            let layout = crate::table::OUTBOX.check(&table, look, &[]).unwrap();
            let sql = MariaDbDialect::outbox_sql(&table, &layout, &options);

            let Claim::Picked(pick) = &sql.claim else { panic!("MariaDB picks first") };
            for (in_order, index) in [
                (pick, index),
                (&sql.by_age, "o_pending"),
                (&sql.by_key, "o_key"),
                (&sql.after_key, "o_key"),
            ] {
                let look = Statement::new(in_order).integer(100).text("a").text("b");
                let (key, extra) = plan(&mut connection, look).await;
                assert_eq!(key, index, "{in_order}");
                assert!(!extra.contains("filesort"), "the backlog is sorted: {extra}");
            }
            let ids = || Value::List((1..2_900).map(|n| n.to_string()).collect());
            let mark = |sql| Statement::new(sql).value(ids()).text("t").integer(1);
            let failures = (1..2_900).map(|n| Failure {
                id: n.to_string(),
                token: "t".to_owned(),
                reason: "r".to_owned(),
                wait: 1,
            });
            let failures = MariaDbDialect::failures(failures.collect());
            for change in [
                mark(&sql.take),
                mark(&sql.retry),
                mark(&sql.publish),
                mark(&sql.give_back),
                mark(&sql.renew),
                failures.into_iter().fold(Statement::new(&sql.fail), Statement::value),
                sql.purge.change(ids()).integer(1),
            ] {
                let text = change.sql.to_string();
                assert_eq!(plan(&mut connection, change).await.0, "PRIMARY", "{text}");
            }
        }
    }
}
