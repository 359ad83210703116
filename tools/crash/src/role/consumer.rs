//! A consumer of the run's queue, over a store that writes down what the consumer does. Its effects in
//! the transaction of its claims need no such book: there is one of each, or the run has failed.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use acemq::{
    Claim, Client, Consumer, HandlerError, IdempotencyStore, Lease, Message, RetryPolicy,
    SharedIdempotencyStore,
};
use anyhow::Result;

use super::{Fuse, Order, Point, REDIAL, Worker};
use crate::{
    ledger::{Deed, Ledger, Moment},
    tables::Tables,
};

const PREFETCH: u16 = 20;
const CONCURRENCY: usize = 8;
/// How long the longest handler works, in milliseconds.
const LONGEST_WORK: u64 = 8;
/// A database that is away for a while must not dead-letter anything.
const ATTEMPTS: u32 = 1_000;

pub(super) async fn run(mut worker: Worker) -> Result<()> {
    let Some(mq) = worker.connect().await else { return Ok(()) };
    let store = SharedIdempotencyStore::new(Watched {
        inner: worker.tables.idempotency(),
        ledger: Arc::clone(&worker.ledger),
        fuse: Arc::clone(&worker.fuse),
    });
    let handler = Arc::new(Handler {
        random: Mutex::new(worker.random.fork()),
        life: worker.life.clone(),
        tables: Arc::clone(&worker.tables),
        ledger: Arc::clone(&worker.ledger),
        fuse: Arc::clone(&worker.fuse),
    });
    let Some(consumer) = start(&worker, &mq, &store, &handler).await? else { return Ok(()) };
    worker.stop.cancelled().await;
    consumer.close().await?;
    Ok(mq.close().await?)
}

/// Starts to consume; the broker may go away meanwhile, and then it is tried again. None when
/// asked to end.
async fn start(
    worker: &Worker,
    mq: &Client,
    store: &SharedIdempotencyStore,
    handler: &Arc<Handler>,
) -> Result<Option<Consumer>> {
    loop {
        let consumer = mq
            .consumer::<Order>(&*worker.names.work)
            .prefetch(PREFETCH)
            .concurrency(CONCURRENCY)
            .retry(RetryPolicy::exponential(
                ATTEMPTS,
                Duration::from_millis(20),
                Duration::from_millis(500),
            ));
        let starting = if worker.transactional {
            let (life, fuse) = (worker.life.clone(), Arc::clone(&worker.fuse));
            worker.tables.act_in_transactions(consumer, life, fuse)
        } else {
            let handler = Arc::clone(handler);
            let consumer = consumer.idempotent(store.clone());
            consumer.start(move |message| handle(Arc::clone(&handler), message))
        };
        match starting.await {
            Ok(consumer) => return Ok(Some(consumer)),
            Err(error) if error.is_transient() => eprintln!("{error}"),
            Err(error) => return Err(error.into()),
        }
        if !worker.goes_on_after(REDIAL).await {
            return Ok(None);
        }
    }
}

struct Handler {
    life: String,
    tables: Arc<dyn Tables>,
    ledger: Arc<Ledger>,
    fuse: Arc<Fuse>,
    random: Mutex<fastrand::Rng>,
}

async fn handle(handler: Arc<Handler>, message: Message<Order>) -> Result<(), HandlerError> {
    let order = &*message.payload().order;
    let one = || std::iter::once(order);
    handler.ledger.note(Deed::Handling, one());
    handler.fuse.reached(Point::InHandler, one());
    let work = {
        let mut random = handler.random.lock().unwrap_or_else(PoisonError::into_inner);
        Duration::from_millis(random.u64(..=LONGEST_WORK))
    };
    tokio::time::sleep(work).await;
    if let Err(error) = handler.tables.act(order, &handler.life).await {
        handler.ledger.note(Deed::HandlerFailed, one());
        return Err(HandlerError::transient(format!("{error:#}")));
    }
    handler.ledger.note(Deed::Handled, one());
    Ok(())
}

/// The real store, with a book kept beside it and the consumer's points in it.
struct Watched {
    inner: SharedIdempotencyStore,
    ledger: Arc<Ledger>,
    fuse: Arc<Fuse>,
}

/// The message's id: the key is that behind the queue's name.
fn id(key: &str) -> impl Iterator<Item = &str> {
    key.rsplit('/').take(1)
}

impl IdempotencyStore for Watched {
    async fn claim(&self, key: &str) -> acemq::Result<bool> {
        self.inner.claim(key).await
    }

    async fn is_confirmed(&self, key: &str) -> acemq::Result<bool> {
        self.inner.is_confirmed(key).await
    }

    async fn try_claim(&self, key: &str) -> acemq::Result<Claim> {
        let from = Moment::now();
        let claim = self.inner.try_claim(key).await?;
        if matches!(claim, Claim::Owned(_)) {
            self.ledger.note_since(from, Deed::Claimed, id(key));
            self.fuse.reached(Point::AfterClaim, id(key));
        }
        Ok(claim)
    }

    async fn confirm(&self, lease: &Lease) -> acemq::Result<()> {
        self.fuse.reached(Point::BeforeConfirm, id(lease.key()));
        let from = Moment::now();
        let confirming = self.inner.confirm(lease);
        let confirmed = self.fuse.during(Point::InConfirm, id(lease.key()), confirming).await;
        let deed = if confirmed.is_ok() { Deed::Done } else { Deed::Unsure };
        self.ledger.note_since(from, deed, id(lease.key()));
        self.fuse.reached(Point::AfterConfirm, id(lease.key()));
        confirmed
    }

    async fn release(&self, lease: &Lease) -> acemq::Result<()> {
        self.ledger.note(Deed::GivingBack, id(lease.key()));
        self.inner.release(lease).await
    }

    async fn renew(&self, lease: &Lease) -> acemq::Result<bool> {
        let from = Moment::now();
        let held = self.inner.renew(lease).await?;
        if held {
            self.ledger.note_since(from, Deed::Renewed, id(lease.key()));
        }
        Ok(held)
    }

    fn lease(&self) -> Option<Duration> {
        self.inner.lease()
    }

    fn retention(&self) -> Option<Duration> {
        self.inner.retention()
    }

    async fn purge_expired(&self) -> acemq::Result<u64> {
        self.inner.purge_expired().await
    }

    async fn size(&self) -> acemq::Result<u64> {
        self.inner.size().await
    }
}
