//! A PostgreSQL cluster of the test's own.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use sqlx::{Connection as _, PgConnection};
use tokio::time::{Instant, sleep};

use crate::ports::Port;
use crate::process::Process;
use crate::shared::{Server, missing};

const INSTALLED: Server = Server {
    name: "own-postgres",
    title: "an installed PostgreSQL",
    remedy: "install the package postgresql",
};

/// Generous, for a machine whose cores are all compiling.
const START: Duration = Duration::from_secs(60);
const STOP: Duration = Duration::from_secs(30);

/// A PostgreSQL server that belongs to one test: private port and data. It may be
/// stopped, killed and paused. Dropping it removes it all.
#[derive(Debug)]
pub struct OwnPostgres {
    programs: PathBuf,
    process: Process,
    port: Port,
    user: Option<User>,
}

/// Whom the server runs as when we are root, which it refuses to be.
#[derive(Clone, Copy, Debug)]
struct User {
    id: u32,
    group: u32,
}

impl OwnPostgres {
    /// Starts a server with an empty database, or says that the test is left out.
    ///
    /// # Panics
    ///
    /// When it does not start, or is not installed and `ACEMQ_TEST_REQUIRE` lists
    /// `own-postgres`.
    pub async fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            return missing(&INSTALLED);
        };
        let process = Process::new(&std::env::temp_dir());
        let user = rustix::process::geteuid().is_root().then(User::postgres);
        if let Some(user) = user {
            chown(process.home(), Some(user.id), Some(user.group)).expect("give a folder away");
        }
        let mut server = Self { programs, process, port: Port::lease(), user };
        server.initialise().await;
        server.run().await;
        Some(server)
    }

    /// Where it listens. The user may do everything.
    pub fn url(&self) -> String {
        format!("postgres://acemq_test@127.0.0.1:{}/postgres", self.port.number())
    }

    /// Shuts it down, ending its sessions. Its data and its port stay.
    ///
    /// # Panics
    ///
    /// When it does not end, or did not run.
    pub async fn stop(&mut self) {
        self.process.stop(Signal::INT, STOP).await;
    }

    /// Starts it again with the same port and data, after shutting it down if it runs.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub async fn restart(&mut self) {
        if self.process.is_running() {
            self.stop().await;
        }
        self.run().await;
    }

    /// Ends it at once. Its data and its port stay.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Stops it in its tracks: new connections get no answer. Sessions that are open
    /// are processes of their own, and go on.
    pub fn pause(&self) {
        self.process.pause();
    }

    /// Lets it go on after [`pause`](Self::pause).
    pub fn resume(&self) {
        self.process.resume();
    }

    async fn initialise(&mut self) {
        let mut command = self.command("initdb");
        command.args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]);
        command.args(["--username=acemq_test", "--pgdata"]).arg(self.data());
        let output = tokio::process::Command::from(command).output().await.expect("run initdb");
        assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
    }

    async fn run(&mut self) {
        let end = Instant::now() + START;
        loop {
            if !self.process.is_running() {
                // Also again: after a kill the old sessions take a moment to notice, and
                // until they have, the server refuses to start.
                self.process.kill();
                let mut command = self.command("postgres");
                command.arg("-D").arg(self.data());
                command.args(["-p", &self.port.number().to_string()]);
                for setting in [
                    "listen_addresses=127.0.0.1",
                    "unix_socket_directories=",
                    "shared_buffers=32MB",
                    // The data need not survive the machine, only the process.
                    "fsync=off",
                ] {
                    command.args(["-c", setting]);
                }
                self.process.start(&mut command);
            }
            if let Ok(connection) = PgConnection::connect(&self.url()).await {
                connection.close().await.ok();
                return;
            }
            assert!(Instant::now() < end, "PostgreSQL did not start:\n{}", self.process.output());
            sleep(Duration::from_millis(50)).await;
        }
    }

    fn data(&self) -> PathBuf {
        self.process.home().join("data")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.current_dir(self.process.home());
        if let Some(user) = self.user {
            command.uid(user.id).gid(user.group);
        }
        command
    }
}

impl Drop for OwnPostgres {
    fn drop(&mut self) {
        // Its sessions are processes of their own that this ends as well, before the
        // folder goes; a kill leaves them to notice it by themselves.
        if self.process.is_running() {
            self.process.resume();
            self.process.signal(Signal::QUIT);
            let end = std::time::Instant::now() + Duration::from_secs(3);
            while self.process.is_running() && std::time::Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

impl User {
    fn postgres() -> Self {
        let number = |option: &str| {
            let output = Command::new("id").args([option, "postgres"]).output().expect("run id");
            String::from_utf8_lossy(&output.stdout)
                .trim()
                .parse()
                .expect("the user postgres exists")
        };
        Self { id: number("-u"), group: number("-g") }
    }
}

/// The folder of `initdb` and `postgres`: Debian's with the highest version, else one
/// on the path.
fn programs() -> Option<PathBuf> {
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let highest = debian
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .max()
        .map(|version| PathBuf::from(format!("/usr/lib/postgresql/{version}/bin")));
    let path = std::env::var_os("PATH").unwrap_or_default();
    highest.into_iter().chain(std::env::split_paths(&path)).find(|folder| has_programs(folder))
}

fn has_programs(folder: &Path) -> bool {
    ["initdb", "postgres"].iter().all(|program| folder.join(program).is_file())
}
