//! The idempotency store in MariaDB's SQL.

use super::{NOW, OPTIONS, READ_COMMITTED, cast, transaction};
use crate::{
    database::{Batch, IdempotencySql},
    table::{Layout, Table},
};

pub(super) fn statements(table: &Table, _: &Layout) -> IdempotencySql {
    let t = table.quoted('`');
    IdempotencySql {
        // How many rows an insert changed does not tell a new one from one that was there:
        // sqlx has the server count the rows that were found. The token tells.
        insert: format!(
            "{READ_COMMITTED}INSERT INTO {t} \
             (message_id, state, claimed_by, recorded_at, expires_at) \
             VALUES ($1, 'CLAIMED', $2, {NOW}, {NOW} + INTERVAL $3 MICROSECOND) \
             ON DUPLICATE KEY UPDATE message_id = message_id; \
             SELECT 1 FROM {t} WHERE message_id = $1 AND claimed_by = $2"
        )
        .into(),
        look: format!(
            "SELECT {}, expires_at <= {NOW} FROM {t} WHERE message_id = $1",
            cast("state")
        )
        .into(),
        take_over: format!(
            "{READ_COMMITTED}UPDATE {t} SET state = 'CLAIMED', claimed_by = $2, \
             recorded_at = {NOW}, expires_at = {NOW} + INTERVAL $3 MICROSECOND \
             WHERE message_id = $1 AND expires_at <= {NOW}"
        )
        .into(),
        confirm: format!(
            "{READ_COMMITTED}INSERT INTO {t} \
             (message_id, state, claimed_by, recorded_at, expires_at) \
             VALUES ($1, 'CONFIRMED', NULL, {NOW}, {NOW} + INTERVAL $2 MICROSECOND) \
             ON DUPLICATE KEY UPDATE state = VALUES(state), claimed_by = NULL, \
             recorded_at = VALUES(recorded_at), expires_at = VALUES(expires_at)"
        )
        .into(),
        confirm_batch: format!(
            "{READ_COMMITTED}UPDATE {t} FORCE INDEX (PRIMARY) SET state = 'CONFIRMED', \
             claimed_by = NULL, recorded_at = {NOW}, \
             expires_at = {NOW} + INTERVAL $2 MICROSECOND WHERE message_id IN ($1)"
        )
        .into(),
        release: format!(
            "{READ_COMMITTED}DELETE FROM {t} \
             WHERE message_id = $1 AND claimed_by = $2 AND state = 'CLAIMED'"
        )
        .into(),
        renew: format!(
            "{READ_COMMITTED}UPDATE {t} SET expires_at = {NOW} + INTERVAL $3 MICROSECOND \
             WHERE message_id = $1 AND claimed_by = $2 AND state = 'CLAIMED'"
        )
        .into(),
        purge: Batch::picked(
            format!(
                "SELECT {} FROM {t} WHERE expires_at <= {NOW} ORDER BY expires_at LIMIT $1",
                cast("message_id")
            ),
            format!(
                "{READ_COMMITTED}DELETE old FROM {t} AS old FORCE INDEX (PRIMARY) \
                 WHERE message_id IN ($1) AND expires_at <= {NOW}"
            ),
        ),
        size: format!("SELECT count(*) FROM {t}").into(),
        in_transaction: transaction::claim_sql(table),
    }
}

pub(super) fn schema(table: &Table) -> Vec<String> {
    let (t, name) = (table.quoted('`'), table.name());
    vec![format!(
        "CREATE TABLE IF NOT EXISTS {t} (\
         message_id VARCHAR(255) NOT NULL PRIMARY KEY, \
         state VARCHAR(16) NOT NULL, \
         claimed_by VARCHAR(64), \
         recorded_at DATETIME(6) NOT NULL, \
         expires_at DATETIME(6) NOT NULL, \
         INDEX `{name}_expiry` (expires_at)) {OPTIONS}"
    )]
}
