//! One request on its way, and the wait for its reply.

use std::{fmt, future::IntoFuture, sync::Arc, sync::atomic::Ordering, time::Duration};

use tokio::time::{Instant, timeout_at};

use super::{
    Requester,
    replies::Replies,
    waiting::{Abandoned, Refused, Slot},
};
use crate::{
    connection::Patience,
    consume::{Message, Received},
    envelope::{
        self, CORRELATION, Envelope, HeaderValue, Headers, REPLY_ERROR, REPLY_TO, ReadContext,
    },
    error::{Error, ErrorKind, Result},
    publish::SendMessage,
    telemetry::{RequestMeter, RequestOutcome},
    transport::{BoxFuture, Delivery, Outgoing},
};

/// Reads a reply's payload.
pub(super) type Decoder<A> = Box<dyn FnOnce(Arc<Received>) -> BoxFuture<'static, Result<A>> + Send>;

/// A request about to be sent, from [`Requests::request`](super::Requests::request). Awaiting it
/// sends it, and gives the reply's payload.
#[must_use = "a request is sent by awaiting it"]
pub struct SendRequest<'a, A> {
    replies: &'a Arc<Replies>,
    meter: &'a RequestMeter,
    message: SendMessage<'a>,
    decode: Decoder<A>,
    timeout: Duration,
}

impl<'a, A> SendRequest<'a, A> {
    pub(super) fn new(
        requester: &'a Requester,
        meter: &'a RequestMeter,
        message: SendMessage<'a>,
        decode: Decoder<A>,
    ) -> Self {
        let replies = requester.replies();
        Self { timeout: replies.timeout, replies, meter, message, decode }
    }

    /// How long to wait for the reply, from the call on. Default: the requester's.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The message id, which is the correlation id as well. Default: a random UUID. A request that
    /// is sent again under its id, after a timeout, say, is one request to a responder that
    /// recognises ids.
    pub fn id(self, id: impl Into<String>) -> Self {
        self.change(|message| message.id(id))
    }

    /// Names that message as the cause. The correlation id stays the request's own, by which its
    /// reply is matched.
    pub fn caused_by(self, cause: &Envelope) -> Self {
        self.change(|message| message.causation_id(cause.id()))
    }

    /// The schema version of the request's type, from 1.
    pub fn version(self, version: u32) -> Self {
        self.change(|message| message.version(version))
    }

    /// A header of the application's. A name that begins with `x-acemq-` is an error.
    pub fn header(self, name: impl Into<String>, value: impl Into<HeaderValue>) -> Self {
        self.change(|message| message.header(name, value))
    }

    /// A whole map of headers; reserved names in it are left out.
    pub fn headers(self, headers: Headers) -> Self {
        self.change(|message| message.headers(headers))
    }

    /// The request does not survive a restart of the broker.
    pub fn transient(self) -> Self {
        self.change(SendMessage::transient)
    }

    /// The request's priority, for queues that have priorities.
    pub fn priority(self, priority: u8) -> Self {
        self.change(|message| message.priority(priority))
    }

    /// How long the request may wait in the queue before it expires: from 1 millisecond on. With
    /// the timeout for it, hardly any work is begun that nobody waits for. A queue with
    /// dead letters puts there what has expired.
    pub fn expiration(self, after: Duration) -> Self {
        self.change(|message| message.expiration(after))
    }

    /// Sends it and gives the whole reply: its envelope and headers beside the payload.
    ///
    /// # Errors
    /// As [`Requests::request`](super::Requests::request).
    ///
    /// # Cancellation
    /// As there.
    pub async fn message(self) -> Result<Message<A>> {
        let Self { replies, meter, message, decode, timeout } = self;
        let mut report = Report::new(replies, meter);
        let mut progress = Progress::default();
        let answered = ask(replies, message, &mut progress);
        let answered = async { read(replies, answered.await?, decode).await };
        match timeout_at(report.started + timeout, answered).await {
            Ok(Ok(reply)) => {
                report.outcome = RequestOutcome::Answered;
                Ok(reply)
            }
            Ok(Err(error)) => Err(error),
            Err(_elapsed) => {
                report.outcome = RequestOutcome::TimedOut;
                Err(timed_out(replies, timeout, &progress))
            }
        }
    }

    fn change(mut self, change: impl FnOnce(SendMessage<'a>) -> SendMessage<'a>) -> Self {
        self.message = change(self.message);
        self
    }
}

/// How far a request has come.
#[derive(Default)]
struct Progress {
    /// The message in an error's words, once it is made.
    what: Option<String>,
    /// How often the reply queue had been lost when the request was handed over.
    handed_over: Option<u64>,
}

/// Sends a request and waits for its reply.
async fn ask(
    replies: &Arc<Replies>,
    message: SendMessage<'_>,
    progress: &mut Progress,
) -> Result<(String, Delivery)> {
    let Some((address, losses)) = replies.address().await else {
        return Err(replies.closed("send a request"));
    };
    let mut prepared = message.reply_to(&*address).confirmed_and_routed().prepare().await?;
    if replies.direct {
        // The broker makes an address of the property, and of nothing else.
        prepared = prepared.without_header(REPLY_TO);
    }
    let what = describe(prepared.message());
    progress.what = Some(what.clone());
    // As it stands on the wire, whatever an interceptor has made of it.
    let correlation_id = envelope::text(&prepared.message().properties.headers, CORRELATION);
    let mut slot = match replies.waiting.add(&correlation_id.unwrap_or_default()) {
        Ok(slot) => slot,
        Err(Refused::Closed) => return Err(replies.closed(&what)),
        Err(Refused::Taken) => {
            let why = "another request with that correlation id waits for its reply";
            return Err(Error::new(ErrorKind::Conflict, format!("{what}: {why}")));
        }
    };
    // Whatever is lost from here on is told to those that wait.
    if *replies.queue() != *address || replies.direct && replies.losses() != losses {
        let why = "the place that its reply was to come to was lost; it was not sent";
        return Err(Error::new(ErrorKind::Lost, format!("{what}: {why}")));
    }
    let handed_over = prepared.hand_over(&mut Patience::default()).await?;
    progress.handed_over = Some(losses);
    let delivery = match handed_over.finish_or(reply(&mut slot, replies, &what)).await? {
        Some(delivery) => delivery,
        None => reply(&mut slot, replies, &what).await?,
    };
    Ok((what, delivery))
}

async fn reply(slot: &mut Slot, replies: &Replies, what: &str) -> Result<Delivery> {
    slot.answered().await.map_err(|abandoned| no_reply(replies, what, abandoned))
}

/// The error of a request that nobody will answer any more.
fn no_reply(replies: &Replies, what: &str, abandoned: Abandoned) -> Error {
    let why = match abandoned {
        Abandoned::Closed => {
            let text = format!("{}; {UNKNOWN}", replies.closed(what));
            return Error::new(ErrorKind::Closed, text).maybe_published(true);
        }
        Abandoned::Lost if replies.direct => "the channel was lost on which its reply was to come",
        Abandoned::Lost => "the reply queue was lost with its connection; another took its place",
    };
    Error::new(ErrorKind::Lost, format!("{what}: {why}; {UNKNOWN}")).maybe_published(true)
}

/// What is not known of a request that has no reply.
const UNKNOWN: &str = "the request may be waiting, under way, or done";

/// Reads a reply: the responder's failure, or its payload.
async fn read<A>(
    replies: &Replies,
    (what, reply): (String, Delivery),
    decode: Decoder<A>,
) -> Result<Message<A>> {
    let envelope = envelope::read(
        &reply.properties.headers,
        ReadContext {
            message_id: reply.properties.message_id.as_deref(),
            reply_to: reply.properties.reply_to.as_deref(),
            routing_key: &reply.routing_key,
        },
    );
    if let Some(reason) = envelope::text(&reply.properties.headers, REPLY_ERROR) {
        let text = format!("{what}: the responder failed: {reason}");
        return Err(Error::new(ErrorKind::Responder, text).with_quoted_source(reason));
    }
    let queue = reply.routing_key.as_str().into();
    let received = Arc::new(Received::new(reply, envelope, queue, replies.client.clock()));
    match decode(Arc::clone(&received)).await {
        Ok(payload) => Ok(Message::new(payload, received)),
        Err(error) => {
            let text = format!("{what}: its reply could not be read: {error}");
            Err(Error::new(error.kind(), text).with_quoted_source(error))
        }
    }
}

fn timed_out(replies: &Replies, timeout: Duration, progress: &Progress) -> Error {
    let what = progress.what.as_deref().unwrap_or("send a request");
    let text = match progress.handed_over {
        Some(losses) if losses != replies.losses() => format!(
            "{what}: no reply within {timeout:?}; the reply queue was lost meanwhile, and the reply \
             may have gone with it; {UNKNOWN}"
        ),
        Some(_) => format!("{what}: no reply within {timeout:?}; {UNKNOWN}"),
        None => match replies.trouble() {
            Some(reason) => format!(
                "{what}: there was no reply queue for {timeout:?} ({reason}); it was not sent"
            ),
            None => format!("{what}: it could not be sent within {timeout:?}; it was not sent"),
        },
    };
    Error::new(ErrorKind::Timeout, text).maybe_published(progress.handed_over.is_some())
}

/// The request in an error's words.
fn describe(message: &Outgoing) -> String {
    format!(
        "request {} to exchange \"{}\" with key \"{}\"",
        message.properties.message_id.as_deref().unwrap_or("without id"),
        message.exchange,
        message.routing_key
    )
}

/// Reports one request when it ends, also one that its caller gave up.
struct Report<'a> {
    replies: &'a Replies,
    meter: &'a RequestMeter,
    started: Instant,
    outcome: RequestOutcome,
}

impl<'a> Report<'a> {
    fn new(replies: &'a Replies, meter: &'a RequestMeter) -> Self {
        Self { replies, meter, started: Instant::now(), outcome: RequestOutcome::Failed }
    }
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        let counters = &self.replies.counters;
        let counter = match self.outcome {
            RequestOutcome::Answered => &counters.answered,
            RequestOutcome::TimedOut => &counters.timed_out,
            RequestOutcome::Failed => &counters.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.meter.record(self.outcome, self.started.elapsed());
    }
}

impl<'a, A: Send + 'static> IntoFuture for SendRequest<'a, A> {
    type Output = Result<A>;
    type IntoFuture = BoxFuture<'a, Result<A>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async { self.message().await.map(Message::into_payload) })
    }
}

impl<A> fmt::Debug for SendRequest<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendRequest")
            .field("message", &self.message)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
