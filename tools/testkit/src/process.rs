//! A server process with a folder of its own, neither of which outlives the test.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// Reads the id of the process to end, a line each time it changes, until the test
/// process is gone: also when that was killed, and for servers kept in a static.
const WATCHDOG: &str = r#"
    trap "" HUP INT TERM
    while read -r id; do process=$id; done
    if [ -n "$process" ]; then kill -9 "$process" && sleep 0.5; fi 2>/dev/null
    rm -rf "$1"
"#;

/// One server: its folder, and its process while it runs.
#[derive(Debug)]
pub(crate) struct Process {
    home: TempDir,
    child: Option<Child>,
    watchdog: Child,
}

impl Process {
    /// Makes the folder, inside `parent`; nothing runs yet.
    pub(crate) fn new(parent: &Path) -> Self {
        let home = tempfile::Builder::new()
            .prefix("acemq-test-")
            .tempdir_in(parent)
            .expect("make a server's folder");
        let watchdog = Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog"])
            .arg(home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("start a server's watchdog");
        Self { home, child: None, watchdog }
    }

    /// The server's folder.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Runs `command`, which must become the server and not fork it off.
    pub(crate) fn start(&mut self, command: &mut Command) {
        assert!(self.child.is_none(), "the server runs already");
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.home().join("output"))
            .expect("open a server's output");
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("share a server's output"))
            .stderr(log)
            // Ctrl-C at the terminal is for the tests, which then end the server.
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("start {command:?}: {error}"));
        self.tell_watchdog(&child.id().to_string());
        self.child = Some(child);
    }

    /// Sends `signal`.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.id(), signal).expect("signal a server");
    }

    /// Stops every thread of the server until it is resumed.
    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
        // The threads of a busy machine take a moment to stop; until then they answer.
        waitpid(Some(self.id()), WaitOptions::UNTRACED).expect("wait for a server to pause");
    }

    /// Lets the server go on after [`pause`](Self::pause).
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Whether the server runs; it may have ended by itself.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Asks the server to end by `signal`, and waits for that.
    pub(crate) async fn stop(&mut self, signal: Signal, within: Duration) {
        self.signal(signal);
        let end = Instant::now() + within;
        while self.is_running() {
            assert!(
                Instant::now() < end,
                "the server did not stop in {within:?}:\n{}",
                self.output()
            );
            sleep(Duration::from_millis(10)).await;
        }
        self.forget();
    }

    /// Ends the server at once, running, paused or stopped.
    pub(crate) fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            child.kill().ok();
            child.wait().ok();
        }
        self.forget();
    }

    /// The end of what the server printed, for the message of a failure.
    pub(crate) fn output(&self) -> String {
        let output = std::fs::read(self.home().join("output")).unwrap_or_default();
        let text = String::from_utf8_lossy(&output);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    fn id(&self) -> Pid {
        Pid::from_child(self.child.as_ref().expect("the server is stopped"))
    }

    fn forget(&mut self) {
        self.child = None;
        self.tell_watchdog("");
    }

    fn tell_watchdog(&mut self, id: &str) {
        if let Some(input) = &mut self.watchdog.stdin {
            writeln!(input, "{id}").ok();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        // The folder goes with `TempDir`; a killed watchdog removes nothing.
        self.watchdog.kill().ok();
        self.watchdog.wait().ok();
    }
}
