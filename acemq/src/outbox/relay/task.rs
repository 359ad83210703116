//! The task of a relay: look, publish, mark, wait.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use futures_util::FutureExt;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    super::{ErasedOutboxStore, OutboxSignal, RelayLock},
    OnError, RelayState, Settings,
    notes::{Notes, in_time},
    pass::Batch,
    troubles::Troubles,
};
use crate::{
    connection::{Client, ConnectionState, Stop},
    error::{Error, ErrorKind, Result},
    telemetry::OutboxMeter,
    transport::BoxFuture,
};

/// The first look after a record was armed; each next one waits twice as long, up to the poll
/// interval.
pub(super) const FIRST_LOOK: Duration = Duration::from_millis(1);

/// How long one question for the lock of the active relay waits for it.
const STAND_BY: Duration = Duration::from_secs(10);

/// How often the relay looks for other relays on its table.
const LOOK_FOR_OTHERS: Duration = Duration::from_secs(60);

pub(super) struct Core {
    pub(super) client: Client,
    pub(super) store: Arc<dyn ErasedOutboxStore>,
    pub(super) signal: Option<OutboxSignal>,
    pub(super) settings: Settings,
    pub(super) on_error: Option<OnError>,
    pub(super) meter: OutboxMeter,
    pub(super) notes: Notes,
    pub(super) published: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) state: watch::Sender<RelayState>,
    pub(super) closing: CancellationToken,
    /// Closing has taken as long as it may.
    pub(super) cut_off: CancellationToken,
    pub(super) ended: CancellationToken,
}

/// What a started relay has at hand.
#[derive(Default)]
pub(super) struct Hand {
    /// What was claimed while the batch before it was published.
    pub(super) next: Option<Batch>,
    pub(super) lock: Option<RelayLock>,
    /// Another relay has the lock.
    stands_by: bool,
}

impl Core {
    pub(super) async fn run(&self) {
        let listening = async {
            // A store that has nothing to listen to ends at once, and one of the user's own may
            // panic; the relay does neither.
            let _ = AssertUnwindSafe(self.store.listen()).catch_unwind().await;
            std::future::pending().await
        };
        tokio::select! {
            () = self.work() => {}
            () = listening => {}
        }
    }

    async fn work(&self) {
        let mut hand = Hand::default();
        let mut look = self.settings.poll;
        let mut troubles = Troubles::new(self.settings.poll);
        let mut look_for_others = Instant::now();
        while !self.closing.is_cancelled() {
            if Instant::now() >= look_for_others {
                look_for_others = Instant::now() + LOOK_FOR_OTHERS;
                let _ = tokio::time::timeout(LOOK_FOR_OTHERS, self.look_for_others()).await;
            }
            // A store of the user's own that panics is a store that failed.
            let passed = AssertUnwindSafe(self.pass(&mut hand)).catch_unwind().await;
            let passed = passed.unwrap_or_else(|_| {
                Err(Error::new(ErrorKind::Store, "relay outbox records: the pass panicked"))
            });
            let went_on = match passed {
                Ok(went_on) => {
                    troubles.are_over();
                    self.turn_to(match hand.stands_by {
                        true => RelayState::StandingBy,
                        false => RelayState::Active,
                    });
                    went_on
                }
                Err(error) => {
                    let pause = troubles.meet(&error, !self.notes.is_empty());
                    self.report(&error);
                    self.turn_to(RelayState::Failing { reason: error.to_string() });
                    self.recover(pause).await;
                    continue;
                }
            };
            look = match went_on {
                true => FIRST_LOOK,
                false if hand.stands_by => {
                    // Without an ear for the signal, which wakes one relay: the active one.
                    self.rest(self.settings.poll.min(STAND_BY)).await;
                    FIRST_LOOK
                }
                false => self.wait(look).await,
            };
        }
        self.put_down(hand.next.take());
        self.write_to_the_end().await;
        if let Some(lock) = hand.lock {
            lock.release().await;
        }
    }

    /// Sends the batch in hand, or one that it takes; says whether to go on at once.
    async fn pass(&self, hand: &mut Hand) -> Result<bool> {
        if !self.leads(hand).await? {
            return Ok(false);
        }
        let batch = match hand.next.take() {
            Some(batch) if !batch.is_stale() => batch,
            // It waited too long for the one before it, and another relay may have it by now.
            stale => {
                self.put_down(stale);
                self.notes.write(&*self.store).await?;
                self.claim().await?
            }
        };
        if batch.is_empty() {
            return Ok(false);
        }
        if self.closing.is_cancelled() {
            self.put_down(Some(batch));
            return Ok(false);
        }
        self.send_and_claim_next(batch, hand).await
    }

    /// Whether this relay is the active one, or need not be. Waits a while to become it.
    async fn leads(&self, hand: &mut Hand) -> Result<bool> {
        if !self.settings.order.is_kept() || hand.lock.as_ref().is_some_and(|it| !it.is_lost()) {
            return Ok(true);
        }
        if let Some(lost) = hand.lock.take() {
            tracing::warn!("the lock of the active outbox relay was lost; taking it again");
            lost.release().await;
            self.put_down(hand.next.take());
        }
        // Whoever is the active one next waits for these records, and would publish them again.
        self.notes.write(&*self.store).await?;
        let patience = if hand.stands_by { STAND_BY } else { Duration::ZERO };
        let led = tokio::select! {
            led = in_time(self.settings.lease, self.store.lead(patience)) => led?,
            () = self.closing.cancelled() => None,
        };
        match &led {
            Some(_) => tracing::info!("this outbox relay is the active one"),
            None if hand.stands_by => {}
            None => tracing::info!("another outbox relay is the active one; standing by"),
        }
        hand.stands_by = led.is_none();
        hand.lock = led;
        Ok(hand.lock.is_some())
    }

    /// Waits after a failed pass: this long, or until the connection is back if it is not there.
    async fn recover(&self, wait: Duration) {
        let mut connection = self.client.publishing();
        let connected = |state: &ConnectionState| *state == ConnectionState::Connected;
        if connected(&connection.current()) {
            return self.rest(wait).await;
        }
        tokio::select! {
            () = self.rest(wait) => {}
            () = connection.wait_for(connected) => {}
        }
    }

    /// Waits for something to do and says how long the next look may wait.
    async fn wait(&self, look: Duration) -> Duration {
        let Some(signal) = &self.signal else {
            self.rest(self.settings.poll).await;
            return self.settings.poll;
        };
        // Armed while the last pass was under way, which may have looked too early for it.
        if signal.changed().now_or_never().is_some() {
            return FIRST_LOOK;
        }
        if signal.is_armed() {
            if look >= self.settings.poll {
                // Rolled back, or another relay's by now: from here on polling will find it.
                signal.forget();
            } else {
                tokio::select! {
                    () = self.rest(look) => {}
                    () = signal.changed() => return FIRST_LOOK,
                }
                return (look * 2).min(self.settings.poll);
            }
        }
        tokio::select! {
            () = self.rest(self.settings.poll) => self.settings.poll,
            () = signal.changed() => FIRST_LOOK,
        }
    }

    async fn rest(&self, wait: Duration) {
        tokio::select! {
            () = self.closing.cancelled() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }

    pub(super) fn is_running(&self) -> bool {
        *self.state.borrow() != RelayState::Stopped
    }

    fn turn_to(&self, state: RelayState) {
        self.state.send_if_modified(|current| {
            let changes = *current != state;
            if changes {
                *current = state;
            }
            changes
        });
    }

    pub(super) fn report(&self, error: &Error) {
        let Some(callback) = &self.on_error else { return };
        if catch_unwind(AssertUnwindSafe(|| callback(error))).is_err() {
            tracing::error!("the error callback of an outbox relay panicked");
        }
    }

    /// Two relays on one table are safe, but then nothing keeps the order; that is said.
    async fn look_for_others(&self) {
        match self.store.other_relays().await {
            Ok(others) if !others.is_empty() => tracing::warn!(
                ?others,
                "another relay is active on this outbox; everything goes out, in no certain order"
            ),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "looking for other relays failed"),
        }
    }
}

/// Held by the task, also before its first poll: however that ends, nobody waits for it in vain.
pub(super) struct Running(pub(super) Arc<Core>);

impl Running {
    pub(super) fn new(core: &Arc<Core>) -> Self {
        core.turn_to(RelayState::Starting);
        Self(Arc::clone(core))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.turn_to(RelayState::Stopped);
        self.0.ended.cancel();
    }
}

impl Stop for Core {
    fn stop(&self, deadline: Instant) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.closing.cancel();
            let ended = async {
                if self.is_running() {
                    self.ended.cancelled().await;
                } else {
                    self.write_to_the_end().await;
                }
            };
            // Past the deadline the batch in hand is left to its lease.
            let _ = tokio::time::timeout_at(deadline, ended).await;
            self.cut_off.cancel();
            Ok(())
        })
    }
}
