//! Pipelines: work that passes through named steps, each with a queue and consumers of its own.
//!
//! Between two steps there is a queue, so a crash leaves a message where it was, a slow step shows
//! as a queue that is deep, and each step has its own retries and its own number of handlers. Where
//! a message goes travels with it, as one of two routing slips: the declared route, which names
//! steps, or an [`Itinerary`](crate::Itinerary), which names exchanges and routing keys. Either is
//! read, and a slip stays in the form that it came in.
//!
//! A step hands its message on and has that confirmed before it acknowledges. A crash between the
//! two sends it on twice, under one and the same id.

mod builder;
mod encoder;
mod handler;
mod name;
mod options;
mod plan;
mod running;
mod send;
mod slip;
mod start;
mod state;
mod step;
#[cfg(test)]
mod tests;

pub use self::{
    builder::{PipelineBuilder, StepCodec},
    running::{Pipeline, PipelineCounters},
    send::{RunReceipt, SendRun},
    start::{StartPipeline, StartStep},
    state::{
        AfterFilter, AfterJoin, AfterJoinLast, AfterLast, AfterStep, Entry, HasFormat, HasStep,
        TakesStep,
    },
    step::{PipelineStep, StepStats},
};
