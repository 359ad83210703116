//! Calling a function of the user's: bounded in time, unharmed by a panic, and again where that is
//! asked for.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::failure::{Part, StepFailure};
use crate::{
    consume::{HandlerError, panic_text},
    retry::RetryPolicy,
};

const TIMEOUT: Duration = Duration::from_secs(30);

/// How often something is tried, and how long an attempt may take.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    pub(super) retry: RetryPolicy,
    pub(super) timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { retry: RetryPolicy::none(), timeout: TIMEOUT }
    }
}

/// The attempts at one part of a step.
pub(super) struct Attempts<'a> {
    pub(super) saga: &'a str,
    pub(super) step: &'a Arc<str>,
    pub(super) part: Part,
    pub(super) limits: &'a Limits,
}

/// Why one attempt failed.
pub(super) struct Failed {
    pub(super) error: HandlerError,
    /// Whether it may have been done all the same.
    pub(super) in_doubt: bool,
}

impl Attempts<'_> {
    /// Calls until it succeeds or there is nothing left to try. Once `stop` is cancelled an attempt
    /// that runs is let to its end, and no other begins.
    pub(super) async fn make<T, Fut>(
        &self,
        stop: &CancellationToken,
        call: impl Fn() -> Fut,
    ) -> Result<T, StepFailure>
    where
        Fut: Future<Output = Result<T, HandlerError>>,
    {
        let Limits { retry, timeout } = self.limits;
        let began = Instant::now();
        let mut in_doubt = false;
        let mut attempt = 1;
        loop {
            // Calling it may panic as well, before it returns its future.
            let failed = match once(*timeout, async { call().await }).await {
                Ok(made) => return Ok(made),
                Err(failed) => failed,
            };
            // What an earlier attempt may have done is not known any better by now.
            in_doubt |= failed.in_doubt;
            let error = failed.error;
            let again = !error.is_fatal() && retry.retries(attempt, began.elapsed());
            if !again || !paused(stop, retry.pause_after(attempt)).await {
                let step = Arc::clone(self.step);
                return Err(StepFailure::new(step, self.part, attempt, in_doubt, error));
            }
            tracing::info!(
                saga = %self.saga, step = %self.step, attempt, %error,
                "{} failed and is tried again", self.part.noun()
            );
            attempt += 1;
        }
    }
}

/// Makes one attempt.
pub(super) async fn once<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, HandlerError>>,
) -> Result<T, Failed> {
    // What is dropped at the limit may panic, too.
    let bounded = async { timeout(limit, call).await };
    let in_doubt = |text: String| Failed { error: HandlerError::transient(text), in_doubt: true };
    match AssertUnwindSafe(bounded).catch_unwind().await {
        Ok(Ok(Ok(made))) => Ok(made),
        Ok(Ok(Err(error))) => Err(Failed { error, in_doubt: false }),
        Ok(Err(_elapsed)) => {
            Err(in_doubt(format!("it took longer than {limit:?} and was stopped")))
        }
        Err(panic) => Err(in_doubt(format!("it panicked: {}", panic_text(&*panic)))),
    }
}

/// Waits, and says whether it was let to.
async fn paused(stop: &CancellationToken, pause: Duration) -> bool {
    tokio::select! {
        biased;
        () = stop.cancelled() => false,
        () = sleep(pause) => true,
    }
}
