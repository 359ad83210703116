//! The way from what a saga is given to what comes out of its last step.

use std::sync::Arc;

use super::{
    failure::StepFailure,
    journal::Journal,
    step::{Step, StepOptions},
};
use crate::transport::BoxFuture;

/// The steps up to one that makes an `Out`.
pub(super) trait Path<In, Out>: Send + Sync {
    /// Goes it for one run, until a step fails for good.
    fn go<'a>(
        &'a self,
        input: In,
        journal: &'a mut Journal,
    ) -> BoxFuture<'a, Result<Out, StepFailure>>;
}

/// The steps of a saga, or what there is of them so far.
pub(super) struct Steps<In, Out> {
    pub(super) saga: String,
    pub(super) options: Vec<Arc<StepOptions>>,
    pub(super) path: Box<dyn Path<In, Out>>,
}

/// Before the first step.
pub(super) struct Start;

/// One step more.
pub(super) struct Then<In, Cur, N> {
    pub(super) before: Box<dyn Path<In, Cur>>,
    pub(super) step: Step<Cur, N>,
}

impl<In: Send + 'static> Path<In, In> for Start {
    fn go<'a>(&'a self, input: In, _: &'a mut Journal) -> BoxFuture<'a, Result<In, StepFailure>> {
        Box::pin(async move { Ok(input) })
    }
}

impl<In, Cur, N> Path<In, N> for Then<In, Cur, N>
where
    In: Send + 'static,
    Cur: Clone + Send + Sync + 'static,
    N: Clone + Send + Sync + 'static,
{
    fn go<'a>(
        &'a self,
        input: In,
        journal: &'a mut Journal,
    ) -> BoxFuture<'a, Result<N, StepFailure>> {
        Box::pin(async move {
            let input = self.before.go(input, journal).await?;
            journal.take(&self.step, input).await
        })
    }
}
