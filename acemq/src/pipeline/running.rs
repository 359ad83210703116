//! A pipeline that runs.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{encoder::Encoder, plan::Plan, send::SendRun, step::PipelineStep};
use crate::error::{Error, ErrorKind, Result};

/// A pipeline's counters at one moment, from [`Pipeline::counters`]: what happened in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PipelineCounters {
    /// Runs that were sent into the pipeline.
    pub entered: u64,
    /// Runs that came to the end of their route.
    pub completed: u64,
    /// Runs that a step ended before that.
    pub ended_early: u64,
    /// Messages that steps have in hand.
    pub in_flight: u64,
}

/// A running pipeline, from [`PipelineBuilder::start`](super::PipelineBuilder::start). Messages that
/// carry an `In` are sent into it.
///
/// Dropping it stops its steps at once; what was not settled goes back to the steps' queues.
/// [`close`](Self::close) lets them finish.
#[must_use = "dropping a pipeline stops its steps"]
pub struct Pipeline<In> {
    plan: Arc<Plan>,
    entry: Arc<dyn Encoder<In>>,
    entered: AtomicU64,
    steps: Vec<PipelineStep>,
}

impl<In> Pipeline<In> {
    pub(super) fn new(
        plan: Arc<Plan>,
        entry: Arc<dyn Encoder<In>>,
        steps: Vec<PipelineStep>,
    ) -> Self {
        Self { plan, entry, entered: AtomicU64::new(0), steps }
    }

    /// Its name, which is also its exchange's.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.plan.name
    }

    /// Sends a payload in, at the first step, and gives the id of the run. Awaiting it means that the
    /// broker has confirmed the message and that it is in the step's queue; options, such as
    /// [another way](SendRun::through), come before the await.
    ///
    /// # Errors
    /// As [`Publisher::send`](crate::Publisher::send), and what is wrong with the way.
    ///
    /// # Cancellation
    /// Dropped before the message is handed over, nothing is sent; afterwards it goes out and its
    /// confirm is not seen.
    pub fn send<'a>(&'a self, payload: &'a In) -> SendRun<'a> {
        let content_type = self.entry.content_type().to_owned();
        SendRun::new(&self.plan, &self.entered, content_type, self.entry.encode(payload))
    }

    /// Its steps, in the order in which they were declared.
    pub fn steps(&self) -> &[PipelineStep] {
        &self.steps
    }

    /// One of its steps.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where none is called that.
    pub fn step(&self, name: &str) -> Result<&PipelineStep> {
        self.steps.iter().find(|step| step.name() == name).ok_or_else(|| {
            let text = format!(
                "find a step of the pipeline \"{}\": none is called \"{name}\"; there are {}",
                self.plan.name,
                self.plan.steps.join(", ")
            );
            Error::new(ErrorKind::NotFound, text)
        })
    }

    /// What has happened so far, in this process.
    #[must_use]
    pub fn counters(&self) -> PipelineCounters {
        let entered = self.entered.load(Ordering::Relaxed);
        let counters = PipelineCounters { entered, ..PipelineCounters::default() };
        self.steps.iter().fold(counters, |sum, step| {
            let (completed, ended_early) = step.core.ended_runs();
            PipelineCounters {
                completed: sum.completed + completed,
                ended_early: sum.ended_early + ended_early,
                in_flight: sum.in_flight + step.in_flight(),
                ..sum
            }
        })
    }

    /// Closes all steps at the same time, within the client's drain timeout, as
    /// [`PipelineStep::close`] does. Closing twice is no error.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`] when handlers of a step were still running at the bound. All steps are
    /// closed all the same.
    ///
    /// # Cancellation
    /// Dropping the future does not stop the closing of steps that it had begun with.
    pub async fn close(&self) -> Result<()> {
        let closing = self.steps.iter().map(PipelineStep::close);
        futures_util::future::join_all(closing).await.into_iter().collect()
    }
}

impl<In> fmt::Debug for Pipeline<In> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline")
            .field("name", &self.plan.name)
            .field("steps", &self.steps)
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}
