//! The lock of the one active relay of a table in an SQLite database: a file beside it, which the
//! operating system frees when the process ends, however it ends.

use std::{
    fs::{File, TryLockError},
    io,
    sync::Arc,
    time::Duration,
};

use acemq::RelayLock;
use sqlx::{Row, SqlitePool};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep, timeout},
};

use crate::{outbox::ASK, table::Table};

pub(super) async fn lead(
    pool: &SqlitePool,
    table: &Table,
    alone: &Arc<Mutex<()>>,
    wait: Duration,
) -> sqlx::Result<Option<RelayLock>> {
    let database = table.schema().unwrap_or("main");
    let file: Option<String> = sqlx::query("SELECT file FROM pragma_database_list WHERE name = $1")
        .bind(database)
        .fetch_optional(pool)
        .await?
        .map(|row| row.try_get(0))
        .transpose()?;
    let Some(file) = file.filter(|file| !file.is_empty()) else {
        // A database in memory: nobody outside of this process can see it.
        let Ok(held) = timeout(wait, Arc::clone(alone).lock_owned()).await else { return Ok(None) };
        return Ok(Some(hold(held)));
    };
    let deadline = Instant::now() + wait;
    let path = format!("{file}-{}.relay", table.name());
    let failed = |error: io::Error| {
        // As an `Io` it would read as a lost connection.
        sqlx::Error::Configuration(format!("the lock file {path}: {error}").into())
    };
    let file =
        File::options().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(hold(file))),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return Ok(None),
            Err(TryLockError::WouldBlock) => sleep(ASK.min(deadline - Instant::now())).await,
        }
    }
}

/// A lock that is not lost as long as the process lives.
fn hold(held: impl Send + 'static) -> RelayLock {
    RelayLock::new(async move {
        let _held = held;
        std::future::pending().await
    })
}
