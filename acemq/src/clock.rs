//! The library's one clock.
//!
//! Wall time is the wall time at the clock's start plus what tokio's clock has counted since, so
//! that a paused tokio clock moves ages, due times and in-memory leases together with every wait
//! (promise BX-10). A step of the system's clock after the start is not followed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// A wall clock that advances with tokio's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    wall: SystemTime,
    started: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { wall: SystemTime::now(), started: Instant::now() }
    }

    /// The wall time now.
    pub(crate) fn now(&self) -> SystemTime {
        self.wall + self.started.elapsed()
    }
}

/// Milliseconds since the epoch, the form in which times travel in headers.
pub(crate) fn epoch_millis(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
    }
}

/// The time that many milliseconds after (or, negative, before) the epoch; `None` where the
/// system's time type cannot say it.
pub(crate) fn from_epoch_millis(millis: i64) -> Option<SystemTime> {
    let distance = Duration::from_millis(millis.unsigned_abs());
    if millis < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_paused_clock_moves_wall_time() {
        let clock = Clock::start();
        let before = clock.now();
        tokio::time::advance(Duration::from_secs(86_400)).await;
        assert_eq!(clock.now().duration_since(before).unwrap(), Duration::from_secs(86_400));
    }

    #[test]
    fn epoch_millis_round_trip_on_both_sides_of_the_epoch() {
        for millis in [0, 1, -1, 1_767_323_045_678, -86_400_000] {
            assert_eq!(epoch_millis(from_epoch_millis(millis).unwrap()), millis);
        }
    }
}
