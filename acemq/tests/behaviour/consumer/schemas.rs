//! Messages that carry the number of their schema.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use acemq::{
    Avro, AvroReader, Error, ErrorKind, MemorySchemaRegistry, RawBytes, RegisteredSchema, Result,
    RetryPolicy, SchemaFormat, SchemaId, SchemaRegistry,
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use testkit::eventually;

use crate::{
    consumer::bench::{Bench, SOON, next, recorder, settled},
    on_every_broker,
};

const SCHEMA: &str = r#"{"type": "record", "name": "shop.Order", "fields": [
    {"name": "order", "type": "string"}, {"name": "cents", "type": "long"}]}"#;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    order: String,
    cents: i64,
}

fn order() -> Order {
    Order { order: "o-1".to_owned(), cents: 4_250 }
}

/// A registry that can be away.
#[derive(Clone)]
struct Distant {
    registry: MemorySchemaRegistry,
    away: Arc<AtomicBool>,
}

impl Distant {
    fn reach(&self) -> Result<&MemorySchemaRegistry> {
        match self.away.load(Ordering::Relaxed) {
            true => Err(Error::new(ErrorKind::Store, "the database is away")),
            false => Ok(&self.registry),
        }
    }
}

impl SchemaRegistry for Distant {
    async fn register(
        &self,
        subject: &str,
        format: &SchemaFormat,
        definition: &str,
    ) -> Result<SchemaId> {
        self.reach()?.register(subject, format, definition).await
    }

    async fn by_id(&self, id: SchemaId) -> Result<Option<RegisteredSchema>> {
        self.reach()?.by_id(id).await
    }

    async fn versions(&self, subject: &str) -> Result<Vec<RegisteredSchema>> {
        self.reach()?.versions(subject).await
    }
}

on_every_broker! {
    // promise: SR-3
    async fn a_registered_message_is_read_by_a_consumer_that_has_only_the_registry(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let registry = MemorySchemaRegistry::new();
        let (record, mut seen) = recorder::<Order>();
        let builder = bench.mq.consumer::<Order>(&*bench.queue);
        let consumer = builder.codec(AvroReader::new(registry.clone())).start(record).await.unwrap();
        let avro = Avro::registered(SCHEMA, registry).unwrap();
        let placed = bench.mq.publisher::<Order>("", &*bench.queue).codec(avro);
        placed.send(&order()).await.unwrap();

        let message = next(&mut seen).await;
        assert_eq!(message.payload(), &order());
        assert_eq!(message.content_type(), Some("application/vnd.acemq.avro"));
        assert_eq!(message.body()[..], b"\0\0\0\0\x01\x06o-1\xb4\x42"[..]);
        settled(&consumer, 1).await;
        bench.mq.close().await.unwrap();
    }

    // promise: SR-5
    async fn a_message_with_an_unknown_schema_id_is_parked_with_that_reason(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let (record, mut seen) = recorder::<Order>();
        let registry = MemorySchemaRegistry::new();
        let consumer = bench
            .mq
            .consumer::<Order>(&*bench.queue)
            .codec(AvroReader::new(registry.clone()))
            .retry(RetryPolicy::fixed(5, Duration::from_millis(20)))
            .start(record)
            .await
            .unwrap();
        let raw = RawBytes::of_type("application/vnd.acemq.avro");
        let raw = bench.mq.publisher::<Bytes>("", &*bench.queue).codec(raw);
        let body = Bytes::from_static(b"\0\0\0\0\x29\x06o-1\xb4\x42");
        raw.send(&body).await.unwrap();

        let parked = bench.take(&bench.parked()).await;
        let reason = parked.envelope().error().unwrap();
        assert!(reason.contains("no schema 41"), "{reason}");
        assert!(reason.contains("may have been registered in another registry"), "{reason}");
        assert_eq!((parked.body(), parked.attempt()), (&body, 1));

        // Nobody else is harmed.
        let avro = Avro::registered(SCHEMA, registry).unwrap();
        bench.mq.publisher::<Order>("", &*bench.queue).codec(avro).send(&order()).await.unwrap();
        assert_eq!(next(&mut seen).await.payload(), &order());
        settled(&consumer, 1).await;
        bench.mq.close().await.unwrap();
    }

    async fn a_message_waits_for_a_registry_that_is_away(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let registry = Distant { registry: MemorySchemaRegistry::new(), away: Arc::default() };
        let avro = Avro::registered(SCHEMA, registry.clone()).unwrap();
        let placed = bench.mq.publisher::<Order>("", &*bench.queue).codec(avro);
        placed.send(&order()).await.unwrap();
        registry.away.store(true, Ordering::Relaxed);
        let (record, mut seen) = recorder::<Order>();
        let consumer = bench
            .mq
            .consumer::<Order>(&*bench.queue)
            .codec(AvroReader::new(registry.clone()))
            .retry(RetryPolicy::fixed(10_000, Duration::from_millis(20)))
            .start(record)
            .await
            .unwrap();
        eventually("it is tried again", SOON, async || {
            consumer.counters().retried > 1
        })
        .await;
        registry.away.store(false, Ordering::Relaxed);
        assert_eq!(next(&mut seen).await.payload(), &order());
        assert_eq!(consumer.counters().parked, 0);
        bench.mq.close().await.unwrap();
    }
}

// promise: SR-4
#[tokio::test]
async fn a_registry_in_memory_says_that_it_is_for_tests() {
    let (log, _guard) = testkit::logs::of_this_thread();
    let registry = MemorySchemaRegistry::new();
    assert_eq!(
        log.lines_with(&["WARN", "acemq", "schema registry in memory is for tests"]).len(),
        1
    );
    let clone = registry.clone();
    assert_eq!(log.lines_with(&["WARN"]).len(), 1, "once for {registry:?} and {clone:?}");
}
