//! Claiming records, in whatever order is asked for.
//!
//! In a kept order the candidates are looked at first, with whether they are free, and cut where
//! one is not. Taking them by id comes after: who is faster has them, and a relay that does not get
//! all of what it chose lets go of the rest, since what it lacks may come before what it has.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

use acemq::{
    ClaimRequest, ClaimedRecord, Error, ErrorKind, OutboxStore, RecordClaim, RelayOrder, Result,
};

use super::{SqlOutbox, store::in_order};
use crate::{
    database::{Claim, Dialect, DialectOf, OutboxSql, SqlDatabase},
    failure::failed,
    session::Session,
    statement::Statement,
    time::micros,
};

/// How often a claim is tried while others take the very rows that it has picked.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
const TRIES: usize = 10;
/// How many rows are looked at together, at least, where those of each key stand together.
const LOOKED_AT: usize = 250;
/// One key has at most this part of a claim while others wait.
const SHARE: usize = 10;

/// An exchange and a routing key.
type Key = (String, String);

/// The key from behind which the next claim looks, so that every key has its turn.
#[derive(Debug, Default)]
pub(super) struct LastKey(Mutex<Option<Key>>);

impl LastKey {
    fn get(&self) -> Option<Key> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, key: Option<Key>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = key;
    }
}

/// An unpublished row, before it is claimed.
struct Candidate {
    id: String,
    key: Key,
    is_free: bool,
    size: u64,
}

impl<DB: SqlDatabase> SqlOutbox<DB> {
    pub(super) async fn claim_in(&self, request: ClaimRequest) -> Result<Vec<ClaimedRecord>> {
        let (mut session, sql) = self.prepared("claim records").await?;
        let doing = || self.doing("claim records");
        let ids = match request.order {
            RelayOrder::Relaxed => {
                return self.claim_any(&mut session, &sql, request).await.map_err(failed(doing));
            }
            RelayOrder::PerKey => self.next_by_key(&mut session, &sql, request).await,
            RelayOrder::Strict => next_by_age(&mut session, &sql, request).await,
            other => {
                let fault = format!("{}: the order {other:?} is not one it keeps", doing());
                return Err(Error::new(ErrorKind::Unsupported, fault));
            }
        };
        let ids = ids.map_err(failed(doing))?;
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let chosen = ids.len();
        let taken = self.take(&mut session, &sql, ids, request).await.map_err(failed(doing))?;
        if taken.len() < chosen {
            drop(session);
            let claims: Vec<RecordClaim> = taken.iter().map(|one| one.claim().clone()).collect();
            self.give_back(&claims).await?;
            return Ok(Vec::new());
        }
        Ok(taken)
    }

    async fn claim_any(
        &self,
        session: &mut Session<DB>,
        sql: &OutboxSql,
        request: ClaimRequest,
    ) -> sqlx::Result<Vec<ClaimedRecord>> {
        let most = most(request.records);
        match &sql.claim {
            #[cfg(feature = "postgres")]
            Claim::AtOnce(claim) => {
                let token = self.name.token();
                let claim = Statement::new(claim)
                    .in_one_piece()
                    .integer(most)
                    .text(token.as_str())
                    .integer(micros(request.lease))
                    .integer(i64::try_from(request.bytes).unwrap_or(i64::MAX));
                Ok(in_order::<DB>(&session.fetch(claim).await?, &token))
            }
            #[cfg(any(feature = "mysql", feature = "sqlite"))]
            Claim::Picked(pick) => {
                for _ in 0..TRIES {
                    let pick = Statement::new(pick).in_one_piece().integer(most);
                    let rows = session.fetch(pick).await?;
                    let id = |row: &DB::Row| DialectOf::<DB>::text(row, 0).unwrap_or_default();
                    let picked = rows.iter().map(|row| (id(row), size::<DB>(row, 1)));
                    let ids = fitting(picked, request);
                    if ids.is_empty() {
                        break;
                    }
                    let taken = self.take(session, sql, ids, request).await?;
                    if !taken.is_empty() {
                        return Ok(taken);
                    }
                }
                Ok(Vec::new())
            }
        }
    }

    /// Claims those of the rows that can be had.
    async fn take(
        &self,
        session: &mut Session<DB>,
        sql: &OutboxSql,
        ids: Vec<String>,
        request: ClaimRequest,
    ) -> sqlx::Result<Vec<ClaimedRecord>> {
        let token = self.name.token();
        let take = Statement::new(&sql.take).in_one_piece().list(ids);
        let rows = session.fetch(take.text(token.as_str()).integer(micros(request.lease))).await?;
        Ok(in_order::<DB>(&rows, &token))
    }

    /// The oldest rows of as many keys as there are, up to the first of each that is not free. Each
    /// look begins behind the key before it, however many rows that has, so that what is behind a
    /// row that is not free costs nothing.
    async fn next_by_key(
        &self,
        session: &mut Session<DB>,
        sql: &OutboxSql,
        request: ClaimRequest,
    ) -> sqlx::Result<Vec<String>> {
        let page = request.records.max(LOOKED_AT);
        let share = (request.records / SHARE).max(1);
        let start = self.last_key.get();
        let (mut chosen, mut spare, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
        let (mut after, mut may_wrap) = (start.clone(), start.is_some());
        let mut is_done = false;
        while !is_done && chosen.len() < request.records {
            let look = match &after {
                None => Statement::new(&sql.by_key).in_one_piece().integer(most(page)),
                Some((exchange, routing_key)) => Statement::new(&sql.after_key)
                    .in_one_piece()
                    .integer(most(page))
                    .text(exchange.as_str())
                    .text(routing_key.as_str()),
            };
            let rows = candidates(session, look).await?;
            after = rows.last().map(|row| row.key.clone());
            for rows in rows.chunk_by(|one, next| one.key == next.key) {
                let Some(first) = rows.first() else { continue };
                // Once round, or enough.
                is_done = chosen.len() == request.records || !seen.insert(first.key.clone());
                if is_done {
                    break;
                }
                self.last_key.set(Some(first.key.clone()));
                let free = || rows.iter().take_while(|row| row.is_free).map(sized);
                chosen.extend(free().take(share.min(request.records - chosen.len())));
                spare.extend(free().skip(share));
            }
            if rows.len() < page {
                (after, is_done, may_wrap) = (None, is_done || !may_wrap, false);
            }
        }
        // Where fewer keys wait than there is room for, they may have more than their share.
        chosen.extend(spare);
        chosen.truncate(request.records);
        Ok(fitting(chosen.into_iter(), request))
    }
}

/// The oldest rows, up to the first that is not free.
async fn next_by_age<DB: SqlDatabase>(
    session: &mut Session<DB>,
    sql: &OutboxSql,
    request: ClaimRequest,
) -> sqlx::Result<Vec<String>> {
    let look = Statement::new(&sql.by_age).in_one_piece().integer(most(request.records));
    let rows = candidates(session, look).await?;
    Ok(fitting(rows.iter().take_while(|row| row.is_free).map(sized), request))
}

async fn candidates<DB: SqlDatabase>(
    session: &mut Session<DB>,
    look: Statement,
) -> sqlx::Result<Vec<Candidate>> {
    let text = |row: &DB::Row, column| DialectOf::<DB>::text(row, column).unwrap_or_default();
    let rows = session.fetch(look).await?;
    let candidate = |row: &DB::Row| Candidate {
        id: text(row, 0),
        key: (text(row, 1), text(row, 2)),
        is_free: DialectOf::<DB>::integer(row, 3) == Some(1),
        size: size::<DB>(row, 4),
    };
    Ok(rows.iter().map(candidate).collect())
}

fn sized(row: &Candidate) -> (String, u64) {
    (row.id.clone(), row.size)
}

/// The ids of the first rows that have together no more bytes than are asked for, at least one.
fn fitting(rows: impl Iterator<Item = (String, u64)>, request: ClaimRequest) -> Vec<String> {
    let mut bytes = 0_u64;
    let mut ids = Vec::new();
    for (id, size) in rows {
        bytes = bytes.saturating_add(size);
        if bytes > request.bytes && !ids.is_empty() {
            break;
        }
        ids.push(id);
    }
    ids
}

fn size<DB: SqlDatabase>(row: &DB::Row, column: usize) -> u64 {
    DialectOf::<DB>::integer(row, column).unwrap_or_default().unsigned_abs()
}

fn most(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}
