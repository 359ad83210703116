//! Asking a store that a codec needs: each call bounded in time, and tried again where that can
//! help.

use std::time::Duration;

use crate::{
    backoff::Backoff,
    error::{Error, ErrorKind, Result},
};

/// How often a store is asked before its error goes up.
const ATTEMPTS: u32 = 3;
/// The pauses before the second attempt and the third, with jitter.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const SECOND_PAUSE: Duration = Duration::from_millis(400);

/// Calls a store up to three times, for as long as its errors are transient.
pub(crate) async fn patiently<T, F: Future<Output = Result<T>>>(
    action: &str,
    timeout: Duration,
    call: impl Fn() -> F,
) -> Result<T> {
    let mut backoff = Backoff::new(FIRST_PAUSE, SECOND_PAUSE);
    let mut attempt = 1;
    loop {
        let error = match tokio::time::timeout(timeout, call()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => error,
            Err(_elapsed) => {
                Error::new(ErrorKind::Timeout, format!("{action}: it took longer than {timeout:?}"))
            }
        };
        if attempt == ATTEMPTS || !error.is_transient() {
            return Err(error);
        }
        tracing::debug!(%error, attempt, "{action} failed and is tried again");
        backoff.pause().await;
        attempt += 1;
    }
}
