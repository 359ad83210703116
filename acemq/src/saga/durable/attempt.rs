//! One attempt at a part of a step.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    SagaNext, SagaStore, SagaWrite, StepContext,
    engine::{Engine, part},
    held::Held,
    journal::{Failure, Journal, Turn},
    lease::{Landed, Patience},
    transaction::why,
    work::{Called, InTransaction, Work},
};
use crate::{
    consume::{CommitError, HandlerError},
    envelope,
    error::{Error, ErrorKind},
    outbox::OutboxRecord,
    saga::attempts::{Failed, once},
};

/// On a message that a step sends: the step's name.
pub(super) const STEP: &str = "acemq-saga-step";

/// How often a step runs before a conflict of its transaction counts as a failed attempt.
const RUNS: u32 = 5;
/// The pauses between these runs: doubling from here on, with jitter.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// How long an orderly rollback may take. Past it the transaction ends with its connection.
const LONGEST_ROLLBACK: Duration = Duration::from_secs(5);
/// How long a commit may take before it is not known what became of it.
const LONGEST_COMMIT: Duration = Duration::from_secs(30);

/// How an attempt ended.
pub(super) enum Ended {
    Lost,
    StoreFailed(Error),
    /// Not begun: what it was to be given cannot be read.
    Unreadable(Error),
    /// What follows is written, with what the step did; asked for at that moment.
    Written(Journal, SagaWrite, Instant),
    ToWrite(Journal, SagaWrite),
}

impl<S: SagaStore> Engine<S> {
    /// Makes an attempt, unless there is a reason not to.
    pub(super) async fn attempt(
        &self,
        held: &mut Held,
        turn: Turn,
        patience: Patience,
        stop: &CancellationToken,
    ) -> Ended {
        if let Some(failure) = self.hindrance(held, turn) {
            let (journal, write) = self.after_failure(held, turn, failure, stop.is_cancelled());
            return Ended::ToWrite(journal, write);
        }
        held.journal.begin(turn, held.now());
        let held = &*held;
        let step = &self.steps[turn.step()];
        let (work, given) = match turn {
            Turn::Act(place) | Turn::Await(place) => {
                (Some(&step.action), held.journal.given(place))
            }
            Turn::Undo(place) => {
                let entry = &held.journal.steps[place];
                let given = entry.made.as_deref().or_else(|| held.journal.given(place));
                (step.undo(entry.stage), given)
            }
        };
        let (Some(work), Some(given)) = (work, given) else {
            let text =
                format!("go on with saga {}: its state contradicts itself", held.claim.key());
            return Ended::Unreadable(Error::new(ErrorKind::Decode, text));
        };
        let context = StepContext {
            saga: Arc::clone(&self.saga),
            id: Arc::clone(&held.id),
            step: Arc::clone(&step.options.name),
            attempt: held.journal.tries(turn).begun,
        };
        let limit = self.limit(held, turn);
        match work {
            Work::Local(call) => {
                let called = once(limit, async { call(given, context).await });
                let called = self.under_lease(held, false, called).await;
                self.settle(held, turn, called, stop, |journal, made| {
                    match turn {
                        Turn::Undo(place) => journal.undone(place, held.now()),
                        _ => journal.done(turn.step(), made, held.now()),
                    }
                    Vec::new()
                })
            }
            Work::Message(call) => {
                let called = once(limit, async { call(given, context).await });
                let called = self.under_lease(held, true, called).await;
                self.settle(held, turn, called, stop, |journal, records: Vec<OutboxRecord>| {
                    match turn {
                        Turn::Undo(place) => journal.undone(place, held.now()),
                        _ => journal.sent(turn.step()),
                    }
                    let stamped = |record: OutboxRecord| {
                        record
                            .with_header(envelope::CORRELATION, held.claim.key())
                            .with_header(STEP, &step.options.name)
                    };
                    records.into_iter().map(stamped).collect()
                })
            }
            Work::InTransaction(call) => {
                let run = Run { held, turn, given, context, limit };
                self.in_transaction(&**call, run, patience, stop).await
            }
        }
    }

    /// Why an attempt is not made, if there is a reason.
    fn hindrance(&self, held: &Held, turn: Turn) -> Option<Failure> {
        let now = held.now();
        let tries = held.journal.tries(turn);
        let in_doubt = tries.crashed > 0 && self.leaves_doubt(turn);
        if let Turn::Await(_) = turn {
            let waited = match held.is_late(now) {
                true => "before the saga's deadline".to_owned(),
                false => format!("within {:?}", self.limits(turn).timeout),
            };
            let reason = format!("no reply came {waited}");
            return Some(Failure { reason, in_doubt: true, fatal: false });
        }
        if tries.crashed > self.settings.max_crashes {
            let reason = format!(
                "{} attempts at it were ended by a crash, or by a lease that ran out; {} are \
                 borne",
                tries.crashed, self.settings.max_crashes
            );
            return Some(Failure { reason, in_doubt, fatal: true });
        }
        if !turn.is_undo() && held.is_late(now) {
            let deadline = self.settings.deadline.unwrap_or_default();
            let reason = format!("the saga took longer than its deadline of {deadline:?}");
            return Some(Failure { reason, in_doubt, fatal: true });
        }
        None
    }

    /// How long an attempt may take.
    fn limit(&self, held: &Held, turn: Turn) -> Duration {
        let limit = self.limits(turn).timeout;
        let left = if turn.is_undo() { None } else { held.left(held.now()) };
        left.map_or(limit, |left| limit.min(left))
    }

    /// What is to be written after a call. `note` notes its success, and says what goes out with it.
    fn settle<T>(
        &self,
        held: &Held,
        turn: Turn,
        called: Option<Result<Called<T>, Failed>>,
        stop: &CancellationToken,
        note: impl FnOnce(&mut Journal, T) -> Vec<OutboxRecord>,
    ) -> Ended {
        let stops = stop.is_cancelled();
        let made = match called {
            None => {
                tracing::warn!(
                    saga = %self.saga, id = %held.id,
                    "{} was stopped: the lease on its saga ran out while it ran", part(turn)
                );
                return Ended::Lost;
            }
            Some(Ok(Called::Made(made))) => made,
            Some(Ok(Called::Unreadable(error))) => {
                return self.unreadable(held, turn, &error, stops);
            }
            Some(failed) => {
                let failure = self.failure(held, turn, failed);
                let (journal, write) = self.after_failure(held, turn, failure, stops);
                return Ended::ToWrite(journal, write);
            }
        };
        let mut journal = held.journal.clone();
        let records = note(&mut journal, made);
        let mut write = match self.turn(&journal) {
            Some(Turn::Await(_)) => {
                let wait = SagaNext::After(self.limit(held, turn));
                SagaWrite::new(journal.status(self.turn(&journal)), journal.write(), wait)
            }
            _ => self.onward(&mut journal, held.now(), stops),
        };
        write.records = records;
        Ended::ToWrite(journal, write)
    }

    /// A call that did not succeed, as a failure of the attempt.
    fn failure<T>(&self, held: &Held, turn: Turn, failed: Result<Called<T>, Failed>) -> Failure {
        let leaves_doubt = self.leaves_doubt(turn);
        let crashed = held.journal.tries(turn).crashed > 0;
        match failed {
            Err(Failed { error, in_doubt }) => Failure {
                reason: error.to_string(),
                in_doubt: (in_doubt || crashed) && leaves_doubt,
                fatal: error.is_fatal(),
            },
            Ok(Called::Unwritable(error)) => Failure {
                reason: format!("it was done, and what it made cannot be kept: {error}"),
                in_doubt: leaves_doubt,
                fatal: true,
            },
            Ok(Called::Unreadable(error)) => {
                Failure { reason: error.to_string(), in_doubt: false, fatal: true }
            }
            Ok(Called::Made(_)) => {
                Failure { reason: "it has succeeded".to_owned(), in_doubt: false, fatal: false }
            }
        }
    }

    /// What is given to a part of a step is not its type: the step is left to a program that takes
    /// it, and a compensation to a person, who can resolve it or have it run once more.
    fn unreadable(&self, held: &Held, turn: Turn, error: &Error, stops: bool) -> Ended {
        let text = format!(
            "go on with saga {}: what its step \"{}\" is given is not what this program's step \
             takes: {error}",
            held.claim.key(),
            self.steps[turn.step()].options.name
        );
        if turn.is_undo() {
            let failure = Failure { reason: text, in_doubt: false, fatal: true };
            let (journal, write) = self.after_failure(held, turn, failure, stops);
            return Ended::ToWrite(journal, write);
        }
        Ended::Unreadable(Error::new(error.kind(), text))
    }

    /// Runs a step in a transaction, and again where the database has undone that.
    async fn in_transaction(
        &self,
        call: &dyn InTransaction<S>,
        run: Run<'_>,
        patience: Patience,
        stop: &CancellationToken,
    ) -> Ended {
        let Run { held, turn, .. } = run;
        let mut pause = FIRST_PAUSE;
        for runs in 1..=RUNS {
            let running = self.run_in_transaction(call, &run, patience, stop);
            let Some(ended) = self.under_lease(held, true, running).await else {
                return Ended::Lost;
            };
            let failed = match ended {
                RunEnded::Ended(ended) => return ended,
                RunEnded::Failed(failed) => failed,
                RunEnded::Undone(failed) if runs == RUNS => failed,
                RunEnded::Undone(failed) => {
                    tracing::info!(
                        saga = %self.saga, id = %held.id, runs, reason = %failed.error,
                        "the database undid the transaction of {}; it runs again", part(turn)
                    );
                    sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
                    pause *= 2;
                    continue;
                }
            };
            let in_doubt = failed.in_doubt && !turn.is_undo();
            let failure = Failure { in_doubt, ..self.failure::<String>(held, turn, Err(failed)) };
            let (journal, write) = self.after_failure(held, turn, failure, stop.is_cancelled());
            return Ended::ToWrite(journal, write);
        }
        // The last run has returned.
        Ended::Lost
    }

    async fn run_in_transaction(
        &self,
        call: &dyn InTransaction<S>,
        run: &Run<'_>,
        patience: Patience,
        stop: &CancellationToken,
    ) -> RunEnded {
        let Run { held, turn, given, context, limit } = run;
        let (held, turn) = (*held, *turn);
        let opened = patience.asks("begin a transaction", || call.open(&self.store)).await;
        let mut open = match opened {
            Ok(open) => open,
            Err(error) => return RunEnded::Ended(Ended::StoreFailed(error)),
        };
        let called = once(*limit, async { open.call(given, context.clone()).await }).await;
        let made = match called {
            Ok(Called::Made(made)) => made,
            Err(failed) => {
                let is_conflict =
                    !failed.error.is_fatal() && open.is_conflict(failed.error.cause());
                // One that was stopped may be in the middle of a statement.
                if !failed.in_doubt {
                    let _ = timeout(LONGEST_ROLLBACK, open.roll_back()).await;
                }
                let failed = Failed { in_doubt: false, ..failed };
                return if is_conflict {
                    RunEnded::Undone(failed)
                } else {
                    RunEnded::Failed(failed)
                };
            }
            Ok(Called::Unreadable(error)) => {
                let ended = self.unreadable(held, turn, &error, stop.is_cancelled());
                let _ = timeout(LONGEST_ROLLBACK, open.roll_back()).await;
                return RunEnded::Ended(ended);
            }
            Ok(Called::Unwritable(error)) => {
                let _ = timeout(LONGEST_ROLLBACK, open.roll_back()).await;
                let error = HandlerError::fatal(format!("what it made cannot be kept: {error}"));
                return RunEnded::Failed(Failed { error, in_doubt: false });
            }
        };
        let mut journal = held.journal.clone();
        match turn {
            Turn::Undo(place) => journal.undone(place, held.now()),
            _ => journal.done(turn.step(), made, held.now()),
        }
        let write = self.onward(&mut journal, held.now(), stop.is_cancelled());
        let asked = Instant::now();
        let committed = timeout(LONGEST_COMMIT, open.commit(&held.claim, &write)).await;
        let error = match committed {
            Ok(Ok(true)) => return RunEnded::Ended(Ended::Written(journal, write, asked)),
            Ok(Ok(false)) => return RunEnded::Ended(Ended::Lost),
            Ok(Err(error)) => error,
            Err(_) => {
                let text = format!("commit a step: no answer within {LONGEST_COMMIT:?}");
                CommitError::Unknown(Error::new(ErrorKind::Store, text))
            }
        };
        tracing::info!(
            saga = %self.saga, id = %held.id, error = %why(&error),
            "the transaction of {} was not committed, or may not have been", part(turn)
        );
        match error {
            CommitError::RolledBack(error) if !error.is_transient() => {
                RunEnded::Failed(Failed { error: HandlerError::fatal(error), in_doubt: false })
            }
            CommitError::RolledBack(error) => {
                RunEnded::Undone(Failed { error: HandlerError::transient(error), in_doubt: false })
            }
            // The row decides.
            CommitError::Unknown(error) => match self.landed(&held.claim, &write, patience).await {
                Ok(Landed::Yes) => RunEnded::Ended(Ended::Written(journal, write, asked)),
                Ok(Landed::Lost) => RunEnded::Ended(Ended::Lost),
                Ok(Landed::No) if error.is_transient() => RunEnded::Undone(Failed {
                    error: HandlerError::transient(error),
                    in_doubt: false,
                }),
                Ok(Landed::No) => {
                    RunEnded::Failed(Failed { error: HandlerError::fatal(error), in_doubt: true })
                }
                Err(error) => RunEnded::Ended(Ended::StoreFailed(error)),
            },
        }
    }
}

/// What a step in a transaction is run with.
struct Run<'a> {
    held: &'a Held,
    turn: Turn,
    given: &'a str,
    context: StepContext,
    limit: Duration,
}

enum RunEnded {
    Ended(Ended),
    Failed(Failed),
    /// The database undid it for reasons of its own.
    Undone(Failed),
}
