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

mod text;

use std::{borrow::Cow, time::SystemTime};

use sqlx::{AssertSqlSafe, Executor, MySql, MySqlConnection, mysql::MySqlRow};
use tracing::{instrument::WithSubscriber, subscriber::NoSubscriber};

use self::text::{literal, literal_size, with_question_marks, with_values};
use crate::{
    database::{Batch, Dialect, Failure, IdempotencySql, OutboxSql, SqlDatabase, read_rows},
    insert::Insert,
    statement::{Statement, Value},
    table::{Column, Kind, Layout, Look, Table, Times},
    time,
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

    fn outbox_sql(table: &Table, layout: &Layout, max_attempts: u32) -> OutboxSql {
        let t = table.quoted('`');
        let by_id = format!("{t} FORCE INDEX (PRIMARY)");
        let waiting = format!("published_at IS NULL AND attempts < {max_attempts}");
        let free = format!("(locked_until IS NULL OR locked_until <= {NOW})");
        let due = due_column(max_attempts);
        let listed = match layout.column(&due) {
            Some(_) => format!("{due} = 1"),
            None => waiting.clone(),
        };
        let mut insert = Insert::new(
            format!(
                "INSERT INTO {t} (id, exchange_name, routing_key, body, body_encoding, \
                 content_type, headers, created_at, attempts) VALUES "
            ),
            insert_row,
            // What is there stays as it is; IGNORE would also cut what does not fit.
            " ON DUPLICATE KEY UPDATE id = id",
            layout,
        );
        if layout.column("id").is_some_and(|id| id.loose.is_some()) {
            // Locking, so that it sees rows that committed after the caller's snapshot.
            insert.present = Some(
                format!("SELECT {} FROM {by_id} WHERE id IN ($1) FOR UPDATE", cast("id")).into(),
            );
        }
        OutboxSql {
            insert,
            claim: Batch::picked(
                // A row that somebody holds is passed over instead of waited for. Not ordered by
                // published_at, which is null: with it the backlog would be sorted every time.
                format!(
                    "{READ_COMMITTED}SELECT {} FROM {t} WHERE {listed} AND {free} \
                     ORDER BY created_at, id LIMIT $1 FOR UPDATE SKIP LOCKED",
                    cast("id")
                ),
                // Two statements that hold no lock between them: who updates first has the row,
                // and a relay that stops in the middle holds up nobody.
                format!(
                    "{READ_COMMITTED}UPDATE {by_id} SET locked_by = $2, \
                     locked_until = {NOW} + INTERVAL $3 MICROSECOND \
                     WHERE id IN ($1) AND {waiting} AND {free}; \
                     SELECT {}, {}, {}, {}, {}, {}, {}, {}, attempts FROM {by_id} \
                     WHERE id IN ($1) AND locked_by = $2",
                    cast("id"),
                    cast("exchange_name"),
                    cast("routing_key"),
                    cast("body"),
                    cast("body_encoding"),
                    cast("content_type"),
                    cast("headers"),
                    cast("created_at"),
                ),
            ),
            publish: format!(
                "{READ_COMMITTED}UPDATE {by_id} SET published_at = {NOW}, locked_by = NULL, \
                 locked_until = NULL WHERE id IN ($1) AND published_at IS NULL"
            )
            .into(),
            fail: format!(
                "{READ_COMMITTED}UPDATE {by_id} SET attempts = attempts + 1, \
                 last_error = {}, locked_by = NULL, \
                 locked_until = {NOW} + INTERVAL {} MICROSECOND \
                 WHERE id IN ($1) AND locked_by = {} AND published_at IS NULL",
                of_its_own("$3"),
                of_its_own("$4"),
                of_its_own("$2"),
            )
            .into(),
            give_back: format!(
                "{READ_COMMITTED}UPDATE {by_id} SET locked_by = NULL, locked_until = NULL \
                 WHERE id IN ($1) AND locked_by = $2 AND published_at IS NULL"
            )
            .into(),
            renew: format!(
                "{READ_COMMITTED}UPDATE {by_id} SET locked_until = {NOW} + INTERVAL $3 MICROSECOND \
                 WHERE id IN ($1) AND locked_by = $2 AND published_at IS NULL"
            )
            .into(),
            pending: format!("SELECT count(*) FROM {t} WHERE published_at IS NULL").into(),
            stuck: format!(
                "SELECT {}, {}, {}, attempts, {}, {} FROM {t} \
                 WHERE published_at IS NULL AND attempts >= {max_attempts} \
                 ORDER BY created_at, id LIMIT $1",
                cast("id"),
                cast("exchange_name"),
                cast("routing_key"),
                cast("last_error"),
                cast("created_at"),
            )
            .into(),
            purge: Batch::picked(
                format!(
                    "SELECT {} FROM {t} WHERE published_at <= {NOW} - INTERVAL $2 MICROSECOND \
                     ORDER BY published_at LIMIT $1",
                    cast("id")
                ),
                format!(
                    "{READ_COMMITTED}DELETE old FROM {t} AS old FORCE INDEX (PRIMARY) \
                     WHERE id IN ($1) AND published_at <= {NOW} - INTERVAL $2 MICROSECOND"
                ),
            ),
            // Claims are taken at the head, so that is where others' are looked for.
            holders: format!(
                "SELECT DISTINCT {} FROM (SELECT locked_by, locked_until FROM {t} \
                 WHERE {listed} ORDER BY created_at, id LIMIT 5000) AS head \
                 WHERE locked_by IS NOT NULL AND locked_until > {NOW}",
                cast("locked_by")
            )
            .into(),
        }
    }

    fn outbox_schema(table: &Table, max_attempts: u32) -> Vec<String> {
        let (t, name, due) = (table.quoted('`'), table.name(), due_column(max_attempts));
        vec![format!(
            "CREATE TABLE IF NOT EXISTS {t} (\
             id VARCHAR(64) NOT NULL PRIMARY KEY, \
             exchange_name VARCHAR(255) NOT NULL, \
             routing_key VARCHAR(255) NOT NULL, \
             body LONGTEXT NOT NULL, \
             body_encoding VARCHAR(16) NOT NULL, \
             content_type VARCHAR(255) NOT NULL, \
             headers LONGTEXT NOT NULL, \
             created_at DATETIME(6) NOT NULL, \
             published_at DATETIME(6), \
             attempts INTEGER NOT NULL DEFAULT 0, \
             last_error VARCHAR(1000), \
             locked_by VARCHAR(64), \
             locked_until DATETIME(6), \
             {due} TINYINT AS (IF(published_at IS NULL AND attempts < {max_attempts}, 1, NULL)) \
             STORED INVISIBLE, \
             INDEX `{name}_pending` (published_at, created_at), \
             INDEX `{name}_due` ({due}, created_at, id)) {OPTIONS}"
        )]
    }

    fn idempotency_sql(table: &Table, _: &Layout) -> IdempotencySql {
        let t = table.quoted('`');
        IdempotencySql {
            // How many rows an insert changed does not tell a new one from one that was there:
            // sqlx has the server count the rows that were found. The token tells.
            insert: format!(
                "{READ_COMMITTED}INSERT INTO {t} \
                 (message_id, state, claimed_by, recorded_at, expires_at) \
                 VALUES ($1, 'CLAIMED', $2, {NOW}, {NOW} + INTERVAL $3 MICROSECOND) \
                 ON DUPLICATE KEY UPDATE message_id = message_id; \
                 SELECT 1 FROM {t} WHERE message_id = $1 AND claimed_by = $2"
            )
            .into(),
            look: format!(
                "SELECT {}, expires_at <= {NOW} FROM {t} WHERE message_id = $1",
                cast("state")
            )
            .into(),
            take_over: format!(
                "{READ_COMMITTED}UPDATE {t} SET state = 'CLAIMED', claimed_by = $2, \
                 recorded_at = {NOW}, expires_at = {NOW} + INTERVAL $3 MICROSECOND \
                 WHERE message_id = $1 AND expires_at <= {NOW}"
            )
            .into(),
            confirm: format!(
                "{READ_COMMITTED}INSERT INTO {t} \
                 (message_id, state, claimed_by, recorded_at, expires_at) \
                 VALUES ($1, 'CONFIRMED', NULL, {NOW}, {NOW} + INTERVAL $2 MICROSECOND) \
                 ON DUPLICATE KEY UPDATE state = VALUES(state), claimed_by = NULL, \
                 recorded_at = VALUES(recorded_at), expires_at = VALUES(expires_at)"
            )
            .into(),
            release: format!(
                "{READ_COMMITTED}DELETE FROM {t} \
                 WHERE message_id = $1 AND claimed_by = $2 AND state = 'CLAIMED'"
            )
            .into(),
            renew: format!(
                "{READ_COMMITTED}UPDATE {t} SET expires_at = {NOW} + INTERVAL $3 MICROSECOND \
                 WHERE message_id = $1 AND claimed_by = $2 AND state = 'CLAIMED'"
            )
            .into(),
            purge: Batch::picked(
                format!(
                    "SELECT {} FROM {t} WHERE expires_at <= {NOW} ORDER BY expires_at LIMIT $1",
                    cast("message_id")
                ),
                format!(
                    "{READ_COMMITTED}DELETE old FROM {t} AS old FORCE INDEX (PRIMARY) \
                     WHERE message_id IN ($1) AND expires_at <= {NOW}"
                ),
            ),
            size: format!("SELECT count(*) FROM {t}").into(),
        }
    }

    fn idempotency_schema(table: &Table) -> Vec<String> {
        let (t, name) = (table.quoted('`'), table.name());
        vec![format!(
            "CREATE TABLE IF NOT EXISTS {t} (\
             message_id VARCHAR(255) NOT NULL PRIMARY KEY, \
             state VARCHAR(16) NOT NULL, \
             claimed_by VARCHAR(64), \
             recorded_at DATETIME(6) NOT NULL, \
             expires_at DATETIME(6) NOT NULL, \
             INDEX `{name}_expiry` (expires_at)) {OPTIONS}"
        )]
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
                is_key: keys == 1 && truth(row, 9),
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

    fn time(time: SystemTime) -> String {
        time::text(time)
    }

    fn sent_bytes(value: &str) -> u64 {
        literal_size(value) as u64
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

fn insert_row(first: usize, _: Times) -> String {
    let [a, b, c, d, e, f, g, h] = std::array::from_fn(|n| first + n);
    format!("(${a}, ${b}, ${c}, ${d}, ${e}, ${f}, ${g}, ${h}, 0)")
}

/// The column by which a table of ours finds what is due: exhausted records are not in its index
/// at all, however many there are. Named after the number of attempts that it was made for.
fn due_column(max_attempts: u32) -> String {
    format!("due_{max_attempts}")
}

/// A column as its bytes, whatever character set the session would have it in.
fn cast(column: &str) -> String {
    format!("CAST({column} AS BINARY)")
}

/// Of a list, the value at the place that the row's id has in the list of ids.
fn of_its_own(list: &str) -> String {
    format!("ELT(FIELD(id, $1), {list})")
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

/// Runs a statement without what sqlx says of it: it would log the text, messages and all, of each
/// at debug level and of every slow one as a warning. Nothing keeps it from doing so where only the
/// `log` facade listens.
async fn unheard<T>(statement: impl Future<Output = T>) -> T {
    if tracing::dispatcher::has_been_set() {
        statement.with_subscriber(NoSubscriber::default()).await
    } else {
        statement.await
    }
}

#[cfg(test)]
mod tests {
    use sqlx::Connection;
    use testkit::MariaDbDatabase;

    use super::*;

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

    #[tokio::test]
    async fn claims_read_an_index_in_order_and_changes_go_by_primary_key() {
        let Some(database) = MariaDbDatabase::create().await else { return };
        let mut connection = MySqlConnection::connect(database.url()).await.unwrap();
        let table = Table::new("o");
        let ours = MariaDbDialect::outbox_schema(&table, 10).swap_remove(0);
        // As Rails makes it: without the column of what is due, and so without its index.
        let due = ours.find("due_10").unwrap()..ours.find("INDEX `o_pending`").unwrap();
        let rails = ours.replace(", INDEX `o_due` (due_10, created_at, id)", "");
        let rails = rails.replace(&ours[due], "");
        for (create, index) in [(ours, "o_due"), (rails, "o_pending")] {
            run(&mut connection, "DROP TABLE IF EXISTS o").await;
            run(&mut connection, &create).await;
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
            let sql = MariaDbDialect::outbox_sql(&table, &layout, 10);

            let (key, extra) = plan(&mut connection, sql.claim.pick(100).unwrap()).await;
            assert_eq!(key, index);
            assert!(!extra.contains("filesort"), "the backlog is sorted: {extra}");
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
                sql.claim.change(ids()).text("t").integer(1),
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
