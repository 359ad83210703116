//! The outbox in SQLite's SQL.

use super::{NOW, later};
use crate::{
    database::{Batch, Claim, OutboxOptions, OutboxSql},
    insert::Insert,
    table::{Layout, Table, Times},
};

const SIZE: &str = "COALESCE(octet_length(body), 0)";

pub(super) fn statements(table: &Table, layout: &Layout, options: &OutboxOptions) -> OutboxSql {
    let max_attempts = options.max_attempts;
    let t = table.quoted('"');
    let free = format!(
        "published_at IS NULL AND attempts < {max_attempts} \
         AND (locked_until IS NULL OR locked_until <= {NOW})"
    );
    let is_claimed = format!("(locked_by IS NOT NULL AND locked_until > {NOW})");
    let looked_at = format!(
        "SELECT CAST(id AS TEXT), CAST(exchange_name AS TEXT), CAST(routing_key AS TEXT), \
         CASE WHEN {free} THEN 1 ELSE 0 END, {SIZE} FROM {t} WHERE published_at IS NULL"
    );
    let in_rows = "ORDER BY exchange_name, routing_key, created_at, id LIMIT $1";
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
        claim: Claim::Picked(
            format!(
                "SELECT CAST(id AS TEXT), {SIZE} FROM {t} WHERE {free} \
                 ORDER BY published_at, created_at, id LIMIT $1"
            )
            .into(),
        ),
        take: format!(
            "UPDATE {t} SET locked_by = $2, locked_until = {} \
             WHERE id IN (SELECT value FROM json_each($1)) AND +{free} \
             RETURNING CAST(id AS TEXT), CAST(exchange_name AS TEXT), \
             CAST(routing_key AS TEXT), CAST(body AS BLOB), CAST(body_encoding AS TEXT), \
             CAST(content_type AS TEXT), CAST(headers AS TEXT), \
             CAST(created_at AS TEXT), CAST(attempts AS INTEGER)",
            later("$3")
        )
        .into(),
        by_age: format!("{looked_at} ORDER BY created_at, id LIMIT $1").into(),
        by_key: format!("{looked_at} {in_rows}").into(),
        after_key: format!("{looked_at} AND (exchange_name, routing_key) > ($2, $3) {in_rows}")
            .into(),
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
        counts: format!(
            "SELECT count(*) FILTER (WHERE attempts < {max_attempts} AND {is_claimed} IS NOT TRUE), \
             count(*) FILTER (WHERE attempts < {max_attempts} AND {is_claimed}), \
             count(*) FILTER (WHERE attempts >= {max_attempts}), \
             CAST((julianday('now') - julianday(min(created_at))) * 86400000000 AS INTEGER) \
             FROM {t} WHERE published_at IS NULL"
        )
        .into(),
        stuck: format!(
            "SELECT CAST(id AS TEXT), CAST(exchange_name AS TEXT), CAST(routing_key AS TEXT), \
             CAST(attempts AS INTEGER), CAST(last_error AS TEXT), CAST(created_at AS TEXT) \
             FROM {t} WHERE published_at IS NULL AND attempts >= {max_attempts} \
             ORDER BY published_at, created_at, id LIMIT $1"
        )
        .into(),
        exhausted: format!(
            "SELECT CAST(id AS TEXT) FROM {t} \
             WHERE published_at IS NULL AND attempts >= {max_attempts}"
        )
        .into(),
        retry: format!(
            "UPDATE {t} SET attempts = 0, locked_by = NULL, locked_until = NULL \
             WHERE id IN (SELECT value FROM json_each($1)) AND +published_at IS NULL \
             AND attempts >= {max_attempts}"
        )
        .into(),
        discard: format!(
            "DELETE FROM {t} WHERE id = $1 AND +published_at IS NULL \
             AND (locked_by IS NULL OR locked_until IS NULL OR locked_until <= {NOW})"
        )
        .into(),
        unpublished: format!("SELECT 1 FROM {t} WHERE id = $1 AND +published_at IS NULL").into(),
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

pub(super) fn schema(table: &Table, options: &OutboxOptions) -> Vec<String> {
    let (t, schema, name) = (table.quoted('"'), table.prefix('"'), table.name());
    let max_attempts = options.max_attempts;
    let mut statements = vec![
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
    ];
    if options.indexed_by_key {
        // With published_at, which is null, in front: else the planner prefers the first index.
        statements.push(format!(
            "CREATE INDEX IF NOT EXISTS {schema}\"{name}_key\" ON \"{name}\" \
             (published_at, exchange_name, routing_key, created_at, id) \
             WHERE published_at IS NULL"
        ));
    }
    statements
}

fn insert_row(first: usize, _: Times) -> String {
    let [a, b, c, d, e, f, g, h] = std::array::from_fn(|n| first + n);
    format!("(${a}, ${b}, ${c}, ${d}, ${e}, ${f}, ${g}, ${h}, 0)")
}
