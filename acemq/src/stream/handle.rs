//! From a delivery to a verdict: the half of a stream's consumer that knows the payload's type.

use std::{marker::PhantomData, sync::Arc, time::Duration};

use super::{TransactionalCheckpointStore, runtime::Core};
use crate::{
    codec::Decode,
    consume::{
        CommitError, HandlerError, InTransaction, Judged, Message, Received, TransactionClaim,
        TransactionalStore, Verdict, decode, failed, intercept, unharmed, within_limits,
    },
    error::{Error, ErrorKind, Result},
    transport::BoxFuture,
};

pub(super) trait Handle: Send + Sync {
    /// One attempt. Never fails and never panics: every trouble is a verdict.
    fn judge<'a>(
        &'a self,
        core: &'a Core,
        received: Arc<Received>,
        offset: u64,
    ) -> BoxFuture<'a, Judged>;
}

/// A handler whose messages are checkpointed apart from what it does, if at all.
pub(super) struct Typed<T, C, F> {
    pub(super) codec: C,
    pub(super) handler: F,
    pub(super) payload: PhantomData<fn() -> T>,
}

impl<T, C, F, Fut> Handle for Typed<T, C, F>
where
    T: Send + 'static,
    C: Decode<T>,
    F: Fn(Message<T>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), HandlerError>> + Send + 'static,
{
    fn judge<'a>(
        &'a self,
        core: &'a Core,
        received: Arc<Received>,
        _offset: u64,
    ) -> BoxFuture<'a, Judged> {
        let arrived = Arc::clone(&received);
        let work = async move {
            let payload = match decode(&self.codec, &received).await {
                Ok(payload) => payload,
                Err(verdict) => return Judged::new(received, verdict),
            };
            let run = |received, payload| self.run(core, received, payload);
            intercept(core, received, payload, run).await
        };
        Box::pin(unharmed(arrived, work))
    }
}

impl<T, C, F, Fut> Typed<T, C, F>
where
    F: Fn(Message<T>) -> Fut,
    Fut: Future<Output = Result<(), HandlerError>>,
{
    async fn run(&self, core: &Core, received: Arc<Received>, payload: T) -> Verdict {
        // Calling the handler may panic as well, before it returns its future.
        let run = async { (self.handler)(Message::new(payload, received)).await };
        match within_limits(core, run).await {
            Ok(Ok(())) => Verdict::Accepted,
            Ok(Err(error)) => failed(&error),
            Err(stopped) => stopped,
        }
    }
}

/// A handler whose writes commit with the checkpoint.
pub(super) struct Transactional<T, C, S, F> {
    pub(super) work: InTransaction<C, Fenced<S>, F>,
    pub(super) payload: PhantomData<fn() -> T>,
}

impl<T, C, S, F, Fut> Handle for Transactional<T, C, S, F>
where
    T: Send + 'static,
    C: Decode<T>,
    S: TransactionalCheckpointStore,
    F: Fn(Message<T>, S::Transaction) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<S::Transaction, HandlerError>> + Send + 'static,
{
    fn judge<'a>(
        &'a self,
        core: &'a Core,
        received: Arc<Received>,
        offset: u64,
    ) -> BoxFuture<'a, Judged> {
        let arrived = Arc::clone(&received);
        let work = async move {
            match decode(&self.work.codec, &received).await {
                Ok(payload) => {
                    let key = offset.to_string();
                    self.work.handle(core, &key, None, received, payload).await
                }
                Err(verdict) => Judged::new(received, verdict),
            }
        };
        Box::pin(unharmed(arrived, work))
    }
}

/// A reader's checkpoint as a claim on each offset: one that is not beyond it was handled before.
pub(super) struct Fenced<S> {
    pub(super) store: Arc<S>,
    pub(super) stream: Arc<str>,
    pub(super) reader: Arc<str>,
}

impl<S: TransactionalCheckpointStore> TransactionalStore for Fenced<S> {
    type Transaction = S::Transaction;
    type Hold = S::Hold;

    async fn begin(
        &self,
        key: &str,
        wait: Duration,
    ) -> Result<TransactionClaim<S::Transaction, S::Hold>> {
        let offset = key.parse().map_err(|cause: std::num::ParseIntError| {
            Error::new(ErrorKind::Config, format!("use {key:?} as an offset")).with_source(cause)
        })?;
        self.store.begin(&self.stream, &self.reader, offset, wait).await
    }

    async fn commit(&self, hold: S::Hold, transaction: S::Transaction) -> Result<(), CommitError> {
        self.store.commit(hold, transaction).await
    }

    async fn roll_back(&self, hold: S::Hold) {
        self.store.roll_back(hold).await;
    }

    fn is_conflict(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        self.store.is_conflict(error)
    }
}
