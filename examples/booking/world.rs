//! What the trips are about: the airline, the hotel, the bank, and their books. All of them in one
//! database, for the sake of an example.

use std::{str::FromStr, time::Duration};

use acemq::HandlerError;
use acemq_sql::HandlerTransaction;
use anyhow::{Context as _, Result};
use sqlx::{
    Sqlite, SqlitePool, Transaction,
    sqlite::{SqliteConnectOptions, SqliteJournalMode},
};

#[derive(Clone)]
pub(crate) struct World {
    pool: SqlitePool,
    linger: Option<String>,
    stubborn_hotel: bool,
}

impl World {
    pub(crate) async fn open(
        database: &str,
        linger: Option<String>,
        stubborn_hotel: bool,
    ) -> Result<Self> {
        let options = SqliteConnectOptions::from_str(database)
            .context("--database is sqlite://FILE")?
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(Duration::from_secs(30));
        let pool = SqlitePool::connect_with(options).await.context("open the database")?;
        for table in [
            "CREATE TABLE IF NOT EXISTS trips (number INTEGER PRIMARY KEY)",
            "CREATE TABLE IF NOT EXISTS bookings (key TEXT PRIMARY KEY, state TEXT NOT NULL)",
            "CREATE TABLE IF NOT EXISTS payments (key TEXT NOT NULL)",
        ] {
            sqlx::query(table).execute(&pool).await?;
        }
        Ok(Self { pool, linger, stubborn_hotel })
    }

    pub(crate) fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    /// The airline or the hotel: asked twice under one key, it books once.
    pub(crate) async fn book(&self, what: &str, key: &str) -> Result<(), HandlerError> {
        self.point(what).await;
        sqlx::query("INSERT INTO bookings VALUES ($1, 'booked') ON CONFLICT (key) DO NOTHING")
            .bind(key)
            .execute(&self.pool)
            .await?;
        self.point(&format!("{what} is booked")).await;
        Ok(())
    }

    /// Cancels what is booked under a key, if anything is.
    pub(crate) async fn cancel(&self, what: &str, key: &str) -> Result<(), HandlerError> {
        self.point(&format!("cancel {what}")).await;
        if self.stubborn_hotel && what == "hotel" {
            return Err(HandlerError::transient("the hotel cancels nothing"));
        }
        sqlx::query("UPDATE bookings SET state = 'cancelled' WHERE key = $1")
            .bind(key)
            .execute(&self.pool)
            .await?;
        self.point(&format!("{what} is cancelled")).await;
        Ok(())
    }

    pub(crate) async fn pay(
        &self,
        transaction: &mut HandlerTransaction<Sqlite>,
        key: &str,
    ) -> sqlx::Result<()> {
        self.point("payment").await;
        sqlx::query("INSERT INTO payments VALUES ($1)")
            .bind(key)
            .execute(&mut **transaction)
            .await?;
        self.point("payment is made").await;
        Ok(())
    }

    /// Whether the flight, the hotel and the payment of a trip are in the books, the payment once.
    pub(crate) async fn books(&self, trip: &str) -> Result<[bool; 3]> {
        let mut found = [false; 3];
        for (place, sql) in [
            (0, "SELECT count(*) FROM bookings WHERE key = $1 AND state = 'booked'"),
            (1, "SELECT count(*) FROM bookings WHERE key = $1 AND state = 'booked'"),
            (2, "SELECT count(*) FROM payments WHERE key = $1"),
        ] {
            let step = ["flight", "hotel", "payment"][place];
            let count: i64 = sqlx::query_scalar(sql)
                .bind(format!("booking/{trip}/{step}"))
                .fetch_one(&self.pool)
                .await?;
            anyhow::ensure!(count <= 1, "trip {trip} was paid {count} times");
            found[place] = count == 1;
        }
        Ok(found)
    }

    /// Waits for ever where it was asked to.
    async fn point(&self, point: &str) {
        if self.linger.as_deref() == Some(point) {
            println!("at {point}");
            std::future::pending().await
        }
    }
}

/// The business's own write, with which a saga begins.
pub(crate) async fn write_down(
    transaction: &mut Transaction<'_, Sqlite>,
    number: u32,
) -> sqlx::Result<()> {
    sqlx::query("INSERT INTO trips VALUES ($1) ON CONFLICT (number) DO NOTHING")
        .bind(number)
        .execute(&mut **transaction)
        .await
        .map(drop)
}
