//! The saga store in PostgreSQL's SQL.

use super::{compared, read, written};
use crate::{
    database::{Batch, Claim, SagaSql},
    table::{Layout, Table},
};

pub(super) fn statements(table: &Table, layout: &Layout) -> SagaSql {
    let t = table.quoted('"');
    let (now, seen) = (written(layout.times), compared(layout.times));
    let columns = format!(
        "s.instance, s.saga, s.steps, s.status, s.state, s.version::bigint, s.claims::bigint, \
         (s.locked_by IS NOT NULL AND s.due_at > {now})::int::bigint, {}, {}, {}, {}, {}, \
         s.locked_by",
        read("s.due_at"),
        read("s.deadline_at"),
        read("s.created_at"),
        read("s.updated_at"),
        read(now),
    );
    let taken = "locked_by = $LOCK, claims = s.claims + 1, version = s.version + 1";
    let insert = format!(
        "INSERT INTO {t} AS s (instance, saga, steps, status, state, version, claims, locked_by, \
         due_at, deadline_at, created_at, updated_at) \
         VALUES ($1, $2, $3, 'RUNNING', $4, 1, 0, $5, {now} + $6 * INTERVAL '1 microsecond', \
         CASE WHEN $7::bigint >= 0 THEN {now} + $7::bigint * INTERVAL '1 microsecond' END, \
         {now}, {now}) ON CONFLICT (instance) DO NOTHING RETURNING {columns}"
    );
    let stands = format!(
        "status = $3, state = $4, version = version + 1, claims = 0, updated_at = {now}, \
         locked_by = CASE WHEN $6::bigint = 0 THEN locked_by END, \
         due_at = CASE WHEN $6::bigint < 2 THEN {now} + $5::bigint * INTERVAL '1 microsecond' END"
    );
    SagaSql {
        insert_in: insert.clone().into(),
        insert: insert.into(),
        claim_due: Claim::AtOnce(
            format!(
                "WITH due AS MATERIALIZED (SELECT instance FROM {t} WHERE saga = $1 AND steps = $2 \
                 AND due_at <= {seen} ORDER BY due_at LIMIT $3 FOR UPDATE SKIP LOCKED) \
                 UPDATE {t} AS s SET {}, due_at = {now} + $5 * INTERVAL '1 microsecond' FROM due \
                 WHERE s.instance = due.instance RETURNING {columns}",
                taken.replace("$LOCK", "$4")
            )
            .into(),
        ),
        take: format!(
            "UPDATE {t} AS s SET {}, due_at = {now} + $3 * INTERVAL '1 microsecond' \
             WHERE s.instance = ANY($1) AND s.steps = $4 AND s.due_at <= {seen} \
             RETURNING {columns}",
            taken.replace("$LOCK", "$2")
        )
        .into(),
        write: format!("UPDATE {t} SET {stands} WHERE instance = $1 AND locked_by = $2").into(),
        renew: format!(
            "UPDATE {t} SET due_at = {now} + $3 * INTERVAL '1 microsecond' \
             WHERE instance = $1 AND locked_by = $2"
        )
        .into(),
        change: format!(
            "UPDATE {t} SET {stands} WHERE instance = $1 AND version = $2 \
             AND (locked_by IS NULL OR due_at IS NULL OR due_at <= {seen})"
        )
        .into(),
        find: format!("SELECT {columns} FROM {t} AS s WHERE s.instance = $1").into(),
        list: format!(
            "SELECT {columns} FROM {t} AS s WHERE s.saga = $1 AND s.status = $2 \
             AND s.updated_at <= {seen} - $3 * INTERVAL '1 microsecond' \
             ORDER BY s.updated_at, s.instance LIMIT $4"
        )
        .into(),
        // Two ranges of the index on the due time, where an inequality would be none.
        with_other_steps: format!(
            "SELECT {columns} FROM {t} AS s WHERE s.saga = $1 \
             AND (s.steps < $2 OR s.steps > $2) AND s.due_at IS NOT NULL LIMIT $3"
        )
        .into(),
        purge: Batch::at_once(format!(
            "WITH old AS MATERIALIZED (SELECT instance FROM {t} \
             WHERE status IN ('COMPLETED', 'COMPENSATED') \
             AND updated_at <= {seen} - $2 * INTERVAL '1 microsecond' \
             LIMIT $1 FOR UPDATE SKIP LOCKED) \
             DELETE FROM {t} AS s USING old WHERE s.instance = old.instance"
        )),
    }
}

pub(super) fn schema(table: &Table) -> Vec<String> {
    let (t, name) = (table.quoted('"'), table.name());
    vec![
        format!(
            "CREATE TABLE IF NOT EXISTS {t} (\
             instance VARCHAR(255) PRIMARY KEY, \
             saga VARCHAR(100) NOT NULL, \
             steps VARCHAR(64) NOT NULL, \
             status VARCHAR(16) NOT NULL, \
             state TEXT NOT NULL, \
             version BIGINT NOT NULL, \
             claims BIGINT NOT NULL, \
             locked_by VARCHAR(64), \
             due_at TIMESTAMPTZ, \
             deadline_at TIMESTAMPTZ, \
             created_at TIMESTAMPTZ NOT NULL, \
             updated_at TIMESTAMPTZ NOT NULL)"
        ),
        format!(
            "CREATE INDEX IF NOT EXISTS \"{name}_due\" ON {t} (saga, steps, due_at) \
             WHERE due_at IS NOT NULL"
        ),
        format!("CREATE INDEX IF NOT EXISTS \"{name}_status\" ON {t} (status, updated_at)"),
    ]
}
