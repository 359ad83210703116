//! The consumer's points where its handler writes in the transaction of the claim.

use std::{iter, sync::Arc, time::Duration};

use acemq::{CommitError, TransactionClaim, TransactionalStore};

use super::{Fuse, Point};

/// The real store, with the consumer's points in it.
pub(crate) struct Fused<S> {
    inner: S,
    fuse: Arc<Fuse>,
}

impl<S> Fused<S> {
    pub(crate) fn new(inner: S, fuse: Arc<Fuse>) -> Self {
        Self { inner, fuse }
    }
}

impl<S: TransactionalStore> TransactionalStore for Fused<S> {
    type Transaction = S::Transaction;
    type Hold = S::Hold;

    async fn begin(
        &self,
        key: &str,
        wait: Duration,
    ) -> acemq::Result<TransactionClaim<S::Transaction, S::Hold>> {
        let begun = self.inner.begin(key, wait).await?;
        if matches!(begun, TransactionClaim::Owned { .. }) {
            self.fuse.reached(Point::AfterClaim, iter::once(key));
        }
        Ok(begun)
    }

    async fn commit(&self, hold: S::Hold, transaction: S::Transaction) -> Result<(), CommitError> {
        self.fuse.reached(Point::BeforeConfirm, iter::empty());
        let committing = self.inner.commit(hold, transaction);
        let committed = self.fuse.during(Point::InConfirm, iter::empty(), committing).await;
        self.fuse.reached(Point::AfterConfirm, iter::empty());
        committed
    }

    async fn roll_back(&self, hold: S::Hold) {
        self.inner.roll_back(hold).await;
    }

    fn is_conflict(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        self.inner.is_conflict(error)
    }
}
