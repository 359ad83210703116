//! What a relay knows about records and has not written down yet.
//!
//! A database that is away when a batch has been published must not make it go out again. What
//! became of the records is kept here until the store has taken it, and nothing new is claimed
//! before.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout};

use super::super::{ErasedOutboxStore, FailedRecord, RecordClaim};
use crate::error::{Error, ErrorKind, Result};

/// How long the store may take for an answer, or the lease if that is longer: a connection to a
/// database that fell silent would otherwise stop the relay for good.
const LONGEST_ANSWER: Duration = Duration::from_secs(30);

/// What became of records.
pub(super) enum Note {
    Published(Vec<RecordClaim>),
    /// Their own fault: the attempt counts.
    Failed(Vec<FailedRecord>),
    /// Not their fault: they go back unharmed.
    GivenBack(Vec<RecordClaim>),
}

/// The notes of one relay, oldest first.
pub(super) struct Notes {
    lease: Duration,
    waiting: Mutex<Vec<Arc<Waiting>>>,
}

struct Waiting {
    note: Note,
    since: Instant,
}

impl Notes {
    pub(super) fn new(lease: Duration) -> Self {
        Self { lease, waiting: Mutex::default() }
    }

    pub(super) fn add(&self, note: Note) {
        if !note.is_empty() {
            self.waiting().push(Arc::new(Waiting { note, since: Instant::now() }));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting().is_empty()
    }

    /// Writes down what it can, each although another failed, and keeps the rest. A future that
    /// is dropped on the way has kept it as well: all of it may be written twice.
    ///
    /// Meanwhile the claims on what was published are renewed: a store that takes long, or whose
    /// connection fell silent, must not hand it out again.
    pub(super) async fn write(&self, store: &dyn ErasedOutboxStore) -> Result<()> {
        tokio::select! {
            biased;
            written = self.write_each(store) => written,
            never = self.renew(store) => match never {},
        }
    }

    async fn write_each(&self, store: &dyn ErasedOutboxStore) -> Result<()> {
        let waiting = self.waiting().clone();
        let mut trouble = None;
        for one in waiting {
            let written = in_time(self.lease, one.note.write(store)).await;
            // What needs its claim is not worth a word once that has run out. That a record was
            // published stays a fact.
            let is_moot = !one.note.is_a_fact() && one.since.elapsed() >= self.lease;
            if written.is_ok() || is_moot {
                self.waiting().retain(|other| !Arc::ptr_eq(other, &one));
            }
            if let Err(error) = written {
                trouble.get_or_insert(error);
            }
        }
        trouble.map_or(Ok(()), Err)
    }

    async fn renew(&self, store: &dyn ErasedOutboxStore) -> Infallible {
        let every = (self.lease / 3).max(Duration::from_millis(1));
        loop {
            sleep(every).await;
            let waiting = self.waiting().clone();
            for one in waiting {
                let Note::Published(claims) = &one.note else { continue };
                if let Err(error) = in_time(self.lease, store.renew(claims, self.lease)).await {
                    tracing::warn!(%error, "the claims on published records were not renewed");
                }
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Arc<Waiting>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Note {
    async fn write(&self, store: &dyn ErasedOutboxStore) -> Result<()> {
        match self {
            Self::Published(claims) => store.mark_published(claims).await,
            Self::Failed(failures) => store.mark_failed(failures).await,
            Self::GivenBack(claims) => store.give_back(claims).await,
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Published(claims) | Self::GivenBack(claims) => claims.is_empty(),
            Self::Failed(failures) => failures.is_empty(),
        }
    }

    fn is_a_fact(&self) -> bool {
        matches!(self, Self::Published(_))
    }
}

/// The store's answer, or an error if it does not come.
pub(super) async fn in_time<T>(
    lease: Duration,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let bound = lease.max(LONGEST_ANSWER);
    timeout(bound, work).await.unwrap_or_else(|_| {
        let text = format!("relay outbox records: the store did not answer within {bound:?}");
        Err(Error::new(ErrorKind::Store, text))
    })
}
