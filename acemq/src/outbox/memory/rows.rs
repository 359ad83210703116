//! The rows of an outbox in memory.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::SystemTime,
};

use super::super::{ClaimRequest, OutboxRecord, RecordClaim, RelayOrder};

#[derive(Default)]
pub(super) struct Rows {
    pub(super) by_id: HashMap<String, Row>,
    /// What is neither published nor exhausted, in the order it goes out.
    pub(super) waiting: BTreeSet<(SystemTime, String)>,
    /// What has used up its attempts.
    pub(super) exhausted: BTreeSet<(SystemTime, String)>,
}

pub(super) struct Row {
    pub(super) record: OutboxRecord,
    pub(super) attempts: u32,
    pub(super) last_error: Option<String>,
    pub(super) published_at: Option<SystemTime>,
    pub(super) locked_by: Option<String>,
    pub(super) locked_until: Option<SystemTime>,
}

impl Rows {
    /// The records that may be handed out now, oldest first.
    pub(super) fn on_offer(&self, request: ClaimRequest, now: SystemTime) -> Vec<String> {
        if request.order == RelayOrder::Relaxed {
            let free = self
                .waiting
                .iter()
                .filter(|(_, id)| self.by_id.get(id).is_some_and(|row| row.is_free(now)));
            return free.map(|(_, id)| id.clone()).take(request.records).collect();
        }
        let mut held_up = HashSet::new();
        let mut offered = Vec::new();
        for place in self.waiting.union(&self.exhausted) {
            if offered.len() == request.records {
                break;
            }
            let Some(row) = self.by_id.get(&place.1) else { continue };
            let record = &row.record;
            let key = match request.order {
                RelayOrder::Strict => ("", ""),
                RelayOrder::PerKey | RelayOrder::Relaxed => {
                    (record.exchange(), record.routing_key())
                }
            };
            if held_up.contains(&key) {
                continue;
            }
            if row.is_free(now) && !self.exhausted.contains(place) {
                offered.push(place.1.clone());
            } else {
                held_up.insert(key);
            }
        }
        offered
    }

    /// Gives an exhausted record new attempts.
    pub(super) fn retry(&mut self, id: &str) -> bool {
        let Some(row) = self.by_id.get_mut(id) else { return false };
        let place = row.place();
        if !self.exhausted.remove(&place) {
            return false;
        }
        row.attempts = 0;
        row.unlock();
        self.waiting.insert(place);
        true
    }

    /// The row of a claim that still holds it.
    pub(super) fn held(&mut self, claim: &RecordClaim) -> Option<&mut Row> {
        self.by_id.get_mut(claim.id()).filter(|row| {
            row.published_at.is_none() && row.locked_by.as_deref() == Some(claim.token())
        })
    }
}

impl Row {
    pub(super) fn is_free(&self, now: SystemTime) -> bool {
        self.locked_until.is_none_or(|until| until <= now)
    }

    pub(super) fn is_claimed(&self, now: SystemTime) -> bool {
        self.locked_by.is_some() && !self.is_free(now)
    }

    pub(super) fn unlock(&mut self) {
        self.locked_by = None;
        self.locked_until = None;
    }

    pub(super) fn place(&self) -> (SystemTime, String) {
        (self.record.created_at(), self.record.id().to_owned())
    }
}
