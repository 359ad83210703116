//! What a step of a durable saga is told.

use std::sync::Arc;

/// What a step, or a compensation, of a durable saga is told beside its input: which instance it is
/// for, and how often it was begun before.
///
/// A step runs at least once. After a crash it runs again, and nobody can say how far it came. So
/// name what it makes by the [`key`](Self::key), which is the same for each attempt.
#[derive(Clone, Debug)]
pub struct StepContext {
    pub(super) saga: Arc<str>,
    pub(super) id: Arc<str>,
    pub(super) step: Arc<str>,
    pub(super) attempt: u32,
}

impl StepContext {
    /// The saga's name.
    #[must_use]
    pub fn saga(&self) -> &str {
        &self.saga
    }

    /// The instance's id, as it was given to [`run`](super::DurableSaga::run) or
    /// [`begin`](super::DurableSaga::begin).
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The step's name.
    #[must_use]
    pub fn step(&self) -> &str {
        &self.step
    }

    /// How often this step, or this compensation, was begun in this instance, this time included:
    /// from 1 on. Attempts that a crash ended count.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// `<saga>/<id>/<step>`: the same for each attempt, and for the step's compensation. What a
    /// service takes as an idempotency key.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{}/{}/{}", self.saga, self.id, self.step)
    }
}
