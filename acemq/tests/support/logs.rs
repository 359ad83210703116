//! What is logged while a test runs.

use std::{
    io,
    sync::{Arc, Mutex, Once, PoisonError},
};

static LINES: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Capture;

impl io::Write for Capture {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LINES.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps what this thread logs, until the guard is dropped: the tasks of a test of one thread
/// run on it.
pub(crate) fn of_this_thread() -> (ThreadLog, tracing::subscriber::DefaultGuard) {
    // While a thread's subscriber is the only one there is, what another thread says first, to
    // nobody, is never asked about again.
    capture();
    let log = ThreadLog::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(move || writer.clone())
        .finish();
    (log, tracing::subscriber::set_default(subscriber))
}

/// The log of one thread.
#[derive(Clone, Default)]
pub(crate) struct ThreadLog(Arc<Mutex<Vec<u8>>>);

impl ThreadLog {
    /// The lines so far that hold all of `parts`.
    pub(crate) fn lines_with(&self, parts: &[&str]) -> Vec<String> {
        lines_with(&self.0.lock().unwrap(), parts)
    }
}

impl io::Write for ThreadLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Begins to keep what is logged by whatever thread of the process, at every level.
pub(crate) fn capture() {
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
pub(crate) fn of_the_process(parts: &[&str]) -> Vec<String> {
    lines_with(&LINES.lock().unwrap_or_else(PoisonError::into_inner), parts)
}

fn lines_with(log: &[u8], parts: &[&str]) -> Vec<String> {
    String::from_utf8_lossy(log)
        .lines()
        .filter(|line| parts.iter().all(|part| line.contains(part)))
        .map(str::to_owned)
        .collect()
}
