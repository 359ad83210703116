//! What waits for a handler, and how many handlers there may be.
//!
//! A worker takes one delivery after the other, so that a flood costs no task and no wake-up for
//! each. Workers are started one after the other while more waits than is being taken: the one
//! that begins looks whether another is needed.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::transport::{Delivery, Settler};

/// A delivery, and the channel it is to be settled on.
pub(super) struct Task {
    pub(super) delivery: Delivery,
    pub(super) settler: Arc<dyn Settler>,
}

pub(super) struct Work(Mutex<State>);

struct State {
    waiting: VecDeque<Task>,
    /// Handlers that may be begun, besides those that run.
    free: usize,
    /// Whether a worker was started and has not taken anything yet.
    starting: bool,
    stopped: bool,
}

/// Whether another worker has to be started; its place is taken already.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Another {
    Start,
    No,
}

impl Work {
    pub(super) fn new(concurrency: usize) -> Self {
        Self(Mutex::new(State {
            waiting: VecDeque::new(),
            free: concurrency,
            starting: false,
            stopped: false,
        }))
    }

    /// Adds what has arrived.
    pub(super) fn add(&self, task: Task) -> Another {
        let mut state = self.lock();
        state.waiting.push_back(task);
        state.another()
    }

    /// Tells that a worker has begun.
    pub(super) fn begun(&self) {
        self.lock().starting = false;
    }

    /// Gives a worker its next task; without one its place is free again.
    pub(super) fn take(&self) -> Option<(Task, Another)> {
        let mut state = self.lock();
        let next = if state.stopped { None } else { state.waiting.pop_front() };
        match next {
            Some(task) => Some((task, state.another())),
            None => {
                state.free += 1;
                None
            }
        }
    }

    /// Frees the place of a worker that has something else to wait for.
    pub(super) fn give_way(&self) -> Another {
        let mut state = self.lock();
        state.free += 1;
        state.another()
    }

    /// Gives what waits.
    pub(super) fn take_waiting(&self) -> VecDeque<Task> {
        std::mem::take(&mut self.lock().waiting)
    }

    /// Has nothing more begun. What waits, and what still arrives, is there to be taken and handed
    /// back.
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
    }

    /// Nothing more is begun; gives what waits.
    pub(super) fn close(&self) -> VecDeque<Task> {
        self.stop();
        self.take_waiting()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn another(&mut self) -> Another {
        if self.stopped || self.waiting.is_empty() || self.free == 0 || self.starting {
            return Another::No;
        }
        self.free -= 1;
        self.starting = true;
        Another::Start
    }
}
