//! What waits for a handler, and how many handlers there may be.
//!
//! A worker takes one delivery after the other, so that a flood costs no task and no wake-up for
//! each. Workers are started one after the other while more waits than is being taken: the one
//! that begins looks whether another is needed.
//!
//! Where order matters, what belongs together is in one lane, of which one delivery at a time may be
//! taken. A lane is there only while something of it is here.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    ConsumerState,
    order::{HaltedKey, Turn},
};
use crate::{
    telemetry::Gauged,
    transport::{Delivery, Settler},
};

/// A delivery, and the channel it is to be settled on.
pub(super) struct Task {
    pub(super) delivery: Delivery,
    pub(super) settler: Arc<dyn Settler>,
    pub(super) turn: Turn,
}

pub(super) struct Work(Mutex<State>);

struct State {
    /// Deliveries that may be taken.
    ready: VecDeque<Task>,
    /// What belongs together, by its key.
    lanes: HashMap<Arc<str>, Lane>,
    /// Handlers that may be begun, besides those that run.
    free: usize,
    /// Whether a worker was started and has not taken anything yet.
    starting: bool,
    stopped: bool,
}

/// What has one key: its first delivery is ready, or taken, or the lane has halted.
#[derive(Default)]
struct Lane {
    taken: bool,
    /// What comes after it.
    behind: VecDeque<Task>,
    halted: Option<Arc<Halt>>,
}

/// Why a lane does not go on.
#[derive(Debug)]
pub(super) struct Halt {
    pub(super) message_id: String,
    pub(super) attempts: u32,
    pub(super) reason: String,
    /// Counts it among those that have halted, for as long as anybody has it.
    pub(super) _gauged: Gauged,
}

/// Whether another worker has to be started; its place is taken already.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Another {
    Start,
    No,
}

impl Halt {
    /// The state of a consumer that has stopped as a whole.
    pub(super) fn state(&self) -> ConsumerState {
        ConsumerState::Halted {
            message_id: self.message_id.clone(),
            attempts: self.attempts,
            reason: self.reason.clone(),
        }
    }
}

impl Work {
    pub(super) fn new(concurrency: usize) -> Self {
        Self(Mutex::new(State {
            ready: VecDeque::new(),
            lanes: HashMap::new(),
            free: concurrency,
            starting: false,
            stopped: false,
        }))
    }

    /// Adds what has arrived.
    pub(super) fn add(&self, task: Task) -> Another {
        let mut state = self.lock();
        state.add(task);
        state.another()
    }

    /// Tells that a worker has begun.
    pub(super) fn begun(&self) {
        self.lock().starting = false;
    }

    /// Gives a worker its next task; without one its place is free again.
    pub(super) fn take(&self) -> Option<(Task, Another)> {
        let mut state = self.lock();
        let next = if state.stopped { None } else { state.ready.pop_front() };
        let Some(task) = next else {
            state.free += 1;
            return None;
        };
        if let Turn::Of(key) = &task.turn
            && let Some(lane) = state.lanes.get_mut(key)
        {
            lane.taken = true;
        }
        Some((task, state.another()))
    }

    /// Tells that what was taken out of a lane is done with: the next of it may be taken.
    pub(super) fn done(&self, turn: &Turn) {
        if let Turn::Of(key) = turn {
            self.lock().next_of(key);
        }
    }

    /// Whether another worker is wanted for what has come to its turn.
    pub(super) fn another(&self) -> Another {
        self.lock().another()
    }

    /// Stops a lane before what was taken out of it; the others go on. `false` if the delivery comes
    /// again anyway, elsewhere or later.
    pub(super) fn halt(&self, task: Task, halt: Arc<Halt>) -> bool {
        let Turn::Of(key) = &task.turn else { return false };
        let mut state = self.lock();
        if state.stopped || !task.settler.is_open() {
            state.next_of(key);
            return false;
        }
        let Some(lane) = state.lanes.get_mut(key) else { return false };
        lane.taken = false;
        lane.halted = Some(halt);
        lane.behind.push_front(task);
        true
    }

    /// Lets a lane go on that has halted; `None` if it has not.
    pub(super) fn resume(&self, key: &str) -> Option<Another> {
        let mut state = self.lock();
        let lane = state.lanes.get_mut(key)?;
        lane.halted.take()?;
        state.next_of(key);
        Some(state.another())
    }

    pub(super) fn halted(&self) -> Vec<HaltedKey> {
        let state = self.lock();
        let halted = state.lanes.iter().filter_map(|(key, lane)| {
            let halt = lane.halted.as_ref()?;
            Some(HaltedKey {
                key: key.as_ref().to_owned(),
                message_id: halt.message_id.clone(),
                attempts: halt.attempts,
                reason: halt.reason.clone(),
                held: lane.behind.len(),
            })
        });
        let mut halted: Vec<_> = halted.collect();
        halted.sort_by(|a, b| a.key.cmp(&b.key));
        halted
    }

    /// Frees the place of a worker that has something else to wait for.
    pub(super) fn give_way(&self) -> Another {
        let mut state = self.lock();
        state.free += 1;
        state.another()
    }

    /// Drops what waits, in halted lanes as well: the broker has taken it back, or is about to. What
    /// is taken keeps its lane: what comes again is not to run beside it.
    pub(super) fn clear(&self) {
        // Let go of when nobody waits for the lock any more.
        let mut dropped = VecDeque::new();
        let mut state = self.lock();
        dropped.append(&mut state.ready);
        state.lanes.retain(|_, lane| {
            dropped.append(&mut lane.behind);
            lane.taken
        });
    }

    /// Gives what waits, where there is no order.
    pub(super) fn take_waiting(&self) -> VecDeque<Task> {
        std::mem::take(&mut self.lock().ready)
    }

    /// Has nothing more begun. What waits, and what still arrives, is there to be taken and handed
    /// back.
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
    }

    /// Nothing more is begun; gives what waits, where there is no order.
    pub(super) fn close(&self) -> VecDeque<Task> {
        self.stop();
        self.take_waiting()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, task: Task) {
        if let Turn::Of(key) = &task.turn {
            if let Some(lane) = self.lanes.get_mut(key) {
                lane.behind.push_back(task);
                return;
            }
            self.lanes.insert(Arc::clone(key), Lane::default());
        }
        self.ready.push_back(task);
    }

    /// Makes what comes next in a lane ready; a lane with nothing in it is no more.
    fn next_of(&mut self, key: &str) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        lane.taken = false;
        match lane.behind.pop_front() {
            Some(task) => self.ready.push_back(task),
            None => {
                self.lanes.remove(key);
            }
        }
    }

    fn another(&mut self) -> Another {
        if self.stopped || self.ready.is_empty() || self.free == 0 || self.starting {
            return Another::No;
        }
        self.free -= 1;
        self.starting = true;
        Another::Start
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{telemetry::ConsumeMeter, transport::Properties};

    #[derive(Debug)]
    struct Open(bool);

    impl Settler for Open {
        fn is_open(&self) -> bool {
            self.0
        }

        fn ack(&self, _: u64) -> bool {
            true
        }

        fn nack(&self, _: u64, _: bool) -> bool {
            true
        }
    }

    fn task(key: &str, tag: u64) -> Task {
        let delivery = Delivery {
            tag,
            redelivered: false,
            exchange: String::new(),
            routing_key: String::new(),
            properties: Properties::default(),
            body: Bytes::new(),
        };
        Task { delivery, settler: Arc::new(Open(true)), turn: Turn::Of(key.into()) }
    }

    fn halt() -> Arc<Halt> {
        Arc::new(Halt {
            message_id: "id".to_owned(),
            attempts: 1,
            reason: "no".to_owned(),
            _gauged: ConsumeMeter::new("orders", "memory").halted(),
        })
    }

    fn take(work: &Work) -> Option<Task> {
        work.take().map(|(task, _)| task)
    }

    // promise: OR-1
    #[test]
    fn ten_thousand_keys_at_rest_hold_nothing() {
        let work = Work::new(1);
        for key in 0..10_000 {
            let key = key.to_string();
            for tag in 0..2 {
                let _ = work.add(task(&key, tag));
            }
            for tag in 0..2 {
                let taken = take(&work).unwrap();
                assert_eq!((taken.delivery.tag, &taken.turn), (tag, &Turn::Of((*key).into())));
                work.done(&taken.turn);
            }
        }
        assert!(take(&work).is_none());
        let state = work.lock();
        assert_eq!((state.lanes.len(), state.ready.len()), (0, 0));
        assert!(state.lanes.capacity() < 100, "{}", state.lanes.capacity());
    }

    #[test]
    fn what_is_behind_in_its_lane_cannot_be_taken_and_other_lanes_can() {
        let work = Work::new(2);
        for (key, tag) in [("a", 1), ("a", 2), ("b", 3)] {
            let _ = work.add(task(key, tag));
        }
        assert_eq!(take(&work).unwrap().delivery.tag, 1);
        assert_eq!(take(&work).unwrap().delivery.tag, 3);
        assert!(take(&work).is_none());
        work.done(&Turn::Of("a".into()));
        assert_eq!(take(&work).unwrap().delivery.tag, 2);
    }

    #[test]
    fn a_halted_lane_begins_again_with_what_halted_it() {
        let work = Work::new(1);
        for tag in 1..=3 {
            let _ = work.add(task("a", tag));
        }
        let failed = take(&work).unwrap();
        assert!(work.halt(failed, halt()));
        assert!(take(&work).is_none());
        assert_eq!(work.halted()[0].held, 3);
        assert!(work.resume("b").is_none());
        assert!(work.resume("a").is_some());
        assert!(work.resume("a").is_none());
        for tag in 1..=3 {
            let next = take(&work).unwrap();
            assert_eq!(next.delivery.tag, tag);
            work.done(&next.turn);
        }
        assert!(work.lock().lanes.is_empty());
    }

    #[test]
    fn a_lost_channel_empties_every_lane_and_keeps_what_runs_from_running_twice() {
        let work = Work::new(2);
        for (key, tag) in
            [("running", 1), ("running", 2), ("halted", 3), ("halted", 4), ("ready", 5)]
        {
            let _ = work.add(task(key, tag));
        }
        let running = take(&work).unwrap();
        let halted = take(&work).unwrap();
        assert!(work.halt(halted, halt()));
        work.clear();
        assert!(work.halted().is_empty() && take(&work).is_none());
        for (key, tag) in [("running", 11), ("halted", 13)] {
            let _ = work.add(task(key, tag));
        }
        assert_eq!(take(&work).unwrap().delivery.tag, 13);
        assert!(take(&work).is_none(), "it would run beside its first delivery");
        work.done(&running.turn);
        assert_eq!(take(&work).unwrap().delivery.tag, 11);
    }

    #[test]
    fn a_lane_whose_channel_is_gone_does_not_halt() {
        let work = Work::new(1);
        let _ = work.add(task("a", 1));
        let mut failed = take(&work).unwrap();
        failed.settler = Arc::new(Open(false));
        assert!(!work.halt(failed, halt()));
        assert!(work.halted().is_empty() && work.lock().lanes.is_empty());
    }
}
