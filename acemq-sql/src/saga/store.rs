//! What sagas ask of the table.
//!
//! Every change is one statement of its own, so that a dropped future leaves no transaction open; a
//! write with messages is a transaction, on a connection that is closed where that does not end.

use std::{sync::Arc, time::Duration};

use acemq::{
    ClaimedSaga, Error, ErrorKind, JoinsTransaction, NewSaga, Result, SagaClaim, SagaQuery,
    SagaStore, SagaWrite, StoredSaga,
};
use tokio::time::{Instant, sleep};

use super::{Prepared, SqlSagaStore, claimed, next, read};
use crate::{
    database::{Claim, Dialect, DialectOf, SqlDatabase},
    failure::failed,
    statement::{Planned, Statement, Value},
    table::Layout,
    time::micros,
    transaction::{Guarded, OpenTransaction},
};

const PURGED_A_STATEMENT: u32 = 1_000;

impl<DB: SqlDatabase> SagaStore for SqlSagaStore<DB> {
    async fn insert(&self, new: &NewSaga, lease: Duration) -> Result<Option<ClaimedSaga>> {
        let (mut session, prepared) = self.prepared("begin a saga").await?;
        prepared.check::<DB>(&new.key, &new.state)?;
        let token = self.name.token();
        let insert = self.insert_statement(&prepared.sql.insert, new, &token, lease);
        let rows = session
            .fetch(insert.kept_where(self.keeps, Planned::InOnePiece))
            .await
            .map_err(failed(|| self.doing(&format!("begin saga {}", new.key))))?;
        inserted::<DB>(&rows, &token)
    }

    async fn claim_due(
        &self,
        saga: &str,
        steps: &str,
        most: usize,
        lease: Duration,
    ) -> Result<Vec<ClaimedSaga>> {
        let doing = || self.doing("claim due sagas");
        let (mut session, prepared) = self.prepared("claim due sagas").await?;
        let token = self.name.token();
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let due = |sql| Statement::new(sql).in_one_piece().text(saga).text(steps).integer(most);
        let rows = match &prepared.sql.claim_due {
            #[cfg(feature = "postgres")]
            Claim::AtOnce(claim) => {
                let claim = due(claim).text(token.as_str()).integer(micros(lease));
                session.fetch(claim).await.map_err(failed(doing))?
            }
            #[cfg(any(feature = "mysql", feature = "sqlite"))]
            Claim::Picked(pick) => {
                let picked = session.fetch(due(pick)).await.map_err(failed(doing))?;
                let keys: Vec<String> =
                    picked.iter().filter_map(|row| DialectOf::<DB>::text(row, 0)).collect();
                if keys.is_empty() {
                    return Ok(Vec::new());
                }
                let take = Statement::new(&prepared.sql.take).in_one_piece().list(keys);
                let take = take.text(token.as_str()).integer(micros(lease)).text(steps);
                session.fetch(take).await.map_err(failed(doing))?
            }
        };
        let mut claims = rows.iter().map(|row| claimed::<DB>(row, &token)).collect::<Vec<_>>();
        // A row that cannot be read is left to its lease, and keeps none of the others from it.
        claims.retain(|claim| match claim {
            Ok(_) => true,
            Err(error) => {
                tracing::error!(table = %self.table, %error, "a saga cannot be gone on with");
                false
            }
        });
        claims.into_iter().collect()
    }

    async fn claim(&self, key: &str, steps: &str, lease: Duration) -> Result<Option<ClaimedSaga>> {
        let (mut session, prepared) = self.prepared("claim a saga").await?;
        let token = self.name.token();
        let take = Statement::new(&prepared.sql.take).in_one_piece();
        let take = take.value(Value::List(vec![key.to_owned()])).text(token.as_str());
        let rows = session
            .fetch(take.integer(micros(lease)).text(steps))
            .await
            .map_err(failed(|| self.doing(&format!("claim saga {key}"))))?;
        rows.first().map(|row| claimed::<DB>(row, &token)).transpose()
    }

    async fn write(&self, claim: &SagaClaim, write: &SagaWrite) -> Result<bool> {
        let doing = || self.doing(&format!("write saga {}", claim.key()));
        if !write.records.is_empty() {
            return self.write_with_records(claim, write).await;
        }
        let (mut session, prepared) = self.prepared("write a saga").await?;
        prepared.check::<DB>(claim.key(), &write.state)?;
        let statement = write_statement(&prepared, claim, write);
        let written = session
            .run(statement.kept_where(self.keeps, Planned::InOnePiece))
            .await
            .map_err(failed(doing))?;
        Ok(written == 1)
    }

    async fn renew(&self, claim: &SagaClaim, lease: Duration) -> Result<bool> {
        let (mut session, prepared) = self.prepared("renew a claim").await?;
        let renew = Statement::new(&prepared.sql.renew).text(claim.key()).text(claim.token());
        let renew = renew.integer(micros(lease)).kept_where(self.keeps, Planned::InOnePiece);
        let renewed = session
            .run(renew)
            .await
            .map_err(failed(|| self.doing(&format!("renew the claim on saga {}", claim.key()))))?;
        Ok(renewed == 1)
    }

    async fn change(&self, found: &StoredSaga, write: &SagaWrite) -> Result<bool> {
        let (mut session, prepared) = self.prepared("change a saga").await?;
        prepared.check::<DB>(&found.key, &write.state)?;
        let change = Statement::new(&prepared.sql.change).text(&*found.key).integer(found.version);
        let change = next(change.text(write.status.as_str()).text(&*write.state), write.next);
        let changed = session
            .run(change.kept_where(self.keeps, Planned::InOnePiece))
            .await
            .map_err(failed(|| self.doing(&format!("change saga {}", found.key))))?;
        Ok(changed == 1)
    }

    async fn find(&self, key: &str) -> Result<Option<StoredSaga>> {
        let (mut session, prepared) = self.prepared("look at a saga").await?;
        let find = Statement::new(&prepared.sql.find).text(key);
        let rows = session
            .fetch(find.kept_where(self.keeps, Planned::InOnePiece))
            .await
            .map_err(failed(|| self.doing(&format!("look at saga {key}"))))?;
        rows.first().map(|row| read::<DB>(row).map(|(stored, _)| stored)).transpose()
    }

    async fn list(&self, query: &SagaQuery) -> Result<Vec<StoredSaga>> {
        let (mut session, prepared) = self.prepared("list sagas").await?;
        let list = Statement::new(&prepared.sql.list).in_one_piece();
        let list = list.text(&*query.saga).text(query.status.as_str());
        let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
        let rows = session
            .fetch(list.integer(micros(query.unchanged_for)).integer(limit))
            .await
            .map_err(failed(|| self.doing("list sagas")))?;
        rows.iter().map(|row| read::<DB>(row).map(|(stored, _)| stored)).collect()
    }

    async fn with_other_steps(
        &self,
        saga: &str,
        steps: &str,
        most: usize,
    ) -> Result<Vec<StoredSaga>> {
        let (mut session, prepared) = self.prepared("look for other lists of steps").await?;
        let others = Statement::new(&prepared.sql.with_other_steps).in_one_piece();
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let rows = session
            .fetch(others.text(saga).text(steps).integer(most))
            .await
            .map_err(failed(|| self.doing("look for other lists of steps")))?;
        Ok(rows.iter().filter_map(|row| read::<DB>(row).ok()).map(|(stored, _)| stored).collect())
    }

    async fn purge_finished(&self, older_than: Duration) -> Result<u64> {
        let doing = || self.doing("purge finished sagas");
        let (most, age) = (i64::from(PURGED_A_STATEMENT), micros(older_than));
        let mut purged = 0;
        loop {
            let started = Instant::now();
            let (mut session, prepared) = self.prepared("purge finished sagas").await?;
            let purge = &prepared.sql.purge;
            let pick = purge.pick(most).map(|pick| pick.integer(age));
            let Some(target) = session.target(pick, most).await.map_err(failed(doing))? else {
                return Ok(purged);
            };
            let removed = session.run(purge.change(target).integer(age)).await;
            let removed = removed.map_err(failed(doing))?;
            purged += removed;
            if removed < PURGED_A_STATEMENT.into() {
                return Ok(purged);
            }
            // Whoever waits for a lock or a connection has its turn.
            drop(session);
            sleep(started.elapsed()).await;
        }
    }

    async fn check(&self) -> Result<()> {
        self.prepared("look at the table").await.map(drop)
    }

    fn sends(&self) -> bool {
        self.outbox.is_some()
    }
}

impl<DB: SqlDatabase, T: OpenTransaction<DB> + Send> JoinsTransaction<T> for SqlSagaStore<DB> {
    async fn insert_in(&self, transaction: &mut T, new: &NewSaga) -> Result<bool> {
        let connection = transaction.connection();
        let looked_at = self.sql.get().cloned();
        let prepared = match looked_at {
            Some(prepared) => prepared,
            None if DialectOf::<DB>::WRITES_BEFORE_READING => {
                let prepared = self.sql_for(&Layout::default());
                let inserted = self.insert_on(connection, &prepared, new).await;
                // What the table's shape says comes before what the insert made of it.
                self.sql_from(connection).await?;
                return inserted;
            }
            None => self.sql_from(&mut *connection).await?,
        };
        self.insert_on(connection, &prepared, new).await
    }
}

impl<DB: SqlDatabase> SqlSagaStore<DB> {
    async fn insert_on(
        &self,
        connection: &mut DB::Connection,
        prepared: &Prepared,
        new: &NewSaga,
    ) -> Result<bool> {
        prepared.check::<DB>(&new.key, &new.state)?;
        let token = self.name.token();
        // Held by nobody: the lease is over before it has begun.
        let insert = self.insert_statement(&prepared.sql.insert_in, new, &token, Duration::ZERO);
        let insert = insert.kept_where(self.keeps, Planned::EachTime);
        let rows = DialectOf::<DB>::fetch(connection, insert)
            .await
            .map_err(failed(|| self.doing(&format!("begin saga {}", new.key))))?;
        Ok(inserted::<DB>(&rows, &token)?.is_some())
    }

    fn insert_statement(
        &self,
        sql: &Arc<str>,
        new: &NewSaga,
        token: &str,
        lease: Duration,
    ) -> Statement {
        let insert = Statement::new(sql).text(&*new.key).text(&*new.saga).text(&*new.steps);
        let deadline = new.deadline.map_or(-1, micros);
        insert.text(&*new.state).text(token).integer(micros(lease)).integer(deadline)
    }

    /// The state and the messages, all or nothing.
    async fn write_with_records(&self, claim: &SagaClaim, write: &SagaWrite) -> Result<bool> {
        let doing = || self.doing(&format!("write saga {} and its messages", claim.key()));
        let Some(outbox) = &self.outbox else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{}: the store has no outbox; give it one with `outbox`", doing()),
            ));
        };
        let _turn = match &self.turn {
            Some(turn) => turn.acquire().await.ok(),
            None => None,
        };
        let mut connection = Guarded::open(&self.pool).await.map_err(failed(doing))?;
        let prepared = self.sql_from(&mut connection).await?;
        prepared.check::<DB>(claim.key(), &write.state)?;
        connection.begin().await.map_err(failed(doing))?;
        let written = async {
            let statement = write_statement(&prepared, claim, write);
            let statement = statement.kept_where(self.keeps, Planned::EachTime);
            let written =
                DialectOf::<DB>::run(&mut connection, statement).await.map_err(failed(doing))?;
            if written == 1 {
                outbox.insert(&mut connection, &write.records).await?;
            }
            Ok::<_, Error>(written == 1)
        };
        match written.await {
            Ok(true) => {
                connection.commit().await.map_err(failed(doing))?;
                outbox.wake();
                Ok(true)
            }
            Ok(false) => {
                connection.roll_back().await;
                Ok(false)
            }
            Err(error) => {
                connection.roll_back().await;
                Err(error)
            }
        }
    }
}

/// A fenced write.
pub(super) fn write_statement(
    prepared: &Prepared,
    claim: &SagaClaim,
    write: &SagaWrite,
) -> Statement {
    let statement = Statement::new(&prepared.sql.write).text(claim.key()).text(claim.token());
    next(statement.text(write.status.as_str()).text(&*write.state), write.next)
}

/// What an insert came to: a row where it is this one's.
fn inserted<DB: SqlDatabase>(rows: &[DB::Row], token: &str) -> Result<Option<ClaimedSaga>> {
    let Some(row) = rows.first() else { return Ok(None) };
    let (stored, holder) = read::<DB>(row)?;
    if holder.as_deref() != Some(token) {
        return Ok(None);
    }
    Ok(Some(ClaimedSaga { claim: SagaClaim::new(stored.key.as_str(), token), stored }))
}
