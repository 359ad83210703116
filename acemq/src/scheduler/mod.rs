//! Messages for later: after a delay, or at a time.
//!
//! A scheduled message waits on the broker, in queues that have one time to live each, and hops
//! through them until it is due (`ladder`). What it is and where it goes stands in its headers
//! (`scheduled`), so that nobody has to remember it: any scheduler of the family moves any message,
//! and none of them holds one (`mover`).

mod builder;
mod counters;
mod handle;
mod ladder;
mod mover;
mod schedule;
mod scheduled;
mod send;
#[cfg(test)]
mod tests;

pub use self::{
    builder::SchedulerBuilder, counters::SchedulerCounters, handle::Scheduler, schedule::Schedule,
    send::ScheduleMessage,
};
