//! What drives instances of a durable saga on: from what is written of one to what is written next.
//!
//! What follows a step is written under the claim's fence, and the same write says what is about to
//! run: a crash finds in the store what had begun. A claim counts itself there, so that what was
//! begun after it is known as well.

use std::{
    sync::{Arc, atomic::AtomicUsize},
    time::{Duration, SystemTime},
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    ClaimedSaga, SagaClaim, SagaNext, SagaStatus, SagaStore, SagaWrite, StoredSaga,
    attempt::Ended,
    held::{Held, id_of, journal_of, unreadable},
    journal::{Failure, Journal, Stage, Turn},
    key,
    lease::{NotWritten, Patience, answer},
    signal::Signal,
    work::Work,
};
use crate::{
    error::{Error, ErrorKind, Result},
    saga::{attempts::Limits, step::StepOptions},
};

/// How long an instance that cannot be gone on with is left alone before the next look.
const SET_ASIDE: Duration = Duration::from_secs(60);
/// From how many crashes on an instance runs alone.
const SUSPECT: u32 = 2;

pub(super) struct Engine<S> {
    pub(super) saga: Arc<str>,
    pub(super) steps: Vec<Step<S>>,
    /// What the list of steps is recognised by.
    pub(super) fingerprint: String,
    pub(super) store: S,
    pub(super) settings: Settings,
    pub(super) signal: Signal,
    /// How many instances cannot be written for the time being.
    pub(super) unwritten: AtomicUsize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) lease: Duration,
    pub(super) deadline: Option<Duration>,
    pub(super) max_crashes: u32,
}

pub(super) struct Step<S> {
    pub(super) options: Arc<StepOptions>,
    pub(super) action: Work<S>,
    pub(super) compensation: Option<Work<S>>,
    pub(super) in_doubt: Option<Work<S>>,
    /// Whether a reply is what the next step takes; for a step that waits for one.
    pub(super) check_reply: Option<fn(&str) -> Result<()>>,
}

impl<S> Step<S> {
    pub(super) fn sends(&self) -> bool {
        let parts = [Some(&self.action), self.compensation.as_ref(), self.in_doubt.as_ref()];
        parts.into_iter().flatten().any(|part| matches!(part, Work::Message(_)))
    }

    /// What undoes it where it is done, or in doubt.
    pub(super) fn undo(&self, stage: Stage) -> Option<&Work<S>> {
        match stage {
            Stage::Done => self.compensation.as_ref(),
            Stage::Failed => self.in_doubt.as_ref(),
            _ => None,
        }
    }
}

/// How far an instance was driven.
#[derive(Debug)]
pub(super) enum Driven {
    Over(SagaStatus, Box<Journal>),
    /// Another process has it.
    Lost,
    /// It is nobody's, and due later.
    Waits,
}

impl<S: SagaStore> Engine<S> {
    pub(super) fn new(saga: String, store: S, settings: Settings, steps: Vec<Step<S>>) -> Self {
        let fingerprint = key::fingerprint(steps.iter().map(|step| &*step.options.name));
        Self {
            saga: saga.into(),
            steps,
            fingerprint,
            store,
            settings,
            signal: Signal::new(),
            unwritten: AtomicUsize::new(0),
        }
    }

    /// Drives an instance on from where it stands, until it is over, waits, or is lost; once `stop`
    /// is cancelled, until the step in hand has ended.
    ///
    /// # Errors
    /// An instance that cannot be read or written, which is set aside; a store that was away for
    /// longer than the patience.
    pub(super) async fn drive(
        &self,
        claimed: ClaimedSaga,
        read: Instant,
        patience: Patience,
        stop: &CancellationToken,
    ) -> Result<Driven> {
        match self.hold(&claimed, read) {
            Ok(held) => self.go_on(held, patience, stop).await,
            Err(error) => self.leave(&claimed, error).await,
        }
    }

    /// What this process holds by a claim, asked for at that moment.
    pub(super) fn hold(&self, claimed: &ClaimedSaga, asked: Instant) -> Result<Held> {
        let journal = self.journal(&claimed.stored)?;
        let mut held = Held::new(&self.saga, claimed, journal, asked);
        if let Some(turn) = self.turn(&held.journal) {
            held.journal.was_claimed(turn, claimed.stored.claims);
        }
        Ok(held)
    }

    /// What is to be done next, where that may be what ends processes. Whoever is taken together
    /// with such a one is counted as crashed as well, so that from the second time on each is alone.
    pub(super) fn is_suspect(&self, held: &Held) -> Option<Turn> {
        let turn = self.turn(&held.journal)?;
        let (crashed, borne) = (held.journal.tries(turn).crashed, self.settings.max_crashes);
        let is_one = crashed >= SUSPECT.min(borne) && (1..=borne).contains(&crashed);
        (is_one && !matches!(turn, Turn::Await(_))).then_some(turn)
    }

    /// Writes an instance as it stands, with the crashes that its claim has counted, and keeps it or
    /// puts it down. `false` where the claim was lost.
    pub(super) async fn note(&self, held: &mut Held, next: SagaNext) -> Result<bool> {
        let status = held.journal.status(self.turn(&held.journal));
        let write = SagaWrite::new(status, held.journal.write(), next);
        self.write(held, &write, Patience::Unbounded).await.map_err(NotWritten::into_error)
    }

    /// Drives an instance on, as [`drive`](Self::drive) says.
    pub(super) async fn go_on(
        &self,
        mut held: Held,
        patience: Patience,
        stop: &CancellationToken,
    ) -> Result<Driven> {
        loop {
            let turn = self.turn(&held.journal);
            let ended = match turn {
                Some(turn) => self.attempt(&mut held, turn, patience, stop).await,
                // Somebody has written it over by hand, or a compensation is not there any more.
                None => {
                    let mut journal = held.journal.clone();
                    let write = self.onward(&mut journal, held.now(), true);
                    Ended::ToWrite(journal, write)
                }
            };
            let (journal, write) = match ended {
                Ended::Lost => return Ok(Driven::Lost),
                Ended::StoreFailed(error) => return Err(error),
                Ended::Unreadable(error) => {
                    turn.into_iter().for_each(|turn| held.journal.not_begun(turn));
                    return self.set_aside(&held, error).await;
                }
                Ended::Written(journal, write, asked) => {
                    held.leased = asked;
                    (journal, write)
                }
                Ended::ToWrite(journal, write) => {
                    match self.write_or_less(&mut held, turn, journal, write, patience).await {
                        Ok(Some(written)) => written,
                        Ok(None) => return Ok(Driven::Lost),
                        Err(NotWritten::Away(error)) => return Err(error),
                        Err(NotWritten::Refused(error)) => {
                            if let Some(turn) = turn {
                                let in_doubt = self.leaves_doubt(turn);
                                held.journal.was_not_written(turn, in_doubt);
                            }
                            return self.set_aside(&held, error).await;
                        }
                    }
                }
            };
            held.journal = journal;
            match write.next {
                SagaNext::Keep(_) => {}
                SagaNext::After(wait) => {
                    self.signal.due_after(wait);
                    return Ok(Driven::Waits);
                }
                SagaNext::Never => return Ok(self.over(held, &write)),
            }
        }
    }

    /// What an instance of this list of steps has done.
    pub(super) fn journal(&self, stored: &StoredSaga) -> Result<Journal> {
        let journal = journal_of(stored)?;
        let theirs = journal.steps.iter().map(|entry| &*entry.name);
        if !theirs.eq(self.steps.iter().map(|step| &*step.options.name)) {
            return Err(unreadable(stored, "its steps are others than its row says"));
        }
        Ok(journal)
    }

    fn over(&self, held: Held, write: &SagaWrite) -> Driven {
        let (saga, id) = (&*self.saga, &*held.id);
        match write.status {
            SagaStatus::Completed => tracing::debug!(saga, id, "a saga is complete"),
            SagaStatus::Unresolved => tracing::error!(
                saga,
                id,
                "a saga is over and something is left of it: somebody has to look at it, and to say \
                 so by `resolve`"
            ),
            _ => tracing::info!(saga, id, "a saga that failed is undone"),
        }
        self.signal.wake();
        Driven::Over(write.status, Box::new(held.journal))
    }

    pub(super) fn turn(&self, journal: &Journal) -> Option<Turn> {
        journal.turn(|step, stage| self.steps.get(step).is_some_and(|it| it.undo(stage).is_some()))
    }

    pub(super) fn limits(&self, turn: Turn) -> &Limits {
        let options = &self.steps[turn.step()].options;
        if turn.is_undo() { &options.compensation_limits } else { &options.limits }
    }

    /// What is written when a step has ended: where the instance stands, and that it goes on at
    /// once, unless it is over or this process stops.
    pub(super) fn onward(&self, journal: &mut Journal, now: SystemTime, stops: bool) -> SagaWrite {
        let turn = self.turn(journal);
        let next = match turn {
            None => SagaNext::Never,
            Some(_) if stops => SagaNext::After(Duration::ZERO),
            Some(turn) => {
                journal.begin(turn, now);
                SagaNext::Keep(self.settings.lease)
            }
        };
        SagaWrite::new(journal.status(turn), journal.write(), next)
    }

    /// What is written when an attempt has failed.
    pub(super) fn after_failure(
        &self,
        held: &Held,
        turn: Turn,
        failure: Failure,
        stops: bool,
    ) -> (Journal, SagaWrite) {
        let now = held.now();
        let mut journal = held.journal.clone();
        let step = &self.steps[turn.step()];
        let (saga, id, name) = (&*self.saga, &*held.id, &*step.options.name);
        let fatal = failure.fatal;
        let reason = failure.reason.clone();
        journal.attempt_failed(turn, failure, now);
        let tries = journal.tries(turn);
        let attempt = tries.begun;
        let limits = self.limits(turn);
        let late = !turn.is_undo() && held.is_late(now);
        if !fatal && !late && limits.retry.retries(tries.failed, tries.age(now)) {
            let pause = limits.retry.pause_after(tries.failed);
            tracing::info!(
                saga,
                id,
                step = name,
                attempt,
                reason,
                ?pause,
                "{} of a saga failed and is tried again",
                part(turn)
            );
            let mut write = self.onward(&mut journal, now, stops || !pause.is_zero());
            if !pause.is_zero() {
                let most = if turn.is_undo() { None } else { held.left(now) };
                write.next = SagaNext::After(most.map_or(pause, |most| pause.min(most)));
            }
            return (journal, write);
        }
        self.give_up(&mut journal, turn);
        if turn.is_undo() {
            tracing::error!(
                saga,
                id,
                step = name,
                attempts = attempt,
                reason,
                "a compensation failed: the step stays done, and somebody has to look at it"
            );
        } else {
            tracing::warn!(
                saga,
                id,
                step = name,
                attempts = attempt,
                reason,
                in_doubt = journal.steps[turn.step()].action.in_doubt,
                "a saga has failed; what it has done is undone"
            );
        }
        let write = self.onward(&mut journal, now, stops);
        (journal, write)
    }

    /// Tries no more.
    pub(super) fn give_up(&self, journal: &mut Journal, turn: Turn) {
        let asks = self.steps[turn.step()].undo(Stage::Failed).is_some();
        journal.give_up(turn, asks);
    }

    /// Whether an attempt that nobody has seen the end of may have been done, so that somebody has
    /// to ask.
    pub(super) fn leaves_doubt(&self, turn: Turn) -> bool {
        !turn.is_undo() && self.steps[turn.step()].action.leaves_doubt()
    }

    /// Writes what an attempt came to, or that it has failed, where what it made is more than the
    /// store takes. `None` where the claim was lost.
    async fn write_or_less(
        &self,
        held: &mut Held,
        turn: Option<Turn>,
        journal: Journal,
        write: SagaWrite,
        patience: Patience,
    ) -> Result<Option<(Journal, SagaWrite)>, NotWritten> {
        let (turn, error) = match (self.write(held, &write, patience).await, turn) {
            (Ok(written), _) => return Ok(written.then_some((journal, write))),
            (Err(NotWritten::Refused(error)), Some(turn))
                if error.kind() == ErrorKind::TooLarge && !turn.is_undo() =>
            {
                (turn, error)
            }
            (Err(not_written), _) => return Err(not_written),
        };
        let reason = format!("what it made cannot be kept: {error}");
        let failure = Failure { reason, in_doubt: self.leaves_doubt(turn), fatal: true };
        let (journal, write) = self.after_failure(held, turn, failure, false);
        let written = self.write(held, &write, patience).await?;
        Ok(written.then_some((journal, write)))
    }

    /// Puts an instance down for a while, as it stands: it cannot be gone on with, and others can.
    async fn set_aside(&self, held: &Held, error: Error) -> Result<Driven> {
        let status = held.journal.status(self.turn(&held.journal));
        self.put_aside(&held.claim, status, held.journal.write(), error).await
    }

    /// The same for one whose state cannot be read: that stays as it is.
    pub(super) async fn leave(&self, claimed: &ClaimedSaga, error: Error) -> Result<Driven> {
        let ClaimedSaga { claim, stored } = claimed;
        self.put_aside(claim, stored.status, stored.state.clone(), error).await
    }

    async fn put_aside(
        &self,
        claim: &SagaClaim,
        status: SagaStatus,
        state: String,
        error: Error,
    ) -> Result<Driven> {
        tracing::error!(
            saga = %self.saga, id = id_of(&self.saga, claim.key()), %error,
            "a saga cannot be gone on with and is left as it is; the next look is in {SET_ASIDE:?}"
        );
        let write = SagaWrite::new(status, state, SagaNext::After(SET_ASIDE));
        if let Err(error) = answer("put a saga down", self.store.write(claim, &write)).await {
            tracing::debug!(key = claim.key(), %error, "it is not put down; its lease runs out");
        }
        Err(error)
    }
}

pub(super) fn part(turn: Turn) -> &'static str {
    if turn.is_undo() { "a compensation" } else { "a step" }
}
