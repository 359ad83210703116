//! A message that went through the outbox, beside one that did not.

use acemq::{HeaderValue, Headers, MemoryOutboxStore, OutboxRelay, Queue};
use testkit::unique;

use crate::{on_every_broker, support::wire::take};

/// Every header that a record may carry.
fn headers() -> Headers {
    let list = HeaderValue::List(vec![1_i64.into(), "two".into(), HeaderValue::Null]);
    let table = Headers::from([("inner".to_owned(), HeaderValue::from(2_i64))]);
    Headers::from([
        ("x-text".to_owned(), " Ä\u{1F600}\"\\\r\n ".into()),
        ("x-integer".to_owned(), i64::MIN.into()),
        ("x-float".to_owned(), 0.1.into()),
        ("x-flag".to_owned(), true.into()),
        ("x-nothing".to_owned(), HeaderValue::Null),
        ("x-list".to_owned(), list),
        ("x-table".to_owned(), HeaderValue::Table(table)),
    ])
}

on_every_broker! {
    // promise: OB-19
    async fn a_record_is_the_same_on_the_wire_as_a_message_sent_directly(broker: Broker) {
        let mq = broker.client().await;
        let queue = unique("orders");
        mq.declare_queue(&Queue::new(&*queue).classic()).await.unwrap();
        let publisher = mq.publisher::<String>("", &*queue).message_type("order.placed").version(7);
        let payload = "o-1".to_owned();
        let cause = acemq::Envelope::new("checkout");

        publisher
            .send(&payload)
            .id("m-1")
            .caused_by(&cause)
            .claim("claim")
            .headers(headers())
            .await
            .unwrap();
        let record = publisher
            .record(&payload)
            .id("m-1")
            .caused_by(&cause)
            .claim("claim")
            .headers(headers())
            .await
            .unwrap();
        // As it comes back from a table.
        let stored = acemq::StoredRecord {
            id: record.id().to_owned(),
            exchange_name: record.exchange().to_owned(),
            routing_key: record.routing_key().to_owned(),
            body: record.body().to_vec(),
            content_type: record.content_type().to_owned(),
            headers: record.headers_json(),
            created_at: record.created_at(),
        };
        let outbox = MemoryOutboxStore::new();
        outbox.add(&acemq::OutboxRecord::from_stored(stored).unwrap());
        OutboxRelay::builder(&mq, outbox).build().drain_once().await.unwrap();

        let mut sent = take(&broker, &queue).await;
        assert_eq!(sent.len(), 2);
        for message in &mut sent {
            // Made one after the other: of one form, not of one value.
            let first_seen = message.headers.get_mut("x-acemq-first-seen").unwrap();
            *first_seen = first_seen.replace(|c: char| c.is_ascii_digit(), "#");
        }
        assert_eq!(sent[0], sent[1]);
        mq.delete_queue(&queue).await.unwrap();
        mq.close().await.unwrap();
    }
}
