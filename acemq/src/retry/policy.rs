//! The retry policy and its ladder.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};

/// From this wait on, a message waits in the broker.
const BROKER_WAIT_FROM: Duration = Duration::from_secs(30);
/// The longest time to live that RabbitMQ takes.
const LONGEST_WAIT: Duration = Duration::from_millis(u32::MAX as u64);
const MULTIPLIER: f64 = 2.0;
const JITTER: f64 = 0.2;

/// How often a failed message is tried again, and after which waits.
///
/// Waits from 30 seconds on are spent in the broker, in queues of one fixed time to live each (a
/// ladder; `{queue}.retry.5m` is a rung of it), so that a restart shortens none of them. Shorter
/// ones are spent in the consumer, holding a prefetch slot but no handler. The attempt travels on
/// the message.
///
/// ```
/// use std::time::Duration;
/// use acemq::RetryPolicy;
///
/// let policy = RetryPolicy::exponential(6, Duration::from_secs(10), Duration::from_secs(300));
/// let waits: Vec<u64> = policy.schedule().iter().map(Duration::as_secs).collect();
/// assert_eq!(waits, [10, 20, 40, 80, 160]);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use = "a policy is given to a consumer with `.retry(…)`"]
pub struct RetryPolicy {
    max_attempts: u32,
    initial: Duration,
    max: Duration,
    multiplier: f64,
    jitter: f64,
    give_up_after: Duration,
    broker_wait_from: Duration,
}

/// A waiting queue of one fixed time to live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rung {
    pub(crate) name: String,
    pub(crate) wait: Duration,
}

/// Where a message waits for its next attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    InBroker(Rung),
    InConsumer(Duration),
}

impl RetryPolicy {
    /// One attempt: what fails goes to the dead-letter queue at once.
    pub fn none() -> Self {
        Self::fixed(1, Duration::ZERO)
    }

    /// `attempts` in all, the first delivery included, always `delay` apart. No jitter.
    pub fn fixed(attempts: u32, delay: Duration) -> Self {
        Self {
            max_attempts: attempts.max(1),
            initial: delay,
            max: delay,
            multiplier: 1.0,
            jitter: 0.0,
            give_up_after: Duration::ZERO,
            broker_wait_from: BROKER_WAIT_FROM,
        }
    }

    /// `attempts` in all, the first delivery included; the wait doubles from `initial` up to
    /// `max`. Waits in the consumer vary by 20 %.
    pub fn exponential(attempts: u32, initial: Duration, max: Duration) -> Self {
        Self { multiplier: MULTIPLIER, jitter: JITTER, max, ..Self::fixed(attempts, initial) }
    }

    /// How much each wait is longer than the one before. Default 2; at least 1.
    pub fn multiplier(mut self, multiplier: f64) -> Self {
        self.multiplier = multiplier;
        self
    }

    /// By which part waits in the consumer vary in both directions, from 0 to 1. Default 0.2, and
    /// 0 for [`fixed`](Self::fixed). A wait in the broker is exact, since it names a queue.
    pub fn jitter(mut self, jitter: f64) -> Self {
        self.jitter = jitter;
        self
    }

    /// Gives up on a message that is this old since it was first published, however many attempts
    /// are left. Zero is no limit, the default; a message of unknown age is young.
    pub fn give_up_after(mut self, age: Duration) -> Self {
        self.give_up_after = age;
        self
    }

    /// From which wait on a message waits in the broker. Default 30 seconds; zero keeps every
    /// wait in the consumer, where it has to be shorter than the broker's own limit for an
    /// acknowledgement (30 minutes by default).
    pub fn wait_in_broker_from(mut self, threshold: Duration) -> Self {
        self.broker_wait_from = threshold;
        self
    }

    /// How often a message is tried at most, the first delivery included.
    #[must_use]
    pub fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// The waits before attempt 2, 3, and so on, without jitter.
    #[must_use]
    pub fn schedule(&self) -> Vec<Duration> {
        (1..self.max_attempts).map(|attempt| self.wait_after(attempt)).collect()
    }

    /// Whether a message that failed at this attempt and age is tried again.
    pub(crate) fn retries(&self, attempt: u32, age: Duration) -> bool {
        attempt < self.max_attempts && !self.is_too_old(age)
    }

    pub(crate) fn is_too_old(&self, age: Duration) -> bool {
        !self.give_up_after.is_zero() && age >= self.give_up_after
    }

    pub(crate) fn age_limit(&self) -> Duration {
        self.give_up_after
    }

    /// Where a message of `queue` waits after its `attempt` failed.
    pub(crate) fn wait(&self, queue: &str, attempt: u32) -> Wait {
        let wait = self.wait_after(attempt);
        if self.waits_in_broker(wait) {
            Wait::InBroker(rung(queue, wait))
        } else {
            Wait::InConsumer(self.vary(wait))
        }
    }

    /// How long whoever waits in the process does so after `attempt` failed.
    pub(crate) fn pause_after(&self, attempt: u32) -> Duration {
        self.vary(self.wait_after(attempt))
    }

    /// The waiting queues of this policy, distinct by name.
    pub(crate) fn rungs(&self, queue: &str) -> Vec<Rung> {
        let mut rungs: Vec<Rung> = Vec::new();
        for attempt in 1..self.max_attempts {
            let wait = self.wait_after(attempt);
            if self.waits_in_broker(wait) {
                let rung = rung(queue, wait);
                if !rungs.iter().any(|known| known.name == rung.name) {
                    rungs.push(rung);
                }
            }
            if self.is_constant_from(wait) {
                break;
            }
        }
        rungs
    }

    /// All waits together: how long a message may be on its way at the most.
    pub(crate) fn total_wait(&self) -> Duration {
        let mut total = Duration::ZERO;
        for attempt in 1..self.max_attempts {
            let wait = self.wait_after(attempt);
            if self.is_constant_from(wait) {
                return total.saturating_add(wait.saturating_mul(self.max_attempts - attempt));
            }
            total = total.saturating_add(wait);
        }
        total
    }

    /// Refuses settings that contradict themselves.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::new(ErrorKind::Config, what));
        if !self.multiplier.is_finite() || self.multiplier < 1.0 {
            return refuse(format!("retry policy: multiplier {} is below 1", self.multiplier));
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            return refuse(format!("retry policy: jitter {} is not from 0 to 1", self.jitter));
        }
        let longest = self.wait_after(self.max_attempts.saturating_sub(1));
        if self.max_attempts > 1 && longest > LONGEST_WAIT {
            return refuse(format!(
                "retry policy: a wait of {longest:?} fits no waiting queue; {LONGEST_WAIT:?} does"
            ));
        }
        Ok(())
    }

    fn wait_after(&self, attempt: u32) -> Duration {
        let exponent = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let factor = self.multiplier.powi(exponent);
        // A wait in the broker names a queue: whole milliseconds, the same in every language.
        let millis = self.initial.as_secs_f64() * 1_000.0 * factor;
        if millis >= self.max.as_secs_f64() * 1_000.0 {
            return self.max;
        }
        Duration::from_millis(millis.round() as u64)
    }

    /// Whether all waits after this one are the same.
    fn is_constant_from(&self, wait: Duration) -> bool {
        wait >= self.max || self.multiplier == 1.0 || self.initial.is_zero()
    }

    fn waits_in_broker(&self, wait: Duration) -> bool {
        !self.broker_wait_from.is_zero() && !wait.is_zero() && wait >= self.broker_wait_from
    }

    fn vary(&self, wait: Duration) -> Duration {
        if self.jitter == 0.0 || wait.is_zero() {
            return wait;
        }
        let factor = 1.0 + self.jitter * (fastrand::f64() * 2.0 - 1.0);
        wait.mul_f64(factor).max(Duration::from_millis(1))
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::none()
    }
}

fn rung(queue: &str, wait: Duration) -> Rung {
    Rung { name: format!("{queue}.retry.{}", render(wait)), wait }
}

/// A wait as it stands in a queue's name: the largest unit that says it in whole numbers.
fn render(wait: Duration) -> String {
    let millis = wait.as_millis();
    [(3_600_000, "h"), (60_000, "m"), (1_000, "s")]
        .into_iter()
        .find(|(unit, _)| millis > 0 && millis.is_multiple_of(*unit))
        .map_or_else(|| format!("{millis}ms"), |(unit, name)| format!("{}{name}", millis / unit))
}

#[cfg(test)]
mod tests;
