//! Waiting for a condition instead of sleeping.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

/// Short enough that a test loses no time, long enough that a server is not
/// busy answering the question.
const PAUSE: Duration = Duration::from_millis(20);

/// Waits until `condition` holds.
///
/// # Panics
///
/// When it does not hold before `deadline` has passed, naming `what` was waited for.
/// A condition that hangs is cut off at the deadline too.
pub async fn eventually(what: &str, deadline: Duration, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + deadline;
    let holds = async {
        while !condition().await {
            sleep(PAUSE).await;
        }
    };
    assert!(timeout_at(end, holds).await.is_ok(), "waited {deadline:?} in vain: {what}");
}
