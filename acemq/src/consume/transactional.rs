//! The way in for a handler whose writes commit with the claim on its message.

use std::{sync::Arc, time::Duration};

use super::{
    HandlerError, Message,
    ack::chain,
    claim::{LONGEST_ANSWER, answer},
    handle::{self, Handle, Judged, Verdict},
    host::{Ask, Host},
    key::MessageKey,
    message::Received,
    order::{MakeOrderKey, Turn},
    place::Place,
    runtime::Core,
    transaction::{CommitError, TransactionClaim, TransactionalStore},
};
use crate::{
    backoff::Backoff,
    codec::Decode,
    error::{Error, ErrorKind, Result},
    transport::{BoxFuture, Settler},
};

/// How often a handler runs before a conflict of its transaction counts as a failed attempt.
const RUNS: u32 = 5;
/// The pauses between these runs: doubling between these, with jitter.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(80);

/// How long another transaction that has the key is waited for at most, whatever the in-progress
/// wait.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// How long an orderly rollback may take. Past it the transaction ends with its connection.
const LONGEST_ROLLBACK: Duration = Duration::from_secs(5);

pub(super) struct Transactional<T, C, S, F> {
    key: MessageKey<T>,
    order_key: Option<MakeOrderKey<T>>,
    work: InTransaction<C, S, F>,
}

/// A handler, and the store in whose transactions it runs.
pub(crate) struct InTransaction<C, S, F> {
    pub(crate) codec: C,
    pub(crate) store: S,
    pub(crate) handler: F,
}

/// A transaction that has the claim: the handler's part and the consumer's.
type Open<S> = (<S as TransactionalStore>::Transaction, <S as TransactionalStore>::Hold);

/// How one run of a handler ended.
enum Run {
    Ended(Verdict),
    /// The database undid it for reasons of its own. The verdict is for when this goes on.
    Undone(Verdict),
}

impl<T, C, S, F> Transactional<T, C, S, F> {
    pub(super) fn new(
        codec: C,
        key: MessageKey<T>,
        order_key: Option<MakeOrderKey<T>>,
        store: S,
        handler: F,
    ) -> Self {
        Self { key, order_key, work: InTransaction { codec, store, handler } }
    }
}

impl<T, C, S, F, Fut> Handle for Transactional<T, C, S, F>
where
    T: Send + 'static,
    C: Decode<T>,
    S: TransactionalStore,
    F: Fn(Message<T>, S::Transaction) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<S::Transaction, HandlerError>> + Send + 'static,
{
    fn judge<'a>(
        &'a self,
        core: &'a Core,
        received: Arc<Received>,
        place: &'a Place<'a>,
    ) -> BoxFuture<'a, Judged> {
        let arrived = Arc::clone(&received);
        Box::pin(async move {
            let settler = place.settler;
            handle::unharmed(arrived, self.decode_and_handle(core, received, settler)).await
        })
    }

    fn turn<'a>(&'a self, received: &'a Received) -> BoxFuture<'a, Result<Turn, String>> {
        Box::pin(handle::turn(&self.work.codec, self.order_key.as_ref(), received))
    }

    fn check_store<'a>(&'a self, _: &'a Core) -> BoxFuture<'a, Result<()>> {
        Box::pin(answer(|| self.work.store.check()))
    }

    fn retention(&self, _: &Core) -> Option<Duration> {
        self.work.store.retention()
    }
}

impl<T, C, S, F, Fut> Transactional<T, C, S, F>
where
    T: Send + 'static,
    C: Decode<T>,
    S: TransactionalStore,
    F: Fn(Message<T>, S::Transaction) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<S::Transaction, HandlerError>> + Send + 'static,
{
    async fn decode_and_handle(
        &self,
        core: &Core,
        received: Arc<Received>,
        settler: &dyn Settler,
    ) -> Judged {
        let payload = match handle::decode(&self.work.codec, &received).await {
            Ok(payload) => payload,
            Err(verdict) => return Judged::new(received, verdict),
        };
        let (key, payload) = match self.key.of(payload, &received) {
            Ok(keyed) => keyed,
            Err(verdict) => return Judged::new(received, verdict),
        };
        self.work.handle(core, &key, Some(settler), received, payload).await
    }
}

impl<C, S: TransactionalStore, F> InTransaction<C, S, F> {
    /// Runs the handler in a transaction that has the claim on a key.
    pub(crate) async fn handle<T, Fut>(
        &self,
        host: &impl Host,
        key: &str,
        settler: Option<&dyn Settler>,
        received: Arc<Received>,
        payload: T,
    ) -> Judged
    where
        T: Send + 'static,
        C: Decode<T>,
        F: Fn(Message<T>, S::Transaction) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<S::Transaction, HandlerError>> + Send + 'static,
    {
        let open = match self.begin(host, key, settler).await {
            Ok(open) => open,
            Err(verdict) => return Judged::new(received, verdict),
        };
        let run =
            |received, payload| self.run_until_ended(host, key, settler, received, payload, open);
        handle::intercept(host, received, payload, run).await
    }

    /// Begins a transaction with the claim in it, or says what becomes of the message instead.
    async fn begin(
        &self,
        host: &impl Host,
        key: &str,
        settler: Option<&dyn Settler>,
    ) -> Result<Open<S>, Verdict> {
        let wait = host.in_progress_wait().min(LONGEST_WAIT);
        // The store alone, which several threads may look at whatever the handler is.
        let store = &self.store;
        let begin: &Ask<'_, _> = &|| Box::pin(answer(|| store.begin(key, wait)));
        match host.until_answered(settler, begin).await {
            Some(TransactionClaim::Owned { transaction, hold }) => Ok((transaction, hold)),
            Some(TransactionClaim::AlreadyConfirmed) => Err(Verdict::Duplicate),
            Some(TransactionClaim::InProgress) => Err(Verdict::InProgress),
            None => Err(Verdict::Returned),
        }
    }

    /// Runs the handler, and again where the database has undone its transaction.
    async fn run_until_ended<T, Fut>(
        &self,
        host: &impl Host,
        key: &str,
        settler: Option<&dyn Settler>,
        received: Arc<Received>,
        mut payload: T,
        mut open: Open<S>,
    ) -> Verdict
    where
        T: Send + 'static,
        C: Decode<T>,
        F: Fn(Message<T>, S::Transaction) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<S::Transaction, HandlerError>> + Send + 'static,
    {
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        for run in 1.. {
            let verdict = match self.run(host, Arc::clone(&received), payload, open).await {
                Run::Ended(verdict) => return verdict,
                Run::Undone(verdict) if run == RUNS => return verdict,
                Run::Undone(verdict) => verdict,
            };
            tracing::info!(
                key,
                run,
                reason = verdict.reason(),
                "the database undid a handler's transaction; it runs again"
            );
            backoff.pause().await;
            payload = match handle::decode(&self.codec, &received).await {
                Ok(payload) => payload,
                Err(verdict) => return verdict,
            };
            open = match self.begin(host, key, settler).await {
                Ok(open) => open,
                Err(verdict) => return verdict,
            };
        }
        unreachable!("the last run returns")
    }

    async fn run<T, Fut>(
        &self,
        host: &impl Host,
        received: Arc<Received>,
        payload: T,
        (transaction, hold): Open<S>,
    ) -> Run
    where
        T: Send + 'static,
        F: Fn(Message<T>, S::Transaction) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<S::Transaction, HandlerError>> + Send + 'static,
    {
        let undone = |error: &(dyn std::error::Error + 'static), verdict| {
            if self.store.is_conflict(error) { Run::Undone(verdict) } else { Run::Ended(verdict) }
        };
        // Calling the handler may panic as well, before it returns its future.
        let handle = async { (self.handler)(Message::new(payload, received), transaction).await };
        match handle::within_limits(host, handle).await {
            Ok(Ok(transaction)) => match self.commit(host, hold, transaction).await {
                Ok(()) => Run::Ended(Verdict::Accepted),
                Err(CommitError::RolledBack(error)) => {
                    let reason = format!("its transaction was not committed: {}", chain(&error));
                    if error.is_transient() {
                        undone(&error, Verdict::Failed { reason })
                    } else {
                        Run::Ended(Verdict::Rejected { text: reason })
                    }
                }
                Err(CommitError::Unknown(error)) => {
                    tracing::warn!(
                        queue = host.queue(), %error,
                        "it is not known whether a handler's transaction has committed; that \
                         is found out when its message is taken up again"
                    );
                    Run::Ended(Verdict::Unknown)
                }
            },
            Ok(Err(error)) => {
                self.roll_back(hold).await;
                let verdict = handle::failed(&error);
                if error.is_fatal() { Run::Ended(verdict) } else { undone(&*error.cause, verdict) }
            }
            // Dropping the hold ends the transaction with its connection: the handler may have
            // been stopped in the middle of a statement.
            Err(stopped) => Run::Ended(stopped),
        }
    }

    async fn commit(
        &self,
        host: &impl Host,
        hold: S::Hold,
        transaction: S::Transaction,
    ) -> Result<(), CommitError> {
        let commit = self.store.commit(hold, transaction);
        match tokio::time::timeout(LONGEST_ANSWER, commit).await {
            Ok(Ok(())) => {
                host.committed();
                Ok(())
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(CommitError::Unknown(Error::new(
                ErrorKind::Store,
                format!("commit a handler's transaction: no answer within {LONGEST_ANSWER:?}"),
            ))),
        }
    }

    async fn roll_back(&self, hold: S::Hold) {
        // Past the bound the hold is dropped, and the transaction ends with its connection.
        let _ = tokio::time::timeout(LONGEST_ROLLBACK, self.store.roll_back(hold)).await;
    }
}
