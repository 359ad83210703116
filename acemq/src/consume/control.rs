//! What whoever holds a consumer wants of it while it runs.

use std::sync::Arc;

use tokio::sync::watch;

use super::work::Halt;

/// What is wanted.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) paused: bool,
    /// The failure that has stopped it where order matters.
    pub(super) halted: Option<Arc<Halt>>,
    pub(super) prefetch: u16,
    /// Counts the wishes; a later one includes those before it.
    number: u64,
}

impl Wish {
    /// Whether it is to take no messages.
    pub(super) const fn stays_away(&self) -> bool {
        self.paused || self.halted.is_some()
    }
}

pub(super) struct Control {
    wish: watch::Sender<Wish>,
    /// The number of the last wish that was acted on.
    done: watch::Sender<u64>,
}

impl Control {
    pub(super) fn new(prefetch: u16, paused: bool) -> Self {
        Self {
            wish: watch::Sender::new(Wish { paused, halted: None, prefetch, number: 0 }),
            done: watch::Sender::new(0),
        }
    }

    /// What is wanted now.
    pub(super) fn wish(&self) -> Wish {
        self.wish.borrow().clone()
    }

    /// For whoever acts on it.
    pub(super) fn wishes(&self) -> watch::Receiver<Wish> {
        self.wish.subscribe()
    }

    /// Wants something else, and waits until the consumer has acted on it, or has ended. Dropping
    /// the future takes nothing back.
    pub(super) async fn want(&self, change: impl FnOnce(&mut Wish)) {
        let mut number = 0;
        self.wish.send_modify(|wish| {
            change(wish);
            wish.number += 1;
            number = wish.number;
        });
        // The sender is ours, so it is there.
        let _ = self.done.subscribe().wait_for(|done| *done >= number).await;
    }

    /// The consumer's own wish, for which nobody waits.
    pub(super) fn halt(&self, halt: Arc<Halt>) {
        self.wish.send_modify(|wish| wish.halted = Some(halt));
    }

    pub(super) fn acted_on(&self, wish: &Wish) {
        self.done.send_modify(|done| *done = wish.number.max(*done));
    }

    /// Nothing is acted on any more, and nothing is halted.
    pub(super) fn ended(&self) {
        self.wish.send_modify(|wish| wish.halted = None);
        self.done.send_replace(u64::MAX);
    }
}
