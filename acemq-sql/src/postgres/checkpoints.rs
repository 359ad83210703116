//! The places of streams' readers in PostgreSQL's SQL.

use super::{transaction::patiently, written};
use crate::{
    database::CheckpointsSql,
    table::{Layout, Table},
};

pub(super) fn statements(table: &Table, layout: &Layout) -> CheckpointsSql {
    let t = table.quoted('"');
    let now = written(layout.times);
    let columns = "(stream_name, reader_name, last_offset, saved_at)";
    let advance = format!(
        "UPDATE {t} AS c SET last_offset = $4::bigint, saved_at = {now} FROM patience \
         WHERE c.stream_name = $1 AND c.reader_name = $3 AND c.last_offset < $4::bigint RETURNING 1"
    );
    let make = format!(
        "INSERT INTO {t} {columns} SELECT $1, $3, -1, {now} FROM patience \
         ON CONFLICT (stream_name, reader_name) DO NOTHING RETURNING 1"
    );
    CheckpointsSql {
        load: format!(
            "SELECT last_offset::bigint FROM {t} WHERE stream_name = $1 AND reader_name = $2"
        )
        .into(),
        insert: format!(
            "INSERT INTO {t} {columns} VALUES ($1, $2, $3::bigint, {now}) \
             ON CONFLICT (stream_name, reader_name) DO NOTHING"
        )
        .into(),
        save: format!(
            "INSERT INTO {t} AS c {columns} VALUES ($1, $2, $3::bigint, {now}) \
             ON CONFLICT (stream_name, reader_name) DO UPDATE \
             SET last_offset = EXCLUDED.last_offset, saved_at = EXCLUDED.saved_at \
             WHERE c.last_offset < EXCLUDED.last_offset"
        )
        .into(),
        forget: format!("DELETE FROM {t} WHERE stream_name = $1 AND reader_name = $2").into(),
        advance: patiently(&advance, "count(*)", "").into(),
        make: patiently(&make, "count(*)", "").into(),
    }
}

pub(super) fn schema(table: &Table) -> Vec<String> {
    let t = table.quoted('"');
    vec![format!(
        "CREATE TABLE IF NOT EXISTS {t} (\
         stream_name VARCHAR(255) NOT NULL, \
         reader_name VARCHAR(255) NOT NULL, \
         last_offset BIGINT NOT NULL, \
         saved_at TIMESTAMPTZ NOT NULL, \
         PRIMARY KEY (stream_name, reader_name))"
    )]
}
