//! The idempotency store in SQLite's SQL.

use super::{NOW, later, transaction};
use crate::{
    database::{Batch, IdempotencySql},
    table::{Layout, Table},
};

pub(super) fn statements(table: &Table, _: &Layout) -> IdempotencySql {
    let t = table.quoted('"');
    let (after_2, after_3) = (later("$2"), later("$3"));
    IdempotencySql {
        insert: format!(
            "INSERT INTO {t} (message_id, state, claimed_by, recorded_at, expires_at) \
             VALUES ($1, 'CLAIMED', $2, {NOW}, {after_3}) \
             ON CONFLICT (message_id) DO NOTHING RETURNING 1"
        )
        .into(),
        look: format!(
            "SELECT CAST(state AS TEXT), expires_at <= {NOW} FROM {t} WHERE message_id = $1"
        )
        .into(),
        take_over: format!(
            "UPDATE {t} SET state = 'CLAIMED', claimed_by = $2, recorded_at = {NOW}, \
             expires_at = {after_3} WHERE message_id = $1 AND expires_at <= {NOW}"
        )
        .into(),
        confirm: format!(
            "INSERT INTO {t} (message_id, state, claimed_by, recorded_at, expires_at) \
             VALUES ($1, 'CONFIRMED', NULL, {NOW}, {after_2}) \
             ON CONFLICT (message_id) DO UPDATE SET state = excluded.state, \
             claimed_by = NULL, recorded_at = excluded.recorded_at, \
             expires_at = excluded.expires_at"
        )
        .into(),
        confirm_batch: format!(
            "UPDATE {t} SET state = 'CONFIRMED', claimed_by = NULL, recorded_at = {NOW}, \
             expires_at = {after_2} WHERE message_id IN (SELECT value FROM json_each($1))"
        )
        .into(),
        release: format!(
            "DELETE FROM {t} WHERE message_id = $1 AND claimed_by = $2 AND state = 'CLAIMED'"
        )
        .into(),
        renew: format!(
            "UPDATE {t} SET expires_at = {after_3} \
             WHERE message_id = $1 AND claimed_by = $2 AND state = 'CLAIMED'"
        )
        .into(),
        purge: Batch::at_once(format!(
            "DELETE FROM {t} WHERE message_id IN (SELECT message_id FROM {t} \
             WHERE expires_at <= {NOW} ORDER BY expires_at LIMIT $1)"
        )),
        size: format!("SELECT count(*) FROM {t}").into(),
        in_transaction: transaction::claim_sql(table),
    }
}

pub(super) fn schema(table: &Table) -> Vec<String> {
    let (t, schema, name) = (table.quoted('"'), table.prefix('"'), table.name());
    vec![
        format!(
            "CREATE TABLE IF NOT EXISTS {t} (\
             message_id VARCHAR(255) NOT NULL PRIMARY KEY, \
             state VARCHAR(16) NOT NULL, \
             claimed_by VARCHAR(64), \
             recorded_at TIMESTAMP NOT NULL, \
             expires_at TIMESTAMP NOT NULL)"
        ),
        format!("CREATE INDEX IF NOT EXISTS {schema}\"{name}_expiry\" ON \"{name}\" (expires_at)"),
    ]
}
