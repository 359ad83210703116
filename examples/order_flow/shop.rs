//! The order service: an order and its event commit together, or neither does.

use std::sync::{Arc, Mutex, PoisonError};

use acemq::{Client, Envelope, OutboxRecord, Publisher};
use acemq_sql::SqlOutbox;
use anyhow::{Context, Result};
use sqlx::Pool;
use tokio::task::JoinSet;

use crate::{
    database::{self, Database},
    on_the_way::OnTheWay,
    orders::{Order, Orders, Trouble},
    report::Tally,
};

/// Nobody may owe more than this for one order.
const CREDIT_LIMIT: i64 = 500_000;

pub struct Shop<DB: Database> {
    pub pool: Pool<DB>,
    pub outbox: SqlOutbox<DB>,
    pub placed: Publisher<Order>,
    pub on_the_way: OnTheWay,
}

/// What became of an order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Placed,
    /// An earlier run has placed it.
    KnownAlready,
    RolledBack,
}

impl<DB: Database> Shop<DB> {
    pub fn new(mq: &Client, exchange: &str, pool: Pool<DB>, on_the_way: OnTheWay) -> Self {
        Self {
            outbox: SqlOutbox::new(pool.clone()),
            placed: mq.publisher(exchange, "order.placed"),
            pool,
            on_the_way,
        }
    }

    /// Saves an order and its event in one transaction. From there on it is the relay's.
    pub async fn place(&self, order: &Order) -> Result<Outcome> {
        let place = self.on_the_way.place().await?;
        let record = self.event(order).await?;

        let mut transaction = self.pool.begin().await?;
        if !database::insert_order::<DB>(&mut transaction, order).await? {
            return Ok(Outcome::KnownAlready); // a transaction that is dropped rolls back
        }
        self.outbox.add(&mut transaction, &record).await?;
        if order.cents() > CREDIT_LIMIT {
            transaction.rollback().await?; // and the event is gone with the order
            return Ok(Outcome::RolledBack);
        }
        place.take(&order.id);
        transaction.commit().await.with_context(|| format!("commit order {}", order.id))?;

        if order.trouble == Some(Trouble::SentTwice) {
            // As by a producer that is not sure whether its first try arrived.
            self.placed.send(order).id(&order.id).await?;
        }
        Ok(Outcome::Placed)
    }

    /// The event of an order, under the order's own id.
    async fn event(&self, order: &Order) -> Result<OutboxRecord> {
        if order.trouble == Some(Trouble::Undecodable) {
            // As by a producer with a bug: says it is JSON, and is not.
            let envelope = Envelope::new("order.placed").with_id(&order.id);
            let exchange = self.placed.exchange();
            let body = "{\"id\":";
            let record =
                OutboxRecord::new(exchange, "order.placed", "application/json", body, &envelope)?;
            return Ok(record);
        }
        Ok(self.placed.record(order).id(&order.id).await?)
    }
}

/// Places all orders, as many at once as the database likes.
pub async fn place_all<DB: Database>(shop: &Arc<Shop<DB>>, orders: Orders) -> Result<Tally> {
    let orders = Arc::new(Mutex::new(orders));
    let tally = Arc::new(Mutex::new(Tally::default()));
    let mut workers = JoinSet::new();
    for _ in 0..DB::AT_ONCE {
        let (shop, orders, tally) = (Arc::clone(shop), Arc::clone(&orders), Arc::clone(&tally));
        workers.spawn(async move {
            let next = || orders.lock().unwrap_or_else(PoisonError::into_inner).next();
            while let Some(order) = next() {
                let order = order?;
                let outcome = shop.place(&order).await?;
                tally.lock().unwrap_or_else(PoisonError::into_inner).note(&order, outcome);
            }
            anyhow::Ok(())
        });
    }
    while let Some(finished) = workers.join_next().await {
        finished??; // the first error ends them all
    }
    let tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(*tally)
}
