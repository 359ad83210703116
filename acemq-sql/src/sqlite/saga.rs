//! The saga store in SQLite's SQL.

use super::{NOW, later};
use crate::{
    database::{Batch, Claim, SagaSql},
    table::{Layout, Table},
};

pub(super) fn statements(table: &Table, _: &Layout) -> SagaSql {
    let t = table.quoted('"');
    let columns = format!(
        "CAST(instance AS TEXT), CAST(saga AS TEXT), CAST(steps AS TEXT), CAST(status AS TEXT), \
         CAST(state AS TEXT), version, claims, (locked_by IS NOT NULL AND due_at > {NOW}), \
         due_at, deadline_at, created_at, updated_at, {NOW}, CAST(locked_by AS TEXT)"
    );
    let insert = format!(
        "INSERT INTO {t} (instance, saga, steps, status, state, version, claims, locked_by, \
         due_at, deadline_at, created_at, updated_at) \
         VALUES ($1, $2, $3, 'RUNNING', $4, 1, 0, $5, {}, CASE WHEN $7 >= 0 THEN {} END, {NOW}, \
         {NOW}) ON CONFLICT (instance) DO NOTHING RETURNING {columns}",
        later("$6"),
        later("$7"),
    );
    let stands = format!(
        "status = $3, state = $4, version = version + 1, claims = 0, updated_at = {NOW}, \
         locked_by = CASE WHEN $6 = 0 THEN locked_by END, \
         due_at = CASE WHEN $6 < 2 THEN {} END",
        later("$5")
    );
    SagaSql {
        insert_in: insert.clone().into(),
        insert: insert.into(),
        // Picked first, since an update that finds nothing takes the write lock all the same.
        claim_due: Claim::Picked(
            format!(
                "SELECT CAST(instance AS TEXT) FROM {t} WHERE saga = $1 AND steps = $2 \
                 AND due_at <= {NOW} ORDER BY due_at LIMIT $3"
            )
            .into(),
        ),
        take: format!(
            "UPDATE {t} SET locked_by = $2, claims = claims + 1, version = version + 1, \
             due_at = {} WHERE instance IN (SELECT value FROM json_each($1)) AND +steps = $4 \
             AND +due_at <= {NOW} RETURNING {columns}",
            later("$3")
        )
        .into(),
        write: format!("UPDATE {t} SET {stands} WHERE instance = $1 AND locked_by = $2").into(),
        renew: format!(
            "UPDATE {t} SET due_at = {} WHERE instance = $1 AND locked_by = $2",
            later("$3")
        )
        .into(),
        change: format!(
            "UPDATE {t} SET {stands} WHERE instance = $1 AND version = $2 \
             AND (locked_by IS NULL OR due_at IS NULL OR due_at <= {NOW})"
        )
        .into(),
        find: format!("SELECT {columns} FROM {t} WHERE instance = $1").into(),
        list: format!(
            "SELECT {columns} FROM {t} WHERE saga = $1 AND status = $2 \
             AND updated_at <= {} ORDER BY updated_at, instance LIMIT $4",
            later("-$3")
        )
        .into(),
        // Two ranges of the index on the due time, where an inequality would be none.
        with_other_steps: format!(
            "SELECT {columns} FROM {t} WHERE saga = $1 \
             AND (steps < $2 OR steps > $2) AND due_at IS NOT NULL LIMIT $3"
        )
        .into(),
        purge: Batch::at_once(format!(
            "DELETE FROM {t} WHERE instance IN (SELECT instance FROM {t} \
             WHERE status IN ('COMPLETED', 'COMPENSATED') AND updated_at <= {} LIMIT $1)",
            later("-$2")
        )),
    }
}

pub(super) fn schema(table: &Table) -> Vec<String> {
    let (t, schema, name) = (table.quoted('"'), table.prefix('"'), table.name());
    vec![
        format!(
            "CREATE TABLE IF NOT EXISTS {t} (\
             instance VARCHAR(255) NOT NULL PRIMARY KEY, \
             saga VARCHAR(100) NOT NULL, \
             steps VARCHAR(64) NOT NULL, \
             status VARCHAR(16) NOT NULL, \
             state TEXT NOT NULL, \
             version INTEGER NOT NULL, \
             claims INTEGER NOT NULL, \
             locked_by VARCHAR(64), \
             due_at TIMESTAMP, \
             deadline_at TIMESTAMP, \
             created_at TIMESTAMP NOT NULL, \
             updated_at TIMESTAMP NOT NULL)"
        ),
        format!(
            "CREATE INDEX IF NOT EXISTS {schema}\"{name}_due\" ON \"{name}\" (saga, steps, due_at) \
             WHERE due_at IS NOT NULL"
        ),
        format!(
            "CREATE INDEX IF NOT EXISTS {schema}\"{name}_status\" \
             ON \"{name}\" (status, updated_at)"
        ),
    ]
}
