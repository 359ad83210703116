//! What schedulers promise, on every broker.
//!
//! The waiting queues of a broker are everybody's: on a shared one any test's scheduler may move
//! any test's message. What a test says about who moved it, and how often, it says on the memory
//! broker, which is its own.

mod bench;
mod delivering;
mod lasting;
mod metrics;
mod refusing;
mod setup;
mod time;
mod undelivered;
