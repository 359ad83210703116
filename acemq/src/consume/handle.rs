//! From a delivery to a verdict: decode, claim, intercept, run the handler.

use std::{marker::PhantomData, panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;

use super::{
    Ack, HandlerError, Message,
    ack::{Answer, chain},
    interceptor::{self, ConsumeContext},
    message::Received,
    runtime::Core,
};
use crate::{
    codec::Decode,
    error::{Error, ErrorKind},
    idempotency::{Claim, Lease},
    transport::{BoxFuture, Settler},
};

/// What is to become of a delivery.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The handler is done with it.
    Accepted,
    /// It was handled before.
    Duplicate,
    /// Somebody else is handling it.
    InProgress,
    /// The handler failed: the retry policy decides.
    Failed { reason: String },
    /// To the dead-letter queue at once; the text is the reason on the envelope.
    Rejected { text: String },
    /// To the parking queue; the text is the reason on the envelope.
    Parked { text: String },
    /// To the parking queue as it came; the text is the reason on the envelope.
    Undecodable { text: String },
    /// Back to the broker: the consumer is closing, or the channel has gone.
    Returned,
}

/// A delivery with its verdict.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) received: Arc<Received>,
    pub(super) verdict: Verdict,
    /// What the interceptors saw, if there are any and they came to see it.
    pub(super) seen: Option<ConsumeContext>,
}

/// The half of a consumer that knows the payload's type.
pub(super) trait Handle: Send + Sync {
    /// Never fails and never panics: every trouble is a verdict.
    fn judge<'a>(
        &'a self,
        core: &'a Core,
        received: Arc<Received>,
        settler: &'a dyn Settler,
    ) -> BoxFuture<'a, Judged>;
}

pub(super) struct Typed<T, C, F> {
    codec: C,
    handler: F,
    payload: PhantomData<fn() -> T>,
}

impl<T, C, F> Typed<T, C, F> {
    pub(super) fn new(codec: C, handler: F) -> Self {
        Self { codec, handler, payload: PhantomData }
    }
}

impl<T, C, F, Fut, R> Handle for Typed<T, C, F>
where
    T: Send + 'static,
    C: Decode<T>,
    F: Fn(Message<T>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, HandlerError>> + Send + 'static,
    R: Into<Ack>,
{
    fn judge<'a>(
        &'a self,
        core: &'a Core,
        received: Arc<Received>,
        settler: &'a dyn Settler,
    ) -> BoxFuture<'a, Judged> {
        Box::pin(async move {
            let arrived = Arc::clone(&received);
            // A codec of the user's own may panic; a handler's panic is caught further in, where
            // its claim is known.
            match AssertUnwindSafe(self.decode_and_handle(core, received, settler))
                .catch_unwind()
                .await
            {
                Ok(judged) => judged,
                Err(panic) => {
                    let reason = format!("the codec or store panicked: {}", panic_text(&*panic));
                    Judged::new(arrived, Verdict::Failed { reason })
                }
            }
        })
    }
}

impl<T, C, F, Fut, R> Typed<T, C, F>
where
    C: Decode<T>,
    F: Fn(Message<T>) -> Fut,
    Fut: Future<Output = Result<R, HandlerError>> + Send + 'static,
    R: Into<Ack>,
{
    async fn decode_and_handle(
        &self,
        core: &Core,
        received: Arc<Received>,
        settler: &dyn Settler,
    ) -> Judged {
        let payload = match self.decode(&received).await {
            Ok(payload) => payload,
            Err(error) if error.is_transient() => {
                let reason = format!("the body could not be read: {}", chain(&error));
                return Judged::new(received, Verdict::Failed { reason });
            }
            Err(error) => {
                let text = format!("could not be decoded: {}", chain(&error));
                return Judged::new(received, Verdict::Undecodable { text });
            }
        };
        let Some(idempotency) = &core.idempotency else {
            return self.intercept_and_handle(core, received, payload).await;
        };
        let key = idempotency.key(&core.queue, received.envelope.id());
        let lease = match idempotency.claim(&key, &core.closing, settler).await {
            Some(Claim::Owned(lease)) => lease,
            Some(Claim::AlreadyConfirmed) => return Judged::new(received, Verdict::Duplicate),
            Some(Claim::InProgress) => return Judged::new(received, Verdict::InProgress),
            None => return Judged::new(received, Verdict::Returned),
        };
        let handled = self.intercept_and_handle(core, received, payload);
        let judged = idempotency.hold(&lease, handled).await;
        conclude(core, &lease, judged).await
    }

    async fn decode(&self, received: &Received) -> Result<T, Error> {
        // Some clients write an empty content type for none.
        let content_type = received
            .properties
            .content_type
            .as_deref()
            .filter(|content_type| !content_type.is_empty());
        if !self.codec.accepts(content_type) {
            let text = match content_type {
                Some(content_type) => format!("no codec here reads '{content_type}'"),
                None => "no codec here reads a message without a content type".to_owned(),
            };
            return Err(Error::new(ErrorKind::Decode, text));
        }
        self.codec.decode(received.body.clone(), content_type).await
    }

    async fn intercept_and_handle(
        &self,
        core: &Core,
        mut received: Arc<Received>,
        payload: T,
    ) -> Judged {
        let interceptors = core.client.consume_interceptors();
        if interceptors.is_empty() {
            let verdict = self.handle(core, Arc::clone(&received), payload).await;
            return Judged::new(received, verdict);
        }
        let mut context = ConsumeContext {
            queue: Arc::clone(&received.queue),
            envelope: received.envelope.clone(),
            redelivered: received.redelivered,
            content_type: received.properties.content_type.clone(),
            body: received.body.clone(),
        };
        let before = interceptor::before_handle(interceptors, &mut context);
        received = Arc::new(received.with_envelope(context.envelope.clone()));
        let verdict = match before {
            Ok(()) => self.handle(core, Arc::clone(&received), payload).await,
            Err(error) if error.is_fatal() => {
                Verdict::Rejected { text: format!("an interceptor refused it: {error}") }
            }
            Err(error) => Verdict::Failed { reason: format!("an interceptor refused it: {error}") },
        };
        match &verdict {
            Verdict::Failed { reason: text }
            | Verdict::Rejected { text }
            | Verdict::Parked { text } => interceptor::on_error(interceptors, &context, text),
            Verdict::Accepted
            | Verdict::Duplicate
            | Verdict::InProgress
            | Verdict::Undecodable { .. }
            | Verdict::Returned => {}
        }
        Judged { received, verdict, seen: Some(context) }
    }

    async fn handle(&self, core: &Core, received: Arc<Received>, payload: T) -> Verdict {
        // Calling the handler may panic as well, before it returns its future.
        let run = async { (self.handler)(Message::new(payload, received)).await.map(Into::into) };
        let limit = async {
            match core.handler_timeout {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            finished = AssertUnwindSafe(run).catch_unwind() => match finished {
                Ok(Ok(ack)) => answer(ack),
                Ok(Err(error)) if error.is_fatal() => {
                    Verdict::Rejected { text: format!("the handler rejected it: {error}") }
                }
                Ok(Err(error)) => Verdict::Failed { reason: error.to_string() },
                Err(panic) => Verdict::Failed {
                    reason: format!("the handler panicked: {}", panic_text(&*panic)),
                },
            },
            () = core.abort.cancelled() => Verdict::Returned,
            () = limit => Verdict::Failed {
                reason: format!(
                    "the handler ran longer than {:?} and was stopped",
                    core.handler_timeout.unwrap_or_default()
                ),
            },
        }
    }
}

/// Confirms or gives up the claim, as the handler's verdict says.
async fn conclude(core: &Core, lease: &Lease, mut judged: Judged) -> Judged {
    let Some(idempotency) = &core.idempotency else { return judged };
    if matches!(judged.verdict, Verdict::Accepted) {
        if !idempotency.confirm(lease, &core.abort).await {
            tracing::error!(
                key = lease.key(),
                "the handler ran and its confirmation could not be written before the consumer \
                 closed; the message may be handled again"
            );
            judged.verdict = Verdict::Returned;
        }
    } else {
        // Before the retry is published, which would otherwise meet its own claim.
        idempotency.release(lease).await;
    }
    judged
}

fn answer(ack: Ack) -> Verdict {
    match ack.0 {
        Answer::Accept => Verdict::Accepted,
        Answer::Retry(reason) => Verdict::Failed { reason: chain(&*reason) },
        Answer::Reject(reason) => {
            Verdict::Rejected { text: format!("the handler rejected it: {}", chain(&*reason)) }
        }
        Answer::Park(reason) => {
            Verdict::Parked { text: format!("the handler parked it: {}", chain(&*reason)) }
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no reason given")
}

impl Judged {
    pub(super) fn new(received: Arc<Received>, verdict: Verdict) -> Self {
        Self { received, verdict, seen: None }
    }
}
