//! The orders between their commit and their end: so many and no more, however many there are.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// How many orders may be on the way.
const MOST: usize = 250;

/// Nothing may stand still for longer than this.
pub const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub struct OnTheWay {
    places: Arc<Semaphore>,
    orders: Arc<Mutex<Orders>>,
}

struct Orders {
    committed: HashMap<String, (Instant, OwnedSemaphorePermit)>,
    /// Microseconds from commit to handled.
    latency: Histogram<u64>,
}

/// A place for an order that is about to be committed.
pub struct Place<'a> {
    permit: OwnedSemaphorePermit,
    on_the_way: &'a OnTheWay,
}

impl OnTheWay {
    pub fn new() -> Result<Self> {
        // From a microsecond to an hour, to three digits.
        let latency = Histogram::new_with_bounds(1, 3_600_000_000, 3)?;
        let orders = Orders { committed: HashMap::new(), latency };
        Ok(Self { places: Arc::new(Semaphore::new(MOST)), orders: Arc::new(Mutex::new(orders)) })
    }

    /// Waits for a place.
    pub async fn place(&self) -> Result<Place<'_>> {
        let permit = timeout(PATIENCE, Arc::clone(&self.places).acquire_owned())
            .await
            .with_context(|| format!("no order has come to its end for {PATIENCE:?}"))??;
        Ok(Place { permit, on_the_way: self })
    }

    /// An order was handled: its place is free, and the time it took is kept.
    pub fn handled(&self, order_id: &str) {
        self.with(|orders| {
            if let Some((committed, _place)) = orders.committed.remove(order_id) {
                let micros = committed.elapsed().as_micros();
                orders.latency.saturating_record(u64::try_from(micros).unwrap_or(u64::MAX));
            }
        });
    }

    /// An order has failed for good: its place is free.
    pub fn failed(&self, order_id: &str) {
        self.with(|orders| orders.committed.remove(order_id));
    }

    /// The time from commit to handled that so many percent of the orders stayed within.
    pub fn latency(&self, percent: f64) -> Duration {
        self.with(|orders| Duration::from_micros(orders.latency.value_at_percentile(percent)))
    }

    fn with<R>(&self, work: impl FnOnce(&mut Orders) -> R) -> R {
        work(&mut self.orders.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Place<'_> {
    /// Takes the place for an order. Called right before its commit, since it may be handled
    /// before the commit has returned.
    pub fn take(self, order_id: &str) {
        self.on_the_way.with(|orders| {
            orders.committed.insert(order_id.to_owned(), (Instant::now(), self.permit))
        });
    }
}
