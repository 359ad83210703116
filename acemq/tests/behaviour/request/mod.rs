//! What requests and replies promise, on every broker.

mod answering;
mod asking;
mod bench;
mod direct;
mod losses;
mod metrics;
mod wire;
