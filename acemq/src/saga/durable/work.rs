//! What a step does, and what undoes it, with their types erased: each takes JSON and makes JSON.

use std::{marker::PhantomData, sync::Arc};

use serde::{Serialize, de::DeserializeOwned};

use super::{SagaClaim, SagaWrite, StepContext, TransactionalSagaStore};
use crate::{
    codec::{from_json, to_json},
    consume::{CommitError, HandlerError},
    error::{Error, Result},
    outbox::OutboxRecord,
    transport::BoxFuture,
};

/// What came of calling a function of the user's.
pub(super) enum Called<T> {
    Made(T),
    /// It was not called: what it was to be given cannot be read.
    Unreadable(Error),
    /// It has succeeded, and what it made cannot be kept.
    Unwritable(Error),
}

type Calling<T> = BoxFuture<'static, Result<Called<T>, HandlerError>>;
type Call<T> = Arc<dyn Fn(&str, StepContext) -> Calling<T> + Send + Sync>;

/// A part of a step.
pub(super) enum Work<S> {
    Local(Call<String>),
    Message(Call<Vec<OutboxRecord>>),
    InTransaction(Arc<dyn InTransaction<S>>),
}

impl<S> Work<S> {
    /// Whether an attempt that nobody has seen the end of may have been done.
    pub(super) fn leaves_doubt(&self) -> bool {
        match self {
            Self::Local(_) => true,
            // What they do is not there before it is committed.
            Self::Message(_) | Self::InTransaction(_) => false,
        }
    }
}

/// A function that takes and makes values.
pub(super) fn local<S, T, R, F, Fut>(function: F) -> Work<S>
where
    T: DeserializeOwned,
    R: Serialize,
    F: Fn(T, StepContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, HandlerError>> + Send + 'static,
{
    let call = move |given: &str, context: StepContext| -> Calling<String> {
        let given = match from_json(given) {
            Ok(given) => given,
            Err(error) => return unreadable(error),
        };
        let running = function(given, context);
        Box::pin(async move { running.await.map(|made| kept(&made)) })
    };
    Work::Local(Arc::new(call))
}

/// A function that makes messages.
pub(super) fn message<S, T, R, F, Fut>(function: F) -> Work<S>
where
    T: DeserializeOwned,
    R: IntoIterator<Item = OutboxRecord>,
    F: Fn(T, StepContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, HandlerError>> + Send + 'static,
{
    let call = move |given: &str, context: StepContext| -> Calling<Vec<OutboxRecord>> {
        let given = match from_json(given) {
            Ok(given) => given,
            Err(error) => return unreadable(error),
        };
        let running = function(given, context);
        Box::pin(async move { Ok(Called::Made(running.await?.into_iter().collect())) })
    };
    Work::Message(Arc::new(call))
}

fn unreadable<T: Send + 'static>(error: Error) -> Calling<T> {
    Box::pin(std::future::ready(Ok(Called::Unreadable(error))))
}

fn kept<R: Serialize>(made: &R) -> Called<String> {
    match to_json(made) {
        Ok(made) => Called::Made(made),
        Err(error) => Called::Unwritable(error),
    }
}

/// A function that is given a transaction.
pub(super) trait InTransaction<S>: Send + Sync {
    fn open<'a>(&'a self, store: &'a S) -> BoxFuture<'a, Result<Box<dyn Open<S> + 'a>>>;
}

/// A function with its transaction, open.
pub(super) trait Open<S>: Send {
    /// Calls it. What follows is to be bounded in time by the caller.
    fn call<'a>(
        &'a mut self,
        given: &'a str,
        context: StepContext,
    ) -> BoxFuture<'a, Result<Called<String>, HandlerError>>;

    /// Commits what it did together with that.
    fn commit<'a>(
        self: Box<Self>,
        claim: &'a SagaClaim,
        write: &'a SagaWrite,
    ) -> BoxFuture<'a, Result<bool, CommitError>>
    where
        Self: 'a;

    fn roll_back<'a>(self: Box<Self>) -> BoxFuture<'a, ()>
    where
        Self: 'a;

    fn is_conflict(&self, error: &(dyn std::error::Error + 'static)) -> bool;
}

struct Transactional<F, T, R>(F, PhantomData<fn(T) -> R>);

struct Opened<'a, F, T, R, S: TransactionalSagaStore> {
    function: &'a F,
    store: &'a S,
    /// Until the function has it, and again once it has given it back.
    transaction: Option<S::Transaction>,
    hold: S::Hold,
    types: PhantomData<fn(T) -> R>,
}

/// A function that takes and makes values, and gives back the transaction it was given.
pub(super) fn in_transaction<S, T, R, F, Fut>(function: F) -> Work<S>
where
    S: TransactionalSagaStore,
    T: DeserializeOwned + 'static,
    R: Serialize + Send + 'static,
    F: Fn(T, StepContext, S::Transaction) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(R, S::Transaction), HandlerError>> + Send + 'static,
{
    Work::InTransaction(Arc::new(Transactional(function, PhantomData)))
}

impl<S, T, R, F, Fut> InTransaction<S> for Transactional<F, T, R>
where
    S: TransactionalSagaStore,
    T: DeserializeOwned + 'static,
    R: Serialize + Send + 'static,
    F: Fn(T, StepContext, S::Transaction) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(R, S::Transaction), HandlerError>> + Send + 'static,
{
    fn open<'a>(&'a self, store: &'a S) -> BoxFuture<'a, Result<Box<dyn Open<S> + 'a>>> {
        Box::pin(async move {
            let (transaction, hold) = store.open().await?;
            let opened: Box<dyn Open<S> + 'a> = Box::new(Opened {
                function: &self.0,
                store,
                transaction: Some(transaction),
                hold,
                types: PhantomData::<fn(T) -> R>,
            });
            Ok(opened)
        })
    }
}

impl<S, T, R, F, Fut> Open<S> for Opened<'_, F, T, R, S>
where
    S: TransactionalSagaStore,
    T: DeserializeOwned,
    R: Serialize + Send,
    F: Fn(T, StepContext, S::Transaction) -> Fut + Send + Sync,
    Fut: Future<Output = Result<(R, S::Transaction), HandlerError>> + Send + 'static,
{
    fn call<'a>(
        &'a mut self,
        given: &'a str,
        context: StepContext,
    ) -> BoxFuture<'a, Result<Called<String>, HandlerError>> {
        let given: T = match from_json(given) {
            Ok(given) => given,
            Err(error) => return unreadable(error),
        };
        let Some(transaction) = self.transaction.take() else {
            return Box::pin(async { Err(HandlerError::fatal("its transaction was used before")) });
        };
        let running = (self.function)(given, context, transaction);
        Box::pin(async move {
            let (made, transaction) = running.await?;
            self.transaction = Some(transaction);
            Ok(kept(&made))
        })
    }

    fn commit<'a>(
        self: Box<Self>,
        claim: &'a SagaClaim,
        write: &'a SagaWrite,
    ) -> BoxFuture<'a, Result<bool, CommitError>>
    where
        Self: 'a,
    {
        let Self { store, transaction, hold, .. } = *self;
        Box::pin(async move {
            match transaction {
                Some(transaction) => store.commit(hold, transaction, claim, write).await,
                None => Ok(false),
            }
        })
    }

    fn roll_back<'a>(self: Box<Self>) -> BoxFuture<'a, ()>
    where
        Self: 'a,
    {
        let Self { store, transaction, hold, .. } = *self;
        Box::pin(async move {
            drop(transaction);
            store.roll_back(hold).await;
        })
    }

    fn is_conflict(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        self.store.is_conflict(error)
    }
}
