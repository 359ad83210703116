//! An instance as a person looks at it.

use std::time::SystemTime;

use super::{
    SagaStatus, StoredSaga,
    held::{id_of, journal_of},
    journal::{Entry, Stage, Tries, from_micros},
};

/// An instance of a durable saga, as it was when it was looked at. Times are by the store's clock.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SagaInstance {
    /// The saga's name.
    pub saga: String,
    /// The instance's id.
    pub id: String,
    /// Where it stands.
    pub status: SagaStatus,
    /// What it was given: JSON.
    pub input: String,
    /// Its steps, in their order.
    pub steps: Vec<SagaStep>,
    /// Whether a process holds it.
    pub is_held: bool,
    /// From when on it may be taken: until then it waits, or a process holds it. `None` when it is
    /// over.
    pub due_at: Option<SystemTime>,
    /// Until when it is to have gone forward.
    pub deadline_at: Option<SystemTime>,
    /// When it was begun.
    pub created_at: SystemTime,
    /// When it was last written: when it ended, if it is over.
    pub updated_at: SystemTime,
    /// What is wrong with its state, where that cannot be read; then there are no steps here.
    pub fault: Option<String>,
}

/// A step of an instance.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SagaStep {
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub status: SagaStepStatus,
    /// What it has made: JSON.
    pub made: Option<String>,
    /// The attempts at it.
    pub attempts: StepAttempts,
    /// The attempts at its compensation, or at what sees to it when it is in doubt.
    pub compensation: StepAttempts,
    /// Whether it may have been done although it failed.
    pub is_in_doubt: bool,
    /// What whoever resolved it by hand has noted.
    pub note: Option<String>,
}

/// Where a step of an instance stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SagaStepStatus {
    /// It is undone by its compensation.
    Compensated,
    /// It is done.
    Done,
    /// It has failed.
    Failed,
    /// It runs, waits for its next attempt, or its turn has not come.
    Pending,
    /// A person has said that it is not unresolved any more.
    Resolved,
    /// Its compensation has failed, or it may have been done and nothing asks.
    Unresolved,
    /// Its message is sent, and the reply is awaited.
    Waiting,
}

/// The attempts at a step or at its compensation.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct StepAttempts {
    /// How many have begun.
    pub begun: u32,
    /// How many of them failed.
    pub failed: u32,
    /// How many of them ended in a crash, or outlived their lease.
    pub crashed: u32,
    /// Whether one is under way, as far as is written.
    pub is_under_way: bool,
    /// Why the last one that failed did.
    pub failure: Option<String>,
    /// When the first one began.
    pub first_at: Option<SystemTime>,
    /// When the last one ended.
    pub ended_at: Option<SystemTime>,
}

impl SagaInstance {
    pub(super) fn read(stored: StoredSaga) -> Self {
        let (input, steps, fault) = match journal_of(&stored) {
            Ok(journal) => {
                let steps = journal.steps.into_iter().map(SagaStep::read).collect();
                (journal.input, steps, None)
            }
            Err(error) => (String::new(), Vec::new(), Some(error.to_string())),
        };
        Self {
            id: id_of(&stored.saga, &stored.key).to_owned(),
            saga: stored.saga,
            status: stored.status,
            input,
            steps,
            is_held: stored.is_held,
            due_at: stored.due_at,
            deadline_at: stored.deadline_at,
            created_at: stored.created_at,
            updated_at: stored.updated_at,
            fault,
        }
    }

    /// A step by its name.
    #[must_use]
    pub fn step(&self, name: &str) -> Option<&SagaStep> {
        self.steps.iter().find(|step| step.name == name)
    }

    /// The steps that a person has to look at.
    pub fn unresolved(&self) -> impl Iterator<Item = &SagaStep> {
        self.steps.iter().filter(|step| step.status == SagaStepStatus::Unresolved)
    }
}

impl SagaStep {
    fn read(entry: Entry) -> Self {
        let status = match entry.stage {
            Stage::Pending => SagaStepStatus::Pending,
            Stage::Waiting => SagaStepStatus::Waiting,
            Stage::Done => SagaStepStatus::Done,
            Stage::Failed => SagaStepStatus::Failed,
            Stage::Undone => SagaStepStatus::Compensated,
            Stage::Unresolved => SagaStepStatus::Unresolved,
            Stage::Resolved => SagaStepStatus::Resolved,
        };
        Self {
            name: entry.name,
            status,
            made: entry.made,
            is_in_doubt: entry.action.in_doubt,
            attempts: StepAttempts::read(entry.action),
            compensation: StepAttempts::read(entry.undo),
            note: entry.note,
        }
    }
}

impl StepAttempts {
    fn read(tries: Tries) -> Self {
        Self {
            begun: tries.begun,
            failed: tries.failed,
            crashed: tries.crashed,
            is_under_way: tries.under_way,
            failure: tries.reason,
            first_at: tries.first_at.and_then(from_micros),
            ended_at: tries.ended_at.and_then(from_micros),
        }
    }
}
