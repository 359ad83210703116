//! Many messages in flight at once.

use std::{fmt, future::IntoFuture};

use futures_util::{StreamExt, stream::FuturesOrdered};

use super::{Receipt, SendMessage};
use crate::{
    connection::{Flight, Patience},
    error::{Error, Result},
    transport::BoxFuture,
};

/// How many messages are encoded ahead of the one that is handed over.
const AHEAD: usize = 16;

type Send<'a, P> = Box<dyn FnMut(P) -> SendMessage<'a> + std::marker::Send + 'a>;

/// Messages about to be sent, from [`Publisher::send_all`](super::Publisher::send_all). Awaiting
/// it sends them.
#[must_use = "messages are sent by awaiting them"]
pub struct SendBatch<'a, I: Iterator> {
    payloads: I,
    send: Send<'a, I::Item>,
}

impl<'a, I: Iterator> SendBatch<'a, I> {
    pub(super) fn new(payloads: I, send: Send<'a, I::Item>) -> Self {
        Self { payloads, send }
    }
}

impl<'a, I> IntoFuture for SendBatch<'a, I>
where
    I: Iterator + std::marker::Send + 'a,
    I::Item: std::marker::Send,
{
    type Output = Result<Vec<Receipt>, BatchError>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let mut messages = self.payloads.map(self.send);
            let mut encoding = FuturesOrdered::new();
            let mut flight = Flight::new();
            let mut patience = Patience::default();
            loop {
                while encoding.len() < AHEAD
                    && let Some(message) = messages.next()
                {
                    encoding.push_back(message.prepare());
                }
                let begin = async {
                    match encoding.next().await? {
                        Ok(prepared) => Some(prepared.hand_over(&mut patience).await),
                        Err(error) => Some(Err(error)),
                    }
                };
                let Some(begun) = flight.meanwhile(begin).await else { break };
                flight.push(async { begun?.finish().await });
            }
            let results: Vec<Result<Receipt>> = flight.finish().await;
            if results.iter().any(Result::is_err) {
                return Err(BatchError { results });
            }
            Ok(results.into_iter().filter_map(Result::ok).collect())
        })
    }
}

impl<I: Iterator> fmt::Debug for SendBatch<'_, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendBatch").finish_non_exhaustive()
    }
}

/// At least one message of a batch was not confirmed. It knows what became of each.
///
/// Converts into [`Error`] with `?`: the first failure's kind, with this text.
#[derive(Debug)]
pub struct BatchError {
    results: Vec<Result<Receipt>>,
}

impl BatchError {
    /// What became of each message, in the order of the payloads.
    pub fn results(&self) -> &[Result<Receipt>] {
        &self.results
    }

    /// The messages that are confirmed, with their place in the batch.
    pub fn confirmed(&self) -> impl Iterator<Item = (usize, &Receipt)> {
        self.results.iter().enumerate().filter_map(|(at, result)| Some((at, result.as_ref().ok()?)))
    }

    /// The messages that are not, with their place in the batch.
    pub fn failed(&self) -> impl Iterator<Item = (usize, &Error)> {
        self.results
            .iter()
            .enumerate()
            .filter_map(|(at, result)| Some((at, result.as_ref().err()?)))
    }
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} messages were not confirmed; {} were",
            self.failed().count(),
            self.results.len(),
            self.confirmed().count()
        )?;
        match self.failed().next() {
            Some((_, first)) => write!(f, ". The first failure was: {first}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for BatchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.failed().next().map(|(_, first)| first as &(dyn std::error::Error + 'static))
    }
}

impl From<BatchError> for Error {
    fn from(batch: BatchError) -> Self {
        let kind = batch.failed().next().map(|(_, first)| first.kind());
        let maybe = batch.failed().any(|(_, error)| error.may_have_been_published());
        Self::new(kind.unwrap_or(crate::error::ErrorKind::Rejected), batch.to_string())
            .maybe_published(maybe)
            .with_source(batch)
    }
}
