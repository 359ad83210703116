//! The outbox relay, on every broker and through faults.

mod faults;
mod marking;
mod ordering;
mod relaying;
mod wire;
