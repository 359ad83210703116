//! One batch: claimed and published, with many confirms in flight where no order is kept.

use tokio::time::Instant;

use super::{
    super::{ClaimRequest, ClaimedRecord, ErasedOutboxStore, RecordClaim, RelayLock},
    fate::{Fate, hand_over},
    hold::Hold,
    notes::{Note, in_time},
    turns::Turns,
};
use crate::{
    connection::{Client, Flight, Patience},
    error::Result,
};

/// Records that this relay holds.
pub(super) struct Batch {
    records: Vec<ClaimedRecord>,
    claimed: Instant,
    request: ClaimRequest,
}

impl Batch {
    pub(super) async fn claim(
        store: &dyn ErasedOutboxStore,
        request: ClaimRequest,
    ) -> Result<Self> {
        // The lease runs from some time after this on.
        let claimed = Instant::now();
        let records = in_time(request.lease, store.claim(request)).await?;
        Ok(Self { records, claimed, request })
    }

    /// Whether its claims may run out before they are renewed, or have run out already.
    pub(super) fn is_stale(&self) -> bool {
        self.claimed.elapsed() >= self.request.lease / 2
    }

    /// Whether it has as many records as were asked for.
    pub(super) fn is_full(&self) -> bool {
        self.records.len() == self.request.records
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.records.iter().map(|record| record.claim().id())
    }

    /// Everything goes back unpublished.
    pub(super) fn given_back(self) -> Note {
        Note::GivenBack(self.claims())
    }

    /// Publishes everything, in the order that is asked for: with `lock`, one after the other.
    pub(super) async fn publish(
        self,
        client: &Client,
        store: &dyn ErasedOutboxStore,
        lock: Option<&RelayLock>,
    ) -> Vec<Fate> {
        let claims = self.claims();
        let hold = Hold::new(self.claimed, self.request.lease);
        let publishing = async {
            match lock {
                Some(lock) => {
                    let turns = Turns { client, lock, hold: &hold };
                    turns.publish(self.records, self.request.order).await
                }
                None => side_by_side(client, self.records).await,
            }
        };
        hold.while_renewing(store, &claims, publishing).await
    }

    fn claims(&self) -> Vec<RecordClaim> {
        self.records.iter().map(|record| record.claim().clone()).collect()
    }
}

async fn side_by_side(client: &Client, records: Vec<ClaimedRecord>) -> Vec<Fate> {
    let mut flight = Flight::new();
    let mut patience = Patience::default();
    for record in records {
        let begin = hand_over(client, record, &mut patience);
        let handed_over = flight.meanwhile(begin).await;
        flight.push(handed_over.fate());
    }
    flight.finish().await
}
