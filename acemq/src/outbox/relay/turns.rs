//! Publishing in a kept order: one after the other.
//!
//! A record is handed over when the one before it is confirmed. With several in flight a later
//! one could overtake: the broker may reject the first (its queue is full, or nothing is bound
//! yet) and take the second.

use std::collections::HashMap;

use futures_util::future::join_all;

use super::{
    super::{ClaimedRecord, RelayLock, RelayOrder},
    fate::{Fate, hand_over},
    hold::Hold,
};
use crate::{
    connection::{Client, Patience},
    error::{Error, ErrorKind},
};

/// What has to stand for a relay to publish in a kept order.
pub(super) struct Turns<'a> {
    pub(super) client: &'a Client,
    pub(super) lock: &'a RelayLock,
    pub(super) hold: &'a Hold,
}

impl Turns<'_> {
    /// Publishes records, oldest first: all in one row, or those of each key.
    pub(super) async fn publish(
        &self,
        mut records: Vec<ClaimedRecord>,
        order: RelayOrder,
    ) -> Vec<Fate> {
        // Of a record that cannot be read it is not known what it holds up, and so it is all that
        // is behind it. The store knows: at its next claim only the record's key waits.
        let unreadable = records.iter().position(|record| record.content().is_err());
        let behind = unreadable.map(|n| records.split_off(n)).unwrap_or_default();

        let mut fates: Vec<Fate> =
            join_all(rows(records, order).into_iter().map(|row| self.publish_row(row)))
                .await
                .into_iter()
                .flatten()
                .collect();
        let goes_on = fates.iter().all(|fate| matches!(fate, Fate::Published(..)));
        if goes_on || order == RelayOrder::PerKey {
            fates.extend(self.publish_row(behind).await);
        } else {
            fates.extend(behind.into_iter().map(|record| Fate::HeldUp(record.claim().clone())));
        }
        fates
    }

    async fn publish_row(&self, row: Vec<ClaimedRecord>) -> Vec<Fate> {
        let mut fates = Vec::with_capacity(row.len());
        let mut goes_on = true;
        for record in row {
            let claim = record.claim().clone();
            if !goes_on || self.lock.is_lost() || self.hold.is_over() {
                fates.push(Fate::HeldUp(claim));
                continue;
            }
            let publish = async {
                hand_over(self.client, record, &mut Patience::default()).await.fate().await
            };
            let fate = tokio::select! {
                biased;
                fate = publish => fate,
                () = self.hold.over() => Fate::Unharmed(claim, ran_out()),
            };
            goes_on = matches!(fate, Fate::Published(..));
            fates.push(fate);
        }
        fates
    }
}

/// The rows of records that follow each other.
fn rows(records: Vec<ClaimedRecord>, order: RelayOrder) -> Vec<Vec<ClaimedRecord>> {
    if order == RelayOrder::Strict {
        return vec![records];
    }
    let mut rows: HashMap<Option<(String, String)>, Vec<ClaimedRecord>> = HashMap::new();
    for record in records {
        let key = record.content().ok();
        let key = key.map(|record| (record.exchange().to_owned(), record.routing_key().to_owned()));
        rows.entry(key).or_default().push(record);
    }
    rows.into_values().collect()
}

fn ran_out() -> Error {
    Error::new(
        ErrorKind::Store,
        "relay outbox records in order: the claims ran out before the broker answered, because \
         the store did not renew them",
    )
}
