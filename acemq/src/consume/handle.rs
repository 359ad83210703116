//! From a delivery to a verdict: decode, claim, intercept, run the handler.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;

use super::{
    Ack, HandlerError, Message,
    ack::{Answer, chain},
    claim::Idempotency,
    host::Host,
    interceptor::{self, ConsumeContext},
    key::MessageKey,
    message::Received,
    order::{self, MakeOrderKey, Turn},
    place::Place,
    runtime::Core,
};
use crate::{
    codec::{Decode, no_codec_reads},
    error::Error,
    idempotency::{Claim, Lease},
    transport::BoxFuture,
};

/// How the reason of a rejected message begins; its own words follow.
pub(super) const REJECTED: &str = "the handler rejected it: ";

/// What is to become of a delivery.
#[derive(Debug)]
pub(crate) enum Verdict {
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
    /// To the dead-letter queue as it came; the text is the reason on it.
    Unmovable { text: String },
    /// To the parking queue; the text is the reason on the envelope.
    Parked { text: String },
    /// To the parking queue as it came; the text is the reason on the envelope.
    Undecodable { text: String },
    /// Back to the broker: the consumer is closing, or the channel has gone.
    Returned,
    /// Back to the broker, paced: what the handler made of it did not arrive at its next stop.
    Unsent { stop: String, reason: String },
    /// Back to the broker, paced: whether the handler's transaction has committed is not known,
    /// and the next delivery finds out.
    Unknown,
}

impl Verdict {
    /// Why the handler was not done with it.
    pub(crate) fn reason(&self) -> Option<&str> {
        match self {
            Self::Failed { reason: text }
            | Self::Rejected { text }
            | Self::Unmovable { text }
            | Self::Parked { text }
            | Self::Undecodable { text }
            | Self::Unsent { reason: text, .. } => Some(text),
            Self::Accepted
            | Self::Duplicate
            | Self::InProgress
            | Self::Returned
            | Self::Unknown => None,
        }
    }
}

/// A delivery with its verdict.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) received: Arc<Received>,
    pub(crate) verdict: Verdict,
    /// What the interceptors saw, if there are any and they came to see it.
    pub(crate) seen: Option<ConsumeContext>,
}

/// The half of a consumer that knows the payload's type.
pub(super) trait Handle: Send + Sync {
    /// Never fails and never panics: every trouble is a verdict.
    fn judge<'a>(
        &'a self,
        core: &'a Core,
        received: Arc<Received>,
        place: &'a Place<'a>,
    ) -> BoxFuture<'a, Judged>;

    /// The turn of a message that is ordered by its payload, or why that cannot be read now. One
    /// that can never be read has its turn any time.
    fn turn<'a>(&'a self, _received: &'a Received) -> BoxFuture<'a, Result<Turn, String>> {
        Box::pin(std::future::ready(Ok(Turn::Any)))
    }

    /// Whether the store that knows what was handled can be used.
    fn check_store<'a>(&'a self, core: &'a Core) -> BoxFuture<'a, Result<(), Error>>;

    /// How long that store remembers.
    fn retention(&self, core: &Core) -> Option<Duration>;

    /// Declares what it needs beside what every consumer does.
    fn declare(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// What runs once a message is decoded and claimed.
pub(super) trait Run<T>: Send + Sync {
    /// Never fails and never panics, as [`Handle::judge`].
    fn run(
        &self,
        core: &Core,
        received: Arc<Received>,
        payload: T,
        place: &Place<'_>,
    ) -> impl Future<Output = Verdict> + Send;
}

/// A handler that is done with a message, or says what is to become of it.
pub(super) struct Handler<F>(pub(super) F);

impl<T, F, Fut, R> Run<T> for Handler<F>
where
    T: Send,
    F: Fn(Message<T>) -> Fut + Send + Sync,
    Fut: Future<Output = Result<R, HandlerError>> + Send,
    R: Into<Ack>,
{
    async fn run(
        &self,
        core: &Core,
        received: Arc<Received>,
        payload: T,
        place: &Place<'_>,
    ) -> Verdict {
        // Calling the handler may panic as well, before it returns its future.
        let run = async { (self.0)(Message::new(payload, received)).await.map(Into::into) };
        match within_limits(core, run).await {
            Ok(Ok(ack)) => answer(core, place, ack).await,
            Ok(Err(error)) => failed(&error),
            Err(stopped) => stopped,
        }
    }
}

pub(super) struct Typed<T, C, H> {
    codec: C,
    key: MessageKey<T>,
    order_key: Option<MakeOrderKey<T>>,
    handler: H,
}

impl<T, C, H> Typed<T, C, H> {
    pub(super) fn new(
        codec: C,
        key: MessageKey<T>,
        order_key: Option<MakeOrderKey<T>>,
        handler: H,
    ) -> Self {
        Self { codec, key, order_key, handler }
    }
}

impl<T, C, H> Handle for Typed<T, C, H>
where
    T: Send + 'static,
    C: Decode<T>,
    H: Run<T>,
{
    fn judge<'a>(
        &'a self,
        core: &'a Core,
        received: Arc<Received>,
        place: &'a Place<'a>,
    ) -> BoxFuture<'a, Judged> {
        let arrived = Arc::clone(&received);
        Box::pin(
            async move { unharmed(arrived, self.decode_and_handle(core, received, place)).await },
        )
    }

    fn turn<'a>(&'a self, received: &'a Received) -> BoxFuture<'a, Result<Turn, String>> {
        Box::pin(turn(&self.codec, self.order_key.as_ref(), received))
    }

    fn check_store<'a>(&'a self, core: &'a Core) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async {
            match &core.idempotency {
                Some(idempotency) => idempotency.check().await,
                None => Ok(()),
            }
        })
    }

    fn retention(&self, core: &Core) -> Option<Duration> {
        core.idempotency.as_ref().and_then(Idempotency::retention)
    }
}

impl<T: Send, C: Decode<T>, H: Run<T>> Typed<T, C, H> {
    async fn decode_and_handle(
        &self,
        core: &Core,
        received: Arc<Received>,
        place: &Place<'_>,
    ) -> Judged {
        let payload = match decode(&self.codec, &received).await {
            Ok(payload) => payload,
            Err(verdict) => return Judged::new(received, verdict),
        };
        let run = |received, payload| self.handler.run(core, received, payload, place);
        let Some(idempotency) = &core.idempotency else {
            return intercept(core, received, payload, run).await;
        };
        let (key, payload) = match self.key.of(payload, &received) {
            Ok(keyed) => keyed,
            Err(verdict) => return Judged::new(received, verdict),
        };
        let lease = match idempotency.claim(core, &key, place.settler).await {
            Some(Claim::Owned(lease)) => lease,
            Some(Claim::AlreadyConfirmed) => return Judged::new(received, Verdict::Duplicate),
            Some(Claim::InProgress) => return Judged::new(received, Verdict::InProgress),
            None => return Judged::new(received, Verdict::Returned),
        };
        let handled = intercept(core, received, payload, run);
        let judged = idempotency.hold(&lease, handled).await;
        conclude(core, &lease, judged).await
    }
}

/// A codec or a store of the user's own may panic; a handler's panic is caught further in, where
/// its claim is known.
pub(crate) async fn unharmed(arrived: Arc<Received>, work: impl Future<Output = Judged>) -> Judged {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(judged) => judged,
        Err(panic) => {
            let reason = format!("the codec or store panicked: {}", panic_text(&*panic));
            Judged::new(arrived, Verdict::Failed { reason })
        }
    }
}

/// Reads the payload of a message.
pub(crate) async fn payload_of<T, C: Decode<T>>(
    codec: &C,
    received: &Received,
) -> Result<T, Error> {
    // Some clients write an empty content type for none.
    let content_type =
        received.properties.content_type.as_deref().filter(|content_type| !content_type.is_empty());
    if codec.accepts(content_type) {
        codec.decode_message(received.body.clone(), content_type, &received.envelope).await
    } else {
        Err(no_codec_reads(content_type, &codec.codec_name()))
    }
}

/// Reads the payload, or says what becomes of a message whose payload cannot be read.
pub(crate) async fn decode<T, C: Decode<T>>(codec: &C, received: &Received) -> Result<T, Verdict> {
    payload_of(codec, received).await.map_err(|error| {
        if error.is_transient() {
            Verdict::Failed { reason: format!("the body could not be read: {}", chain(&error)) }
        } else {
            Verdict::Undecodable { text: format!("could not be decoded: {}", chain(&error)) }
        }
    })
}

/// The turn of a message by what its payload says.
pub(super) async fn turn<T, C: Decode<T>>(
    codec: &C,
    order_key: Option<&MakeOrderKey<T>>,
    received: &Received,
) -> Result<Turn, String> {
    let Some(make) = order_key else { return Ok(Turn::Any) };
    match AssertUnwindSafe(decode(codec, received)).catch_unwind().await {
        Ok(Ok(payload)) => Ok(order::by_payload(make, &payload)),
        Ok(Err(Verdict::Failed { reason })) => Err(reason),
        // Handling it comes to the same, and says what becomes of it.
        Ok(Err(_)) | Err(_) => Ok(Turn::Any),
    }
}

/// Runs what handles a message between the interceptors.
pub(crate) async fn intercept<T, F: Future<Output = Verdict>>(
    host: &impl Host,
    mut received: Arc<Received>,
    payload: T,
    handle: impl FnOnce(Arc<Received>, T) -> F,
) -> Judged {
    let interceptors = host.client().consume_interceptors();
    if interceptors.is_empty() {
        let verdict = handle(Arc::clone(&received), payload).await;
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
        Ok(()) => handle(Arc::clone(&received), payload).await,
        Err(error) if error.is_fatal() => {
            Verdict::Rejected { text: format!("an interceptor refused it: {error}") }
        }
        Err(error) => Verdict::Failed { reason: format!("an interceptor refused it: {error}") },
    };
    match &verdict {
        Verdict::Failed { reason: text }
        | Verdict::Rejected { text }
        | Verdict::Parked { text }
        | Verdict::Unsent { reason: text, .. } => {
            interceptor::on_error(interceptors, &context, text);
        }
        Verdict::Accepted
        | Verdict::Duplicate
        | Verdict::InProgress
        | Verdict::Undecodable { .. }
        | Verdict::Unmovable { .. }
        | Verdict::Returned
        | Verdict::Unknown => {}
    }
    Judged { received, verdict, seen: Some(context) }
}

/// Runs a handler to its end: its answer, or what becomes of a message whose handler panicked, was
/// stopped or took too long.
pub(crate) async fn within_limits<A>(
    host: &impl Host,
    run: impl Future<Output = A>,
) -> Result<A, Verdict> {
    let limit = async {
        match host.handler_timeout() {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        finished = AssertUnwindSafe(run).catch_unwind() => finished.map_err(|panic| {
            let reason = format!("the handler panicked: {}", panic_text(&*panic));
            Verdict::Failed { reason }
        }),
        () = host.abort().cancelled() => Err(Verdict::Returned),
        () = limit => Err(Verdict::Failed {
            reason: format!(
                "the handler ran longer than {:?} and was stopped",
                host.handler_timeout().unwrap_or_default()
            ),
        }),
    }
}

/// Confirms or gives up the claim, as the handler's verdict says.
async fn conclude(core: &Core, lease: &Lease, mut judged: Judged) -> Judged {
    let Some(idempotency) = &core.idempotency else { return judged };
    if matches!(judged.verdict, Verdict::Accepted) {
        if !idempotency.confirm(core, lease).await {
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

/// What becomes of a message whose handler failed.
pub(crate) fn failed(error: &HandlerError) -> Verdict {
    if error.is_fatal() {
        Verdict::Rejected { text: format!("{REJECTED}{error}") }
    } else {
        Verdict::Failed { reason: error.to_string() }
    }
}

async fn answer(core: &Core, place: &Place<'_>, ack: Ack) -> Verdict {
    match ack.0 {
        Answer::Accept => Verdict::Accepted,
        // Boxed: it is large, and most handlers send nothing on.
        Answer::Forward(onward) => Box::pin(onward.send(core, place)).await,
        Answer::Retry(reason) => Verdict::Failed { reason: chain(&*reason) },
        Answer::Reject(reason) => {
            Verdict::Rejected { text: format!("{REJECTED}{}", chain(&*reason)) }
        }
        Answer::Park(reason) => {
            Verdict::Parked { text: format!("the handler parked it: {}", chain(&*reason)) }
        }
    }
}

pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no reason given")
}

impl Judged {
    pub(crate) fn new(received: Arc<Received>, verdict: Verdict) -> Self {
        Self { received, verdict, seen: None }
    }
}
