//! What needs messages that no requester or responder of ours would send.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use testkit::eventually;

use crate::{
    Client, ErrorKind, HandlerError, Message, Queue, Requester,
    envelope::{HeaderValue, Headers},
    on_every_broker,
    support::Broker,
    transport::{Outgoing, Properties},
};

const SOON: Duration = Duration::from_secs(30);

struct Bench {
    mq: Client,
    queue: String,
    requester: Requester,
}

impl Bench {
    async fn new(broker: &Broker) -> Self {
        let mq = crate::connect(&*broker.url).await.unwrap();
        let queue = broker.name("requests");
        mq.declare_queue(&Queue::new(&*queue).dead_letters()).await.unwrap();
        let requester = mq.requester().timeout(SOON).await.unwrap();
        Self { mq, queue, requester }
    }

    async fn ready(&self, queue: &str) -> u64 {
        self.mq.inspect_queue(queue).await.unwrap().unwrap().messages
    }

    async fn publish<const N: usize>(
        &self,
        queue: &str,
        headers: [(&str, HeaderValue); N],
        properties: Properties,
        body: &'static [u8],
    ) {
        let headers: Headers =
            headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let message = Outgoing {
            exchange: String::new(),
            routing_key: queue.to_owned(),
            mandatory: true,
            properties: Properties { headers, ..properties },
            body: Bytes::from_static(body),
        };
        self.mq.publish(Arc::new(message)).await.unwrap();
    }

    /// Replies, as somebody who is not of the family might.
    async fn reply<const N: usize>(&self, headers: [(&str, HeaderValue); N], body: &'static [u8]) {
        self.publish(&self.requester.reply_queue(), headers, Properties::default(), body).await;
    }

    async fn eventually_unmatched(&self, count: u64) {
        let what = format!("{count} replies found nobody");
        eventually(&what, SOON, async || self.requester.counters().unmatched == count).await;
    }
}

async fn shout(message: Message<String>) -> Result<String, HandlerError> {
    Ok(message.payload().to_uppercase())
}

on_every_broker! {
    async fn replies_to_nobody_are_counted_and_harm_nobody(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let _responder = bench.mq.consumer::<String>(&*bench.queue).respond(shout).await.unwrap();
        bench.reply([], b"\"no correlation\"").await;
        bench.reply([("x-acemq-correlation", "nobody's".into())], b"\"unknown\"").await;
        bench.reply([("x-acemq-correlation", 7.into())], b"\xff\x00").await;
        bench.reply([("x-acemq-correlation", HeaderValue::Null)], b"").await;
        let bytes = HeaderValue::Bytes(Bytes::from_static(b"\xff\xfe"));
        bench.reply([("x-acemq-correlation", bytes)], b"").await;
        bench.reply([("acemq-error", "of nobody's request".into())], b"").await;
        bench.eventually_unmatched(6).await;

        let requests = bench.requester.to::<String, String>("", &*bench.queue);
        assert_eq!(requests.request(&"r-1".to_owned()).await.unwrap(), "R-1");
        assert_eq!(bench.ready(&bench.requester.reply_queue()).await, 0);
        bench.mq.close().await.unwrap();
    }

    async fn of_two_replies_to_one_request_the_first_counts(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let requests = bench.requester.to::<String, String>("", &*bench.queue);
        let payload = "r-1".to_owned();
        let asking = requests.request(&payload).id("the-request").into_future();
        let answering = async {
            eventually("it waits", SOON, async || bench.requester.counters().in_flight == 1).await;
            // Without a content type, an id, or anything but what it is matched by.
            bench.reply([("x-acemq-correlation", "the-request".into())], b"\"first\"").await;
            bench.reply([("x-acemq-correlation", "the-request".into())], b"\"second\"").await;
        };
        let (asked, ()) = tokio::join!(asking, answering);
        assert_eq!(asked.unwrap(), "first");
        bench.eventually_unmatched(1).await;
        bench.mq.close().await.unwrap();
    }

    async fn a_reply_that_can_not_be_read_fails_its_own_request_and_an_error_comes_before_the_payload(
        broker: Broker
    ) {
        let bench = Bench::new(&broker).await;
        let requests = bench.requester.to::<String, String>("", &*bench.queue);
        let (one, two, three) = ("r-1".to_owned(), "r-2".to_owned(), "r-3".to_owned());
        let answering = async {
            eventually("all wait", SOON, async || bench.requester.counters().in_flight == 3).await;
            bench.reply([("x-acemq-correlation", "r-1".into())], b"\xff{").await;
            let error = ("acemq-error", "no such article".into());
            bench.reply([("x-acemq-correlation", "r-2".into()), error], b"\xff{").await;
            bench.reply([("x-acemq-correlation", "r-3".into())], b"\"fine\"").await;
        };
        let (unread, failed, fine, ()) = tokio::join!(
            requests.request(&one).id("r-1").into_future(),
            requests.request(&two).id("r-2").into_future(),
            requests.request(&three).id("r-3").into_future(),
            answering,
        );
        assert_eq!(unread.unwrap_err().kind(), ErrorKind::Decode);
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Responder);
        assert_eq!(fine.unwrap(), "fine");
        bench.mq.close().await.unwrap();
    }

    async fn a_responder_answers_to_the_header_or_to_the_property_and_the_header_comes_first(
        broker: Broker
    ) {
        let bench = Bench::new(&broker).await;
        let _responder = bench.mq.consumer::<String>(&*bench.queue).respond(shout).await.unwrap();
        let (by_header, by_property) = (broker.name("header"), broker.name("property"));
        for queue in [&by_header, &by_property] {
            bench.mq.declare_queue(&Queue::new(&**queue)).await.unwrap();
        }
        let property =
            || Properties { reply_to: Some(by_property.clone()), ..Properties::default() };
        let address = || ("acemq-reply-to", HeaderValue::from(&*by_header));
        let bytes = HeaderValue::Bytes(Bytes::from(by_header.clone()));
        bench.publish(&bench.queue, [], property(), b"\"property\"").await;
        bench.publish(&bench.queue, [address()], Properties::default(), b"\"header\"").await;
        bench.publish(&bench.queue, [address()], property(), b"\"both\"").await;
        bench.publish(&bench.queue, [("acemq-reply-to", bytes)], property(), b"\"bytes\"").await;
        // An empty one is none.
        bench.publish(&bench.queue, [("acemq-reply-to", "".into())], property(), b"\"empty\"").await;
        for (queue, count) in [(&by_property, 2), (&by_header, 3)] {
            let what = format!("{count} replies are in {queue}");
            eventually(&what, SOON, async || bench.ready(queue).await == count).await;
        }
        bench.mq.close().await.unwrap();
    }
}
