//! The outbox relay, on every broker and through faults.

mod faults;
mod marking;
mod relaying;
mod wire;
