//! A run, and what becomes of it when nobody waits for it any more.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::runtime::Handle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{Instrument as _, field::Empty};

use super::{journal::Journal, path::Path, result::SagaResult};
use crate::transport::BoxFuture;

/// A saga that runs when it is awaited, from [`Saga::run`](super::Saga::run).
///
/// It has to be awaited inside a tokio runtime.
///
/// # Cancellation
/// Dropping it after it has begun cancels the run: see [`Saga::run`](super::Saga::run).
#[must_use = "a saga runs by awaiting it"]
pub struct RunSaga<T: 'static> {
    saga: Arc<str>,
    /// The run, until it has ended.
    running: Option<BoxFuture<'static, SagaResult<T>>>,
    /// Where it goes on when nobody waits for it any more, if it has begun.
    runtime: Option<Handle>,
    unheard: CancellationToken,
    left: TaskTracker,
}

impl<T: 'static> RunSaga<T> {
    pub(super) fn new<In>(
        saga: Arc<str>,
        path: Arc<dyn Path<In, T>>,
        input: In,
        left: TaskTracker,
    ) -> Self
    where
        In: Send + 'static,
        T: Send,
    {
        let unheard = CancellationToken::new();
        let name = Arc::clone(&saga);
        let stop = unheard.clone();
        let running = async move {
            let span = tracing::info_span!("saga", saga = %name, outcome = Empty);
            let result =
                drive(path, input, Journal::new(name, stop)).instrument(span.clone()).await;
            span.record("outcome", outcome(&result));
            result
        };
        Self { saga, running: Some(Box::pin(running)), runtime: None, unheard, left }
    }
}

async fn drive<In, T>(
    path: Arc<dyn Path<In, T>>,
    input: In,
    mut journal: Journal,
) -> SagaResult<T> {
    let output = path.go(input, &mut journal).await;
    if let Err(failure) = &output {
        journal.compensate(failure).await;
    }
    journal.into_result(output)
}

fn outcome<T>(result: &SagaResult<T>) -> &'static str {
    if result.is_complete() {
        "completed"
    } else if result.has_unresolved() {
        "unresolved"
    } else {
        "compensated"
    }
}

impl<T: 'static> Future for RunSaga<T> {
    type Output = SagaResult<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<SagaResult<T>> {
        // One that panics is not put back, and so not polled again.
        let Some(mut running) = self.running.take() else { return Poll::Pending };
        if self.runtime.is_none() {
            self.runtime = Handle::try_current().ok();
        }
        let polled = running.as_mut().poll(cx);
        if polled.is_pending() {
            self.running = Some(running);
        }
        polled
    }
}

/// Half a saga is what a saga is there to prevent, so it is not left where it was.
impl<T: 'static> Drop for RunSaga<T> {
    fn drop(&mut self) {
        let (Some(running), Some(runtime)) = (self.running.take(), &self.runtime) else { return };
        self.unheard.cancel();
        tracing::info!(
            saga = %self.saga,
            "nobody waits for this run any more: the step in hand ends, and what was done is undone"
        );
        self.left.spawn_on(async move { drop(running.await) }, runtime);
    }
}

impl<T: 'static> fmt::Debug for RunSaga<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunSaga")
            .field("saga", &self.saga)
            .field("begun", &self.runtime.is_some())
            .finish_non_exhaustive()
    }
}
