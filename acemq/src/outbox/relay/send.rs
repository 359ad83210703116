//! What a relay does with a batch: publish it, and write down what became of it.

use std::{sync::atomic::Ordering, time::Duration};

use super::{
    super::RelayLock,
    fate::Fate,
    notes::{Note, in_time},
    pass::Batch,
    task::{Core, Hand},
    troubles::Troubles,
};
use crate::error::{Error, Result};

/// What became of a batch.
#[derive(Default)]
struct Tally {
    published: usize,
    failed: usize,
    /// The broker's, the network's or the store's fault.
    trouble: Option<Error>,
}

impl Tally {
    /// An error where the batch or the writing down met trouble.
    fn and(self, written: Result<()>) -> Result<Self> {
        match self.trouble {
            Some(error) => Err(error),
            None => written.map(|()| self),
        }
    }
}

impl Core {
    /// Publishes a batch; where no order is kept and more seems to wait, while the next one is
    /// claimed and the one before it is marked. Says whether to go on at once. A batch of which
    /// nothing went out is no reason to: the store may hand it out again.
    pub(super) async fn send_and_claim_next(&self, batch: Batch, hand: &mut Hand) -> Result<bool> {
        if hand.lock.is_some() || !batch.is_full() || self.closing.is_cancelled() {
            return Ok(self.send(batch, hand.lock.as_ref()).await?.published > 0);
        }
        let (tally, written, claimed) =
            tokio::join!(self.publish(batch, None), self.notes.write(&*self.store), self.claim());
        if let Ok(batch) = claimed {
            hand.next = (!batch.is_empty()).then_some(batch);
        }
        match tally.and(written) {
            Ok(tally) => {
                let goes_on = tally.published > 0 || hand.next.is_some();
                if !goes_on {
                    // Without a next batch to be written beside, it would wait as long as the relay.
                    self.notes.write(&*self.store).await?;
                }
                Ok(goes_on)
            }
            Err(error) => {
                self.put_down(hand.next.take());
                // What cannot be written now is written before the next pass.
                let _ = self.notes.write(&*self.store).await;
                Err(error)
            }
        }
    }

    /// Publishes on demand, in at most so many batches, and says how many records went out.
    pub(super) async fn drain(&self, batches: usize) -> Result<usize> {
        self.notes.write(&*self.store).await?;
        let mut lock = None;
        if self.settings.order.is_kept() {
            lock = in_time(self.settings.lease, self.store.lead(Duration::ZERO)).await?;
            if lock.is_none() {
                return Ok(0);
            }
        }
        let drained = self.drain_with(lock.as_ref(), batches).await;
        if let Some(lock) = lock {
            // Also after an error: the next drain is to find it free.
            lock.release().await;
        }
        drained
    }

    async fn drain_with(&self, lock: Option<&RelayLock>, batches: usize) -> Result<usize> {
        let mut published = 0;
        for _ in 0..batches {
            let batch = self.claim().await?;
            let sent = self.send(batch, lock).await?;
            published += sent.published;
            // Nothing was there, or nothing could be done about it.
            if sent.published + sent.failed == 0 {
                break;
            }
        }
        Ok(published)
    }

    pub(super) async fn claim(&self) -> Result<Batch> {
        let batch = Batch::claim(&*self.store, self.settings.request()).await?;
        if let Some(signal) = &self.signal {
            batch.ids().for_each(|id| signal.seen(id));
        }
        Ok(batch)
    }

    /// Publishes a batch, marks what went out, counts an attempt for what failed by its own
    /// fault, and gives the rest back.
    async fn send(&self, batch: Batch, lock: Option<&RelayLock>) -> Result<Tally> {
        // The batch before may not be marked yet. What cannot be written now comes again below.
        let (_, tally) = tokio::join!(
            biased;
            self.notes.write(&*self.store),
            self.publish(batch, lock)
        );
        tally.and(self.notes.write(&*self.store).await)
    }

    /// Publishes a batch and notes what became of it.
    async fn publish(&self, batch: Batch, lock: Option<&RelayLock>) -> Tally {
        let tally = self.judge(batch.publish(&self.client, &*self.store, lock).await);
        self.published.fetch_add(tally.published as u64, Ordering::Relaxed);
        self.failed.fetch_add(tally.failed as u64, Ordering::Relaxed);
        tally
    }

    fn judge(&self, fates: Vec<Fate>) -> Tally {
        let (mut published, mut failed, mut unharmed) = (Vec::new(), Vec::new(), Vec::new());
        let mut trouble = None;
        for fate in fates {
            match fate {
                Fate::Published(claim, lag) => {
                    self.meter.published(lag);
                    published.push(claim);
                }
                Fate::Failed(failure, attempt, error) => {
                    let id = failure.claim.id();
                    tracing::warn!(id, attempt, %error, "an outbox record failed");
                    self.meter.failed();
                    self.report(&error);
                    failed.push(failure);
                }
                Fate::Unharmed(claim, error) => {
                    trouble.get_or_insert(error);
                    unharmed.push(claim);
                }
                Fate::HeldUp(claim) => unharmed.push(claim),
            }
        }
        let tally = Tally { published: published.len(), failed: failed.len(), trouble };
        self.notes.add(Note::Published(published));
        self.notes.add(Note::Failed(failed));
        self.notes.add(Note::GivenBack(unharmed));
        tally
    }

    pub(super) fn put_down(&self, batch: Option<Batch>) {
        if let Some(batch) = batch {
            self.notes.add(batch.given_back());
        }
    }

    /// Writes down what is not written yet, for as long as closing may take.
    pub(super) async fn write_to_the_end(&self) {
        let mut troubles = Troubles::new(self.settings.poll);
        while !self.notes.is_empty() && !self.cut_off.is_cancelled() {
            let Err(error) = self.notes.write(&*self.store).await else { continue };
            tokio::select! {
                () = self.cut_off.cancelled() => {}
                () = tokio::time::sleep(troubles.meet(&error, true)) => {}
            }
        }
    }
}
