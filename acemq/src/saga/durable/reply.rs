//! The reply to a step's message.

use std::time::Duration;

use tokio::time::sleep;

use super::{
    SagaNext, SagaStore, SagaWrite, StoredSaga,
    engine::Engine,
    journal::{Failure, Journal, Stage, Turn},
    key,
    lease::answer,
};
use crate::error::{Error, ErrorKind, Result};

/// How often an instance that others change at the same time is read again.
const TRIES: u32 = 8;
/// The pauses between: doubling from here on, with jitter.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// What became of a reply, from [`DurableSaga::reply`](super::DurableSaga::reply).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplyOutcome {
    /// The instance goes on with it.
    Continued,
    /// The step was answered before. Ignored.
    Duplicate,
    /// The saga has given up on the step, and undoes it or has. Ignored, and logged as a warning: what
    /// the reply tells of may be left behind unless a
    /// [`when_in_doubt`](super::DurableStepBuilder::when_in_doubt) sees to it.
    Late,
    /// The step has not sent anything: its turn has not come. Ignored, and logged as a warning.
    NotAwaited,
    /// There is no instance of that id, or not any more. Logged as a warning.
    Unknown,
}

/// What a reply says.
pub(super) enum Answer {
    Made(String),
    Failed(String),
}

impl<S: SagaStore> Engine<S> {
    pub(super) async fn answered(
        &self,
        id: &str,
        step: &str,
        reply: Answer,
    ) -> Result<ReplyOutcome> {
        let key = key::of(&self.saga, id)?;
        let place = self.place_of(step)?;
        if let (Answer::Made(made), Some(check)) = (&reply, self.steps[place].check_reply) {
            check(made).map_err(|error| {
                let text = format!(
                    "reply to the step \"{step}\" of saga {key}: it is not its type: {error}"
                );
                Error::new(ErrorKind::Decode, text)
            })?;
        }
        let mut pause = FIRST_PAUSE;
        for _ in 0..TRIES {
            let found = answer("look at a saga", self.store.find(&key)).await?;
            let Some(stored) = found else {
                tracing::warn!(saga = %self.saga, id, step, "a reply is for no saga there is; ignored");
                return Ok(ReplyOutcome::Unknown);
            };
            self.check_steps(&stored)?;
            let journal = self.journal(&stored)?;
            let outcome = outcome(&journal, place);
            if outcome != ReplyOutcome::Continued {
                self.log(id, step, outcome);
                return Ok(outcome);
            }
            // Somebody at it sees to it that nobody has answered in time, or asks once more.
            if !stored.is_held {
                let write = self.with_reply(journal, place, &reply, &stored);
                if answer("go on with a saga", self.store.change(&stored, &write)).await? {
                    tracing::debug!(saga = %self.saga, id, step, "a saga goes on with a reply");
                    self.signal.wake();
                    return Ok(outcome);
                }
            }
            sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
            pause *= 2;
        }
        let text = format!(
            "reply to the step \"{step}\" of saga {key}: others were at it all the while; try again"
        );
        Err(Error::new(ErrorKind::Timeout, text))
    }

    fn place_of(&self, step: &str) -> Result<usize> {
        let place = self.steps.iter().position(|it| &*it.options.name == step);
        match place {
            Some(place) if self.steps[place].check_reply.is_some() => Ok(place),
            _ => {
                let waiting = self.steps.iter().filter(|it| it.check_reply.is_some());
                let waiting: Vec<&str> = waiting.map(|it| &*it.options.name).collect();
                let text = format!(
                    "reply to the step \"{step}\" of saga \"{}\": no step of that name waits for a \
                     reply; these do: [{}]",
                    self.saga,
                    waiting.join(", ")
                );
                Err(Error::new(ErrorKind::Config, text))
            }
        }
    }

    fn with_reply(
        &self,
        mut journal: Journal,
        place: usize,
        reply: &Answer,
        stored: &StoredSaga,
    ) -> SagaWrite {
        let now = stored.read_at;
        match reply {
            Answer::Made(made) => journal.done(place, made.clone(), now),
            Answer::Failed(reason) => {
                let turn = Turn::Act(place);
                // One that said no did nothing, whatever became of those before it.
                let failure = Failure { reason: reason.clone(), in_doubt: false, fatal: true };
                journal.attempt_failed(turn, failure, now);
                self.give_up(&mut journal, turn);
            }
        }
        let turn = self.turn(&journal);
        let next = turn.map_or(SagaNext::Never, |_| SagaNext::After(Duration::ZERO));
        SagaWrite::new(journal.status(turn), journal.write(), next)
    }

    fn log(&self, id: &str, step: &str, outcome: ReplyOutcome) {
        let saga = &*self.saga;
        match outcome {
            ReplyOutcome::Duplicate => {
                tracing::info!(saga, id, step, "a step was answered before; this reply is ignored");
            }
            ReplyOutcome::Late => tracing::warn!(
                saga,
                id,
                step,
                "a reply came after the saga had given up on the step; it is ignored"
            ),
            _ => tracing::warn!(
                saga,
                id,
                step,
                "a reply came to a step that has sent nothing; it is ignored"
            ),
        }
    }
}

/// What a reply to a step would come to.
fn outcome(journal: &Journal, place: usize) -> ReplyOutcome {
    let Some(entry) = journal.steps.get(place) else { return ReplyOutcome::NotAwaited };
    match entry.stage {
        Stage::Waiting => ReplyOutcome::Continued,
        // Its message was not answered in time, and another one is about to be sent.
        Stage::Pending if entry.action.in_doubt && journal.failed.is_none() => {
            ReplyOutcome::Continued
        }
        Stage::Pending => ReplyOutcome::NotAwaited,
        Stage::Done => ReplyOutcome::Duplicate,
        Stage::Undone | Stage::Unresolved | Stage::Resolved if entry.made.is_some() => {
            ReplyOutcome::Duplicate
        }
        Stage::Failed | Stage::Undone | Stage::Unresolved | Stage::Resolved => ReplyOutcome::Late,
    }
}
