//! The outbox relay, on every broker and through faults.

mod faults;
mod relaying;
mod wire;
