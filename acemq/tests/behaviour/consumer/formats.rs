//! Messages in every format on one queue.

use acemq::{Encode, Format, Json, Message, RawBytes, Text, Toml, Xml, Yaml};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    consumer::bench::{Bench, next, recorder, settled},
    on_every_broker,
};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct OrderPlaced {
    id: String,
    cents: i64,
    lines: Vec<String>,
    note: Option<String>,
}

fn order(id: &str) -> OrderPlaced {
    OrderPlaced {
        id: id.to_owned(),
        cents: 4_250,
        lines: vec!["widget".to_owned(), "gasket & söhne".to_owned()],
        note: None,
    }
}

/// Sends an order in a format, and says what the consumer of the queue must see.
async fn send<C: Encode<OrderPlaced>>(bench: &Bench, codec: C) -> (OrderPlaced, String) {
    let content_type = codec.content_type().to_owned();
    let order = order(&content_type);
    let publisher = bench.mq.publisher::<OrderPlaced>("", &*bench.queue).codec(codec);
    publisher.send(&order).await.unwrap();
    (order, content_type)
}

fn seen(message: &Message<OrderPlaced>) -> (OrderPlaced, String) {
    (message.payload().clone(), message.content_type().unwrap().to_owned())
}

on_every_broker! {
    async fn a_consumer_reads_each_message_in_the_format_that_it_is_in(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let (record, mut messages) = recorder::<OrderPlaced>();
        let consumer = bench.mq.consumer(&*bench.queue).start(record).await.unwrap();
        let sent = [
            send(&bench, Json).await,
            send(&bench, Toml).await,
            send(&bench, Xml::new()).await,
            send(&bench, Yaml).await,
            send(&bench, Format::Yaml).await,
            send(&bench, (Xml::new().root("order"), Json)).await,
        ];
        for sent in sent {
            assert_eq!(seen(&next(&mut messages).await), sent);
        }
        settled(&consumer, 6).await;
        bench.mq.close().await.unwrap();
    }

    async fn text_and_bytes_are_read_beside_other_formats(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let (record, mut messages) = recorder::<String>();
        let consumer = bench.mq.consumer(&*bench.queue).start(record).await.unwrap();
        bench.send("in JSON").await;
        let publisher = || bench.mq.publisher::<String>("", &*bench.queue);
        publisher().codec(Text).send(&"as text".to_owned()).await.unwrap();
        let raw = bench.mq.publisher::<Bytes>("", &*bench.queue).codec(RawBytes::default());
        raw.send(&Bytes::from_static(b"as bytes")).await.unwrap();
        for expected in ["in JSON", "as text", "as bytes"] {
            assert_eq!(next(&mut messages).await.payload(), expected);
        }
        settled(&consumer, 3).await;
        bench.mq.close().await.unwrap();
    }

    async fn a_body_that_is_not_in_its_format_is_parked_with_the_reason(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let (record, mut messages) = recorder::<OrderPlaced>();
        let consumer = bench.mq.consumer(&*bench.queue).start(record).await.unwrap();
        let cases = [
            ("application/json", "{", "could not be decoded: read the body as JSON: "),
            ("text/toml", "id = ", "could not be decoded: read the body as TOML: "),
            ("text/xml", "<!DOCTYPE a><a/>", "could not be decoded: read the body as XML: it has a document type"),
            ("application/x+xml", "<o><id>", "could not be decoded: read the body as XML: "),
            ("Text/YAML", "id: [", "could not be decoded: read the body as YAML: "),
            ("text/plain", "o-1", "could not be decoded: read the body as text: "),
            ("application/pdf", "%PDF", "could not be decoded: no codec here reads 'application/pdf'"),
        ];
        for (content_type, body, reason) in cases {
            let codec = RawBytes::of_type(content_type);
            let publisher = bench.mq.publisher::<Bytes>("", &*bench.queue).codec(codec);
            publisher.send(&Bytes::from_static(body.as_bytes())).await.unwrap();
            let parked = bench.take(&bench.parked()).await;
            assert_eq!((&parked.body()[..], parked.content_type()), (body.as_bytes(), Some(content_type)));
            let error = parked.envelope().error().unwrap();
            assert!(error.starts_with(reason), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
        // The consumer goes on.
        let sent = send(&bench, Yaml).await;
        assert_eq!(seen(&next(&mut messages).await), sent);
        settled(&consumer, 1).await;
        assert_eq!(consumer.counters().parked, 7);
        bench.mq.close().await.unwrap();
    }

    async fn a_codec_that_is_chosen_reads_what_it_accepts_and_nothing_else(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let (record, mut messages) = recorder::<OrderPlaced>();
        let builder = bench.mq.consumer(&*bench.queue).codec((Toml, Yaml));
        let consumer = builder.start(record).await.unwrap();
        send(&bench, Json).await;
        let parked = bench.take(&bench.parked()).await;
        let error = parked.envelope().error().unwrap();
        assert_eq!(
            error,
            "could not be decoded: no codec here reads 'application/json': there is `(Toml, Yaml)`, \
             and this takes `Json`; set it with `.codec(…)`, or several as a tuple"
        );
        for sent in [send(&bench, Yaml).await, send(&bench, Toml).await] {
            assert_eq!(seen(&next(&mut messages).await), sent);
        }
        settled(&consumer, 2).await;
        bench.mq.close().await.unwrap();
    }

    async fn what_a_format_cannot_say_is_not_sent(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let numbers = bench.mq.publisher::<Vec<f64>>("", &*bench.queue);
        let error = numbers.send(&vec![1.0, f64::NAN]).await.unwrap_err();
        assert_eq!(error.kind(), acemq::ErrorKind::Encode);
        assert!(!error.may_have_been_published());
        let error = numbers.codec(Toml).send(&vec![1.0]).await.unwrap_err();
        assert_eq!(error.kind(), acemq::ErrorKind::Encode);
        assert_eq!(bench.ready(&bench.queue).await, 0);
        bench.mq.close().await.unwrap();
    }
}
