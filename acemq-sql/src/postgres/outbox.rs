//! The outbox in PostgreSQL's SQL.

use super::{compared, read, written};
use crate::{
    database::{Batch, OutboxSql},
    insert::Insert,
    table::{Layout, Table, Times},
};

/// For the next statement alone, and sent with it: rows come from an index, one by one and in its
/// order. Of a table in which everything that comes is published soon PostgreSQL believes that next
/// to nothing waits, and that a bitmap of that would quickly be sorted. But a bitmap has every row
/// that was published since the last vacuum, and no scan of one ever learns to pass them over.
/// What it has to do against these settings it believes to be so dear that it would compile it.
pub(super) const BY_INDEX: &str = "SET LOCAL enable_bitmapscan = off; \
    SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off; SET LOCAL jit = off; ";

/// `published_at IS NULL` for a row that is named by its id. As a case, since an index of what is
/// not published must not be used to find it: all that waits would be read.
fn unpublished(column: &str) -> String {
    format!("CASE WHEN {column} IS NULL THEN true ELSE false END")
}

pub(super) fn statements(table: &Table, layout: &Layout, max_attempts: u32) -> OutboxSql {
    let t = table.quoted('"');
    let (now, seen) = (written(layout.times), compared(layout.times));
    let free = format!(
        "published_at IS NULL AND attempts < {max_attempts} \
         AND (locked_until IS NULL OR locked_until <= {seen})"
    );
    let created_at = read("created_at");
    let unpublished = unpublished("published_at");
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
            "{BY_INDEX}WITH due AS MATERIALIZED (SELECT id FROM {t} WHERE {free} \
             ORDER BY published_at, created_at, id LIMIT $1 FOR UPDATE SKIP LOCKED) \
             UPDATE {t} AS o SET locked_by = $2, \
             locked_until = {now} + $3 * INTERVAL '1 microsecond' \
             FROM due WHERE o.id = due.id \
             RETURNING o.id, o.exchange_name, o.routing_key, o.body, o.body_encoding, \
             o.content_type, o.headers, {}, o.attempts::bigint",
            read("o.created_at")
        )),
        publish: format!(
            "{BY_INDEX}UPDATE {t} SET published_at = {now}, locked_by = NULL, locked_until = NULL \
             WHERE id = ANY($1) AND {unpublished}"
        )
        .into(),
        fail: format!(
            "{BY_INDEX}UPDATE {t} AS o SET attempts = o.attempts + 1, last_error = f.reason, \
             locked_by = NULL, locked_until = {now} + f.wait * INTERVAL '1 microsecond' \
             FROM jsonb_to_recordset($1::jsonb) \
             AS f(id text, token text, reason text, wait bigint) \
             WHERE o.id = f.id AND o.locked_by = f.token AND {}",
            self::unpublished("o.published_at")
        )
        .into(),
        give_back: format!(
            "{BY_INDEX}UPDATE {t} SET locked_by = NULL, locked_until = NULL \
             WHERE id = ANY($1) AND locked_by = $2 AND {unpublished}"
        )
        .into(),
        renew: format!(
            "{BY_INDEX}UPDATE {t} SET locked_until = {now} + $3 * INTERVAL '1 microsecond' \
             WHERE id = ANY($1) AND locked_by = $2 AND {unpublished}"
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
            "{BY_INDEX}WITH old AS MATERIALIZED (SELECT id FROM {t} \
             WHERE published_at <= {seen} - $2 * INTERVAL '1 microsecond' \
             ORDER BY published_at LIMIT $1 FOR UPDATE SKIP LOCKED) \
             DELETE FROM {t} AS o USING old WHERE o.id = old.id"
        )),
        // Claims are taken at the head, so that is where others' are looked for.
        holders: format!(
            "{BY_INDEX}SELECT DISTINCT locked_by FROM (SELECT locked_by, locked_until FROM {t} \
             WHERE published_at IS NULL AND attempts < {max_attempts} \
             ORDER BY published_at, created_at, id LIMIT 5000) AS head \
             WHERE locked_by IS NOT NULL AND locked_until > {seen}"
        )
        .into(),
    }
}

pub(super) fn schema(table: &Table, max_attempts: u32) -> Vec<String> {
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
        format!("CREATE INDEX IF NOT EXISTS \"{name}_pending\" ON {t} (published_at, created_at)"),
        // Without the exhausted records, which would be read by every claim.
        format!(
            "CREATE INDEX IF NOT EXISTS \"{name}_due\" ON {t} (published_at, created_at, id) \
             WHERE published_at IS NULL AND attempts < {max_attempts}"
        ),
    ]
}

fn insert_row(first: usize, times: Times) -> String {
    let [a, b, c, d, e, f, g, h] = std::array::from_fn(|n| first + n);
    let created_at = match times {
        Times::Zoned => format!("${h}::text::timestamptz"),
        Times::Zoneless => format!("(${h}::text::timestamptz AT TIME ZONE 'UTC')"),
    };
    format!("(${a}, ${b}, ${c}, ${d}, ${e}, ${f}, ${g}, {created_at}, 0)")
}
