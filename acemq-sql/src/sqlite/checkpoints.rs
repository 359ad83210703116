//! The places of streams' readers in SQLite's SQL.

use super::NOW;
use crate::{database::CheckpointsSql, table::Table};

pub(super) fn statements(table: &Table) -> CheckpointsSql {
    let t = table.quoted('"');
    let columns = "(stream_name, reader_name, last_offset, saved_at)";
    let row = "stream_name = $1 AND reader_name = $2";
    CheckpointsSql {
        load: format!("SELECT last_offset FROM {t} WHERE {row}").into(),
        insert: format!(
            "INSERT INTO {t} {columns} VALUES ($1, $2, $3, {NOW}) \
             ON CONFLICT (stream_name, reader_name) DO NOTHING"
        )
        .into(),
        save: format!(
            "INSERT INTO {t} {columns} VALUES ($1, $2, $3, {NOW}) \
             ON CONFLICT (stream_name, reader_name) DO UPDATE \
             SET last_offset = excluded.last_offset, saved_at = excluded.saved_at \
             WHERE last_offset < excluded.last_offset"
        )
        .into(),
        forget: format!("DELETE FROM {t} WHERE {row}").into(),
        advance: format!(
            "UPDATE {t} SET last_offset = $3, saved_at = {NOW} WHERE {row} AND last_offset < $3"
        )
        .into(),
        make: format!(
            "INSERT INTO {t} {columns} VALUES ($1, $2, -1, {NOW}) \
             ON CONFLICT (stream_name, reader_name) DO NOTHING"
        )
        .into(),
    }
}

pub(super) fn schema(table: &Table) -> Vec<String> {
    let t = table.quoted('"');
    vec![format!(
        "CREATE TABLE IF NOT EXISTS {t} (\
         stream_name VARCHAR(255) NOT NULL, \
         reader_name VARCHAR(255) NOT NULL, \
         last_offset BIGINT NOT NULL, \
         saved_at TIMESTAMP NOT NULL, \
         PRIMARY KEY (stream_name, reader_name))"
    )]
}
