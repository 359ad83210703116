//! The schema registry in SQLite's SQL.

use super::NOW;
use crate::{database::SchemasSql, table::Table};

pub(super) fn statements(table: &Table) -> SchemasSql {
    let (t, sequence) = (table.quoted('"'), table.beside("_seq").quoted('"'));
    let schemas = format!(
        "SELECT s.id, CAST(s.subject AS TEXT), CAST(s.format AS TEXT), \
         CAST(s.definition AS TEXT), \
         (SELECT count(*) FROM {t} AS e WHERE e.subject = s.subject AND e.id <= s.id) \
         FROM {t} AS s"
    );
    SchemasSql {
        find: format!("SELECT id, CAST(format AS TEXT) FROM {t} WHERE fingerprint = $1").into(),
        by_id: format!("{schemas} WHERE s.id = $1").into(),
        versions: format!("{schemas} WHERE s.subject = $1 ORDER BY s.id").into(),
        count: format!("UPDATE {sequence} SET last_id = last_id + 1 WHERE only_row = 1").into(),
        begin_count: format!(
            "INSERT INTO {sequence} (only_row, last_id) SELECT 1, COALESCE(max(id), 0) FROM {t}"
        )
        .into(),
        counted: format!("SELECT last_id FROM {sequence} WHERE only_row = 1").into(),
        insert: format!(
            "INSERT INTO {t} (id, fingerprint, format, subject, definition, registered_at) \
             VALUES ($1, $2, $3, $4, $5, {NOW})"
        )
        .into(),
    }
}

pub(super) fn schema(table: &Table) -> Vec<String> {
    let (t, schema, name) = (table.quoted('"'), table.prefix('"'), table.name());
    let sequence = table.beside("_seq").quoted('"');
    vec![
        format!(
            "CREATE TABLE IF NOT EXISTS {t} (\
             id INTEGER NOT NULL PRIMARY KEY, \
             fingerprint VARCHAR(64) NOT NULL, \
             format VARCHAR(32) NOT NULL, \
             subject VARCHAR(255) NOT NULL, \
             definition TEXT NOT NULL, \
             registered_at TIMESTAMP NOT NULL)"
        ),
        format!(
            "CREATE UNIQUE INDEX IF NOT EXISTS {schema}\"{name}_fingerprint\" \
             ON \"{name}\" (fingerprint)"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {sequence} (\
             only_row INTEGER NOT NULL PRIMARY KEY, last_id INTEGER NOT NULL)"
        ),
        format!(
            "INSERT INTO {sequence} (only_row, last_id) VALUES (1, 0) \
             ON CONFLICT (only_row) DO NOTHING"
        ),
    ]
}
