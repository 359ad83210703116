//! A worker's place among the handlers, and when it is given to another one.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::runtime::Core;
use crate::transport::Settler;

/// The place of a worker that has one delivery in hand.
pub(super) struct Place<'a> {
    core: &'a Arc<Core>,
    /// The channel that the delivery is settled on.
    pub(super) settler: &'a dyn Settler,
    given: AtomicBool,
}

impl<'a> Place<'a> {
    pub(super) fn new(core: &'a Arc<Core>, settler: &'a dyn Settler) -> Self {
        Self { core, settler, given: AtomicBool::new(false) }
    }

    /// Lets another handler begin, since from here on this delivery only waits for the broker.
    pub(super) fn give_way(&self) {
        if !self.given.swap(true, Ordering::Relaxed) {
            self.core.start(self.core.work.give_way());
        }
    }

    /// Whether the place has gone to another worker, so that this one has to end.
    pub(super) fn is_given(&self) -> bool {
        self.given.load(Ordering::Relaxed)
    }
}
