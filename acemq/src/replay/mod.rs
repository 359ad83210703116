//! The way back: out of dead-letter and parking queues to where a message failed, and a look at
//! what is there.

mod builder;
mod handle;
mod outcome;
mod pass;
mod peek;
mod pull;
mod queued;

pub use self::{
    builder::ReplayBuilder,
    handle::Replay,
    outcome::{ReplayOutcome, ReplayProgress, ReplayReason},
    peek::{Peek, ReasonCount, ReasonCounts},
    queued::{BodyView, QueuedMessage},
};
