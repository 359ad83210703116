//! What an instance has done so far, as its store keeps it.
//!
//! Values are text in it, the JSON that they were written as: they keep every digit, and none of
//! them is looked into before its step is. Times are microseconds since the epoch by the store's
//! clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::SagaStatus;

/// The longest reason that is kept, in characters.
const MAX_REASON: usize = 1_000;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Journal {
    pub(super) input: String,
    pub(super) steps: Vec<Entry>,
    /// The step that failed: it goes backward since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failed: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) stage: Stage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) made: Option<String>,
    #[serde(default, skip_serializing_if = "Tries::is_empty")]
    pub(super) action: Tries,
    #[serde(default, skip_serializing_if = "Tries::is_empty")]
    pub(super) undo: Tries,
    /// What whoever resolved it by hand has noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Stage {
    /// Not done yet: it runs, waits for its next attempt, or its turn has not come.
    Pending,
    /// Its message is sent, and the reply is awaited.
    Waiting,
    Done,
    Failed,
    /// Compensated.
    Undone,
    /// A compensation of it failed for good; or it may have been done and nothing asks.
    Unresolved,
    /// Unresolved, until a person said that it no longer is.
    Resolved,
}

/// The attempts at one part of a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Tries {
    /// How many have begun.
    pub(super) begun: u32,
    /// How many of them have failed.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) failed: u32,
    /// How many of them nobody has seen the end of.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) crashed: u32,
    /// Whether the last one is under way.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) under_way: bool,
    /// Whether one of those that failed may have been done all the same.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) in_doubt: bool,
    /// Whether the last one that failed said that trying again does not help.
    #[serde(skip_serializing_if = "is_false")]
    pub(super) fatal: bool,
    /// Why the last one failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) first_at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ended_at: Option<i64>,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Act(usize),
    /// The reply to a step's message is awaited.
    Await(usize),
    Undo(usize),
}

impl Turn {
    pub(super) fn step(self) -> usize {
        match self {
            Self::Act(step) | Self::Await(step) | Self::Undo(step) => step,
        }
    }

    pub(super) fn is_undo(self) -> bool {
        matches!(self, Self::Undo(_))
    }
}

impl Journal {
    pub(super) fn new<'n>(input: String, steps: impl Iterator<Item = &'n str>) -> Self {
        let entry = |name: &str| Entry {
            name: name.to_owned(),
            stage: Stage::Pending,
            made: None,
            action: Tries::default(),
            undo: Tries::default(),
            note: None,
        };
        Self { input, steps: steps.map(entry).collect(), failed: None }
    }

    /// Reads one back, or says what is wrong with it.
    pub(super) fn read(state: &str) -> Result<Self, String> {
        let journal: Self = serde_json::from_str(state).map_err(|cause| cause.to_string())?;
        let contradicts = |what: &str| Err(format!("it contradicts itself: {what}"));
        if journal.steps.is_empty() {
            return contradicts("it has no steps");
        }
        if journal.failed.is_some_and(|failed| failed >= journal.steps.len()) {
            return contradicts("a step has failed that it does not have");
        }
        let ahead = journal.failed.unwrap_or(journal.steps.len());
        let mut done = true;
        for (place, entry) in journal.steps.iter().enumerate() {
            let is_done = entry.made.is_some();
            if entry.stage == Stage::Done && !is_done {
                return contradicts("a step is done and has made nothing");
            }
            if is_done && (!done || place >= ahead) {
                return contradicts("a step is done before its turn");
            }
            done = is_done;
        }
        Ok(journal)
    }

    pub(super) fn write(&self) -> String {
        // It is made of text, numbers and lists, which are always written.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What is to be done next; nothing when it is over. `undoes` says whether there is anything
    /// that undoes a step, which is in doubt or done.
    pub(super) fn turn(&self, undoes: impl Fn(usize, Stage) -> bool) -> Option<Turn> {
        let Some(failed) = self.failed else {
            let place = self.steps.iter().position(|entry| entry.made.is_none())?;
            return Some(match self.steps[place].stage {
                Stage::Waiting => Turn::Await(place),
                _ => Turn::Act(place),
            });
        };
        let is_left = |&place: &usize| match self.steps[place].stage {
            stage @ Stage::Done => undoes(place, stage),
            stage @ Stage::Failed => self.steps[place].action.in_doubt && undoes(place, stage),
            _ => false,
        };
        (0..=failed).rev().find(is_left).map(Turn::Undo)
    }

    /// Where it stands, given what is to be done next.
    pub(super) fn status(&self, turn: Option<Turn>) -> SagaStatus {
        match turn {
            Some(Turn::Act(_)) => SagaStatus::Running,
            Some(Turn::Await(_)) => SagaStatus::Waiting,
            Some(Turn::Undo(_)) => SagaStatus::Compensating,
            None if self.failed.is_none() => SagaStatus::Completed,
            None if self.is_unresolved() => SagaStatus::Unresolved,
            None => SagaStatus::Compensated,
        }
    }

    fn is_unresolved(&self) -> bool {
        self.steps.iter().any(Entry::is_left)
    }

    /// Counts the first attempt, which the insert itself begins.
    pub(super) fn begun_by_the_insert(mut self) -> Self {
        if let Some(first) = self.steps.first_mut() {
            first.action.under_way = true;
            first.action.begun = 1;
        }
        self
    }

    /// What the insert could not know: when that was.
    pub(super) fn was_begun_at(&mut self, time: SystemTime) {
        if let Some(first) = self.steps.first_mut().filter(|first| first.action.begun > 0) {
            first.action.first_at.get_or_insert_with(|| micros(time));
        }
    }

    /// What a step is given: what the step before has made.
    pub(super) fn given(&self, step: usize) -> Option<&str> {
        match step.checked_sub(1) {
            None => Some(&self.input),
            Some(before) => self.steps.get(before)?.made.as_deref(),
        }
    }

    /// The attempts at what is to be done next.
    pub(super) fn tries(&self, turn: Turn) -> &Tries {
        let entry = &self.steps[turn.step()];
        if turn.is_undo() { &entry.undo } else { &entry.action }
    }

    pub(super) fn tries_mut(&mut self, turn: Turn) -> &mut Tries {
        let entry = &mut self.steps[turn.step()];
        if turn.is_undo() { &mut entry.undo } else { &mut entry.action }
    }

    /// Counts what must have happened since it was written: each claim but the last, and what was
    /// under way, has come to an end that nobody saw.
    pub(super) fn was_claimed(&mut self, turn: Turn, claims: u32) {
        // Without a claim it was this process that has just written it.
        if claims == 0 || matches!(turn, Turn::Await(_)) {
            return;
        }
        let unseen = claims.saturating_sub(1);
        let tries = self.tries_mut(turn);
        tries.begun = tries.begun.saturating_add(unseen);
        let interrupted = unseen + u32::from(tries.under_way);
        tries.crashed = tries.crashed.saturating_add(interrupted);
        tries.under_way = false;
    }

    /// Counts an attempt that begins, unless it was counted when the last one ended.
    pub(super) fn begin(&mut self, turn: Turn, now: SystemTime) {
        if matches!(turn, Turn::Await(_)) {
            return;
        }
        let tries = self.tries_mut(turn);
        if !tries.under_way {
            tries.under_way = true;
            tries.begun = tries.begun.saturating_add(1);
            tries.first_at.get_or_insert_with(|| micros(now));
        }
    }

    /// The attempt that is noted as under way is not made.
    pub(super) fn not_begun(&mut self, turn: Turn) {
        let tries = self.tries_mut(turn);
        if std::mem::take(&mut tries.under_way) {
            tries.begun = tries.begun.saturating_sub(1);
        }
        if tries.begun == 0 {
            tries.first_at = None;
        }
    }

    /// The attempt was made, and what came of it could not be written.
    pub(super) fn was_not_written(&mut self, turn: Turn, in_doubt: bool) {
        let tries = self.tries_mut(turn);
        tries.under_way = false;
        tries.in_doubt |= in_doubt;
    }

    pub(super) fn done(&mut self, step: usize, made: String, now: SystemTime) {
        let entry = &mut self.steps[step];
        entry.stage = Stage::Done;
        entry.made = Some(made);
        entry.action.end(now);
    }

    pub(super) fn sent(&mut self, step: usize) {
        let entry = &mut self.steps[step];
        entry.stage = Stage::Waiting;
        entry.action.under_way = false;
    }

    pub(super) fn undone(&mut self, step: usize, now: SystemTime) {
        let entry = &mut self.steps[step];
        entry.stage = Stage::Undone;
        entry.undo.end(now);
    }

    /// Notes an attempt that failed, after which there may be another.
    pub(super) fn attempt_failed(&mut self, turn: Turn, failure: Failure, now: SystemTime) {
        if let Turn::Await(step) = turn {
            self.steps[step].stage = Stage::Pending;
        }
        let tries = self.tries_mut(turn);
        tries.failed = tries.failed.saturating_add(1);
        // What an earlier attempt may have done is not known any better by now.
        tries.in_doubt |= failure.in_doubt;
        tries.fatal = failure.fatal;
        tries.reason = Some(failure.reason.chars().take(MAX_REASON).collect());
        tries.end(now);
    }

    /// Nothing more is tried: the step has failed, or stays as it is. `asks` is whether something
    /// undoes a step that is in doubt.
    pub(super) fn give_up(&mut self, turn: Turn, asks: bool) {
        let step = turn.step();
        let entry = &mut self.steps[step];
        if turn.is_undo() {
            entry.stage = Stage::Unresolved;
        } else {
            self.failed = Some(step);
            let is_left = entry.action.in_doubt && !asks;
            entry.stage = if is_left { Stage::Unresolved } else { Stage::Failed };
        }
    }
}

impl Entry {
    /// Whether something is left of it once its saga has failed and is over.
    pub(super) fn is_left(&self) -> bool {
        match self.stage {
            Stage::Unresolved => true,
            // What was to undo it is not there any more.
            Stage::Failed => self.action.in_doubt,
            Stage::Done => self.undo.begun > 0,
            Stage::Pending | Stage::Waiting | Stage::Undone | Stage::Resolved => false,
        }
    }
}

/// Why an attempt failed.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) reason: String,
    pub(super) in_doubt: bool,
    pub(super) fatal: bool,
}

impl Tries {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn end(&mut self, now: SystemTime) {
        self.under_way = false;
        self.ended_at = Some(micros(now));
    }

    /// How long it has been tried.
    pub(super) fn age(&self, now: SystemTime) -> Duration {
        let since = self.first_at.and_then(from_micros);
        since.and_then(|since| now.duration_since(since).ok()).unwrap_or_default()
    }
}

pub(super) fn micros(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

pub(super) fn from_micros(micros: i64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_micros(u64::try_from(micros).ok()?))
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_false(truth: &bool) -> bool {
    !truth
}
