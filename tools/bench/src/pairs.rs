//! Measuring two ways side by side.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

/// What one round took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Pair {
    /// Seconds.
    pub(crate) reference: f64,
    /// Seconds.
    pub(crate) acemq: f64,
}

/// Takes both ways in turns, so that whatever the machine does meanwhile meets both alike. Which
/// one goes first changes every round, and the first round only warms up.
pub(crate) async fn alternate(
    rounds: usize,
    reference: impl AsyncFn() -> Result<Duration>,
    acemq: impl AsyncFn() -> Result<Duration>,
) -> Result<Vec<Pair>> {
    let mut pairs = Vec::with_capacity(rounds);
    for round in 0..=rounds {
        let (theirs, ours);
        if round % 2 == 0 {
            theirs = reference().await?;
            ours = acemq().await?;
        } else {
            ours = acemq().await?;
            theirs = reference().await?;
        }
        if round > 0 {
            pairs.push(Pair { reference: theirs.as_secs_f64(), acemq: ours.as_secs_f64() });
        }
    }
    Ok(pairs)
}

/// Runs work in a task, as an application would, and says how long it took.
pub(crate) async fn timed(
    work: impl Future<Output = Result<()>> + Send + 'static,
) -> Result<Duration> {
    tokio::spawn(async move {
        let started = Instant::now();
        work.await?;
        Ok(started.elapsed())
    })
    .await?
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test]
    async fn both_ways_take_turns_at_going_first_and_the_first_round_does_not_count() {
        let order = RefCell::new(String::new());
        let way = async |name: char, millis| {
            order.borrow_mut().push(name);
            Ok(Duration::from_millis(millis))
        };
        let pairs =
            alternate(2, async || way('r', 500).await, async || way('a', 250).await).await.unwrap();
        assert_eq!(order.into_inner(), "raarra");
        assert_eq!(pairs, [Pair { reference: 0.5, acemq: 0.25 }; 2]);
    }
}
