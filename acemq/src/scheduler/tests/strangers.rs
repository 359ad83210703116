//! What comes into the scheduler's queues from others: its headers, and what is missing from them.

use std::{
    future::poll_fn,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use tokio::time::timeout;

use crate::{
    Client, Queue, Scheduler,
    clock::epoch_millis,
    envelope::{HeaderValue, Headers},
    on_every_broker,
    scheduler::scheduled::{LATEST, Scheduled},
    support::Broker,
    transport::{ConsumeEvent, Delivery, Outgoing, Properties, Subscription},
};

const SOON: Duration = Duration::from_secs(30);
const DUE: &str = "acemq.schedule.due";
const DEAD: &str = "acemq.schedule.due.dlq";

/// A scheduler, and a queue of the test's own that messages are to be delivered to.
struct Bench {
    mq: Client,
    _scheduler: Scheduler,
    queue: String,
}

impl Bench {
    async fn new(broker: &Broker) -> Self {
        let mq = crate::connect(&*broker.url).await.unwrap();
        let queue = broker.name("later");
        mq.declare_queue(&Queue::new(&*queue).classic()).await.unwrap();
        Self { _scheduler: mq.scheduler().await.unwrap(), mq, queue }
    }

    /// Puts a message into one of the scheduler's queues.
    async fn publish(&self, queue: &str, properties: Properties) {
        let message = Outgoing {
            exchange: String::new(),
            routing_key: queue.to_owned(),
            mandatory: true,
            properties,
            body: Bytes::from_static(b"\xff\x00 as it came"),
        };
        self.mq.publish(Arc::new(message)).await.unwrap();
    }

    /// The headers of a message that is due for the test's queue.
    fn headers<const N: usize>(&self, more: [(&str, HeaderValue); N]) -> Headers {
        let mut headers = headers([
            ("x-schedule-exchange", "".into()),
            ("x-schedule-routing-key", (&*self.queue).into()),
            ("x-schedule-due-at", 1_i64.into()),
            ("x-schedule-content-type", "text/plain".into()),
        ]);
        headers.extend(self::headers(more));
        headers
    }

    /// Takes the first message for which that is true out of a queue, whole; the others stay.
    async fn take(&self, queue: &str, wanted: impl Fn(&Delivery) -> bool) -> Delivery {
        let link = self.mq.consuming_link().await.unwrap();
        let subscription = Subscription {
            queue: queue.to_owned(),
            prefetch: 1_000,
            exclusive: false,
            arguments: Headers::new(),
        };
        let mut channel = link.subscribe(subscription).await.unwrap();
        let found = loop {
            let event = timeout(SOON, poll_fn(|context| channel.poll_next(context))).await;
            let ConsumeEvent::Delivery(delivery) = event.expect("nothing came") else {
                panic!("the subscription ended")
            };
            if wanted(&delivery) {
                break delivery;
            }
        };
        channel.settler().ack(found.tag);
        channel.close().await;
        found
    }

    async fn delivered(&self) -> Delivery {
        self.take(&self.queue, |_| true).await
    }
}

fn headers<const N: usize>(headers: [(&str, HeaderValue); N]) -> Headers {
    headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn with(headers: Headers) -> Properties {
    Properties { headers, ..Properties::default() }
}

fn text<'a>(delivery: &'a Delivery, name: &str) -> &'a str {
    delivery.properties.headers.get(name).and_then(HeaderValue::as_str).unwrap_or("")
}

on_every_broker! {
    // promise: SC-5
    async fn a_message_of_another_language_is_delivered_as_they_deliver_it(broker: Broker) {
        let bench = Bench::new(&broker).await;
        // As they write it: an envelope of its own, and a number of any width or a text.
        let headers = bench.headers([
            ("x-acemq-id", "their-id".into()),
            ("x-acemq-type", "ScheduledMessage".into()),
            ("x-acemq-correlation", "their-correlation".into()),
            ("x-acemq-version", 1_i32.into()),
            ("x-acemq-attempt", 1_i32.into()),
            ("x-acemq-first-seen", 1_767_323_045_678_i64.into()),
            ("x-acemq-origin", "orders@elsewhere".into()),
            ("x-schedule-due-at", "1767323045678".into()),
        ]);
        let properties = Properties {
            content_type: Some("application/octet-stream".to_owned()),
            message_id: Some("their-id".to_owned()),
            delivery_mode: Some(Properties::PERSISTENT),
            headers,
            ..Properties::default()
        };
        bench.publish(DUE, properties).await;
        let delivery = bench.delivered().await;
        assert_eq!(&*delivery.body, b"\xff\x00 as it came");
        assert_eq!(delivery.properties.content_type.as_deref(), Some("text/plain"));
        assert_eq!(delivery.properties.message_id.as_deref(), Some("their-id"));
        assert_eq!(text(&delivery, "x-acemq-id"), "their-id");
        assert_eq!(text(&delivery, "x-acemq-type"), "ScheduledMessage");
        assert_eq!(text(&delivery, "x-acemq-correlation"), "their-correlation");
        assert_eq!(text(&delivery, "x-acemq-origin"), "orders@elsewhere");
        let age = epoch_millis(SystemTime::now())
            - delivery.properties.headers["x-acemq-first-seen"].as_i64().unwrap();
        assert!(age < 60_000, "it is as old as if it had been waited for: {age} ms");
        let left = delivery.properties.headers.keys().find(|name| name.starts_with("x-schedule-"));
        assert_eq!(left, None);
        bench.mq.close().await.unwrap();
    }

    async fn a_message_without_an_envelope_gets_one_and_the_rest_of_it_stays(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let mut headers = bench.headers([
            ("x-tenant", "acme".into()),
            ("x-schedule-exchange", Bytes::new().into()),
            ("x-schedule-routing-key", Bytes::copy_from_slice(bench.queue.as_bytes()).into()),
            // Copies that a broker would make, and a death that it did not see.
            ("CC", vec![HeaderValue::from("nobody")].into()),
            ("x-death", vec![HeaderValue::from(Headers::new())].into()),
        ]);
        headers.remove("x-schedule-content-type");
        let properties = Properties {
            correlation_id: Some("c-7".to_owned()),
            content_encoding: Some("gzip".to_owned()),
            reply_to: Some("answers".to_owned()),
            expiration: Some("600000".to_owned()),
            ..with(headers)
        };
        // By way of a queue in which it waits, so that there is a death that the broker saw.
        bench.publish("acemq.schedule.1s", properties).await;
        let delivery = bench.delivered().await;
        let properties = &delivery.properties;
        assert_eq!(properties.content_type.as_deref(), Some("application/json"));
        assert_eq!(properties.content_encoding.as_deref(), Some("gzip"));
        assert_eq!(properties.correlation_id.as_deref(), Some("c-7"));
        assert_eq!(properties.reply_to.as_deref(), Some("answers"));
        assert_eq!(properties.expiration, None);
        assert_eq!(properties.delivery_mode, Some(Properties::PERSISTENT));
        assert_eq!(text(&delivery, "x-acemq-type"), "ScheduledMessage");
        assert!(!text(&delivery, "x-acemq-id").is_empty());
        assert_eq!(text(&delivery, "x-tenant"), "acme");
        for gone in ["CC", "x-death", "x-first-death-queue", "x-last-death-queue"] {
            assert!(!properties.headers.contains_key(gone), "{gone}: {properties:?}");
        }
        bench.mq.close().await.unwrap();
    }

    // promise: SC-7
    async fn what_is_no_scheduled_message_is_dead_lettered_as_it_came_and_harms_nobody(
        broker: Broker
    ) {
        let bench = Bench::new(&broker).await;
        let mark = uuid::Uuid::new_v4().to_string();
        let long = "é".repeat(128);
        let strangers: [(&str, HeaderValue, &str); 9] = [
            ("x-schedule-exchange", 7_i64.into(), "x-schedule-exchange is no text"),
            ("x-schedule-exchange", "a\nb".into(), "x-schedule-exchange holds control characters"),
            ("x-schedule-exchange", (&*long).into(), "x-schedule-exchange has 256 bytes"),
            ("x-schedule-routing-key", Headers::new().into(), "x-schedule-routing-key is no text"),
            ("x-schedule-routing-key", (&*long).into(), "x-schedule-routing-key has 256 bytes"),
            ("x-schedule-due-at", "tomorrow".into(), "x-schedule-due-at is no number"),
            ("x-schedule-due-at", 1.5_f64.into(), "x-schedule-due-at is no number"),
            ("x-schedule-due-at", (LATEST + 1).into(), "is after the year 9999"),
            ("x-schedule-content-type", HeaderValue::List(Vec::new()), "x-schedule-content-type is no text"),
        ];
        for (number, (name, value, _)) in strangers.iter().enumerate() {
            let which = format!("{mark}-{number}");
            let headers = bench.headers([("x-mark", which.into()), (name, value.clone())]);
            bench.publish(DUE, with(headers)).await;
        }
        let bare = Properties { message_id: Some(mark.clone()), ..Properties::default() };
        bench.publish(DUE, bare).await;
        bench.publish(DUE, with(bench.headers([("x-tenant", "last".into())]))).await;
        assert_eq!(text(&bench.delivered().await, "x-tenant"), "last");

        for (number, (name, value, reason)) in strangers.iter().enumerate() {
            let which = format!("{mark}-{number}");
            let dead = bench.take(DEAD, |dead| text(dead, "x-mark") == which).await;
            let headers = &dead.properties.headers;
            assert_eq!(headers.get(*name), Some(value), "{name}");
            let error = text(&dead, "x-acemq-error");
            assert!(error.contains("it is no scheduled message") && error.contains(reason), "{error}");
            assert!(!headers.contains_key("x-acemq-type"), "it is not as it came");
            assert_eq!(&*dead.body, b"\xff\x00 as it came");
        }
        let is_bare = |dead: &Delivery| dead.properties.message_id.as_deref() == Some(&*mark);
        let dead = bench.take(DEAD, is_bare).await;
        let error = text(&dead, "x-acemq-error");
        assert!(error.contains("it has no header x-schedule-exchange"), "{error}");
        bench.mq.close().await.unwrap();
    }

    // promise: SC-7
    async fn a_hostile_id_or_table_does_not_keep_a_message_in_the_schedulers_queue(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let long = "x".repeat(300);
        let headers = bench.headers([("x-acemq-id", (&*long).into())]);
        bench.publish(DUE, with(headers)).await;
        let delivery = bench.delivered().await;
        assert_eq!(text(&delivery, "x-acemq-id"), long);
        assert_eq!(delivery.properties.message_id, None);

        // Its headers fill a frame, so that neither an envelope nor a reason fits on it.
        let frame = bench.mq.frame_max().unwrap();
        let mark = uuid::Uuid::new_v4().to_string();
        let mut headers = bench.headers([("x-mark", (&*mark).into())]);
        let room = frame - crate::envelope::encoded_len(&headers) - 80;
        headers.insert("x-large".to_owned(), "x".repeat(room).into());
        bench.publish(DUE, with(headers)).await;
        let dead = bench.take(DEAD, |dead| text(dead, "x-mark") == mark).await;
        assert_eq!(text(&dead, "x-large").len(), room);
        bench.mq.close().await.unwrap();
    }
}

#[test]
fn what_a_message_says_of_itself_is_read_whoever_wrote_it() {
    let mut written = headers([
        ("x-schedule-exchange", "billing".into()),
        ("x-schedule-routing-key", "".into()),
        ("x-schedule-due-at", LATEST.into()),
    ]);
    let read = Scheduled::read(&written).unwrap();
    assert_eq!((read.exchange, read.routing_key, read.due), ("billing", "", LATEST));
    let numbers = [
        (HeaderValue::from(" 1767323045678 "), 1_767_323_045_678),
        (Bytes::from_static(b"-5").into(), -5),
        (HeaderValue::U32(7), 7),
        (i64::MIN.into(), i64::MIN),
    ];
    for (value, due) in numbers {
        written.insert("x-schedule-due-at".to_owned(), value);
        assert_eq!(Scheduled::read(&written).unwrap().due, due);
    }
    for name in ["x-schedule-exchange", "x-schedule-routing-key", "x-schedule-due-at"] {
        let mut without = written.clone();
        without.remove(name);
        assert_eq!(Scheduled::read(&without), Err(format!("it has no header {name}")));
    }
}
