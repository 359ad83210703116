//! The places of streams' readers in MariaDB's SQL.

use super::{NOW, OPTIONS, READ_COMMITTED};
use crate::{database::CheckpointsSql, table::Table};

pub(super) fn statements(table: &Table) -> CheckpointsSql {
    let t = table.quoted('`');
    let columns = "(stream_name, reader_name, last_offset, saved_at)";
    let row = "stream_name = $1 AND reader_name = $2";
    let patiently = |statement: &str| {
        format!("SET STATEMENT innodb_lock_wait_timeout = $4 FOR {statement}").into()
    };
    CheckpointsSql {
        load: format!("SELECT last_offset FROM {t} WHERE {row}").into(),
        insert: format!(
            "{READ_COMMITTED}INSERT INTO {t} {columns} VALUES ($1, $2, $3, {NOW}) \
             ON DUPLICATE KEY UPDATE last_offset = last_offset"
        )
        .into(),
        // Assigned from left to right: the time goes by the offset that was there.
        save: format!(
            "{READ_COMMITTED}INSERT INTO {t} {columns} VALUES ($1, $2, $3, {NOW}) \
             ON DUPLICATE KEY UPDATE \
             saved_at = IF(last_offset < VALUES(last_offset), VALUES(saved_at), saved_at), \
             last_offset = GREATEST(last_offset, VALUES(last_offset))"
        )
        .into(),
        forget: format!("{READ_COMMITTED}DELETE FROM {t} WHERE {row}").into(),
        // sqlx has the server count the rows that were found, which are those that are behind.
        advance: patiently(&format!(
            "UPDATE {t} SET last_offset = $3, saved_at = {NOW} WHERE {row} AND last_offset < $3"
        )),
        make: patiently(&format!(
            "INSERT INTO {t} {columns} VALUES ($1, $2, $3, {NOW}) \
             ON DUPLICATE KEY UPDATE last_offset = last_offset"
        )),
    }
}

pub(super) fn schema(table: &Table) -> Vec<String> {
    let t = table.quoted('`');
    vec![format!(
        "CREATE TABLE IF NOT EXISTS {t} (\
         stream_name VARCHAR(255) NOT NULL, \
         reader_name VARCHAR(255) NOT NULL, \
         last_offset BIGINT NOT NULL, \
         saved_at DATETIME(6) NOT NULL, \
         PRIMARY KEY (stream_name, reader_name)) {OPTIONS}"
    )]
}
