//! The relay's side of the outbox.
//!
//! Every change is one statement of its own, so that a dropped future leaves no transaction open.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use acemq::{
    ClaimRequest, ClaimedRecord, Discard, Error, ErrorKind, FailedRecord, OutboxCounts,
    OutboxRecord, OutboxSignal, OutboxStore, RecordClaim, RelayLock, Result, StoredRecord,
    StuckRecord,
};

use tokio::time::{Instant, sleep};

use super::SqlOutbox;
use crate::{
    body,
    database::{Dialect, DialectOf, Failure, OutboxSql, SqlDatabase},
    failure::failed,
    name::HolderName,
    session::Session,
    statement::Statement,
    time::micros,
};

/// The longest `last_error`; the column is that wide.
const MAX_REASON_CHARS: usize = 1_000;
/// How many failures one statement writes down, with their reasons.
const FAILED_A_STATEMENT: usize = 100;
/// How many rows one purging statement removes: it holds its locks briefly.
const PURGED_A_STATEMENT: u32 = 1_000;
/// How many exhausted records one statement gives new attempts.
const RETRIED_A_STATEMENT: usize = 1_000;

impl<DB: SqlDatabase> OutboxStore for SqlOutbox<DB> {
    async fn claim_batch(&self, size: usize, lease: Duration) -> Result<Vec<ClaimedRecord>> {
        self.claim(ClaimRequest::new(size, lease)).await
    }

    async fn claim(&self, request: ClaimRequest) -> Result<Vec<ClaimedRecord>> {
        self.claim_in(request).await
    }

    async fn lead(&self, wait: Duration) -> Result<Option<RelayLock>> {
        // A table that is missing or of another shape is said before anybody is active on it.
        drop(self.prepared("take the lock of the active relay").await?);
        DialectOf::<DB>::lead(&self.pool, &self.table, &self.alone, wait)
            .await
            .map_err(failed(|| self.doing("take the lock of the active relay")))
    }

    async fn listen(&self) {
        if self.options.notify {
            DialectOf::<DB>::listen(&self.pool, &self.table, &self.signal).await;
        }
    }

    async fn mark_published(&self, claims: &[RecordClaim]) -> Result<()> {
        if claims.is_empty() {
            return Ok(());
        }
        let (mut session, sql) = self.prepared("mark records published").await?;
        let ids = claims.iter().map(|claim| claim.id().to_owned()).collect();
        for ids in DialectOf::<DB>::in_parts(ids) {
            session
                .run(Statement::new(&sql.publish).in_one_piece().list(ids))
                .await
                .map_err(failed(|| self.doing("mark records published")))?;
        }
        Ok(())
    }

    async fn mark_failed(&self, failures: &[FailedRecord]) -> Result<()> {
        if failures.is_empty() {
            return Ok(());
        }
        let (mut session, sql) = self.prepared("mark records failed").await?;
        let mut marked = 0;
        for failures in failures.chunks(FAILED_A_STATEMENT) {
            let failures = failures.iter().map(|failure| Failure {
                id: failure.claim.id().to_owned(),
                token: failure.claim.token().to_owned(),
                reason: reason(&failure.reason),
                wait: micros(failure.retry_after),
            });
            let values = DialectOf::<DB>::failures(failures.collect());
            let fail = Statement::new(&sql.fail).in_one_piece();
            marked += session
                .run(values.into_iter().fold(fail, Statement::value))
                .await
                .map_err(failed(|| self.doing("mark records failed")))?;
        }
        self.say_what_was_lost("mark records failed", failures.len(), marked);
        Ok(())
    }

    async fn give_back(&self, claims: &[RecordClaim]) -> Result<()> {
        if claims.is_empty() {
            return Ok(());
        }
        let (mut session, sql) = self.prepared("give records back").await?;
        for (token, ids) in by_token(claims) {
            session
                .run(Statement::new(&sql.give_back).in_one_piece().list(ids).text(token))
                .await
                .map_err(failed(|| self.doing("give records back")))?;
        }
        Ok(())
    }

    async fn renew(&self, claims: &[RecordClaim], lease: Duration) -> Result<()> {
        if claims.is_empty() {
            return Ok(());
        }
        let (mut session, sql) = self.prepared("renew claims").await?;
        let mut renewed = 0;
        for (token, ids) in by_token(claims) {
            let renew = Statement::new(&sql.renew).in_one_piece().list(ids).text(token);
            renewed += session
                .run(renew.integer(micros(lease)))
                .await
                .map_err(failed(|| self.doing("renew claims")))?;
        }
        self.say_what_was_lost("renew claims", claims.len(), renewed);
        Ok(())
    }

    async fn pending_count(&self) -> Result<u64> {
        let (mut session, sql) = self.prepared("count the pending records").await?;
        let rows = session
            .fetch(Statement::new(&sql.pending).in_one_piece())
            .await
            .map_err(failed(|| self.doing("count the pending records")))?;
        Ok(rows
            .first()
            .and_then(|row| DialectOf::<DB>::integer(row, 0))
            .unwrap_or_default()
            .unsigned_abs())
    }

    async fn counts(&self) -> Result<OutboxCounts> {
        let (mut session, sql) = self.prepared("count the records").await?;
        let rows = session
            .fetch(Statement::new(&sql.counts).in_one_piece())
            .await
            .map_err(failed(|| self.doing("count the records")))?;
        let number = |column| rows.first().and_then(|row| DialectOf::<DB>::integer(row, column));
        let count = |column| number(column).unwrap_or_default().unsigned_abs();
        // Made on a host whose clock is ahead of the database's, it has no age to offer.
        let oldest = number(3).map(|age| Duration::from_micros(age.max(0).unsigned_abs()));
        Ok(OutboxCounts::new(count(0), count(1), count(2), oldest))
    }

    async fn stuck(&self, limit: usize) -> Result<Vec<StuckRecord>> {
        let (mut session, sql) = self.prepared("list the stuck records").await?;
        let stuck = Statement::new(&sql.stuck)
            .in_one_piece()
            .integer(i64::try_from(limit).unwrap_or(i64::MAX));
        let rows =
            session.fetch(stuck).await.map_err(failed(|| self.doing("list the stuck records")))?;
        let text = |row: &DB::Row, column| DialectOf::<DB>::text(row, column).unwrap_or_default();
        Ok(rows
            .iter()
            .map(|row| {
                let mut stuck = StuckRecord::new(
                    text(row, 0),
                    text(row, 1),
                    text(row, 2),
                    attempts::<DB>(row, 3),
                );
                stuck.last_error = DialectOf::<DB>::text(row, 4);
                stuck.created_at = DialectOf::<DB>::read_time(row, 5);
                stuck
            })
            .collect())
    }

    async fn retry(&self, id: &str) -> Result<bool> {
        let (mut session, sql) = self.prepared("retry a record").await?;
        let retry = Statement::new(&sql.retry).in_one_piece().list(vec![id.to_owned()]);
        let retried = session.run(retry).await.map_err(failed(|| self.doing("retry a record")))?;
        self.signal.wake();
        Ok(retried > 0)
    }

    async fn retry_all(&self) -> Result<u64> {
        let doing = || self.doing("retry the exhausted records");
        let (mut session, sql) = self.prepared("retry the exhausted records").await?;
        let exhausted = Statement::new(&sql.exhausted).in_one_piece();
        let rows = session.fetch(exhausted).await.map_err(failed(doing))?;
        let ids: Vec<String> =
            rows.iter().filter_map(|row| DialectOf::<DB>::text(row, 0)).collect();
        let mut retried = 0;
        for ids in ids.chunks(RETRIED_A_STATEMENT) {
            let retry = Statement::new(&sql.retry).in_one_piece().list(ids.to_vec());
            retried += session.run(retry).await.map_err(failed(doing))?;
        }
        self.signal.wake();
        Ok(retried)
    }

    async fn discard(&self, id: &str) -> Result<Discard> {
        let doing = || self.doing(&format!("discard record {id}"));
        let (mut session, sql) = self.prepared("discard a record").await?;
        let discard = Statement::new(&sql.discard).in_one_piece().text(id);
        if session.run(discard).await.map_err(failed(doing))? > 0 {
            return Ok(Discard::Removed);
        }
        let look = Statement::new(&sql.unpublished).in_one_piece().text(id);
        let is_there = !session.fetch(look).await.map_err(failed(doing))?.is_empty();
        Ok(if is_there { Discard::Claimed } else { Discard::NotFound })
    }

    async fn purge_published(&self, older_than: Duration) -> Result<u64> {
        let doing = || self.doing("purge published records");
        let (most, age) = (i64::from(PURGED_A_STATEMENT), micros(older_than));
        let mut purged = 0;
        loop {
            let started = Instant::now();
            let (mut session, sql) = self.prepared("purge published records").await?;
            let pick = sql.purge.pick(most).map(|pick| pick.integer(age));
            let Some(target) = session.target(pick, most).await.map_err(failed(doing))? else {
                return Ok(purged);
            };
            let purge = sql.purge.change(target).integer(age);
            let removed = session.run(purge).await.map_err(failed(doing))?;
            purged += removed;
            if removed < PURGED_A_STATEMENT.into() {
                return Ok(purged);
            }
            // Whoever waits for a lock or a connection has its turn: where there is one writer at
            // a time, none of the others would get in between.
            drop(session);
            sleep(started.elapsed()).await;
        }
    }

    async fn other_relays(&self) -> Result<Vec<String>> {
        let (mut session, sql) = self.prepared("look for other relays").await?;
        let rows = session
            .fetch(Statement::new(&sql.holders).in_one_piece())
            .await
            .map_err(failed(|| self.doing("look for other relays")))?;
        let others: BTreeSet<String> = rows
            .iter()
            .filter_map(|row| DialectOf::<DB>::text(row, 0))
            .map(|token| HolderName::of(&token).to_owned())
            .filter(|name| name != self.name.as_str())
            .collect();
        Ok(others.into_iter().collect())
    }

    fn signal(&self) -> Option<OutboxSignal> {
        Some(self.signal.clone())
    }
}

impl<DB: SqlDatabase> SqlOutbox<DB> {
    pub(super) async fn prepared(&self, doing: &str) -> Result<(Session<DB>, Arc<OutboxSql>)> {
        let mut session = self.session(doing).await?;
        let sql = self.sql_from(&mut session).await?;
        Ok((session, sql))
    }

    fn say_what_was_lost(&self, doing: &str, claims: usize, changed: u64) {
        let lost = (claims as u64).saturating_sub(changed);
        if lost > 0 {
            tracing::warn!(
                table = %self.table,
                lost,
                "{doing}: some claims had been lost, to another relay or because the lease ran out"
            );
        }
    }
}

/// Claimed rows, oldest first.
pub(super) fn in_order<DB: SqlDatabase>(rows: &[DB::Row], token: &str) -> Vec<ClaimedRecord> {
    let mut claimed: Vec<_> = rows.iter().map(|row| read::<DB>(row, token)).collect();
    claimed
        .sort_by(|(a, first), (b, second)| (a, first.claim().id()).cmp(&(b, second.claim().id())));
    claimed.into_iter().map(|(_, record)| record).collect()
}

/// A claimed row, with its place in the order. What cannot be read fails alone.
fn read<DB: SqlDatabase>(row: &DB::Row, token: &str) -> (Option<SystemTime>, ClaimedRecord) {
    let id = DialectOf::<DB>::text(row, 0).unwrap_or_default();
    let created_at = DialectOf::<DB>::read_time(row, 7);
    let claim = RecordClaim::new(id.as_str(), token);
    let content = content::<DB>(row, id, created_at);
    (created_at, ClaimedRecord::new(claim, attempts::<DB>(row, 8), content))
}

fn content<DB: SqlDatabase>(
    row: &DB::Row,
    id: String,
    created_at: Option<SystemTime>,
) -> Result<OutboxRecord> {
    let unreadable =
        |what: String| Error::new(ErrorKind::Decode, format!("read outbox record {id}: {what}"));
    let text = |column: usize, name: &str| {
        DialectOf::<DB>::text(row, column)
            .ok_or_else(|| unreadable(format!("its {name} is null or not text")))
    };
    let bytes =
        DialectOf::<DB>::bytes(row, 3).ok_or_else(|| unreadable("its body is null".to_owned()))?;
    let stored = StoredRecord {
        id: id.clone(),
        exchange_name: text(1, "exchange_name")?,
        routing_key: text(2, "routing_key")?,
        body: body::read(bytes, &text(4, "body_encoding")?).map_err(unreadable)?,
        content_type: text(5, "content_type")?,
        headers: text(6, "headers")?,
        created_at: created_at
            .ok_or_else(|| unreadable("its created_at is null or not a time".to_owned()))?,
    };
    OutboxRecord::from_stored(stored)
}

fn attempts<DB: SqlDatabase>(row: &DB::Row, column: usize) -> u32 {
    let attempts = DialectOf::<DB>::integer(row, column).unwrap_or_default().max(0);
    u32::try_from(attempts).unwrap_or(u32::MAX)
}

/// The reason as the column can hold it: PostgreSQL's text has no U+0000.
fn reason(text: &str) -> String {
    text.chars().take(MAX_REASON_CHARS).map(|c| if c == '\0' { '\u{fffd}' } else { c }).collect()
}

/// The ids of each token: a claim counts only under its own.
fn by_token(claims: &[RecordClaim]) -> BTreeMap<&str, Vec<String>> {
    let mut tokens: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for claim in claims {
        tokens.entry(claim.token()).or_default().push(claim.id().to_owned());
    }
    tokens
}
