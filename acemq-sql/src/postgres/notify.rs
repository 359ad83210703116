//! Records of other processes, announced by `NOTIFY` when they commit.

use std::{convert::Infallible, time::Duration};

use acemq::OutboxSignal;
use sqlx::{
    PgPool, Postgres,
    postgres::{PgListener, PgPoolOptions},
};
use tokio::time::{sleep, timeout};

use crate::{SqlOutbox, table::Table};

/// The longest name of a channel.
const MAX_CHANNEL: usize = 63;
/// The pauses before listening again, doubling between these.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// After such a silence the connection is asked whether it is alive. It answers, and a new one is
/// made, within the other.
const SILENCE: Duration = Duration::from_secs(30);
const ANSWER: Duration = Duration::from_secs(5);

impl SqlOutbox<Postgres> {
    /// Whether adding a record tells the relays of other processes, so that they publish within
    /// milliseconds of the commit instead of at their next poll. Off unless set, and to be set on
    /// both sides: what is added here sends a `NOTIFY` in the caller's transaction, and a relay
    /// that is started on this outbox listens, on a connection of its own beside the pool, which
    /// comes back by itself. Polling goes on in any case. The channel is named after table and
    /// schema, so both sides have to name the schema, or neither.
    ///
    /// A relay in the same process needs none of it.
    ///
    /// It costs writers: transactions that notify commit one after the other. Measured on two
    /// cores, eight connections that each committed one record a transaction made half as many
    /// (1,991 a second instead of 3,948), a single one an eighth fewer.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> acemq::Result<()> {
    /// use acemq_sql::PostgresOutbox;
    ///
    /// # let pool = sqlx::PgPool::connect_lazy("postgres://localhost/shop").map_err(|_| ()).unwrap();
    /// let outbox = PostgresOutbox::new(pool).schema("shop")?.notify(true);
    /// # drop(outbox); Ok(()) }
    /// ```
    #[must_use]
    pub fn notify(self, notify: bool) -> Self {
        self.with(|options| options.notify = notify)
    }
}

/// The channel of a table; it ends where the name would be too long, and two tables whose channel
/// is the same wake each other in vain.
pub(super) fn channel(table: &Table) -> String {
    let schema = table.schema().unwrap_or_default();
    let mut channel = format!("{}@{schema}", table.name());
    // Table and schema are plain identifiers: every byte is a character.
    channel.truncate(MAX_CHANNEL);
    channel
}

/// Wakes the relay at every announcement.
pub(super) async fn listen(pool: &PgPool, table: &Table, signal: &OutboxSignal) {
    let mut pause = FIRST_PAUSE;
    loop {
        let mut heard = false;
        let Err(error) = hear(pool, &channel(table), signal, &mut heard).await;
        if heard {
            pause = FIRST_PAUSE;
        }
        tracing::warn!(
            %table,
            %error,
            "not listening for records of other processes: the relay finds them by polling, and \
             listens again in {pause:?}"
        );
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn hear(
    pool: &PgPool,
    channel: &str,
    signal: &OutboxSignal,
    heard: &mut bool,
) -> sqlx::Result<Infallible> {
    // Beside the caller's pool, which may have one connection only.
    let own = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(ANSWER)
        .connect_lazy_with(pool.connect_options().as_ref().clone());
    let mut listener = PgListener::connect_with(&own).await?;
    listener.listen(channel).await?;
    *heard = true;
    // For what was announced before.
    signal.wake();
    loop {
        match timeout(SILENCE, listener.try_recv()).await {
            // Nothing: the connection was lost, and is made again by the next call.
            Ok(Ok(_)) => signal.wake(),
            Ok(Err(error)) => return Err(error),
            Err(_) => {
                let alive = sqlx::query("SELECT 1").execute(&mut listener);
                timeout(ANSWER, alive).await.map_err(|_| sqlx::Error::PoolTimedOut)??;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_is_named_after_table_and_schema_and_is_not_too_long() {
        let mut table = Table::new("acemq_outbox");
        assert_eq!(channel(&table), "acemq_outbox@");
        table.set_schema("shop").unwrap();
        assert_eq!(channel(&table), "acemq_outbox@shop");
        table.set_name(&"t".repeat(50)).unwrap();
        table.set_schema(&"s".repeat(50)).unwrap();
        assert_eq!(channel(&table).len(), MAX_CHANNEL);
    }
}
