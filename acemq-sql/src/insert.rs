//! The way of records into the table.

use std::sync::Arc;

use acemq::{Error, ErrorKind, OutboxRecord, Result};

use crate::{
    body,
    database::{Dialect, DialectOf, SqlDatabase},
    statement::Statement,
    table::{Layout, Times},
};

/// How many rows one insert has: their values stay far below what a statement may have.
const ROWS_A_STATEMENT: usize = 1_000;
/// How many bytes of values one insert has, unless a single record has more.
const BYTES_A_STATEMENT: u64 = 1 << 20;
/// What a statement has beside its values, generously.
const BESIDE_THE_VALUES: u64 = 4_096;

/// The insert of any number of rows, in parts: up to `VALUES`, one row, and the end.
#[derive(Debug)]
pub(crate) struct Insert {
    head: String,
    row: Row,
    tail: String,
    times: Times,
    /// The same for one row.
    one: Arc<str>,
    /// The columns that may be too small for what is put in, and how many bytes they hold.
    small: Vec<SmallColumn>,
    /// The largest statement that the database takes, in bytes.
    largest: Option<u64>,
    /// Reads the ids that are there of a list, on tables that take different ids for the same.
    pub(crate) present: Option<Arc<str>>,
}

/// One row of an insert, from the number of its first placeholder on.
type Row = fn(first: usize, times: Times) -> String;

/// A record as the columns hold it: id, exchange, routing key, body, its encoding, content type,
/// headers, time of making.
pub(crate) type Values = [String; VALUES];
const VALUES: usize = 8;
const BODY: usize = 3;
const HEADERS: usize = 6;

#[derive(Debug)]
struct SmallColumn {
    name: &'static str,
    value: usize,
    bytes: u64,
    declared: String,
}

impl Insert {
    pub(crate) fn new(head: String, row: Row, tail: &str, layout: &Layout) -> Self {
        let small =
            [("body", BODY), ("headers", HEADERS)].into_iter().filter_map(|(name, value)| {
                let column = layout.column(name)?;
                let declared = column.declared.clone();
                Some(SmallColumn { name, value, bytes: column.bytes?, declared })
            });
        let mut insert = Self {
            head,
            row,
            tail: tail.to_owned(),
            times: layout.times,
            one: Arc::from(""),
            small: small.collect(),
            largest: layout.largest_statement,
            present: None,
        };
        insert.one = insert.rows(1);
        insert
    }

    /// The insert of one record.
    pub(crate) fn one<DB: SqlDatabase>(&self, record: &OutboxRecord) -> Result<(Arc<str>, Values)> {
        let values = values::<DB>(record);
        self.check::<DB>(record, &values)?;
        Ok((Arc::clone(&self.one), values))
    }

    /// The inserts of records, in few statements. All are looked at first: where one does not
    /// fit, none has been sent.
    pub(crate) fn batches<'r, DB: SqlDatabase>(
        &self,
        records: &'r [OutboxRecord],
    ) -> Result<Vec<(&'r [OutboxRecord], Statement)>> {
        let mut batches = Vec::new();
        let most = self.largest.unwrap_or(u64::MAX).saturating_sub(BESIDE_THE_VALUES);
        let most = most.min(BYTES_A_STATEMENT);
        let (mut first, mut rows, mut bytes) = (0, Vec::new(), 0);
        for (n, record) in records.iter().enumerate() {
            let values = values::<DB>(record);
            let more = self.check::<DB>(record, &values)?;
            if rows.len() == ROWS_A_STATEMENT || (bytes + more > most && n > first) {
                batches.push((&records[first..n], self.statement(std::mem::take(&mut rows))));
                (first, bytes) = (n, 0);
            }
            rows.push(values);
            bytes += more;
        }
        if !rows.is_empty() {
            batches.push((&records[first..], self.statement(rows)));
        }
        Ok(batches)
    }

    fn statement(&self, rows: Vec<Values>) -> Statement {
        let statement = match rows.len() {
            1 => Statement::new(&self.one),
            count => Statement::new(&self.rows(count)).planned_each_time(),
        };
        rows.into_iter().flatten().fold(statement, Statement::text)
    }

    fn rows(&self, count: usize) -> Arc<str> {
        let rows: Vec<String> =
            (0..count).map(|row| (self.row)(row * VALUES + 1, self.times)).collect();
        format!("{}{}{}", self.head, rows.join(", "), self.tail).into()
    }

    /// Refuses a record that the table or the database has no room for: some databases would cut
    /// it, others end the transaction or the connection. Says how many bytes it takes.
    fn check<DB: SqlDatabase>(&self, record: &OutboxRecord, values: &Values) -> Result<u64> {
        let too_large = |fault: String| {
            let doing = format!("add record {} to the outbox", record.id());
            Error::new(ErrorKind::TooLarge, format!("{doing}: {fault}"))
        };
        for SmallColumn { name, value, bytes, declared } in &self.small {
            let length = values[*value].len() as u64;
            if length > *bytes {
                return Err(too_large(format!(
                    "its {name} takes {length} bytes, and the table's column of type {declared} \
                     holds {bytes}; make the column larger, or the message smaller"
                )));
            }
        }
        let sent = values.iter().map(|value| DialectOf::<DB>::sent_bytes(value)).sum::<u64>();
        match self.largest {
            Some(largest) if sent + BESIDE_THE_VALUES > largest => Err(too_large(format!(
                "its insert takes {sent} bytes, and the database takes {largest}; raise its \
                 max_allowed_packet, or make the message smaller"
            ))),
            _ => Ok(sent),
        }
    }
}

fn values<DB: SqlDatabase>(record: &OutboxRecord) -> Values {
    let (body, encoding) = body::write(record.body());
    [
        record.id().to_owned(),
        record.exchange().to_owned(),
        record.routing_key().to_owned(),
        body,
        encoding.to_owned(),
        record.content_type().to_owned(),
        record.headers_json(),
        DialectOf::<DB>::time(record.created_at()),
    ]
}
