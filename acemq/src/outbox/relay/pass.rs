//! One batch: claimed, published with many confirms in flight, marked in few statements.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::{Instant, timeout};

use super::super::{ClaimedRecord, ErasedOutboxStore, FailedRecord, RecordClaim};
use crate::{
    clock::Clock,
    connection::{Client, Flight, InFlight, Patience},
    error::{Error, ErrorKind, Result},
    telemetry::OutboxMeter,
};

/// The waits before a record that failed is tried again: doubling between these.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(600);

/// How long the store may take for an answer, or the lease if that is longer: a connection to a
/// database that fell silent would otherwise stop the relay for good.
const LONGEST_ANSWER: Duration = Duration::from_secs(30);

/// Records that this relay holds.
pub(super) struct Batch {
    records: Vec<ClaimedRecord>,
    claimed: Instant,
}

/// What became of a batch.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) published: usize,
    /// Records whose own fault it was.
    pub(super) failed: usize,
    /// The broker's, the network's or the store's fault.
    trouble: Option<Error>,
}

impl Tally {
    pub(super) fn result(self) -> Result<Self> {
        match self.trouble {
            Some(error) => Err(error),
            None => Ok(self),
        }
    }
}

/// What became of one record.
enum Fate {
    Published(RecordClaim, Duration),
    /// Its own fault: the attempt counts.
    Failed(FailedRecord, Error),
    /// Not its fault: it goes back unharmed.
    Unharmed(RecordClaim, Error),
}

impl Batch {
    pub(super) async fn claim(
        store: &dyn ErasedOutboxStore,
        size: usize,
        lease: Duration,
    ) -> Result<Self> {
        // The lease runs from some time after this on.
        let claimed = Instant::now();
        let records = in_time(lease, store.claim_batch(size, lease)).await?;
        Ok(Self { records, claimed })
    }

    /// Whether its claims may run out before they are renewed, or have run out already.
    pub(super) fn is_stale(&self, lease: Duration) -> bool {
        self.claimed.elapsed() >= lease / 2
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.records.iter().map(|record| record.claim().id())
    }

    /// Gives everything back unpublished. A failure is logged: the leases run out by themselves.
    pub(super) async fn give_back(self, store: &dyn ErasedOutboxStore, lease: Duration) {
        let claims: Vec<RecordClaim> =
            self.records.iter().map(|record| record.claim().clone()).collect();
        give_back(store, &claims, lease).await;
    }

    /// Publishes everything, marks what went out, counts an attempt for what failed by its own
    /// fault, and gives the rest back.
    pub(super) async fn publish_and_mark(
        self,
        client: &Client,
        store: &dyn ErasedOutboxStore,
        lease: Duration,
        meter: &OutboxMeter,
        report: impl Fn(&Error),
    ) -> Tally {
        let claims: Vec<RecordClaim> =
            self.records.iter().map(|record| record.claim().clone()).collect();
        let publishing = async {
            let mut flight = Flight::new();
            let mut patience = Patience::default();
            for record in self.records {
                let begin = hand_over(client, record, &mut patience);
                let handed_over = flight.meanwhile(begin).await;
                flight.push(handed_over.fate());
            }
            flight.finish().await
        };
        let fates = while_renewing(store, &claims, lease, publishing).await;

        let mut tally = Tally::default();
        let (mut published, mut failed, mut unharmed) = (Vec::new(), Vec::new(), Vec::new());
        for fate in fates {
            match fate {
                Fate::Published(claim, lag) => {
                    meter.published(lag);
                    published.push(claim);
                }
                Fate::Failed(failure, error) => {
                    tracing::warn!(id = failure.claim.id(), %error, "an outbox record failed");
                    meter.failed();
                    report(&error);
                    failed.push(failure);
                }
                Fate::Unharmed(claim, error) => {
                    tally.trouble.get_or_insert(error);
                    unharmed.push(claim);
                }
            }
        }
        tally.published = published.len();
        tally.failed = failed.len();
        // Each is tried although another failed: what is known is written down.
        let marks = [
            mark(&published, lease, store.mark_published(&published)).await,
            mark(&failed, lease, store.mark_failed(&failed)).await,
        ];
        for trouble in marks.into_iter().filter_map(Result::err) {
            tally.trouble.get_or_insert(trouble);
        }
        give_back(store, &unharmed, lease).await;
        tally
    }
}

async fn mark<T>(
    marked: &[T],
    lease: Duration,
    work: impl Future<Output = Result<()>>,
) -> Result<()> {
    if marked.is_empty() { Ok(()) } else { in_time(lease, work).await }
}

/// The store's answer, or an error if it does not come.
async fn in_time<T>(lease: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
    let bound = lease.max(LONGEST_ANSWER);
    timeout(bound, work).await.unwrap_or_else(|_| {
        let text = format!("relay outbox records: the store did not answer within {bound:?}");
        Err(Error::new(ErrorKind::Store, text))
    })
}

async fn give_back(store: &dyn ErasedOutboxStore, claims: &[RecordClaim], lease: Duration) {
    if claims.is_empty() {
        return;
    }
    if let Err(error) = in_time(lease, store.give_back(claims)).await {
        tracing::warn!(%error, "outbox records were not given back; their leases run out");
    }
}

/// Does the work while the claims are renewed at a third of their lease.
async fn while_renewing<T>(
    store: &dyn ErasedOutboxStore,
    claims: &[RecordClaim],
    lease: Duration,
    work: impl Future<Output = T>,
) -> T {
    let renewals = async || -> std::convert::Infallible {
        let mut every = tokio::time::interval((lease / 3).max(Duration::from_millis(1)));
        every.tick().await;
        loop {
            every.tick().await;
            if let Err(error) = in_time(lease, store.renew(claims, lease)).await {
                tracing::warn!(%error, "the claims on outbox records were not renewed");
            }
        }
    };
    tokio::select! {
        biased;
        done = work => done,
        never = renewals() => match never {},
    }
}

/// A record on its way.
struct HandedOver {
    claim: RecordClaim,
    attempts: u32,
    sent: Result<(InFlight, SystemTime)>,
    clock: Clock,
}

async fn hand_over(client: &Client, record: ClaimedRecord, patience: &mut Patience) -> HandedOver {
    let (claim, attempts, content) = record.into_parts();
    let sent = async {
        let record = content?;
        let created_at = record.created_at();
        let message = Arc::new(record.into_outgoing());
        Ok((client.hand_over(message, patience).await?, created_at))
    }
    .await;
    HandedOver { claim, attempts, sent, clock: client.clock() }
}

impl HandedOver {
    /// Waits for the broker's verdict and judges it.
    async fn fate(self) -> Fate {
        let Self { claim, attempts, sent, clock } = self;
        let confirmed = async {
            let (in_flight, created_at) = sent?;
            in_flight.confirmed().await?;
            Ok(clock.now().duration_since(created_at).unwrap_or_default())
        }
        .await;
        match confirmed {
            Ok(lag) => Fate::Published(claim, lag),
            Err(error) if is_its_own_fault(&error) => {
                let retry_after =
                    FIRST_RETRY.saturating_mul(1 << attempts.min(16)).min(LONGEST_RETRY);
                Fate::Failed(FailedRecord::new(claim, error.to_string(), retry_after), error)
            }
            Err(error) => Fate::Unharmed(claim, error),
        }
    }
}

/// Whether the record would fail the same way on a healthy broker and network.
fn is_its_own_fault(error: &Error) -> bool {
    // No wildcard: a new kind has to be decided here.
    match error.kind() {
        ErrorKind::Config
        | ErrorKind::Conflict
        | ErrorKind::Decode
        | ErrorKind::Encode
        | ErrorKind::Interceptor
        | ErrorKind::NotFound
        | ErrorKind::Refused
        | ErrorKind::Rejected
        | ErrorKind::TooLarge
        | ErrorKind::Unroutable
        | ErrorKind::Unsupported => true,
        ErrorKind::Authentication
        | ErrorKind::Blocked
        | ErrorKind::Closed
        | ErrorKind::Connect
        | ErrorKind::Lost
        | ErrorKind::Store
        | ErrorKind::Timeout
        | ErrorKind::Tls => false,
    }
}
