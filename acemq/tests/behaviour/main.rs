//! What the library promises, on every broker. One binary, because each costs a link.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::panic_in_result_fn,
    clippy::unwrap_in_result,
    clippy::unwrap_used,
    reason = "a failure of a helper is one of its test"
)]

mod connection;
mod consumer;
mod publish;
mod relay;
#[path = "../support/mod.rs"]
mod support;
