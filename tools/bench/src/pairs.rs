//! Measuring two ways side by side.

use std::{
    fs::{self, DirEntry},
    io,
    time::{Duration, Instant},
};

use anyhow::Result;
use serde::Serialize;

/// What one round took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Pair {
    pub(crate) reference: Reading,
    pub(crate) acemq: Reading,
}

/// What one way took in one round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Reading {
    pub(crate) seconds: f64,
    /// What this process, which is the client, spent on its processors; `None` off Linux.
    pub(crate) cpu_seconds: Option<f64>,
}

impl Reading {
    /// What more of the same would have taken.
    pub(crate) fn times(self, factor: f64) -> Self {
        Self {
            seconds: self.seconds * factor,
            cpu_seconds: self.cpu_seconds.map(|seconds| seconds * factor),
        }
    }
}

/// Takes both ways in turns, so that whatever the machine does meanwhile meets both alike. Which
/// one goes first changes every round, and the first round only warms up.
pub(crate) async fn alternate(
    rounds: usize,
    reference: impl AsyncFn() -> Result<Reading>,
    acemq: impl AsyncFn() -> Result<Reading>,
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
            pairs.push(Pair { reference: theirs, acemq: ours });
        }
    }
    Ok(pairs)
}

/// Runs work in a task, as an application would, and says how long it took.
pub(crate) async fn timed(
    work: impl Future<Output = Result<()>> + Send + 'static,
) -> Result<Reading> {
    tokio::spawn(async move {
        let (cpu, started) = (cpu_time(), Instant::now());
        work.await?;
        let seconds = started.elapsed().as_secs_f64();
        let cpu_seconds = cpu.zip(cpu_time()).map(|(before, after)| (after - before).as_secs_f64());
        Ok(Reading { seconds, cpu_seconds })
    })
    .await?
}

/// What all threads of this process have spent so far. One that has ended is missing, also where
/// that happens while they are read; none ends while something is measured.
fn cpu_time() -> Option<Duration> {
    let spent = |thread: io::Result<DirEntry>| {
        let spent = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        spent.split(' ').next()?.parse().ok().map(Duration::from_nanos)
    };
    Some(fs::read_dir("/proc/self/task").ok()?.filter_map(spent).sum())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test]
    async fn both_ways_take_turns_at_going_first_and_the_first_round_does_not_count() {
        let order = RefCell::new(String::new());
        let way = async |name: char, seconds| {
            order.borrow_mut().push(name);
            Ok(Reading { seconds, cpu_seconds: None })
        };
        let pairs = alternate(2, async || way('r', 0.5).await, async || way('a', 0.25).await)
            .await
            .unwrap();
        assert_eq!(order.into_inner(), "raarra");
        for pair in &pairs {
            assert_eq!((pair.reference.seconds, pair.acemq.seconds), (0.5, 0.25));
        }
        assert_eq!(pairs.len(), 2);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test(flavor = "multi_thread")]
    async fn processor_time_is_that_of_every_thread() {
        let work = async {
            tokio::task::spawn_blocking(|| {
                let started = Instant::now();
                while started.elapsed() < Duration::from_millis(50) {
                    std::hint::spin_loop();
                }
            })
            .await?;
            Ok(())
        };
        let reading = timed(work).await.unwrap();
        assert!(reading.cpu_seconds.unwrap() > 0.001, "{reading:?}");
    }
}
