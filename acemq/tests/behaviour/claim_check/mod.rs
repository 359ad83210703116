//! Large payloads: their stores, and their way through a broker.

mod files;
mod messages;
#[cfg(feature = "object-store")]
mod objects;
mod stores;
