//! What runs handlers: an ordinary consumer, or a stream's.

use std::{future::Future, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{runtime::Core, settle::COMMIT};
use crate::{connection::Client, error::Result, transport::Settler};

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
    fn until_answered<T, F>(
        &self,
        settler: Option<&dyn Settler>,
        ask: impl Fn() -> F + Send + Sync,
    ) -> impl Future<Output = Option<T>> + Send
    where
        T: Send,
        F: Future<Output = Result<T>> + Send;
}

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

    async fn until_answered<T, F>(
        &self,
        settler: Option<&dyn Settler>,
        ask: impl Fn() -> F + Send + Sync,
    ) -> Option<T>
    where
        T: Send,
        F: Future<Output = Result<T>> + Send,
    {
        self.wait_for_store(settler, ask).await
    }
}
