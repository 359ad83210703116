//! What becomes of one record at the broker.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::super::{ClaimedRecord, FailedRecord, RecordClaim};
use crate::{
    clock::Clock,
    connection::{Client, InFlight, Patience},
    error::{Error, ErrorKind, Result},
};

/// The waits before a record that failed is tried again: doubling between these.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(600);

/// What became of one record.
pub(super) enum Fate {
    /// Confirmed and routed, so long after it was made.
    Published(RecordClaim, Duration),
    /// Its own fault: this attempt counts, by its number.
    Failed(FailedRecord, u32, Error),
    /// Not its fault: it goes back unharmed.
    Unharmed(RecordClaim, Error),
    /// Not tried, because of one before it.
    HeldUp(RecordClaim),
}

/// A record on its way.
pub(super) struct HandedOver {
    claim: RecordClaim,
    attempts: u32,
    sent: Result<(InFlight, SystemTime)>,
    clock: Clock,
}

pub(super) async fn hand_over(
    client: &Client,
    record: ClaimedRecord,
    patience: &mut Patience,
) -> HandedOver {
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
    pub(super) async fn fate(self) -> Fate {
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
                let failure = FailedRecord::new(claim, error.to_string(), retry_after);
                Fate::Failed(failure, attempts.saturating_add(1), error)
            }
            Err(error) => Fate::Unharmed(claim, error),
        }
    }
}

/// Whether the record would fail the same way on a healthy broker and network. A broker that
/// answers and rejects it counts: most often its queue is full, and nobody takes from it.
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
        | ErrorKind::Responder
        | ErrorKind::Store
        | ErrorKind::Timeout
        | ErrorKind::Tls => false,
    }
}
