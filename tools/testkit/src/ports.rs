//! Ports that stay ours while a server is down.

use std::fs::{self, File};
use std::net::TcpListener;

use uuid::Uuid;

/// Below the range from which systems take the ports of outgoing connections, so
/// that nobody's connection takes the port while its server restarts.
const RANGE: std::ops::Range<u16> = 10_000..30_000;

/// A free port of this machine, held against other tests until it is dropped.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    /// Tests run in several processes: the lock is what they agree on, and it goes
    /// with the process however that ends.
    _lock: File,
}

impl Port {
    pub(crate) fn lease() -> Self {
        // A folder for each user, who could not lock another's files.
        let user = rustix::process::geteuid().as_raw();
        let locks = std::env::temp_dir().join(format!("acemq-test-ports-{user}"));
        fs::create_dir_all(&locks).expect("make the folder of port locks");
        for _ in 0..1_000 {
            let (_, random) = Uuid::new_v4().as_u64_pair();
            let Ok(offset) = u16::try_from(random % RANGE.len() as u64) else {
                continue;
            };
            let number = RANGE.start + offset;
            let lock = File::create(locks.join(number.to_string())).expect("make a port lock");
            if lock.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", number)).is_ok() {
                return Self { number, _lock: lock };
            }
        }
        panic!("no free port in {RANGE:?}");
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leased_ports_differ() {
        let leases: Vec<Port> = (0..50).map(|_| Port::lease()).collect();
        let numbers: std::collections::HashSet<u16> = leases.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), 50);
    }
}
