//! The saga store in MariaDB's SQL.

use super::{NOW, OPTIONS, READ_COMMITTED, cast};
use crate::{
    database::{Batch, Claim, SagaSql},
    table::{Layout, Table},
};

pub(super) fn statements(table: &Table, _: &Layout) -> SagaSql {
    let t = table.quoted('`');
    let by_key = format!("{t} FORCE INDEX (PRIMARY)");
    let columns = format!(
        "{}, {}, {}, {}, {}, version, claims, (locked_by IS NOT NULL AND due_at > {NOW}), {}, {}, \
         {}, {}, {}, {}",
        cast("instance"),
        cast("saga"),
        cast("steps"),
        cast("status"),
        cast("state"),
        cast("due_at"),
        cast("deadline_at"),
        cast("created_at"),
        cast("updated_at"),
        cast(NOW),
        cast("locked_by"),
    );
    // How many rows an insert changed does not tell a new one from one that was there. The token
    // tells.
    let insert = format!(
        "INSERT INTO {t} (instance, saga, steps, status, state, version, claims, locked_by, \
         due_at, deadline_at, created_at, updated_at) \
         VALUES ($1, $2, $3, 'RUNNING', $4, 1, 0, $5, {NOW} + INTERVAL $6 MICROSECOND, \
         IF($7 >= 0, {NOW} + INTERVAL $7 MICROSECOND, NULL), {NOW}, {NOW}) \
         ON DUPLICATE KEY UPDATE instance = instance RETURNING {columns}"
    );
    // By primary key, which locks one row that is there, and no gap, at any level.
    let stands = format!(
        "status = $3, state = $4, version = version + 1, claims = 0, updated_at = {NOW}, \
         locked_by = IF($6 = 0, locked_by, NULL), \
         due_at = IF($6 < 2, {NOW} + INTERVAL $5 MICROSECOND, NULL)"
    );
    SagaSql {
        insert: format!("{READ_COMMITTED}{insert}").into(),
        // The level of the caller's transaction is the caller's affair.
        insert_in: insert.into(),
        // A row that somebody is about to take is passed over instead of waited for.
        claim_due: Claim::Picked(
            format!(
                "{READ_COMMITTED}SELECT {} FROM {t} WHERE saga = $1 AND steps = $2 \
                 AND due_at <= {NOW} ORDER BY due_at LIMIT $3 FOR UPDATE SKIP LOCKED",
                cast("instance")
            )
            .into(),
        ),
        take: format!(
            "{READ_COMMITTED}UPDATE {by_key} SET locked_by = $2, claims = claims + 1, \
             version = version + 1, due_at = {NOW} + INTERVAL $3 MICROSECOND \
             WHERE instance IN ($1) AND steps = $4 AND due_at <= {NOW}; \
             SELECT {columns} FROM {by_key} WHERE instance IN ($1) AND locked_by = $2"
        )
        .into(),
        write: format!("UPDATE {by_key} SET {stands} WHERE instance = $1 AND locked_by = $2")
            .into(),
        renew: format!(
            "UPDATE {by_key} SET due_at = {NOW} + INTERVAL $3 MICROSECOND \
             WHERE instance = $1 AND locked_by = $2"
        )
        .into(),
        change: format!(
            "UPDATE {by_key} SET {stands} WHERE instance = $1 AND version = $2 \
             AND (locked_by IS NULL OR due_at IS NULL OR due_at <= {NOW})"
        )
        .into(),
        find: format!("SELECT {columns} FROM {t} WHERE instance = $1").into(),
        list: format!(
            "SELECT {columns} FROM {t} WHERE saga = $1 AND status = $2 \
             AND updated_at <= {NOW} - INTERVAL $3 MICROSECOND \
             ORDER BY updated_at, instance LIMIT $4"
        )
        .into(),
        // Two ranges of the index on the due time, where an inequality would be none.
        with_other_steps: format!(
            "SELECT {columns} FROM {t} WHERE saga = $1 \
             AND (steps < $2 OR steps > $2) AND due_at IS NOT NULL LIMIT $3"
        )
        .into(),
        purge: Batch::picked(
            format!(
                "SELECT {} FROM {t} WHERE status IN ('COMPLETED', 'COMPENSATED') \
                 AND updated_at <= {NOW} - INTERVAL $2 MICROSECOND LIMIT $1",
                cast("instance")
            ),
            format!(
                "{READ_COMMITTED}DELETE old FROM {t} AS old FORCE INDEX (PRIMARY) \
                 WHERE instance IN ($1) AND status IN ('COMPLETED', 'COMPENSATED') \
                 AND updated_at <= {NOW} - INTERVAL $2 MICROSECOND"
            ),
        ),
    }
}

pub(super) fn schema(table: &Table) -> Vec<String> {
    let (t, name) = (table.quoted('`'), table.name());
    vec![format!(
        "CREATE TABLE IF NOT EXISTS {t} (\
         instance VARCHAR(255) NOT NULL PRIMARY KEY, \
         saga VARCHAR(100) NOT NULL, \
         steps VARCHAR(64) NOT NULL, \
         status VARCHAR(16) NOT NULL, \
         state LONGTEXT NOT NULL, \
         version BIGINT NOT NULL, \
         claims BIGINT NOT NULL, \
         locked_by VARCHAR(64), \
         due_at DATETIME(6), \
         deadline_at DATETIME(6), \
         created_at DATETIME(6) NOT NULL, \
         updated_at DATETIME(6) NOT NULL, \
         INDEX `{name}_due` (saga, steps, due_at), \
         INDEX `{name}_status` (status, updated_at)) {OPTIONS}"
    )]
}
