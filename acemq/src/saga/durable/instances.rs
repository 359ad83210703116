//! Looking at the instances of a saga, and resolving by hand what no retry resolves.

use std::{fmt, time::Duration};

use super::{
    SagaInstance, SagaNext, SagaQuery, SagaStatus, SagaStore, SagaWrite,
    held::journal_of,
    journal::{Entry, Journal, Stage, Tries},
    key,
    lease::answer,
    signal::Signal,
};
use crate::error::Result;

const LIMIT: usize = 100;
/// How often an instance that others change at the same time is read again.
const TRIES: usize = 5;

/// The instances of a saga in a store. It needs the saga's name and not its steps, so that a program
/// for operators can have it; a saga's own is [`DurableSaga::instances`](super::DurableSaga::instances).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> acemq::Result<()> {
/// use acemq::{MemorySagaStore, SagaFilter, SagaInstances, SagaStatus};
///
/// let store = MemorySagaStore::new();
/// let bookings = SagaInstances::of("booking", &store);
/// let stuck = SagaFilter::new().status(SagaStatus::Unresolved).limit(20);
/// for booking in bookings.list(&stuck).await? {
///     for step in booking.unresolved() {
///         println!("{}: {} ({:?})", booking.id, step.name, step.compensation.failure);
///     }
/// }
/// # Ok(()) }
/// ```
pub struct SagaInstances<'s, S> {
    store: &'s S,
    saga: String,
    signal: Option<&'s Signal>,
}

/// What became of resolving a step by hand, or of compensating it once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it says whether it was done"]
#[non_exhaustive]
pub enum SagaResolution {
    /// It is done.
    Done,
    /// The instance goes on, and a process may be at it: look again when it is over.
    GoesOn,
    /// There is no such instance, or it has no such step.
    NotFound,
    /// The step is not unresolved. Or, where it was to be compensated once more, there is no
    /// compensation that has failed: it is in doubt, and nothing asks.
    NotUnresolved,
}

/// Which instances are listed by [`SagaInstances::list`].
#[derive(Clone, Debug)]
#[must_use = "a filter does nothing until it is given to `list`"]
pub struct SagaFilter {
    statuses: Vec<SagaStatus>,
    unchanged_for: Duration,
    limit: usize,
}

impl SagaFilter {
    /// All of them, at most 100.
    pub fn new() -> Self {
        Self { statuses: Vec::new(), unchanged_for: Duration::ZERO, limit: LIMIT }
    }

    /// Those that stand there. Called several times, those that stand at any of them.
    pub fn status(mut self, status: SagaStatus) -> Self {
        if !self.statuses.contains(&status) {
            self.statuses.push(status);
        }
        self
    }

    /// Those that are not over.
    pub fn going_on(self) -> Self {
        self.status(SagaStatus::Running)
            .status(SagaStatus::Waiting)
            .status(SagaStatus::Compensating)
    }

    /// Those that have not changed for so long.
    pub fn unchanged_for(mut self, age: Duration) -> Self {
        self.unchanged_for = age;
        self
    }

    /// At most so many. Default 100.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }
}

impl Default for SagaFilter {
    fn default() -> Self {
        Self::new()
    }
}

impl<'s, S: SagaStore> SagaInstances<'s, S> {
    /// Those of the saga of that name.
    #[must_use]
    pub fn of(saga: impl Into<String>, store: &'s S) -> Self {
        Self { store, saga: saga.into(), signal: None }
    }

    pub(super) fn heard_by(saga: &str, store: &'s S, signal: &'s Signal) -> Self {
        Self { signal: Some(signal), ..Self::of(saga, store) }
    }

    /// An instance by its id, and `None` where there is none.
    ///
    /// # Errors
    /// The store's; what an id is refused for, as [`DurableSaga::run`](super::DurableSaga::run) does.
    pub async fn find(&self, id: &str) -> Result<Option<SagaInstance>> {
        let key = key::of(&self.saga, id)?;
        Ok(answer("look at a saga", self.store.find(&key)).await?.map(SagaInstance::read))
    }

    /// Instances, those first that have not changed for the longest time.
    ///
    /// # Errors
    /// The store's. An instance whose state cannot be read is none: it says so itself.
    pub async fn list(&self, filter: &SagaFilter) -> Result<Vec<SagaInstance>> {
        let all = SagaStatus::ALL;
        let statuses = if filter.statuses.is_empty() { &all[..] } else { &filter.statuses };
        let mut found = Vec::new();
        for &status in statuses {
            let query = SagaQuery {
                saga: self.saga.clone(),
                status,
                unchanged_for: filter.unchanged_for,
                limit: filter.limit,
            };
            found.extend(answer("list sagas", self.store.list(&query)).await?);
        }
        found.sort_by(|a, b| (a.updated_at, &a.key).cmp(&(b.updated_at, &b.key)));
        found.truncate(filter.limit);
        Ok(found.into_iter().map(SagaInstance::read).collect())
    }

    /// Says that a step is not unresolved any more: somebody has undone it by hand, or seen that there
    /// is nothing to undo. `note` is kept with it. When none is left, the instance counts as
    /// [`Compensated`](SagaStatus::Compensated).
    ///
    /// It changes nothing while the instance goes on.
    ///
    /// # Errors
    /// As [`find`](Self::find); an instance that cannot be read.
    pub async fn resolve(&self, id: &str, step: &str, note: &str) -> Result<SagaResolution> {
        self.change(id, step, |journal, place| {
            let entry = &mut journal.steps[place];
            entry.stage = Stage::Resolved;
            entry.note = Some(note.to_owned());
            let status = journal.status(None);
            Some(SagaWrite::new(status, journal.write(), SagaNext::Never))
        })
        .await
    }

    /// Has the compensation of an unresolved step run once more, with all its attempts: a worker of
    /// the saga does it.
    ///
    /// # Errors
    /// As [`find`](Self::find); an instance that cannot be read.
    pub async fn retry_compensation(&self, id: &str, step: &str) -> Result<SagaResolution> {
        let again = |journal: &mut Journal, place: usize| {
            let entry = &mut journal.steps[place];
            if entry.undo.begun == 0 {
                return None;
            }
            entry.stage = if entry.made.is_some() { Stage::Done } else { Stage::Failed };
            let Tries { begun, reason, .. } = std::mem::take(&mut entry.undo);
            entry.undo = Tries { begun, reason, ..Tries::default() };
            let now = SagaNext::After(Duration::ZERO);
            Some(SagaWrite::new(SagaStatus::Compensating, journal.write(), now))
        };
        let resolution = self.change(id, step, again).await?;
        if let Some(signal) = self.signal {
            signal.wake();
        }
        Ok(resolution)
    }

    async fn change(
        &self,
        id: &str,
        step: &str,
        change: impl Fn(&mut Journal, usize) -> Option<SagaWrite>,
    ) -> Result<SagaResolution> {
        let key = key::of(&self.saga, id)?;
        for _ in 0..TRIES {
            let Some(stored) = answer("look at a saga", self.store.find(&key)).await? else {
                return Ok(SagaResolution::NotFound);
            };
            let mut journal = journal_of(&stored)?;
            let place = journal.steps.iter().position(|entry| entry.name == step);
            let Some(place) = place else { return Ok(SagaResolution::NotFound) };
            if stored.is_held || !stored.status.is_over() {
                return Ok(SagaResolution::GoesOn);
            }
            let is_left = stored.status == SagaStatus::Unresolved;
            if !is_left || !Entry::is_left(&journal.steps[place]) {
                return Ok(SagaResolution::NotUnresolved);
            }
            let Some(write) = change(&mut journal, place) else {
                return Ok(SagaResolution::NotUnresolved);
            };
            if answer("resolve a saga", self.store.change(&stored, &write)).await? {
                tracing::info!(saga = %self.saga, id, step, "a saga was changed by hand");
                return Ok(SagaResolution::Done);
            }
        }
        // Others change it all the time.
        Ok(SagaResolution::GoesOn)
    }
}

impl<S> fmt::Debug for SagaInstances<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SagaInstances").field("saga", &self.saga).finish_non_exhaustive()
    }
}
