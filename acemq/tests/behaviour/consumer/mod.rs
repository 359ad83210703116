//! What a consumer promises, on every broker.

mod bench;
mod closing;
mod consuming;
mod faults;
#[cfg(all(feature = "toml", feature = "xml", feature = "yaml"))]
mod formats;
mod idempotency;
mod interceptors;
mod nesting;
mod recovering;
mod retrying;
mod set_aside;
mod spy;
mod telemetry;
mod time;
