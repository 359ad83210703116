//! Many messages in flight at once.

use std::{fmt, future::IntoFuture, task::Poll};

use futures_util::{StreamExt, future, poll, stream::FuturesOrdered};

use super::{Receipt, SendMessage, send::Prepared};
use crate::{
    connection::{Flight, Patience},
    counted::counted,
    error::{Error, Result},
    transport::BoxFuture,
};

/// How many messages are encoded ahead of the one that is handed over.
const AHEAD: usize = 16;

type Prepare<'a> = BoxFuture<'a, Result<Prepared>>;
type Send<'a, P> = Box<dyn FnMut(P) -> SendMessage<'a> + std::marker::Send + 'a>;

/// Messages about to be sent, from [`Publisher::send_all`](super::Publisher::send_all). Awaiting
/// it sends them.
#[must_use = "messages are sent by awaiting them"]
pub struct SendBatch<'a, I: Iterator> {
    payloads: I,
    send: Send<'a, I::Item>,
}

impl<'a, I: Iterator> SendBatch<'a, I> {
    pub(crate) fn new(payloads: I, send: Send<'a, I::Item>) -> Self {
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
            let mut encoding = FuturesOrdered::<Prepare<'a>>::new();
            let mut flight = Flight::new();
            let mut patience = Patience::default();
            loop {
                let mut ready = None;
                while ready.is_none()
                    && encoding.len() < AHEAD
                    && let Some(message) = messages.next()
                {
                    let mut prepare: Prepare<'a> = Box::pin(message.prepare());
                    // Nearly every codec is done at once.
                    match poll!(&mut prepare) {
                        Poll::Ready(prepared) if encoding.is_empty() => ready = Some(prepared),
                        Poll::Ready(prepared) => {
                            encoding.push_back(Box::pin(future::ready(prepared)))
                        }
                        Poll::Pending => encoding.push_back(prepare),
                    }
                }
                let begin = async {
                    let prepared = match ready {
                        Some(prepared) => prepared,
                        None => encoding.next().await?,
                    };
                    match prepared {
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
/// Converts into [`Error`] with `?`: the first failure's kind, with this text;
/// [`get_ref`](Error::get_ref) has it then.
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
            "{} of {} not confirmed; {} confirmed",
            self.failed().count(),
            counted(self.results.len(), "message"),
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
        // Its text says the first failure.
        self.failed().next().and_then(|(_, first)| first.source())
    }
}

impl From<BatchError> for Error {
    fn from(batch: BatchError) -> Self {
        let kind = batch.failed().next().map(|(_, first)| first.kind());
        let maybe = batch.failed().any(|(_, error)| error.may_have_been_published());
        Self::new(kind.unwrap_or(crate::error::ErrorKind::Rejected), batch.to_string())
            .maybe_published(maybe)
            .with_quoted_source(batch)
    }
}
