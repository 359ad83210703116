//! The outbox in PostgreSQL's SQL.

use super::{compared, notify::channel, read, written};
use crate::{
    database::{Batch, Claim, OutboxOptions, OutboxSql},
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

const SIZE: &str = "COALESCE(octet_length(body), 0)";

pub(super) fn statements(table: &Table, layout: &Layout, options: &OutboxOptions) -> OutboxSql {
    let max_attempts = options.max_attempts;
    let t = table.quoted('"');
    let (now, seen) = (written(layout.times), compared(layout.times));
    let free =
        format!("attempts < {max_attempts} AND (locked_until IS NULL OR locked_until <= {seen})");
    let created_at = read("created_at");
    let unpublished = unpublished("published_at");
    // In one statement with the insert, so that it costs no way to the server and back.
    let (with, notify) = if options.notify {
        ("WITH added AS (", format!(") SELECT pg_notify('{}', '')", channel(table)))
    } else {
        ("", String::new())
    };
    let is_claimed = format!("(locked_by IS NOT NULL AND locked_until > {seen})");
    let claimed = format!("locked_by = $2, locked_until = {now} + $3 * INTERVAL '1 microsecond'");
    let returned = format!(
        "RETURNING o.id, o.exchange_name, o.routing_key, o.body, o.body_encoding, \
         o.content_type, o.headers, {}, o.attempts::bigint",
        read("o.created_at")
    );
    let looked_at = format!(
        "SELECT id, exchange_name, routing_key, \
         CASE WHEN {free} THEN 1 ELSE 0 END::bigint, {SIZE}::bigint FROM {t} WHERE published_at IS NULL"
    );
    let in_rows = "ORDER BY exchange_name, routing_key, created_at, id LIMIT $1";
    OutboxSql {
        insert: Insert::new(
            format!(
                "{with}INSERT INTO {t} (id, exchange_name, routing_key, body, body_encoding, \
                 content_type, headers, created_at, attempts) VALUES "
            ),
            insert_row,
            &format!(" ON CONFLICT (id) DO NOTHING{notify}"),
            layout,
        ),
        // Ordered by published_at as well, because that is how the index begins: without it
        // every claim sorts the whole backlog. The size of a body is known without reading it.
        // A row that was locked is found again by its place, which costs a third of finding it in
        // an index; the id is asked for as well, since the parts of a partitioned table each have
        // places of their own. One that was changed by another relay after this statement began,
        // and before it was locked, is left to the next claim.
        claim: Claim::AtOnce(
            format!(
                "{BY_INDEX}WITH due AS MATERIALIZED (SELECT ctid AS spot, id, created_at, \
                 {SIZE} AS size \
                 FROM {t} WHERE published_at IS NULL AND {free} \
                 ORDER BY published_at, created_at, id LIMIT $1 FOR UPDATE SKIP LOCKED), \
                 fitting AS MATERIALIZED (SELECT spot, id FROM (SELECT spot, id, \
                 row_number() OVER oldest AS place, sum(size) OVER oldest AS total FROM due \
                 WINDOW oldest AS (ORDER BY created_at, id ROWS UNBOUNDED PRECEDING)) AS sized \
                 WHERE place = 1 OR total <= $4) \
                 UPDATE {t} AS o SET {claimed} FROM fitting \
                 WHERE o.ctid = fitting.spot AND o.id = fitting.id {returned}"
            )
            .into(),
        ),
        take: format!(
            "{BY_INDEX}UPDATE {t} AS o SET {claimed} \
             WHERE o.id = ANY($1) AND {unpublished} AND {free} {returned}"
        )
        .into(),
        by_age: format!("{BY_INDEX}{looked_at} ORDER BY published_at, created_at, id LIMIT $1").into(),
        by_key: format!("{BY_INDEX}{looked_at} {in_rows}").into(),
        after_key: format!("{BY_INDEX}{looked_at} AND (exchange_name, routing_key) > ($2, $3) {in_rows}")
            .into(),
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
        counts: format!(
            "SELECT count(*) FILTER (WHERE attempts < {max_attempts} AND {is_claimed} IS NOT TRUE), \
             count(*) FILTER (WHERE attempts < {max_attempts} AND {is_claimed}), \
             count(*) FILTER (WHERE attempts >= {max_attempts}), \
             (extract(epoch FROM {seen} - min(created_at) FILTER (WHERE isfinite(created_at))) \
             * 1000000)::bigint FROM {t} WHERE published_at IS NULL"
        )
        .into(),
        stuck: format!(
            "SELECT id, exchange_name, routing_key, attempts::bigint, last_error, \
             {created_at} FROM {t} \
             WHERE published_at IS NULL AND attempts >= {max_attempts} \
             ORDER BY published_at, created_at, id LIMIT $1"
        )
        .into(),
        exhausted: format!(
            "SELECT id FROM {t} WHERE published_at IS NULL AND attempts >= {max_attempts}"
        )
        .into(),
        retry: format!(
            "{BY_INDEX}UPDATE {t} SET attempts = 0, locked_by = NULL, locked_until = NULL \
             WHERE id = ANY($1) AND {unpublished} AND attempts >= {max_attempts}"
        )
        .into(),
        discard: format!(
            "DELETE FROM {t} WHERE id = $1 AND {unpublished} AND {is_claimed} IS NOT TRUE"
        )
        .into(),
        unpublished: format!("SELECT 1::bigint FROM {t} WHERE id = $1 AND {unpublished}")
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

pub(super) fn schema(table: &Table, options: &OutboxOptions) -> Vec<String> {
    let (t, name, max_attempts) = (table.quoted('"'), table.name(), options.max_attempts);
    let mut statements = vec![
        // A claim changes no column that is in an index. With room for the changed row beside it,
        // it leaves the indexes alone, which is half of its cost.
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
             locked_until TIMESTAMPTZ) WITH (fillfactor = 50)"
        ),
        format!("CREATE INDEX IF NOT EXISTS \"{name}_pending\" ON {t} (published_at, created_at)"),
        // Without the exhausted records, which would be read by every claim.
        format!(
            "CREATE INDEX IF NOT EXISTS \"{name}_due\" ON {t} (published_at, created_at, id) \
             WHERE published_at IS NULL AND attempts < {max_attempts}"
        ),
    ];
    if options.indexed_by_key {
        statements.push(format!(
            "CREATE INDEX IF NOT EXISTS \"{name}_key\" ON {t} \
             (exchange_name, routing_key, created_at, id) WHERE published_at IS NULL"
        ));
    }
    statements
}

fn insert_row(first: usize, times: Times) -> String {
    let [a, b, c, d, e, f, g, h] = std::array::from_fn(|n| first + n);
    let created_at = match times {
        Times::Zoned => format!("${h}::text::timestamptz"),
        Times::Zoneless => format!("(${h}::text::timestamptz AT TIME ZONE 'UTC')"),
    };
    format!("(${a}, ${b}, ${c}, ${d}, ${e}, ${f}, ${g}, {created_at}, 0)")
}
