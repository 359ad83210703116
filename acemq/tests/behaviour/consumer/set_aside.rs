//! Dead letters and parked messages.

use std::time::{Duration, Instant};

use acemq::{
    Ack, HandlerError, Json, Message, Queue, RawBytes, RetryPolicy, Text, testing::MemoryBroker,
};
use bytes::Bytes;
use testkit::eventually;

use crate::{
    consumer::bench::{Bench, SOON, next, recorder, settled},
    on_every_broker,
};

const MOMENT: Duration = Duration::from_millis(20);

async fn always_fails(_: Message<String>) -> Result<(), HandlerError> {
    Err(HandlerError::transient("out of stock"))
}

on_every_broker! {
    // promise: RT-2
    async fn a_message_whose_attempts_are_used_up_is_a_dead_letter_with_the_reason(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .retry(RetryPolicy::fixed(3, MOMENT))
            .start(always_fails)
            .await
            .unwrap();
        let sent = bench.mq.send_to_queue(&bench.queue, "o-1").header("x-tenant", "acme");
        sent.id("id-1").await.unwrap();

        let dead = bench.take(&bench.dead_letters()).await;
        assert_eq!(dead.envelope().error(), Some("exhausted 3 attempts: out of stock"));
        assert_eq!((dead.id(), dead.attempt()), ("id-1", 3));
        assert_eq!(dead.header("x-tenant").unwrap().as_str(), Some("acme"));
        assert_eq!(&dead.body()[..], b"\"o-1\"");
        assert_eq!(dead.content_type(), Some("application/json"));
        assert!(dead.envelope().first_seen().is_some());
        eventually("it is settled", SOON, async || consumer.counters().dead_lettered == 1).await;
        assert_eq!(consumer.counters().retried, 2);
        bench.mq.close().await.unwrap();
        assert_eq!(Bench::new(&broker).await.ready(&bench.queue).await, 0);
    }

    // promise: RT-2
    async fn a_message_that_fails_without_a_retry_policy_is_a_dead_letter_too(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let builder = bench.mq.consumer::<String>(&*bench.queue);
        let _consumer = builder.start(always_fails).await.unwrap();
        bench.send("o-1").await;
        let dead = bench.take(&bench.dead_letters()).await;
        assert_eq!(dead.envelope().error(), Some("exhausted 1 attempt: out of stock"));
        bench.mq.close().await.unwrap();
    }

    // promise: RT-2
    async fn what_will_not_get_better_spends_no_retry(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let handler = |message: Message<String>| async move {
            match message.payload().as_str() {
                "fatal" => Err(HandlerError::fatal("no such customer")),
                "reject" => Ok(Ack::reject("a test order")),
                _ => Ok(Ack::park("ask a person")),
            }
        };
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .retry(RetryPolicy::fixed(5, MOMENT))
            .start(handler)
            .await
            .unwrap();
        for payload in ["fatal", "reject", "park"] {
            bench.send(payload).await;
        }
        for reason in ["no such customer", "a test order"] {
            let dead = bench.take(&bench.dead_letters()).await;
            let text = format!("the handler rejected it: {reason}");
            assert_eq!((dead.envelope().error(), dead.attempt()), (Some(&*text), 1));
        }
        let parked = bench.take(&bench.parked()).await;
        assert_eq!(parked.envelope().error(), Some("the handler parked it: ask a person"));
        eventually("all are settled", SOON, async || consumer.counters().in_flight == 0).await;
        let counters = consumer.counters();
        assert_eq!(
            (counters.rejected, counters.parked, counters.retried, counters.dead_lettered),
            (2, 1, 0, 0)
        );
        bench.mq.close().await.unwrap();
    }

    async fn a_handler_may_ask_for_a_retry(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let handler = |message: Message<String>| async move {
            Ok::<_, HandlerError>(match message.attempt() {
                1 => Ack::retry("not yet"),
                _ => Ack::accept(),
            })
        };
        let builder = bench.mq.consumer::<String>(&*bench.queue);
        let consumer =
            builder.retry(RetryPolicy::fixed(2, MOMENT)).start(handler).await.unwrap();
        bench.send("o-1").await;
        settled(&consumer, 1).await;
        assert_eq!(consumer.counters().retried, 1);
        bench.mq.close().await.unwrap();
    }

    // promise: RT-2
    async fn an_undecodable_message_is_parked_with_its_bytes_untouched(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let raw = |content_type| {
            let codec = RawBytes::of_type(content_type);
            bench.mq.publisher::<Bytes>("", &*bench.queue).codec(codec)
        };
        let body = Bytes::from_static(b"\xff\x00 not text");
        let cases = [
            ("application/json; charset=utf-8", "could not be decoded: read the body as JSON"),
            ("application/pdf", "could not be decoded: no codec here reads 'application/pdf'"),
        ];
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .codec(Json)
            .retry(RetryPolicy::fixed(5, MOMENT))
            .start(recorder().0)
            .await
            .unwrap();
        for (content_type, reason) in cases {
            raw(content_type).send(&body).header("x-tenant", "acme").await.unwrap();
            let parked = bench.take(&bench.parked()).await;
            assert_eq!(parked.body(), &body);
            assert_eq!(parked.content_type(), Some(content_type));
            assert_eq!(parked.attempt(), 1);
            assert_eq!(parked.header("x-tenant").unwrap().as_str(), Some("acme"));
            let error = parked.envelope().error().unwrap();
            assert!(error.starts_with(reason), "{error}");
        }
        consumer.close().await.unwrap();
        assert_eq!((consumer.counters().parked, consumer.counters().retried), (2, 0));

        let _text = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .codec(Text)
            .start(recorder().0)
            .await
            .unwrap();
        raw("text/plain").send(&body).await.unwrap();
        assert_eq!(bench.take(&bench.parked()).await.body(), &body);
        bench.mq.close().await.unwrap();
    }

    async fn a_message_past_its_age_is_given_up_with_attempts_left(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let policy = RetryPolicy::fixed(1_000, MOMENT).give_up_after(Duration::from_millis(300));
        let builder = bench.mq.consumer::<String>(&*bench.queue).retry(policy);
        let _consumer = builder.start(always_fails).await.unwrap();
        bench.send("o-1").await;
        let dead = bench.take(&bench.dead_letters()).await;
        assert_eq!(
            dead.envelope().error(),
            Some("exceeded the maximum message age of 300ms: out of stock")
        );
        assert!(dead.attempt() > 1);
        bench.mq.close().await.unwrap();
    }

    async fn a_reason_is_cut_to_a_thousand_characters(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let builder = bench.mq.consumer::<String>(&*bench.queue);
        let handler = |_: Message<String>| async {
            Err::<(), _>(HandlerError::fatal("ü".repeat(5_000)))
        };
        let _consumer = builder.start(handler).await.unwrap();
        bench.send("o-1").await;
        let dead = bench.take(&bench.dead_letters()).await;
        let error = dead.envelope().error().unwrap();
        assert_eq!(error.chars().count(), 1_000);
        assert!(error.ends_with('ü'));
        bench.mq.close().await.unwrap();
    }

    async fn a_reason_leaves_room_for_the_headers_in_the_frame(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let builder = bench.mq.consumer::<String>(&*bench.queue);
        let handler = |_: Message<String>| async {
            Err::<(), _>(HandlerError::fatal("ü".repeat(1_000)))
        };
        let _consumer = builder.start(handler).await.unwrap();
        // The negotiated frame is 128 KiB: what is left is less than the reason.
        let large = "x".repeat(128 * 1_024 - 5_000);
        bench.mq.send_to_queue(&bench.queue, "o-1").header("large", &*large).await.unwrap();
        let dead = bench.take(&bench.dead_letters()).await;
        assert_eq!(dead.header("large").unwrap().as_str(), Some(&*large));
        assert!(dead.envelope().error().is_none_or(|error| error.len() < 1_000));
        bench.mq.close().await.unwrap();
    }

    // promise: RT-3
    async fn a_dead_letter_queue_that_was_deleted_is_made_again(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let builder = bench.mq.consumer::<String>(&*bench.queue);
        let consumer = builder.start(always_fails).await.unwrap();
        bench.mq.delete_queue(&bench.dead_letters()).await.unwrap();
        bench.send("o-1").await;
        eventually("it is set aside", SOON, async || consumer.counters().dead_lettered == 1).await;
        assert_eq!(bench.take(&bench.dead_letters()).await.attempt(), 1);
        assert_eq!((consumer.counters().copies_failed, consumer.counters().returned), (0, 0));
        bench.mq.close().await.unwrap();
    }

    // promise: RT-3
    async fn a_message_that_cannot_be_set_aside_goes_back_paced_until_it_can(broker: Broker) {
        let bench = Bench::new(&broker).await;
        bench.mq.delete_queue(&bench.dead_letters()).await.unwrap();
        let (record, mut seen) = recorder::<String>();
        let handler = move |message: Message<String>| {
            let fails = message.payload() == "fails";
            let recorded = record(message);
            async move {
                recorded.await?;
                if fails { Err(HandlerError::transient("out of stock")) } else { Ok(()) }
            }
        };
        let builder = bench.mq.consumer::<String>(&*bench.queue).declare(false);
        let consumer = builder.start(handler).await.unwrap();
        bench.send("fails").await;
        let begun = Instant::now();
        for again in [false, true, true] {
            assert_eq!(next(&mut seen).await.redelivered(), again);
            // The neighbours of a message that is held go on.
            bench.send("works").await;
            assert_eq!(next(&mut seen).await.payload(), "works");
        }
        assert!(begun.elapsed() >= Duration::from_secs(3), "it went back unpaced");
        assert_eq!(consumer.counters().dead_lettered, 0);

        bench.mq.declare_queue(&Queue::new(bench.dead_letters()).classic()).await.unwrap();
        let dead = bench.take(&bench.dead_letters()).await;
        assert_eq!(dead.attempt(), 1);
        bench.mq.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn what_fails_is_logged_with_its_reason() {
    let (log, _guard) = testkit::logs::of_this_thread();
    let broker = MemoryBroker::new();
    let mq = acemq::connect(broker.url()).await.unwrap();
    mq.declare_queue(&Queue::new("orders").dead_letters()).await.unwrap();
    let consumer = mq
        .consumer::<String>("orders")
        .retry(RetryPolicy::fixed(2, MOMENT))
        .start(always_fails)
        .await
        .unwrap();
    mq.send_to_queue("orders", "o-1").id("id-1").await.unwrap();
    mq.publisher::<Bytes>("", "orders")
        .codec(RawBytes::of_type("application/json"))
        .send(&Bytes::from_static(b"{"))
        .id("id-2")
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;

    assert_eq!(consumer.counters().dead_lettered, 1);
    let retried = log.lines_with(&["INFO", "id-1", "attempt=1", "out of stock", "tried again"]);
    assert_eq!(retried.len(), 1);
    for said in [
        ["id-1", "orders.dlq", "exhausted 2 attempts: out of stock"],
        ["id-2", "orders.parked", "read the body as JSON"],
    ] {
        let said = [&["WARN", "queue=orders", "a message was set aside"][..], &said].concat();
        assert_eq!(log.lines_with(&said).len(), 1, "{said:?}");
    }
    mq.close().await.unwrap();
}
