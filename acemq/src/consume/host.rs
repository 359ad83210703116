//! What runs handlers: an ordinary consumer, or a stream's.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{runtime::Core, settle::COMMIT};
use crate::{
    connection::Client,
    error::Result,
    transport::{BoxFuture, Settler},
};

/// The consumer that a handler runs for.
pub(crate) trait Host: Send + Sync {
    fn client(&self) -> &Client;

    fn queue(&self) -> &str;

    fn handler_timeout(&self) -> Option<Duration>;

    /// Running handlers have to stop.
    fn abort(&self) -> &CancellationToken;

    /// How long a message that somebody else is handling is waited for.
    fn in_progress_wait(&self) -> Duration;

    /// A handler's transaction was committed.
    fn committed(&self);

    /// Asks a store until it answers; `None` once the consumer closes, or the delivery will come
    /// again.
    fn until_answered<'a, T: Send + 'a>(
        &'a self,
        settler: Option<&'a dyn Settler>,
        ask: &'a Ask<'a, T>,
    ) -> BoxFuture<'a, Option<T>>;
}

/// A question to a store, which may be asked again. Boxed, as its answer is: the compiler cannot tell
/// of a trait's function that takes closures whether what it returns may move between threads.
pub(crate) type Ask<'a, T> = dyn Fn() -> BoxFuture<'a, Result<T>> + Send + Sync + 'a;

impl Host for Core {
    fn client(&self) -> &Client {
        &self.client
    }

    fn queue(&self) -> &str {
        &self.queue
    }

    fn handler_timeout(&self) -> Option<Duration> {
        self.handler_timeout
    }

    fn abort(&self) -> &CancellationToken {
        &self.abort
    }

    fn in_progress_wait(&self) -> Duration {
        self.in_progress_wait
    }

    fn committed(&self) {
        self.pacing.landed(COMMIT);
    }

    fn until_answered<'a, T: Send + 'a>(
        &'a self,
        settler: Option<&'a dyn Settler>,
        ask: &'a Ask<'a, T>,
    ) -> BoxFuture<'a, Option<T>> {
        Box::pin(self.wait_for_store(settler, ask))
    }
}
