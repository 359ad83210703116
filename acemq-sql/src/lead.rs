//! The lock of the one active relay of a table, held by a session of the database server.
//!
//! On a connection of its own, beside the pool: a pool of one would have none left for the work,
//! and a lock must not outlive its holder in a connection that somebody else is handed.

use std::time::Duration;

use acemq::RelayLock;
use sqlx::{Connection, Pool};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    database::{Dialect, DialectOf, SqlDatabase},
    outbox::ASK,
    statement::Statement,
};

/// How often the connection that holds the lock is looked at, and how long it may take to answer.
const LOOK: Duration = Duration::from_secs(1);
const ANSWER: Duration = Duration::from_secs(5);

/// After so many seconds of silence the server is to end the session, which frees the lock: a host
/// that is cut off, or loses its power, takes no leave. A holder that is cut off knows it before.
pub(crate) const SILENCE: u64 = 10;

/// Takes the lock by a statement whose answer is 1 when it is taken, in a session that another one
/// has told to end after [`SILENCE`].
pub(crate) async fn by_session<DB: SqlDatabase>(
    pool: &Pool<DB>,
    end_in_silence: Statement,
    take: Statement,
    wait: Duration,
) -> sqlx::Result<Option<RelayLock>> {
    let deadline = Instant::now() + wait;
    let mut connection = DB::Connection::connect_with(&pool.connect_options()).await?;
    DialectOf::<DB>::fetch(&mut connection, end_in_silence).await?;
    loop {
        let rows = DialectOf::<DB>::fetch(&mut connection, take.clone()).await?;
        if rows.first().and_then(|row| DialectOf::<DB>::integer(row, 0)) == Some(1) {
            return Ok(Some(RelayLock::new(hold::<DB>(connection))));
        }
        if Instant::now() >= deadline {
            // The server frees what a session holds when it sees the end of it; waiting for the
            // farewell to be sent would gain nothing.
            return Ok(None);
        }
        sleep(ASK.min(deadline - Instant::now())).await;
    }
}

/// Keeps the session until it is lost.
async fn hold<DB: SqlDatabase>(mut connection: DB::Connection) {
    let ask = Statement::new(&"SELECT 1".into());
    loop {
        sleep(LOOK).await;
        let asked = timeout(ANSWER, DialectOf::<DB>::fetch(&mut connection, ask.clone())).await;
        if !matches!(asked, Ok(Ok(_))) {
            return;
        }
    }
}
