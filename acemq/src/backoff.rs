//! The pauses between attempts at what has to succeed at last.

use std::time::Duration;

/// Pauses that double up to a limit, with jitter, so that those who failed together do not come
/// back together.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    first: Duration,
    longest: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first, first, longest }
    }

    /// Without a pause before the first attempt.
    pub(crate) fn at_once(first: Duration, longest: Duration) -> Self {
        Self { next: Duration::ZERO, first, longest }
    }

    pub(crate) async fn pause(&mut self) {
        let pause = self.next.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.next = (self.next * 2).clamp(self.first, self.longest);
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
}
