//! The payment service: charges an order once in effect, however often its event arrives.

use std::sync::atomic::{AtomicU64, Ordering};

use acemq::{HandlerError, Message};
use bytes::Bytes;
use indicatif::ProgressBar;
use sqlx::Pool;

use crate::{
    database::{self, Database},
    on_the_way::OnTheWay,
    orders::{Order, Trouble},
};

/// How often it is tried to charge an order.
pub const ATTEMPTS: u32 = 4;

pub struct Payments<DB: Database> {
    pub pool: Pool<DB>,
    pub on_the_way: OnTheWay,
    pub progress: ProgressBar,
    pub charged: AtomicU64,
    pub crash_after: Option<u64>,
}

impl<DB: Database> Payments<DB> {
    /// Charges an order. An error means: try again later.
    ///
    /// The consumer's idempotency store keeps duplicates away. One case it cannot see is a crash
    /// between the commit below and the store's note of it: the order comes again, and the
    /// payment's own key recognises it.
    pub async fn charge(&self, message: Message<Order>) -> Result<(), HandlerError> {
        let order = message.payload();
        match order.trouble {
            Some(Trouble::FailsTwice) if message.attempt() <= 2 => {
                return Err(HandlerError::transient("the bank does not answer"));
            }
            Some(Trouble::AlwaysFails) => {
                return Err(HandlerError::transient("the card is blocked"));
            }
            _ => {}
        }

        let mut transaction = self.pool.begin().await?;
        if database::insert_payment::<DB>(&mut transaction, order).await? {
            database::charge_account::<DB>(&mut transaction, order).await?;
        }
        transaction.commit().await?;

        let charged = 1 + self.charged.fetch_add(1, Ordering::Relaxed);
        if self.crash_after == Some(charged) {
            eprintln!("crashing after {charged} orders; run the same again to finish");
            std::process::abort();
        }
        self.on_the_way.handled(&order.id);
        self.progress.inc(1);
        Ok(())
    }

    /// Customer care: notes what the payment service has set aside, and why.
    pub async fn note_failure(&self, message: Message<Bytes>) -> Result<(), HandlerError> {
        let parked = message.queue().ends_with(".parked");
        let reason = message.envelope().error().unwrap_or("no reason given");
        let mut connection = self.pool.acquire().await?;
        database::insert_failure::<DB>(&mut connection, message.id(), parked, reason).await?;
        self.on_the_way.failed(message.id());
        Ok(())
    }
}
