//! What the library promises, on every broker. One binary, because each costs a link.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::panic_in_result_fn,
    clippy::type_complexity,
    clippy::unwrap_in_result,
    clippy::unwrap_used,
    reason = "what goes wrong here is a failure of the test"
)]

mod claim_check;
mod connection;
mod consumer;
mod errors;
mod maintenance;
mod ordered;
mod pipeline;
mod publish;
mod relay;
mod replay;
mod request;
mod scheduler;
mod stream;
#[path = "../support/mod.rs"]
mod support;
mod topology;
