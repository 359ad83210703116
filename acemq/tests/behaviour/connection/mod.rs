//! Connecting, losing the connection, and a broker that pauses.

mod addresses;
mod blocked;
mod certificates;
mod connecting;
mod login;
mod recovering;
mod settings;
