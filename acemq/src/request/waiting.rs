//! The requests that wait for their replies.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

use crate::transport::Delivery;

/// The requests of one requester, by their correlation ids.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    requests: HashMap<String, Entry>,
    last: u64,
    closed: bool,
}

#[derive(Debug)]
struct Entry {
    /// Tells one request from another that had the same id.
    number: u64,
    answer: oneshot::Sender<Delivery>,
}

/// Why a request cannot wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The requester is closed.
    Closed,
    /// Another request with that correlation id waits.
    Taken,
}

/// Nobody will answer any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Abandoned {
    /// The requester was closed.
    Closed,
    /// The place that the request named for its reply is gone for good.
    Lost,
}

impl Waiting {
    /// Has a request wait from now on, until the slot is dropped.
    pub(super) fn add(self: &Arc<Self>, correlation_id: &str) -> Result<Slot, Refused> {
        let (sender, answer) = oneshot::channel();
        let mut state = self.lock();
        if state.closed {
            return Err(Refused::Closed);
        }
        if state.requests.contains_key(correlation_id) {
            return Err(Refused::Taken);
        }
        state.last += 1;
        let number = state.last;
        state.requests.insert(correlation_id.to_owned(), Entry { number, answer: sender });
        let correlation_id = correlation_id.to_owned();
        Ok(Slot { waiting: Arc::clone(self), correlation_id, number, answer })
    }

    /// Gives a reply to the request that waits for it; `false` if there is none.
    pub(super) fn answer(&self, correlation_id: &str, reply: Delivery) -> bool {
        let entry = self.lock().requests.remove(correlation_id);
        entry.is_some_and(|entry| entry.answer.send(reply).is_ok())
    }

    /// Abandons all that wait now.
    pub(super) fn abandon(&self) {
        let requests = std::mem::take(&mut self.lock().requests);
        drop(requests);
    }

    /// Abandons all that wait, and takes no more.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.abandon();
    }

    pub(super) fn len(&self) -> usize {
        self.lock().requests.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request's place among those that wait. Dropping it gives the place up.
#[derive(Debug)]
pub(super) struct Slot {
    waiting: Arc<Waiting>,
    correlation_id: String,
    number: u64,
    answer: oneshot::Receiver<Delivery>,
}

impl Slot {
    /// Waits for the reply. May be dropped and called again.
    pub(super) async fn answered(&mut self) -> Result<Delivery, Abandoned> {
        (&mut self.answer).await.map_err(|_| {
            if self.waiting.lock().closed { Abandoned::Closed } else { Abandoned::Lost }
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.waiting.lock();
        if state.requests.get(&self.correlation_id).is_some_and(|entry| entry.number == self.number)
        {
            state.requests.remove(&self.correlation_id);
        }
    }
}
