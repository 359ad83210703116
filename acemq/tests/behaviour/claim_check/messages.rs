//! Large payloads on their way through a broker.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use acemq::{
    ClaimCheck, ClaimCheckStore, Client, Error, ErrorKind, Json, MemoryClaimCheckStore,
    MemoryOutboxStore, OutboxRelay, OutboxStore as _, Publisher, Queue, RawBytes, Result,
    RetryPolicy,
};
use bytes::Bytes;
use testkit::unique;

use super::stores::payload;
use crate::{
    consumer::bench::{Bench, next, recorder, settled},
    on_every_broker,
    support::wire::take_one,
};

const MOMENT: Duration = Duration::from_millis(20);
const LARGE: usize = 100_000;

type Checked<S> = ClaimCheck<RawBytes, S>;

fn checked<S>(store: S) -> Checked<S> {
    ClaimCheck::new(RawBytes::default(), store)
}

fn publisher<C>(mq: &Client, queue: &str, codec: C) -> Publisher<Bytes, C> {
    mq.publisher::<Bytes>("", queue).codec(codec)
}

/// A store that cannot be reached for so many calls, and counts them.
#[derive(Clone, Default)]
struct Away {
    store: MemoryClaimCheckStore,
    calls: Arc<AtomicU32>,
    until: u32,
}

impl Away {
    fn check(&self) -> Result<()> {
        match self.calls.fetch_add(1, Ordering::Relaxed) {
            call if call < self.until => Err(Error::new(ErrorKind::Store, "nobody answers")),
            _ => Ok(()),
        }
    }
}

impl ClaimCheckStore for Away {
    async fn put(&self, payload: Bytes) -> Result<String> {
        self.check()?;
        self.store.put(payload).await
    }

    async fn get(&self, key: &str) -> Result<Bytes> {
        self.check()?;
        self.store.get(key).await
    }

    async fn delete(&self, key: &str) -> Result<()> {
        self.store.delete(key).await
    }
}

on_every_broker! {
    // promise: CC-1
    // promise: CC-2
    async fn a_large_payload_travels_as_its_key_and_a_small_one_as_it_is(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let store = MemoryClaimCheckStore::new();
        let codec = checked(store.clone());
        let sending = publisher(&bench.mq, &bench.queue, codec.clone());

        sending.send(&payload(LARGE)).await.unwrap();
        let on_the_wire = take_one(&broker, &bench.queue).await;
        let key = ClaimCheck::key_of(&on_the_wire.body).unwrap();
        assert_eq!(on_the_wire.body, [b"\xac\x01\x01", key.as_bytes()].concat());
        assert_eq!(on_the_wire.properties["content-type"], "application/octet-stream");
        assert!(!on_the_wire.headers.contains_key("x-acemq-claim"));
        assert_eq!(store.get(key).await.unwrap(), payload(LARGE));
        bench.mq.purge_queue(&bench.queue).await.unwrap();

        let (record, mut seen) = recorder();
        let builder = bench.mq.consumer::<Bytes>(&*bench.queue).codec(codec);
        let consumer = builder.start(record).await.unwrap();
        for bytes in [LARGE, 10] {
            sending.send(&payload(bytes)).await.unwrap();
            assert_eq!(next(&mut seen).await.payload(), &payload(bytes));
        }
        assert_eq!(store.len(), 2);
        settled(&consumer, 2).await;
        bench.mq.close().await.unwrap();
    }

    // promise: CC-2
    async fn messages_from_before_the_claim_check_are_read(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let (record, mut seen) = recorder();
        let codec = ClaimCheck::new(Json, MemoryClaimCheckStore::new());
        let builder = bench.mq.consumer::<String>(&*bench.queue).codec(codec);
        let _consumer = builder.start(record).await.unwrap();
        bench.send("o-1").await;
        assert_eq!(next(&mut seen).await.payload(), "o-1");
        bench.mq.close().await.unwrap();
    }

    async fn a_consumer_that_has_no_claim_check_says_what_it_was_given(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let (record, _seen) = recorder();
        let builder = bench.mq.consumer::<String>(&*bench.queue);
        let _consumer = builder.start(record).await.unwrap();
        for threshold in [0, 100] {
            let store = MemoryClaimCheckStore::new();
            let codec = ClaimCheck::new(Json, store).threshold(threshold);
            let sending = bench.mq.publisher::<String>("", &*bench.queue).codec(codec);
            sending.send(&"o-1".to_owned()).await.unwrap();
            let parked = bench.take(&bench.parked()).await;
            assert_eq!(
                parked.envelope().error().unwrap(),
                "could not be decoded: read the body as JSON: it begins with the frame of a claim \
                 check: read it with `ClaimCheck` around this codec, and with the store that its \
                 publisher has"
            );
        }
        bench.mq.close().await.unwrap();
    }

    // promise: CC-3
    // promise: CC-4
    async fn a_message_whose_payload_is_gone_is_parked_with_that_reason(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let store = MemoryClaimCheckStore::new();
        let codec = checked(store.clone()).threshold(0);
        let (record, mut seen) = recorder();
        publisher(&bench.mq, &bench.queue, codec.clone()).send(&payload(10)).await.unwrap();
        let body = take_one(&broker, &bench.queue).await.body;
        bench.mq.purge_queue(&bench.queue).await.unwrap();
        let key = ClaimCheck::key_of(&body).unwrap();
        store.delete(key).await.unwrap();

        let builder = bench.mq.consumer::<Bytes>(&*bench.queue).codec(codec.clone());
        let consumer = builder.retry(RetryPolicy::fixed(5, MOMENT)).start(record).await.unwrap();
        let as_it_was = publisher(&bench.mq, &bench.queue, RawBytes::default());
        as_it_was.send(&Bytes::from(body.clone())).await.unwrap();
        publisher(&bench.mq, &bench.queue, codec).send(&payload(20)).await.unwrap();

        let parked = bench.take(&bench.parked()).await;
        assert_eq!((&parked.body()[..], parked.attempt()), (&body[..], 1));
        assert_eq!(ClaimCheck::key_of(parked.body()), Some(key));
        let reason = parked.envelope().error().unwrap();
        assert!(reason.starts_with("could not be decoded: "), "{reason}");
        assert!(reason.contains(key) && reason.contains("no longer holds"), "{reason}");
        // The next message is none the worse.
        assert_eq!(next(&mut seen).await.payload(), &payload(20));
        settled(&consumer, 1).await;
        assert_eq!((consumer.counters().parked, consumer.counters().retried), (1, 0));
        bench.mq.close().await.unwrap();
    }

    async fn a_body_that_names_no_key_is_parked_and_the_store_is_not_asked(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let store = Away::default();
        let (record, _seen) = recorder();
        let builder = bench.mq.consumer::<Bytes>(&*bench.queue).codec(checked(store.clone()));
        let _consumer = builder.start(record).await.unwrap();
        let raw = publisher(&bench.mq, &bench.queue, RawBytes::default());
        for key in ["", "../../etc/passwd", "key\n", "\0"] {
            let body = Bytes::from([b"\xac\x01\x01", key.as_bytes()].concat());
            raw.send(&body).await.unwrap();
            let parked = bench.take(&bench.parked()).await;
            assert_eq!(parked.body(), &body);
            let reason = parked.envelope().error().unwrap();
            assert!(reason.contains("is no key"), "{reason}");
        }
        assert_eq!(store.calls.load(Ordering::Relaxed), 0);
        bench.mq.close().await.unwrap();
    }

    async fn while_the_store_is_away_a_message_is_retried_and_then_goes_through(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let healthy = checked(MemoryClaimCheckStore::new()).threshold(0);
        let sending = publisher(&bench.mq, &bench.queue, healthy);
        // Two attempts of three calls each find nobody.
        let away = Away { until: 6, ..Away::default() };
        let (record, mut seen) = recorder();
        let key = away.store.put(payload(10)).await.unwrap();
        let builder = bench.mq.consumer::<Bytes>(&*bench.queue).codec(checked(away.clone()));
        let consumer = builder.retry(RetryPolicy::fixed(4, MOMENT)).start(record).await.unwrap();
        let body = Bytes::from([b"\xac\x01\x01", key.as_bytes()].concat());
        sending.codec(RawBytes::default()).send(&body).await.unwrap();

        let message = next(&mut seen).await;
        assert_eq!((message.payload(), message.attempt()), (&payload(10), 3));
        settled(&consumer, 1).await;
        assert_eq!((consumer.counters().retried, consumer.counters().parked), (2, 0));
        assert_eq!(away.calls.load(Ordering::Relaxed), 7);
        bench.mq.close().await.unwrap();
    }

    async fn a_payload_that_cannot_be_put_is_not_published(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let away = Away { until: 4, ..Away::default() };
        let sending = publisher(&bench.mq, &bench.queue, checked(away).threshold(0));
        let error = sending.send(&payload(10)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Store);
        assert!(error.is_transient() && !error.may_have_been_published());
        assert_eq!(bench.ready(&bench.queue).await, 0);
        // The fourth call still fails, the fifth is answered.
        sending.send(&payload(10)).await.unwrap();
        assert_eq!(bench.ready(&bench.queue).await, 1);
        bench.mq.close().await.unwrap();
    }

    // promise: CC-5
    async fn publishers_with_other_thresholds_share_a_queue_and_a_consumer(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let store = MemoryClaimCheckStore::new();
        let sending = |threshold| {
            let codec = checked(store.clone()).threshold(threshold);
            publisher(&bench.mq, &bench.queue, codec)
        };
        for threshold in [0, 1_000, usize::MAX] {
            sending(threshold).send(&payload(1_000)).await.unwrap();
        }
        let (record, mut seen) = recorder();
        let codec = checked(store.clone()).threshold(500);
        let builder = bench.mq.consumer::<Bytes>(&*bench.queue).codec(codec);
        let consumer = builder.start(record).await.unwrap();
        sending(2_000).send(&payload(1_000)).await.unwrap();
        for _ in 0..4 {
            assert_eq!(next(&mut seen).await.payload(), &payload(1_000));
        }
        assert_eq!(store.len(), 2);
        settled(&consumer, 4).await;
        bench.mq.close().await.unwrap();
    }

    async fn an_empty_body_and_a_one_byte_body_come_back_at_a_threshold_of_zero(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let codec = checked(MemoryClaimCheckStore::new()).threshold(0);
        let (record, mut seen) = recorder();
        let builder = bench.mq.consumer::<Bytes>(&*bench.queue).codec(codec.clone());
        let _consumer = builder.start(record).await.unwrap();
        for payload in ["", "0"] {
            publisher(&bench.mq, &bench.queue, codec.clone()).send(&payload.into()).await.unwrap();
            assert_eq!(next(&mut seen).await.payload(), payload);
        }
        bench.mq.close().await.unwrap();
    }

    async fn an_outbox_record_carries_the_key_of_what_was_put_when_it_was_made(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let store = MemoryClaimCheckStore::new();
        let codec = checked(store.clone());
        let outbox = MemoryOutboxStore::new();
        let sending = publisher(&bench.mq, &bench.queue, codec.clone());

        // Made before the transaction that it would be added in.
        let record = sending.record(&payload(LARGE)).await.unwrap();
        assert_eq!(store.len(), 1);
        outbox.add(&record);
        let relay = OutboxRelay::builder(&bench.mq, outbox.clone()).build();
        assert_eq!(relay.drain_once().await.unwrap(), 1);
        assert_eq!((store.len(), outbox.pending_count().await.unwrap()), (1, 0));

        let (handler, mut seen) = recorder();
        let builder = bench.mq.consumer::<Bytes>(&*bench.queue).codec(codec);
        let _consumer = builder.start(handler).await.unwrap();
        assert_eq!(next(&mut seen).await.payload(), &payload(LARGE));
        bench.mq.close().await.unwrap();
    }

    async fn what_the_broker_would_refuse_for_its_size_goes_through(broker: Broker) {
        let mq = acemq::connect(&*broker.url).largest_body(1_000).await.unwrap();
        goes_through_with_a_claim_check_only(&mq, 1_001, 900).await;
        mq.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_over_the_limit_of_rabbitmq_4_goes_through() {
    let Some(url) = testkit::amqp4_url() else { return };
    let mq = acemq::connect(&*url).await.unwrap();
    goes_through_with_a_claim_check_only(&mq, 17 * 1024 * 1024, 64 * 1024).await;
    mq.close().await.unwrap();
}

async fn goes_through_with_a_claim_check_only(mq: &Client, bytes: usize, threshold: usize) {
    let queue = unique("scans");
    mq.declare_queue(&Queue::new(&*queue).classic()).await.unwrap();
    let scan = payload(bytes);
    let plain = publisher(mq, &queue, RawBytes::default());
    assert_eq!(plain.send(&scan).await.unwrap_err().kind(), ErrorKind::TooLarge);

    let codec = checked(MemoryClaimCheckStore::new()).threshold(threshold);
    publisher(mq, &queue, codec.clone()).send(&scan).await.unwrap();
    let (record, mut seen) = recorder();
    let builder = mq.consumer::<Bytes>(&*queue).codec(codec).declare(false);
    let consumer = builder.start(record).await.unwrap();
    assert!(next(&mut seen).await.payload() == &scan);
    settled(&consumer, 1).await;
    consumer.close().await.unwrap();
    mq.delete_queue(&queue).await.unwrap();
}
