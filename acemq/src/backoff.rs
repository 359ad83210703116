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
        let pause = self.next_pause();
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }

    /// The next pause, for whoever waits for other things beside it: from half of it to the whole.
    pub(crate) fn next_pause(&mut self) -> Duration {
        let pause = self.next.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.next = (self.next * 2).clamp(self.first, self.longest);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(mut backoff: Backoff, count: usize) -> Vec<f64> {
        (0..count).map(|_| backoff.next_pause().as_secs_f64()).collect()
    }

    #[test]
    fn the_pauses_double_up_to_the_longest_and_have_at_most_half_of_them_taken_off() {
        let second = Duration::from_secs(1);
        for _ in 0..100 {
            for (pause, whole) in seconds(Backoff::new(second, 5 * second), 5)
                .into_iter()
                .zip([1.0, 2.0, 4.0, 5.0, 5.0])
            {
                assert!((whole / 2.0..=whole).contains(&pause), "{pause} of {whole}");
            }
        }
        let at_once = seconds(Backoff::at_once(second, 5 * second), 2);
        assert!(at_once[0] == 0.0 && at_once[1] >= 0.5);
    }
}
