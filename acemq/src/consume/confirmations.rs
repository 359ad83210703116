//! Confirmations that wait at the same time, written down by the store in one go.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, oneshot};

use super::claim::answer;
use crate::{
    error::Result,
    idempotency::{IdempotencyStore, Lease, SharedIdempotencyStore},
};

/// One consumer's confirmations on their way. A lone one goes at once; those that come while the
/// store is busy with others go together next.
#[derive(Debug)]
pub(super) struct Confirmations {
    waiting: Mutex<Vec<Waiting>>,
    /// Whoever has it asks the store, for all that wait.
    turn: Semaphore,
}

#[derive(Debug)]
struct Waiting {
    lease: Lease,
    /// Told once it is written down; dropped where that is not known.
    written: oneshot::Sender<()>,
}

impl Confirmations {
    pub(super) fn new() -> Self {
        Self { waiting: Mutex::default(), turn: Semaphore::new(1) }
    }

    /// Writes one down. Dropped on the way, it may still be written down with others: it is a fact.
    pub(super) async fn confirm(
        &self,
        store: &SharedIdempotencyStore,
        lease: &Lease,
    ) -> Result<()> {
        let (written, mut answered) = oneshot::channel();
        self.waiting().push(Waiting { lease: lease.clone(), written });
        let turn = tokio::select! {
            biased;
            written = &mut answered => match written {
                Ok(()) => return Ok(()),
                Err(_) => None,
            },
            turn = self.turn.acquire() => turn.ok(),
        };
        if turn.is_some() {
            let together = std::mem::take(&mut *self.waiting());
            if let [_, _, ..] = &*together {
                let leases: Vec<Lease> =
                    together.iter().map(|waiting| waiting.lease.clone()).collect();
                if answer(|| store.confirm_batch(&leases)).await.is_ok() {
                    for waiting in together {
                        // Whoever is gone needs no answer.
                        let _ = waiting.written.send(());
                    }
                    if answered.try_recv().is_ok() {
                        return Ok(());
                    }
                }
            }
        }
        // Alone, or one of many that failed together, perhaps for the sake of another.
        answer(|| store.confirm(lease)).await
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
