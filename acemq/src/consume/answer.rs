//! Answering a request: the reply, or the word that there will be none.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;

use super::{
    HandlerError, Message, ResponderCounters,
    ack::chain,
    copies::put_reason,
    handle::{Handle, Judged, REJECTED, Run, Verdict, failed, within_limits},
    message::Received,
    place::Place,
    runtime::Core,
};
use crate::{
    backoff::Backoff,
    codec::Encode,
    envelope::{self, Envelope, REPLY_ERROR},
    error::{ErrorKind, Result},
    transport::{BoxFuture, DIRECT_REPLY_TO, Outgoing, Settler},
};

/// The type of a reply, whatever the request's: its routing key, the reply queue's name, is nobody's.
const REPLY: &str = "reply";

/// How the reason of a request begins whose reply could not be delivered.
const UNDELIVERED: &str = "its reply reached no queue: ";

/// The pauses between attempts at sending a reply while the broker is away.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What a responder has done so far.
#[derive(Debug, Default)]
pub(super) struct Counters {
    answered: AtomicU64,
    failed: AtomicU64,
    unanswerable: AtomicU64,
    undelivered: AtomicU64,
}

impl Counters {
    pub(super) fn read(&self) -> ResponderCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ResponderCounters {
            answered: read(&self.answered),
            failed: read(&self.failed),
            unanswerable: read(&self.unanswerable),
            undelivered: read(&self.undelivered),
        }
    }
}

/// A handler whose results are replies.
pub(super) struct Answering<F, D> {
    handler: F,
    codec: D,
    counters: Arc<Counters>,
}

impl<F, D> Answering<F, D> {
    pub(super) fn new(handler: F, codec: D) -> Self {
        Self { handler, codec, counters: Arc::default() }
    }

    pub(super) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Sends the reply, for as long as that takes. The request is done with once the reply is known
    /// to be in a queue.
    async fn send(&self, core: &Core, reply: Arc<Outgoing>, settler: &dyn Settler) -> Verdict {
        // Whoever asked may look as soon as it has the reply.
        let counted = Counted::new(&self.counters.answered);
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            let error = match core.client.publish(Arc::clone(&reply)).await {
                Ok(()) => {
                    counted.keep();
                    return Verdict::Accepted;
                }
                Err(error) => error,
            };
            if error.kind() == ErrorKind::Unroutable {
                self.counters.undelivered.fetch_add(1, Ordering::Relaxed);
                let text = format!("{UNDELIVERED}{error}; whoever asked is gone");
                return Verdict::Rejected { text };
            }
            if !error.is_transient() {
                let text = format!("its reply could not be sent: {}", chain(&error));
                return Verdict::Rejected { text };
            }
            tracing::warn!(queue = %core.queue, %error, "a reply could not be sent; trying again");
            tokio::select! {
                () = core.closing.cancelled() => return Verdict::Returned,
                () = backoff.pause() => {}
            }
            // The request comes again anyway.
            if !settler.is_open() {
                return Verdict::Returned;
            }
        }
    }
}

impl<T, F, Fut, R, D> Run<T> for Answering<F, D>
where
    T: Send,
    F: Fn(Message<T>) -> Fut + Send + Sync,
    Fut: Future<Output = Result<R, HandlerError>> + Send,
    R: Send + Sync,
    D: Encode<R>,
{
    async fn run(
        &self,
        core: &Core,
        received: Arc<Received>,
        payload: T,
        place: &Place<'_>,
    ) -> Verdict {
        if received.envelope.reply_to().is_none() {
            self.counters.unanswerable.fetch_add(1, Ordering::Relaxed);
            let text = format!(
                "request {} carries neither the acemq-reply-to header nor a reply-to property, so \
                 there is nowhere to reply",
                received.envelope.id()
            );
            return Verdict::Rejected { text };
        }
        let run = async {
            let reply = (self.handler)(Message::new(payload, Arc::clone(&received))).await?;
            Ok::<_, HandlerError>(self.codec.encode(&reply).await)
        };
        let body = match within_limits(core, run).await {
            Ok(Ok(Ok(body))) => body,
            Ok(Ok(Err(error))) => {
                let reason = format!("its reply could not be written: {}", chain(&error));
                return if error.is_transient() {
                    Verdict::Failed { reason }
                } else {
                    Verdict::Rejected { text: reason }
                };
            }
            Ok(Err(error)) => return failed(&error),
            Err(stopped) => return stopped,
        };
        let reply = reply(core, &received, self.codec.content_type(), body);
        self.send(core, Arc::new(reply), place.settler).await
    }
}

/// A consumer of requests: whatever the reason for which one fails, whoever asked is told.
pub(super) struct Responding<H> {
    inner: H,
    counters: Arc<Counters>,
}

impl<H> Responding<H> {
    pub(super) fn new(inner: H, counters: Arc<Counters>) -> Self {
        Self { inner, counters }
    }
}

impl<H: Handle> Handle for Responding<H> {
    fn judge<'a>(
        &'a self,
        core: &'a Core,
        received: Arc<Received>,
        place: &'a Place<'a>,
    ) -> BoxFuture<'a, Judged> {
        Box::pin(async move {
            let judged = self.inner.judge(core, received, place).await;
            let answerable = judged.received.envelope.reply_to().is_some();
            if let Some(reason) = failure(core, &judged).filter(|_| answerable) {
                self.counters.failed.fetch_add(1, Ordering::Relaxed);
                tell(core, &judged.received, reason).await;
            }
            judged
        })
    }

    fn check_store<'a>(&'a self, core: &'a Core) -> BoxFuture<'a, Result<()>> {
        self.inner.check_store(core)
    }

    fn retention(&self, core: &Core) -> Option<Duration> {
        self.inner.retention(core)
    }
}

/// Why a request will have no reply, in the handler's own words where there are such; `None` while
/// it may still have one.
fn failure<'a>(core: &Core, Judged { received, verdict, .. }: &'a Judged) -> Option<&'a str> {
    match verdict {
        Verdict::Failed { reason } => {
            let age = received.envelope.age(core.client.clock().now());
            (!core.policy.retries(received.envelope.attempt(), age)).then_some(reason)
        }
        Verdict::Rejected { text } if text.starts_with(UNDELIVERED) => None,
        Verdict::Rejected { text } => Some(text.strip_prefix(REJECTED).unwrap_or(text)),
        Verdict::Parked { text } | Verdict::Undecodable { text } => Some(text),
        Verdict::Accepted
        | Verdict::Duplicate
        | Verdict::InProgress
        | Verdict::Returned
        | Verdict::Unmovable { .. }
        | Verdict::Unsent { .. }
        | Verdict::Unknown => None,
    }
}

/// Tells whoever asked that there will be no reply. Where that does not arrive, they time out.
async fn tell(core: &Core, received: &Received, reason: &str) {
    // Nothing, in a form that every reader takes for nothing.
    let mut reply = reply(core, received, "application/json", Bytes::from_static(b"null"));
    put_reason(&mut reply.properties.headers, REPLY_ERROR, reason, core.client.frame_max());
    let told = tokio::select! {
        () = core.abort.cancelled() => return,
        told = core.client.publish(Arc::new(reply)) => told,
    };
    if let Err(error) = told {
        tracing::warn!(
            queue = %core.queue, message_id = received.envelope.id(), %error,
            "whoever sent a request that failed could not be told"
        );
    }
}

fn reply(core: &Core, received: &Received, content_type: &str, body: Bytes) -> Outgoing {
    let request = &received.envelope;
    let envelope = Envelope::new(REPLY)
        .with_correlation_id(request.correlation_id())
        .with_causation_id(request.id())
        .with_origin(core.client.origin())
        .with_first_seen(core.client.clock().now());
    let address = request.reply_to().unwrap_or_default().to_owned();
    let id = envelope.id().to_owned();
    let headers = envelope::into_headers(envelope);
    // The broker returns every mandatory message to such an address, also one that it delivers.
    let mandatory = !address.starts_with(DIRECT_REPLY_TO);
    let target = (String::new(), address);
    let reply = Outgoing::new(target, id, content_type.to_owned(), headers, body);
    Outgoing { mandatory, ..reply }
}

/// Counts something that is taken back unless it is kept.
struct Counted<'a>(Option<&'a AtomicU64>);

impl<'a> Counted<'a> {
    fn new(counter: &'a AtomicU64) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(Some(counter))
    }

    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if let Some(counter) = self.0 {
            counter.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
