//! The schema registry in MariaDB's SQL.

use super::{NOW, OPTIONS, cast};
use crate::{database::SchemasSql, table::Table};

pub(super) fn statements(table: &Table) -> SchemasSql {
    let (t, sequence) = (table.quoted('`'), table.beside("_seq").quoted('`'));
    // The bytes decide where another's table has a collation for which `a` is `A`.
    let same =
        |one: &str, other: &str| format!("{one} = {other} AND {} = {}", cast(one), cast(other));
    let schemas = format!(
        "SELECT s.id, {}, {}, {}, \
         (SELECT count(*) FROM {t} AS e WHERE {} AND e.id <= s.id) FROM {t} AS s",
        cast("s.subject"),
        cast("s.format"),
        cast("s.definition"),
        same("e.subject", "s.subject")
    );
    SchemasSql {
        find: format!("SELECT id, {} FROM {t} WHERE fingerprint = $1", cast("format")).into(),
        by_id: format!("{schemas} WHERE s.id = $1").into(),
        versions: format!("{schemas} WHERE {} ORDER BY s.id", same("s.subject", "$1")).into(),
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
    let (t, name, sequence) = (table.quoted('`'), table.name(), table.beside("_seq").quoted('`'));
    vec![
        format!(
            "CREATE TABLE IF NOT EXISTS {t} (\
             id INTEGER NOT NULL PRIMARY KEY, \
             fingerprint VARCHAR(64) NOT NULL, \
             format VARCHAR(32) NOT NULL, \
             subject VARCHAR(255) NOT NULL, \
             definition LONGTEXT NOT NULL, \
             registered_at DATETIME(6) NOT NULL, \
             UNIQUE INDEX `{name}_fingerprint` (fingerprint)) {OPTIONS}"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {sequence} (\
             only_row INTEGER NOT NULL PRIMARY KEY, last_id INTEGER NOT NULL) {OPTIONS}"
        ),
        format!(
            "INSERT INTO {sequence} (only_row, last_id) VALUES (1, 0) \
             ON DUPLICATE KEY UPDATE only_row = only_row"
        ),
    ]
}
