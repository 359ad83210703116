//! The idempotency store in PostgreSQL's SQL.

use super::{compared, transaction, written};
use crate::{
    database::{Batch, IdempotencySql},
    table::{Layout, Table},
};

pub(super) fn statements(table: &Table, layout: &Layout) -> IdempotencySql {
    let t = table.quoted('"');
    let (now, seen) = (written(layout.times), compared(layout.times));
    IdempotencySql {
        insert: format!(
            "INSERT INTO {t} (message_id, state, claimed_by, recorded_at, expires_at) \
             VALUES ($1, 'CLAIMED', $2, {now}, {now} + $3 * INTERVAL '1 microsecond') \
             ON CONFLICT (message_id) DO NOTHING RETURNING 1"
        )
        .into(),
        look: format!(
            "SELECT state, (expires_at <= {seen})::int::bigint FROM {t} WHERE message_id = $1"
        )
        .into(),
        take_over: format!(
            "UPDATE {t} SET state = 'CLAIMED', claimed_by = $2, recorded_at = {now}, \
             expires_at = {now} + $3 * INTERVAL '1 microsecond' \
             WHERE message_id = $1 AND expires_at <= {seen}"
        )
        .into(),
        confirm: format!(
            "INSERT INTO {t} (message_id, state, claimed_by, recorded_at, expires_at) \
             VALUES ($1, 'CONFIRMED', NULL, {now}, {now} + $2 * INTERVAL '1 microsecond') \
             ON CONFLICT (message_id) DO UPDATE SET state = EXCLUDED.state, \
             claimed_by = NULL, recorded_at = EXCLUDED.recorded_at, \
             expires_at = EXCLUDED.expires_at"
        )
        .into(),
        confirm_batch: format!(
            "UPDATE {t} SET state = 'CONFIRMED', claimed_by = NULL, recorded_at = {now}, \
             expires_at = {now} + $2 * INTERVAL '1 microsecond' WHERE message_id = ANY($1)"
        )
        .into(),
        release: format!(
            "DELETE FROM {t} WHERE message_id = $1 AND claimed_by = $2 AND state = 'CLAIMED'"
        )
        .into(),
        renew: format!(
            "UPDATE {t} SET expires_at = {now} + $3 * INTERVAL '1 microsecond' \
             WHERE message_id = $1 AND claimed_by = $2 AND state = 'CLAIMED'"
        )
        .into(),
        purge: Batch::at_once(format!(
            "WITH old AS MATERIALIZED (SELECT message_id FROM {t} WHERE expires_at <= {seen} \
             ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED) \
             DELETE FROM {t} AS i USING old WHERE i.message_id = old.message_id"
        )),
        size: format!("SELECT count(*) FROM {t}").into(),
        in_transaction: transaction::claim_sql(table, layout),
    }
}

pub(super) fn schema(table: &Table) -> Vec<String> {
    let (t, name) = (table.quoted('"'), table.name());
    vec![
        format!(
            "CREATE TABLE IF NOT EXISTS {t} (\
             message_id VARCHAR(255) PRIMARY KEY, \
             state VARCHAR(16) NOT NULL, \
             claimed_by VARCHAR(64), \
             recorded_at TIMESTAMPTZ NOT NULL, \
             expires_at TIMESTAMPTZ NOT NULL)"
        ),
        format!("CREATE INDEX IF NOT EXISTS \"{name}_expiry\" ON {t} (expires_at)"),
    ]
}
