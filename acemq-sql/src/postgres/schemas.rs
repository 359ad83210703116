//! The schema registry in PostgreSQL's SQL.

use super::written;
use crate::{
    database::SchemasSql,
    table::{Layout, Table},
};

pub(super) fn statements(table: &Table, layout: &Layout) -> SchemasSql {
    let (t, sequence) = (table.quoted('"'), table.beside("_seq").quoted('"'));
    let now = written(layout.times);
    let schemas = format!(
        "SELECT s.id::bigint, s.subject, s.format, s.definition, \
         (SELECT count(*) FROM {t} AS e WHERE e.subject = s.subject AND e.id <= s.id) \
         FROM {t} AS s"
    );
    SchemasSql {
        find: format!("SELECT id::bigint, format FROM {t} WHERE fingerprint = $1").into(),
        by_id: format!("{schemas} WHERE s.id = $1").into(),
        versions: format!("{schemas} WHERE s.subject = $1 ORDER BY s.id").into(),
        count: format!("UPDATE {sequence} SET last_id = last_id + 1 WHERE only_row = 1").into(),
        begin_count: format!(
            "INSERT INTO {sequence} (only_row, last_id) SELECT 1, COALESCE(max(id), 0) FROM {t}"
        )
        .into(),
        counted: format!("SELECT last_id::bigint FROM {sequence} WHERE only_row = 1").into(),
        insert: format!(
            "INSERT INTO {t} (id, fingerprint, format, subject, definition, registered_at) \
             VALUES ($1, $2, $3, $4, $5, {now})"
        )
        .into(),
    }
}

pub(super) fn schema(table: &Table) -> Vec<String> {
    let (t, name, sequence) = (table.quoted('"'), table.name(), table.beside("_seq").quoted('"'));
    vec![
        format!(
            "CREATE TABLE IF NOT EXISTS {t} (\
             id INTEGER PRIMARY KEY, \
             fingerprint VARCHAR(64) NOT NULL, \
             format VARCHAR(32) NOT NULL, \
             subject VARCHAR(255) NOT NULL, \
             definition TEXT NOT NULL, \
             registered_at TIMESTAMPTZ NOT NULL)"
        ),
        format!("CREATE UNIQUE INDEX IF NOT EXISTS \"{name}_fingerprint\" ON {t} (fingerprint)"),
        format!(
            "CREATE TABLE IF NOT EXISTS {sequence} (\
             only_row INTEGER PRIMARY KEY, last_id INTEGER NOT NULL)"
        ),
        format!(
            "INSERT INTO {sequence} (only_row, last_id) VALUES (1, 0) \
             ON CONFLICT (only_row) DO NOTHING"
        ),
    ]
}
