//! Connecting, losing the connection, and a broker that pauses.

mod blocked;
mod connecting;
mod recovering;
