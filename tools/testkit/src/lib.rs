//! Starts, stops and reaches the servers that the tests need.
//!
//! Two kinds of server. *Shared* ones are named by environment variables that
//! `./test` sets; a test makes names of its own on them ([`unique`]) and harms
//! nobody else. A server of the *test's own* ([`OwnBroker`], [`OwnPostgres`]) has
//! private ports and folders and may be killed, paused and restarted.
//!
//! What is missing is left out in plain sight, or fails where `ACEMQ_TEST_REQUIRE`
//! lists it. See the `README.md` beside this crate.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "test support: what goes wrong here is a failure of the test"
)]

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

mod broker;
mod causes;
mod database;
mod eventually;
pub mod logs;
mod ports;
mod postgres;
mod process;
mod proxy;
#[cfg(feature = "s3")]
mod s3;
mod shared;

pub use broker::{Authority, BrokerOptions, BrokerVersion, Identity, OwnBroker, TlsFiles};
pub use causes::said_once;
pub use database::{MariaDbDatabase, PostgresDatabase};
pub use eventually::eventually;
pub use postgres::OwnPostgres;
pub use proxy::Proxy;
#[cfg(feature = "s3")]
pub use s3::S3Server;
pub use shared::{amqp_url, amqp4_url, brokers, mariadb_url, postgres_url, python};

/// The processor time that this thread has taken: what a test bounds that looks for work that
/// grows too fast, since what else the machine does takes none of it.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("it is not negative")
}

/// Makes a name that no other call makes, for a queue, a schema or a database.
///
/// It holds lower-case letters, digits and underscores where `prefix` does, and is
/// `prefix` plus 33 bytes long.
pub fn unique(prefix: &str) -> String {
    format!("{prefix}_{}", uuid::Uuid::new_v4().simple())
}
