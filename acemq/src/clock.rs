//! The library's one clock.
//!
//! Wall time is the wall time at the clock's start plus what tokio's clock has counted since, so
//! that a paused tokio clock moves ages, due times and in-memory leases together with every wait
//! (promise BX-10). A step of the system's clock after the start is not followed, except by what is
//! due at a time of day.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// A wall clock that advances with tokio's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    wall: SystemTime,
    started: Instant,
    /// The same moment on the machine's own clock, which nobody pauses.
    started_machine: std::time::Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self {
            wall: SystemTime::now(),
            started: Instant::now(),
            started_machine: std::time::Instant::now(),
        }
    }

    /// The wall time now.
    pub(crate) fn now(&self) -> SystemTime {
        self.wall + self.started.elapsed()
    }

    /// The time of day now: the system's, also where it was set since the start or has gone on
    /// while the machine slept, and with as much as tokio's clock is ahead or behind.
    pub(crate) fn time_of_day(&self) -> SystemTime {
        moved(SystemTime::now(), self.started.elapsed(), self.started_machine.elapsed())
    }
}

/// A time of the system's, moved by how far one clock is ahead of the other.
fn moved(time: SystemTime, ahead: Duration, behind: Duration) -> SystemTime {
    let moved = if ahead >= behind {
        time.checked_add(ahead - behind)
    } else {
        time.checked_sub(behind - ahead)
    };
    moved.unwrap_or(time)
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

    #[tokio::test(start_paused = true)]
    async fn the_time_of_day_is_the_systems_and_a_paused_clock_moves_it_all_the_same() {
        const MOMENT: Duration = Duration::from_secs(5);
        let hour = Duration::from_secs(3_600);
        let mut clock = Clock::start();
        // As if the system's clock had been put forward since the start.
        clock.wall -= 100 * hour;
        let off = |expected: SystemTime| {
            let now = clock.time_of_day();
            let (early, late) = (now.duration_since(expected), expected.duration_since(now));
            early.or(late).unwrap()
        };
        assert!(off(SystemTime::now()) < MOMENT);
        tokio::time::advance(hour).await;
        assert!(off(SystemTime::now() + hour) < MOMENT);
    }

    #[test]
    fn a_clock_that_stands_still_holds_the_time_of_day_back() {
        let second = Duration::from_secs(1);
        assert_eq!(moved(UNIX_EPOCH, 3 * second, second), UNIX_EPOCH + 2 * second);
        assert_eq!(moved(UNIX_EPOCH + second, second, 2 * second), UNIX_EPOCH);
    }

    #[test]
    fn epoch_millis_round_trip_on_both_sides_of_the_epoch() {
        for millis in [0, 1, -1, 1_767_323_045_678, -86_400_000] {
            assert_eq!(epoch_millis(from_epoch_millis(millis).unwrap()), millis);
        }
    }
}
