//! What a consumer promises, on every broker.

pub(crate) mod bench;
mod closing;
mod consuming;
#[cfg(feature = "encryption")]
mod encrypted;
mod faults;
#[cfg(all(feature = "toml", feature = "xml", feature = "yaml"))]
mod formats;
pub(crate) mod gate;
mod group;
mod idempotency;
mod interceptors;
mod nesting;
mod pausing;
pub(crate) mod recovering;
mod retrying;
#[cfg(feature = "avro")]
mod schemas;
mod set_aside;
pub(crate) mod spy;
mod telemetry;
mod time;
mod types;
