//! A step: what it does, what undoes it, and its limits.

use std::sync::Arc;

use super::attempts::Limits;
use crate::{
    consume::HandlerError,
    error::{Error, ErrorKind, Result},
    transport::BoxFuture,
};

/// A function of the user's.
pub(super) type Action<T, R> =
    Arc<dyn Fn(T) -> BoxFuture<'static, Result<R, HandlerError>> + Send + Sync>;

/// What there is to know about a step apart from its types.
#[derive(Debug)]
pub(super) struct StepOptions {
    pub(super) name: Arc<str>,
    pub(super) limits: Limits,
    pub(super) compensation_limits: Limits,
}

/// A step that makes an `N` of a `Cur`.
pub(super) struct Step<Cur, N> {
    pub(super) options: Arc<StepOptions>,
    pub(super) functions: Functions<Cur, N>,
}

pub(super) struct Functions<Cur, N> {
    pub(super) action: Action<Cur, N>,
    /// Undoes what the action has made.
    pub(super) compensation: Option<Action<N, ()>>,
    /// Undoes what the action may have done before it failed.
    pub(super) in_doubt: Option<Action<Cur, ()>>,
}

impl StepOptions {
    pub(super) fn new(name: String) -> Self {
        Self {
            name: name.into(),
            limits: Limits::default(),
            compensation_limits: Limits::default(),
        }
    }

    /// Refuses what cannot work.
    pub(super) fn check(&self, saga: &str) -> Result<()> {
        let Self { name, limits, compensation_limits } = self;
        if name.is_empty() {
            return Err(refused(saga, "one of its steps has no name"));
        }
        for limits in [limits, compensation_limits] {
            limits.retry.check()?;
            if limits.timeout.is_zero() {
                let why = format!("a timeout of the step \"{name}\" is zero, so nothing succeeds");
                return Err(refused(saga, &why));
            }
        }
        Ok(())
    }
}

impl<Cur, N> Functions<Cur, N> {
    pub(super) fn new(action: Action<Cur, N>) -> Self {
        Self { action, compensation: None, in_doubt: None }
    }
}

/// Erases the types of a function and of its future.
pub(super) fn action<T, R, F, Fut>(function: F) -> Action<T, R>
where
    F: Fn(T) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, HandlerError>> + Send + 'static,
{
    Arc::new(move |input| Box::pin(function(input)))
}

pub(super) fn refused(saga: &str, why: &str) -> Error {
    Error::new(ErrorKind::Config, format!("build the saga \"{saga}\": {why}"))
}
