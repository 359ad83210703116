//! What the library promises, on every broker. One binary, because each costs a link.

mod consumer;
#[path = "../support/mod.rs"]
mod support;
