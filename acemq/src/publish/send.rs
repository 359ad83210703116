//! One message on its way out.

use std::{fmt, future::IntoFuture, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    PublishContext, after_confirm, before_publish,
    draft::{Draft, draft_options, expiration},
    on_error,
    publisher::Target,
};
use crate::{
    connection::{Client, InFlight, Patience},
    envelope::{self, Envelope},
    error::{Error, ErrorKind, Result},
    telemetry::{PublishMeter, PublishOutcome},
    transport::{BoxFuture, Outgoing, Properties},
};

/// What is known about a message that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// The message id.
    pub message_id: String,
    /// Whether the broker has confirmed the message; `false` only without confirms.
    pub confirmed: bool,
}

/// How a message goes out.
#[derive(Clone, Debug)]
pub(super) struct SendOptions {
    pub(super) persistent: bool,
    pub(super) mandatory: bool,
    pub(super) confirmed: bool,
    pub(super) priority: Option<u8>,
    pub(super) expiration: Option<String>,
}

impl SendOptions {
    pub(super) fn new(confirmed: bool) -> Self {
        Self { persistent: true, mandatory: true, confirmed, priority: None, expiration: None }
    }
}

/// A message about to be sent, from [`Publisher::send`](super::Publisher::send). Awaiting it sends
/// it.
#[must_use = "a message is sent by awaiting it"]
pub struct SendMessage<'a> {
    client: &'a Client,
    target: Arc<Target>,
    content_type: String,
    encode: BoxFuture<'a, Result<Bytes>>,
    pub(crate) draft: Draft,
    options: SendOptions,
}

impl<'a> SendMessage<'a> {
    pub(super) fn new(
        client: &'a Client,
        target: Arc<Target>,
        content_type: String,
        encode: BoxFuture<'a, Result<Bytes>>,
    ) -> Self {
        let draft = target.draft(client);
        let options = target.options.clone();
        Self { client, target, content_type, encode, draft, options }
    }

    draft_options!(draft);

    /// Where an answer is expected, written as the property and as the header `acemq-reply-to`.
    pub fn reply_to(mut self, address: impl Into<String>) -> Self {
        self.draft.envelope.reply_to = Some(address.into());
        self
    }

    /// The message does not survive a restart of the broker.
    pub fn transient(mut self) -> Self {
        self.options.persistent = false;
        self
    }

    /// The message's priority, for queues that have priorities.
    pub fn priority(mut self, priority: u8) -> Self {
        self.options.priority = Some(priority);
        self
    }

    /// How long the message may wait in a queue before it expires: from 1 millisecond on. Then the broker
    /// drops it, or dead-letters it where the queue says so, once it is at the head of the queue. It is
    /// this message's alone: copies of it (retries, dead letters, replays) have none.
    pub fn expiration(mut self, after: Duration) -> Self {
        match expiration(after) {
            Ok(text) => self.options.expiration = Some(text),
            Err(error) => self.draft.refuse(error),
        }
        self
    }

    /// If the message reaches no queue, that is no error: it is gone.
    pub fn allow_unroutable(mut self) -> Self {
        self.options.mandatory = false;
        self
    }

    /// Returns as soon as the message is handed over, without knowing whether it arrived.
    pub fn without_confirm(mut self) -> Self {
        self.options.confirmed = false;
        self
    }

    /// The broker's verdict is waited for, whatever the client does otherwise.
    pub(crate) fn confirmed_and_routed(mut self) -> Self {
        (self.options.confirmed, self.options.mandatory) = (true, true);
        self
    }

    async fn run(self) -> Result<Receipt> {
        self.prepare().await?.hand_over(&mut Patience::default()).await?.finish().await
    }

    /// Intercepts, encodes and composes the message.
    pub(crate) async fn prepare(self) -> Result<Prepared> {
        let (mut sending, mut message, encode) = self.address()?;
        match encode.await {
            Ok(body) => {
                Arc::make_mut(&mut message).body = body;
                Ok(Prepared { sending, message })
            }
            Err(error) => {
                let error = error
                    .with_message_id(&*sending.message_id)
                    .with_exchange(&*message.exchange)
                    .with_routing_key(&*message.routing_key);
                Err(sending.failed(error))
            }
        }
    }

    /// Intercepts and composes the message, of which only the body is missing then.
    fn address(self) -> Result<(Sending, Arc<Outgoing>, BoxFuture<'a, Result<Bytes>>)> {
        let Self { client, target, content_type, encode, draft, options } = self;
        let (sending, context) =
            Sending::begin(client, &target, draft.finish(), options.confirmed)?;
        Ok((sending, Arc::new(compose(context, content_type, options)), encode))
    }
}

/// What is done with a message on its way, apart from carrying it.
struct Sending {
    client: Client,
    message_id: String,
    /// What the interceptors see, if there are any.
    seen: Option<Box<PublishContext>>,
    confirmed: bool,
    report: Report,
}

impl Sending {
    /// Intercepts the message.
    fn begin(
        client: &Client,
        target: &Target,
        envelope: Result<Envelope>,
        confirmed: bool,
    ) -> Result<(Self, PublishContext)> {
        let mut report = Report::new(target.meter.clone());
        let mut context = PublishContext {
            exchange: target.exchange.clone(),
            routing_key: target.routing_key.clone(),
            envelope: envelope.map_err(|error| report.failed(error))?,
        };
        let interceptors = client.publish_interceptors();
        before_publish(interceptors, &mut context).map_err(|error| report.failed(error))?;
        if !target.describes(&context) {
            let message_type = context.envelope.message_type();
            let meters = client.publish_meters();
            report.meter = meters.of(&context.exchange, &context.routing_key, message_type);
        }
        let sending = Self {
            client: client.clone(),
            message_id: context.envelope.id().to_owned(),
            seen: (!interceptors.is_empty()).then(|| Box::new(context.clone())),
            confirmed,
            report,
        };
        Ok((sending, context))
    }

    fn failed(&mut self, error: Error) -> Error {
        if let Some(seen) = &self.seen {
            on_error(self.client.publish_interceptors(), seen, &error);
        }
        self.report.failed(error)
    }

    fn sent(mut self) -> Receipt {
        let receipt = Receipt { message_id: self.message_id, confirmed: self.confirmed };
        if let Some(seen) = &self.seen {
            after_confirm(self.client.publish_interceptors(), seen, &receipt);
        }
        self.report.outcome =
            if self.confirmed { PublishOutcome::Confirmed } else { PublishOutcome::Published };
        receipt
    }
}

/// A message in its final form.
pub(crate) struct Prepared {
    sending: Sending,
    message: Arc<Outgoing>,
}

impl Prepared {
    pub(crate) fn message(&self) -> &Outgoing {
        &self.message
    }

    /// Leaves a header out that was going to be written.
    pub(crate) fn without_header(mut self, name: &str) -> Self {
        Arc::make_mut(&mut self.message).properties.headers.remove(name);
        self
    }

    /// Has the last word about the message, or refuses it.
    pub(crate) fn change(
        mut self,
        change: impl FnOnce(&mut Outgoing) -> Result<()>,
    ) -> Result<Self> {
        match change(Arc::make_mut(&mut self.message)) {
            Ok(()) => Ok(self),
            Err(error) => Err(self.sending.failed(error)),
        }
    }

    /// Prepares a message whose envelope and body are there already. It is confirmed and has to
    /// reach a queue, however the client sends otherwise. `complete` has the last word about it.
    pub(super) fn ready(
        client: &Client,
        target: &Target,
        envelope: Envelope,
        (content_type, body): (String, Bytes),
        complete: impl FnOnce(&mut Outgoing),
    ) -> Result<Self> {
        let options = SendOptions::new(true);
        let (sending, context) = Sending::begin(client, target, Ok(envelope), options.confirmed)?;
        let mut message = compose(context, content_type, options);
        message.body = body;
        complete(&mut message);
        Ok(Self { sending, message: Arc::new(message) })
    }

    /// Sends it and waits for the verdict, whatever the client does otherwise; a second time where
    /// `mend` has done something about the reason for which the first was in vain.
    pub(crate) async fn send_mended<F: Future<Output = bool>>(
        self,
        mend: impl FnOnce(ErrorKind) -> F,
    ) -> Result<Receipt> {
        let Self { mut sending, message } = self;
        let mut sent = sending.client.publish(Arc::clone(&message)).await;
        if let Err(error) = &sent
            && mend(error.kind()).await
        {
            sent = sending.client.publish(message).await;
        }
        match sent {
            Ok(()) => Ok(sending.sent()),
            Err(error) => Err(sending.failed(error)),
        }
    }

    /// Hands it over; in this order it goes out.
    pub(crate) async fn hand_over(self, patience: &mut Patience) -> Result<HandedOver> {
        let Self { mut sending, message } = self;
        match sending.client.hand_over(message, patience).await {
            Ok(in_flight) => Ok(HandedOver { sending, in_flight }),
            Err(error) => Err(sending.failed(error)),
        }
    }
}

/// A message that the broker may have by now.
pub(crate) struct HandedOver {
    sending: Sending,
    in_flight: InFlight,
}

impl HandedOver {
    /// Waits for the verdict, where it is wanted.
    pub(crate) async fn finish(self) -> Result<Receipt> {
        let Self { mut sending, in_flight } = self;
        if sending.confirmed {
            in_flight.confirmed().await.map_err(|error| sending.failed(error))?;
        }
        Ok(sending.sent())
    }

    /// Waits for the verdict or for `answer`, of which a good one tells as well that the message
    /// has arrived.
    pub(crate) async fn finish_or<T>(
        self,
        answer: impl Future<Output = Result<T>>,
    ) -> Result<Option<T>> {
        let Self { mut sending, in_flight } = self;
        let answered = tokio::select! {
            biased;
            answer = answer => Some(answer.map_err(|error| sending.failed(error))?),
            verdict = in_flight.confirmed() => {
                verdict.map_err(|error| sending.failed(error))?;
                None
            }
        };
        sending.sent();
        Ok(answered)
    }
}

/// Reports one publish when it ends, also one that its caller gave up.
struct Report {
    started: Instant,
    meter: PublishMeter,
    outcome: PublishOutcome,
}

impl Report {
    fn new(meter: PublishMeter) -> Self {
        Self { started: Instant::now(), meter, outcome: PublishOutcome::Failed }
    }

    fn failed(&mut self, error: Error) -> Error {
        tracing::debug!(%error, "a message was not sent");
        self.outcome = PublishOutcome::of(&error);
        error
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.meter.record(self.outcome, self.started.elapsed());
    }
}

fn compose(context: PublishContext, content_type: String, options: SendOptions) -> Outgoing {
    let PublishContext { exchange, routing_key, envelope } = context;
    let message_id = envelope.id().to_owned();
    let reply_to = envelope.reply_to().map(str::to_owned);
    let headers = envelope::into_headers(envelope);
    let mut message =
        Outgoing::new((exchange, routing_key), message_id, content_type, headers, Bytes::new());
    message.mandatory = options.mandatory;
    if !options.persistent {
        message.properties.delivery_mode = Some(Properties::TRANSIENT);
    }
    message.properties.priority = options.priority;
    message.properties.expiration = options.expiration;
    message.properties.reply_to = reply_to;
    message
}

impl<'a> IntoFuture for SendMessage<'a> {
    type Output = Result<Receipt>;
    type IntoFuture = BoxFuture<'a, Result<Receipt>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl fmt::Debug for SendMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendMessage")
            .field("exchange", &self.target.exchange)
            .field("routing_key", &self.target.routing_key)
            .field("message_id", &self.draft.envelope.id())
            .finish_non_exhaustive()
    }
}

impl PublishOutcome {
    fn of(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::Unroutable => Self::Unroutable,
            ErrorKind::Blocked if !error.may_have_been_published() => Self::Refused,
            _ => Self::Failed,
        }
    }
}
