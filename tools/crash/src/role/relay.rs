//! A relay on the run's outbox, over a store that writes down what the relay does.

use std::{sync::Arc, time::Duration};

use acemq::{
    ClaimedRecord, FailedRecord, OutboxRelay, OutboxSignal, OutboxStore, RecordClaim,
    SharedOutboxStore, StuckRecord,
};
use anyhow::Result;

use super::{Fuse, Point, Worker};
use crate::ledger::{Deed, Ledger, Moment};

/// Small, so that several relays have something to do at once.
pub(crate) const BATCH: usize = 25;
const POLL: Duration = Duration::from_millis(50);

pub(super) async fn run(worker: Worker) -> Result<()> {
    let Some(mq) = worker.connect().await else { return Ok(()) };
    let store = Watched { inner: worker.tables.outbox(), ledger: worker.ledger, fuse: worker.fuse };
    let relay = OutboxRelay::builder(&mq, store)
        .batch(BATCH)
        .poll(POLL)
        .lease(worker.lease)
        .on_error(|error| eprintln!("{error}"))
        .start();
    worker.stop.cancelled().await;
    relay.close().await?;
    Ok(mq.close().await?)
}

/// The real store, with a book kept beside it and the relay's points in it.
struct Watched {
    inner: SharedOutboxStore,
    ledger: Arc<Ledger>,
    fuse: Arc<Fuse>,
}

fn ids(claims: &[RecordClaim]) -> impl Iterator<Item = &str> {
    claims.iter().map(RecordClaim::id)
}

impl OutboxStore for Watched {
    async fn claim_batch(&self, size: usize, lease: Duration) -> acemq::Result<Vec<ClaimedRecord>> {
        let from = Moment::now();
        let claimed = self.inner.claim_batch(size, lease).await?;
        if !claimed.is_empty() {
            let ids = || claimed.iter().map(|record| record.claim().id());
            self.ledger.note_since(from, Deed::Claimed, ids());
            self.fuse.reached(Point::AfterClaim, ids());
        }
        Ok(claimed)
    }

    async fn mark_published(&self, claims: &[RecordClaim]) -> acemq::Result<()> {
        self.fuse.reached(Point::BeforeMark, ids(claims));
        let from = Moment::now();
        let marking = self.inner.mark_published(claims);
        let marked = self.fuse.during(Point::InMark, ids(claims), marking).await;
        let deed = if marked.is_ok() { Deed::Done } else { Deed::Unsure };
        self.ledger.note_since(from, deed, ids(claims));
        self.fuse.reached(Point::AfterMark, ids(claims));
        marked
    }

    async fn mark_failed(&self, failures: &[FailedRecord]) -> acemq::Result<()> {
        self.ledger.note(Deed::Failing, failures.iter().map(|failure| failure.claim.id()));
        self.inner.mark_failed(failures).await
    }

    async fn give_back(&self, claims: &[RecordClaim]) -> acemq::Result<()> {
        self.ledger.note(Deed::GivingBack, ids(claims));
        self.inner.give_back(claims).await
    }

    async fn renew(&self, claims: &[RecordClaim], lease: Duration) -> acemq::Result<()> {
        let from = Moment::now();
        self.inner.renew(claims, lease).await?;
        self.ledger.note_since(from, Deed::Renewed, ids(claims));
        Ok(())
    }

    async fn pending_count(&self) -> acemq::Result<u64> {
        self.inner.pending_count().await
    }

    async fn stuck(&self, limit: usize) -> acemq::Result<Vec<StuckRecord>> {
        self.inner.stuck(limit).await
    }

    async fn purge_published(&self, older_than: Duration) -> acemq::Result<u64> {
        self.inner.purge_published(older_than).await
    }

    async fn other_relays(&self) -> acemq::Result<Vec<String>> {
        self.inner.other_relays().await
    }

    fn signal(&self) -> Option<OutboxSignal> {
        self.inner.signal()
    }
}
