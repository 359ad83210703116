//! The way out, on every broker.

mod batches;
mod interceptors;
mod metrics;
mod outstanding;
mod sending;
