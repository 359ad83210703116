//! Everything that is logged in this process, by whatever thread.

use std::{
    io,
    sync::{Mutex, Once, PoisonError},
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

/// Begins to keep what is logged, at every level.
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

/// The lines so far that hold all of `parts`.
pub(crate) fn lines_with(parts: &[&str]) -> Vec<String> {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    String::from_utf8_lossy(&lines)
        .lines()
        .filter(|line| parts.iter().all(|part| line.contains(part)))
        .map(str::to_owned)
        .collect()
}
