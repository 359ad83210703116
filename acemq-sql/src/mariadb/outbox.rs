//! The outbox in MariaDB's SQL.

use super::{NOW, OPTIONS, READ_COMMITTED, cast};
use crate::{
    database::{Batch, Claim, OutboxOptions, OutboxSql},
    insert::Insert,
    table::{Layout, Table, Times},
};

const SIZE: &str = "COALESCE(OCTET_LENGTH(body), 0)";

pub(super) fn statements(table: &Table, layout: &Layout, options: &OutboxOptions) -> OutboxSql {
    let max_attempts = options.max_attempts;
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
        insert.present =
            Some(format!("SELECT {} FROM {by_id} WHERE id IN ($1) FOR UPDATE", cast("id")).into());
    }
    let is_claimed = format!("(locked_by IS NOT NULL AND locked_until > {NOW})");
    let looked_at = format!(
        "SELECT {}, {}, {}, IF({waiting} AND {free}, 1, 0), {SIZE} FROM {t} \
         WHERE published_at IS NULL",
        cast("id"),
        cast("exchange_name"),
        cast("routing_key"),
    );
    let in_rows = "ORDER BY exchange_name, routing_key, created_at, id LIMIT $1";
    OutboxSql {
        insert,
        // A row that somebody holds is passed over instead of waited for. Not ordered by
        // published_at, which is null: with it the backlog would be sorted every time.
        claim: Claim::Picked(
            format!(
                "{READ_COMMITTED}SELECT {}, {SIZE} FROM {t} WHERE {listed} AND {free} \
                 ORDER BY created_at, id LIMIT $1 FOR UPDATE SKIP LOCKED",
                cast("id")
            )
            .into(),
        ),
        // Two statements that hold no lock between them: who updates first has the row, and a
        // relay that stops in the middle holds up nobody.
        take: format!(
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
        )
        .into(),
        by_age: format!("{looked_at} ORDER BY created_at, id LIMIT $1").into(),
        by_key: format!("{looked_at} {in_rows}").into(),
        // Spelled out, since a comparison of rows does not use an index.
        after_key: format!(
            "{looked_at} AND (exchange_name > $2 OR (exchange_name = $2 AND routing_key > $3)) \
             {in_rows}"
        )
        .into(),
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
        counts: format!(
            "SELECT count(IF(attempts < {max_attempts} AND {is_claimed} IS NOT TRUE, 1, NULL)), \
             count(IF(attempts < {max_attempts} AND {is_claimed}, 1, NULL)), \
             count(IF(attempts >= {max_attempts}, 1, NULL)), \
             TIMESTAMPDIFF(MICROSECOND, min(created_at), {NOW}) \
             FROM {t} WHERE published_at IS NULL"
        )
        .into(),
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
        exhausted: format!(
            "SELECT {} FROM {t} WHERE published_at IS NULL AND attempts >= {max_attempts}",
            cast("id")
        )
        .into(),
        retry: format!(
            "{READ_COMMITTED}UPDATE {by_id} SET attempts = 0, locked_by = NULL, \
             locked_until = NULL WHERE id IN ($1) AND published_at IS NULL \
             AND attempts >= {max_attempts}"
        )
        .into(),
        discard: format!(
            "{READ_COMMITTED}DELETE FROM {t} WHERE id = $1 AND published_at IS NULL \
             AND {is_claimed} IS NOT TRUE"
        )
        .into(),
        unpublished: format!("SELECT 1 FROM {t} WHERE id = $1 AND published_at IS NULL").into(),
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

pub(super) fn schema(table: &Table, options: &OutboxOptions) -> Vec<String> {
    let max_attempts = options.max_attempts;
    let (t, name, due) = (table.quoted('`'), table.name(), due_column(max_attempts));
    let mut statements = vec![format!(
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
    )];
    if options.indexed_by_key {
        statements.push(format!(
            "CREATE INDEX IF NOT EXISTS `{name}_key` ON {t} \
             (published_at, exchange_name, routing_key, created_at, id)"
        ));
    }
    statements
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

/// Of a list, the value at the place that the row's id has in the list of ids.
fn of_its_own(list: &str) -> String {
    format!("ELT(FIELD(id, $1), {list})")
}
