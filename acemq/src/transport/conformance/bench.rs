//! What a behaviour is tried with: links, messages, queues, and waits that end.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use tokio::{sync::oneshot, time::timeout};

use crate::{
    envelope::{HeaderValue, Headers},
    error::{Error, ErrorKind},
    transport::{
        BindingSpec, ConsumeChannel, ConsumeEnd, ConsumeEvent, Delivery, DialOptions, ExchangeKind,
        ExchangeSpec, Link, Outgoing, Properties, Publish, PublishAnswer, PublishFailure,
        QueueSpec, Subscription, Transport,
    },
};

/// How long anything may take that should happen.
pub(super) const DEADLINE: Duration = Duration::from_secs(20);

pub(super) type Verdict = Result<(), PublishFailure>;
pub(super) type Channel = Box<dyn ConsumeChannel>;

#[derive(Debug)]
pub(super) struct Bench {
    transport: Arc<dyn Transport>,
    /// The link for all that has no reason to use another.
    pub(super) link: Arc<dyn Link>,
    queues: Mutex<Vec<String>>,
    exchanges: Mutex<Vec<String>>,
}

impl Bench {
    pub(super) async fn new(transport: Arc<dyn Transport>) -> Self {
        let link = dial(&*transport, true, None).await;
        Self { transport, link, queues: Mutex::default(), exchanges: Mutex::default() }
    }

    /// Another connection to the same broker.
    pub(super) async fn another_link(&self) -> Arc<dyn Link> {
        dial(&*self.transport, true, None).await
    }

    pub(super) async fn link_that_does_not_publish(&self) -> Arc<dyn Link> {
        dial(&*self.transport, false, None).await
    }

    pub(super) async fn link_with_body_max(&self, body_max: usize) -> Arc<dyn Link> {
        dial(&*self.transport, true, Some(body_max)).await
    }

    /// A queue's name that nobody else has, deleted at the end.
    pub(super) fn queue_name(&self) -> String {
        let name = testkit::unique("conformance");
        self.queues.lock().unwrap().push(name.clone());
        name
    }

    /// An exchange's name that nobody else has, deleted at the end.
    pub(super) fn exchange_name(&self) -> String {
        let name = testkit::unique("conformance");
        self.exchanges.lock().unwrap().push(name.clone());
        name
    }

    /// Declares a durable queue with these arguments.
    pub(super) async fn queue_with<const N: usize>(
        &self,
        arguments: [(&str, HeaderValue); N],
    ) -> String {
        let name = self.queue_name();
        let queue = with_arguments(queue(&name), arguments);
        self.link.declare_queue(&queue).await.unwrap();
        name
    }

    /// Declares a durable queue.
    pub(super) async fn queue(&self) -> String {
        self.queue_with([]).await
    }

    /// Declares a durable exchange.
    pub(super) async fn exchange(&self, kind: ExchangeKind) -> String {
        let name = self.exchange_name();
        self.link.declare_exchange(&exchange(&name, kind)).await.unwrap();
        name
    }

    pub(super) async fn bind(&self, queue: &str, exchange: &str, routing_key: &str) {
        self.link.bind_queue(&binding(queue, exchange, routing_key)).await.unwrap();
    }

    /// Publishes and waits for the verdict.
    pub(super) async fn publish(&self, message: Outgoing) -> Verdict {
        publish(&self.link, message).await
    }

    /// Publishes to a queue, for tests that look at what happens then.
    pub(super) async fn send(&self, queue: &str, body: &str) {
        self.publish(message("", queue, body)).await.unwrap();
    }

    pub(super) async fn consume(&self, queue: &str, prefetch: u16) -> Channel {
        consume(&self.link, queue, prefetch).await
    }

    /// How many messages are ready.
    pub(super) async fn ready(&self, queue: &str) -> u64 {
        self.link.inspect_queue(queue).await.unwrap().unwrap().messages
    }

    /// Waits until this many messages are ready: a broker counts with some delay.
    pub(super) async fn until_ready(&self, queue: &str, messages: u64) {
        let what = format!("{messages} ready in {queue}");
        testkit::eventually(&what, DEADLINE, async || self.ready(queue).await == messages).await;
    }

    /// Takes what is in a queue, in order, and acknowledges it.
    pub(super) async fn drain(&self, queue: &str) -> Vec<Delivery> {
        let end = testkit::unique("end");
        self.send(queue, &end).await;
        let mut channel = self.consume(queue, 0).await;
        let mut deliveries = Vec::new();
        loop {
            let next = delivery(&mut channel).await;
            channel.settler().ack(next.tag);
            if next.body == end {
                channel.close().await;
                return deliveries;
            }
            deliveries.push(next);
        }
    }

    pub(super) async fn clean_up(&self) {
        let link = dial(&*self.transport, false, None).await;
        let queues = std::mem::take(&mut *self.queues.lock().unwrap());
        for queue in queues {
            // One that was exclusive goes with its connection.
            link.delete_queue(&queue).await.ok();
        }
        let exchanges = std::mem::take(&mut *self.exchanges.lock().unwrap());
        for exchange in exchanges {
            link.delete_exchange(&exchange).await.ok();
        }
        link.close().await;
        self.link.close().await;
    }
}

async fn dial(
    transport: &dyn Transport,
    publishes: bool,
    body_max: Option<usize>,
) -> Arc<dyn Link> {
    let options = DialOptions {
        connection_name: "conformance".to_owned(),
        step_timeout: DEADLINE,
        body_max,
        publishes,
    };
    transport.dial(options).await.unwrap()
}

pub(super) fn queue(name: &str) -> QueueSpec {
    QueueSpec {
        name: name.to_owned(),
        durable: true,
        exclusive: false,
        auto_delete: false,
        arguments: Headers::new(),
    }
}

pub(super) fn with_arguments<const N: usize>(
    mut queue: QueueSpec,
    arguments: [(&str, HeaderValue); N],
) -> QueueSpec {
    queue.arguments.extend(arguments.map(|(name, value)| (name.to_owned(), value)));
    queue
}

pub(super) fn exchange(name: &str, kind: ExchangeKind) -> ExchangeSpec {
    ExchangeSpec {
        name: name.to_owned(),
        kind,
        durable: true,
        auto_delete: false,
        internal: false,
        arguments: Headers::new(),
    }
}

pub(super) fn binding(queue: &str, exchange: &str, routing_key: &str) -> BindingSpec {
    BindingSpec {
        queue: queue.to_owned(),
        exchange: exchange.to_owned(),
        routing_key: routing_key.to_owned(),
        arguments: Headers::new(),
    }
}

/// A persistent, mandatory message.
pub(super) fn message(exchange: &str, routing_key: &str, body: &str) -> Outgoing {
    Outgoing {
        exchange: exchange.to_owned(),
        routing_key: routing_key.to_owned(),
        mandatory: true,
        properties: Properties {
            delivery_mode: Some(Properties::PERSISTENT),
            message_id: Some(testkit::unique("m")),
            ..Properties::default()
        },
        body: Bytes::copy_from_slice(body.as_bytes()),
    }
}

pub(super) fn with_expiration(mut message: Outgoing, millis: &str) -> Outgoing {
    message.properties.expiration = Some(millis.to_owned());
    message
}

pub(super) fn with_header(
    mut message: Outgoing,
    name: &str,
    value: impl Into<HeaderValue>,
) -> Outgoing {
    message.properties.headers.insert(name.to_owned(), value.into());
    message
}

/// Hands a message over; the verdict is for later.
pub(super) fn hand_over(link: &Arc<dyn Link>, message: Outgoing) -> oneshot::Receiver<Verdict> {
    let (sender, verdict) = oneshot::channel();
    let answer = PublishAnswer { sender, permit: None };
    link.publish(Publish::new(Arc::new(message), answer));
    verdict
}

pub(super) async fn verdict(handed_over: oneshot::Receiver<Verdict>) -> Verdict {
    timeout(DEADLINE, handed_over).await.expect("no verdict").expect("never answered")
}

pub(super) async fn publish(link: &Arc<dyn Link>, message: Outgoing) -> Verdict {
    verdict(hand_over(link, message)).await
}

/// The error of a publish that the broker refused.
pub(super) fn refusal(verdict: Verdict) -> Error {
    match verdict {
        Err(PublishFailure::Refused(error)) => error,
        other => panic!("not refused: {other:?}"),
    }
}

pub(super) fn is_unroutable(verdict: &Verdict) -> bool {
    match verdict {
        Err(PublishFailure::Unroutable { code, reason }) => {
            assert_eq!((*code, reason.as_str()), (312, "NO_ROUTE"));
            true
        }
        Ok(()) => false,
        Err(other) => panic!("neither routed nor returned: {other:?}"),
    }
}

pub(super) fn subscription(queue: &str, prefetch: u16) -> Subscription {
    Subscription { queue: queue.to_owned(), prefetch, exclusive: false, arguments: Headers::new() }
}

pub(super) async fn consume(link: &Arc<dyn Link>, queue: &str, prefetch: u16) -> Channel {
    link.subscribe(subscription(queue, prefetch)).await.unwrap()
}

pub(super) async fn next(channel: &mut Channel) -> ConsumeEvent {
    let next = poll_fn(|context| channel.poll_next(context));
    timeout(DEADLINE, next).await.expect("nothing came out of the subscription")
}

pub(super) async fn delivery(channel: &mut Channel) -> Delivery {
    match next(channel).await {
        ConsumeEvent::Delivery(delivery) => delivery,
        ConsumeEvent::Ended(end) => panic!("the subscription ended: {end:?}"),
    }
}

pub(super) async fn end(channel: &mut Channel) -> ConsumeEnd {
    match next(channel).await {
        ConsumeEvent::Ended(end) => end,
        ConsumeEvent::Delivery(delivery) => panic!("a delivery instead of the end: {delivery:?}"),
    }
}

/// Whether a subscription has something to give within a moment: for showing that it has not.
pub(super) async fn gives_within(channel: &mut Channel, moment: Duration) -> bool {
    timeout(moment, poll_fn(|context| channel.poll_next(context))).await.is_ok()
}

pub(super) fn bodies(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(|delivery| std::str::from_utf8(&delivery.body).unwrap()).collect()
}

/// The kind of an operation's error.
pub(super) fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorKind {
    result.unwrap_err().kind()
}
