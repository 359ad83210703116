//! How an instance ended, and which ones are nobody's of this program.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::{
    SagaStore, StoredSaga,
    engine::Engine,
    held::{id_of, journal_of},
    journal::{Entry, Journal, Stage},
};
use crate::{
    codec::from_json,
    consume::HandlerError,
    error::{Error, ErrorKind, Result},
    saga::{
        SagaResult,
        failure::{Part, StepFailure},
    },
};

/// How an instance ended.
pub(super) fn result<Out: DeserializeOwned>(
    saga: &Arc<str>,
    key: &str,
    journal: &Journal,
) -> Result<SagaResult<Out>> {
    let failure = |place: usize, part: Part| {
        let entry = &journal.steps[place];
        let tries = if part == Part::Action { &entry.action } else { &entry.undo };
        let reason = tries.reason.clone().unwrap_or_else(|| "no reason given".to_owned());
        let error = match tries.fatal {
            true => HandlerError::fatal(reason),
            false => HandlerError::transient(reason),
        };
        let step = entry.name.as_str().into();
        StepFailure::new(step, part, tries.begun, tries.in_doubt && part == Part::Action, error)
    };
    let output = match journal.failed {
        Some(place) => Err(failure(place, Part::Action)),
        None => {
            let made = journal.steps.last().and_then(|entry| entry.made.as_deref());
            Ok(from_json(made.unwrap_or("null")).map_err(|error| {
                let text = format!(
                    "read what the last step of saga {key} has made: the saga is complete, and \
                     its result is not what this program's saga makes: {error}"
                );
                Error::new(error.kind(), text)
            })?)
        }
    };
    let ahead = journal.failed.unwrap_or(journal.steps.len());
    let staged = |is: fn(&Entry) -> bool| {
        let places = (0..journal.steps.len()).rev();
        places.filter(move |&place| is(&journal.steps[place])).collect::<Vec<_>>()
    };
    let name = |place: usize| journal.steps[place].name.clone();
    let undone = staged(|entry| matches!(entry.stage, Stage::Undone | Stage::Resolved));
    let unresolved = staged(|entry| entry.is_left() && entry.undo.begun > 0);
    Ok(SagaResult {
        saga: Arc::clone(saga),
        output,
        completed: (0..ahead).map(name).collect(),
        compensated: undone.into_iter().map(name).collect(),
        unresolved: unresolved
            .into_iter()
            .map(|place| failure(place, Part::Compensation))
            .collect(),
    })
}

impl<S: SagaStore> Engine<S> {
    /// Refuses an instance with another list of steps.
    pub(super) fn check_steps(&self, stored: &StoredSaga) -> Result<()> {
        if stored.steps == self.fingerprint {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Conflict, self.other_steps(stored)))
    }

    /// What is to be said of an instance with another list of steps.
    pub(super) fn other_steps(&self, stored: &StoredSaga) -> String {
        let theirs = match journal_of(stored) {
            Ok(journal) => {
                journal.steps.into_iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ")
            }
            Err(_) => "a list that cannot be read".to_owned(),
        };
        let ours: Vec<&str> = self.steps.iter().map(|step| &*step.options.name).collect();
        format!(
            "go on with instance {:?} of saga \"{}\": it was begun with the steps [{theirs}], and \
             this program has [{}]; it is left as it is: let a program with its own list finish it, \
             and give a saga with other steps another name",
            id_of(&self.saga, &stored.key),
            self.saga,
            ours.join(", ")
        )
    }
}
