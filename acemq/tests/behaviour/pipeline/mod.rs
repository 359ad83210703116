//! What pipelines promise, on every broker.

mod bench;
mod failing;
mod idempotency;
mod routes;
mod running;
mod setup;
