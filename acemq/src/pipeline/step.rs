//! A step that runs.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{options::StepOptions, plan::Plan};
use crate::{
    consume::{ConsumerGroup, Received},
    error::{Error, ErrorKind, Result},
    telemetry::{PipelineMeter, RunOutcome},
};

/// What is known about a step at one moment, from [`PipelineStep::stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepStats {
    /// Messages that wait in the step's queue, at the broker. Those that are in hand do not count.
    pub waiting: u64,
    /// Messages that this process has in hand.
    pub in_flight: u64,
    /// Messages that the step was done with in this process: they went on, or had arrived.
    pub completed: u64,
    /// Runs that the step ended before the end of their route, in this process.
    pub ended_early: u64,
    /// Attempts that failed in this process: they are tried again, or were set aside. A message that
    /// failed four times counts four times.
    pub failed: u64,
}

/// One step that runs, from [`Pipeline::step`](super::Pipeline::step) or
/// [`PipelineBuilder::join`](super::PipelineBuilder::join).
///
/// Dropping it stops the step at once; what was not settled goes back to its queue.
#[must_use = "dropping a step stops it"]
pub struct PipelineStep {
    pub(super) core: Arc<StepCore>,
    consumers: ConsumerGroup,
}

/// What a step's handlers and its handle share.
pub(super) struct StepCore {
    pub(super) plan: Arc<Plan>,
    pub(super) options: StepOptions,
    /// Its place among the declared steps; `None` for one that joins a route declared elsewhere.
    pub(super) position: Option<usize>,
    pub(super) queue: String,
    meter: PipelineMeter,
    arrived: AtomicU64,
    ended_early: AtomicU64,
}

impl StepCore {
    pub(super) fn new(plan: &Arc<Plan>, options: StepOptions, position: Option<usize>) -> Self {
        Self {
            queue: plan.queue_of(&options.name),
            meter: PipelineMeter::new(&plan.name, &options.name),
            plan: Arc::clone(plan),
            options,
            position,
            arrived: AtomicU64::new(0),
            ended_early: AtomicU64::new(0),
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.options.name
    }

    /// Reports the end of a message's run at this step.
    pub(super) fn run_ended(&self, outcome: RunOutcome, received: &Received) {
        let age = received.envelope.age(received.clock.now());
        tracing::debug!(
            pipeline = self.plan.name,
            step = self.name(),
            message_id = received.envelope.id(),
            outcome = outcome.name(),
            ?age,
            "a run has ended"
        );
        let counter = match outcome {
            RunOutcome::Completed => &self.arrived,
            RunOutcome::EndedEarly => &self.ended_early,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.meter.ended(outcome, age);
    }

    /// How many runs ended here: at the end of their route, and before it.
    pub(super) fn ended_runs(&self) -> (u64, u64) {
        (self.arrived.load(Ordering::Relaxed), self.ended_early.load(Ordering::Relaxed))
    }
}

impl PipelineStep {
    pub(super) fn new(core: Arc<StepCore>, consumers: ConsumerGroup) -> Self {
        Self { core, consumers }
    }

    /// Its name: the routing key, and the end of its queue's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.core.name()
    }

    /// What it is for, in the words of [`described_as`](super::PipelineBuilder::described_as).
    #[must_use]
    pub fn description(&self) -> Option<&str> {
        self.core.options.description.as_deref()
    }

    /// Its queue: the pipeline's name and its own, with a dot between them.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.core.queue
    }

    /// Its consumers, which can be paused, say, while it runs.
    pub fn consumers(&self) -> &ConsumerGroup {
        &self.consumers
    }

    /// Gives it that many consumers, at least 1, each with the step's prefetch and concurrency. The
    /// other steps do not notice. See [`ConsumerGroup::scale_to`].
    ///
    /// # Errors
    /// As [`ConsumerGroup::scale_to`].
    ///
    /// # Cancellation
    /// Dropping the future while their number grows starts nobody; consumers that are leaving leave.
    pub async fn scale_to(&self, consumers: usize) -> Result<()> {
        self.consumers.scale_to(consumers).await
    }

    /// What it has done so far and what waits for it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where its queue is gone, and what the connection meets.
    pub async fn stats(&self) -> Result<StepStats> {
        let info =
            self.core.plan.client.inspect_queue(&self.core.queue).await?.ok_or_else(|| {
                let text = format!("look at the step \"{}\": its queue is gone", self.name());
                Error::new(ErrorKind::NotFound, text).with_queue(&*self.core.queue)
            })?;
        let counters = self.consumers.counters();
        let (_, ended_early) = self.core.ended_runs();
        let handled = counters.acknowledged.saturating_sub(counters.duplicates);
        Ok(StepStats {
            waiting: info.messages,
            in_flight: counters.in_flight,
            completed: handled.saturating_sub(ended_early),
            ended_early,
            failed: counters.retried + counters.rejected + counters.dead_lettered + counters.parked,
        })
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.consumers.counters().in_flight
    }

    /// Stops taking messages and waits for running handlers and for what they hand on, within the
    /// client's drain timeout. What was not begun goes back to the step's queue.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`] when handlers were still running at the bound: they were stopped, and
    /// their messages go back. The step is closed all the same.
    ///
    /// # Cancellation
    /// Dropping the future does not stop the closing.
    pub async fn close(&self) -> Result<()> {
        self.consumers.close().await
    }
}

impl fmt::Debug for PipelineStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipelineStep")
            .field("pipeline", &self.core.plan.name)
            .field("step", &self.core.options.label())
            .field("consumers", &self.consumers)
            .finish_non_exhaustive()
    }
}
