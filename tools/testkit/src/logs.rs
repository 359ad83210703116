//! What is logged while a test runs.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, Once, PoisonError},
};

use tracing::{Subscriber, subscriber::DefaultGuard};
use tracing_subscriber::fmt::format::FmtSpan;

static LINES: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Capture;

impl io::Write for Capture {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        locked(&LINES).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps what this thread logs and the spans that end on it, from `DEBUG` on, until the guard is
/// dropped: the tasks of a test of one thread run on it.
pub fn of_this_thread() -> (ThreadLog, DefaultGuard) {
    let log = ThreadLog::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::DEBUG)
        .with_span_events(FmtSpan::CLOSE)
        .with_writer(move || writer.clone())
        .finish();
    (log, to_this_thread(subscriber))
}

/// Gives a subscriber what this thread says, until the guard is dropped.
///
/// Not to be had by `set_default` alone: while a thread's subscriber is the only one there is,
/// what another thread says first, to nobody, is taken for what nobody wants to hear, and never
/// asked about again.
pub fn to_this_thread(subscriber: impl Subscriber + Send + Sync + 'static) -> DefaultGuard {
    capture();
    tracing::subscriber::set_default(subscriber)
}

/// The log of one thread.
#[derive(Clone, Debug, Default)]
pub struct ThreadLog(Arc<Mutex<Vec<u8>>>);

impl ThreadLog {
    /// The lines so far that hold all of `parts`.
    pub fn lines_with(&self, parts: &[&str]) -> Vec<String> {
        lines_with(&locked(&self.0), parts)
    }
}

impl io::Write for ThreadLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        locked(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Begins to keep what is logged by whatever thread of the process, at every level.
pub fn capture() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(tracing::Level::TRACE)
            .with_writer(|| Capture)
            .init();
    });
}

/// The process's lines so far that hold all of `parts`.
pub fn of_the_process(parts: &[&str]) -> Vec<String> {
    lines_with(&locked(&LINES), parts)
}

fn lines_with(log: &[u8], parts: &[&str]) -> Vec<String> {
    String::from_utf8_lossy(log)
        .lines()
        .filter(|line| parts.iter().all(|part| line.contains(part)))
        .map(str::to_owned)
        .collect()
}

/// What is there, also after a test that failed while it wrote.
fn locked(lines: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
}
