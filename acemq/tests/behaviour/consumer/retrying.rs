//! Retries: what travels, where it waits, who sees it.

use std::time::{Duration, Instant};

use acemq::{
    ErrorKind, Exchange, HandlerError, HeaderValue, Message, Queue, RetryPolicy, Topology,
};
use testkit::{eventually, unique};

use crate::{
    consumer::bench::{Bench, SOON, next, recorder, settled},
    on_every_broker,
};

const MOMENT: Duration = Duration::from_millis(20);
const RUNG: Duration = Duration::from_millis(400);

/// A policy whose every wait is spent in the broker.
fn in_broker(attempts: u32) -> RetryPolicy {
    RetryPolicy::fixed(attempts, RUNG).wait_in_broker_from(Duration::from_millis(1))
}

fn fails_until(attempt: u32, message: &Message<String>) -> Result<(), HandlerError> {
    if message.attempt() < attempt { Err(HandlerError::transient("not yet")) } else { Ok(()) }
}

on_every_broker! {
    async fn a_retry_changes_the_attempt_and_nothing_else(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let (record, mut seen) = recorder::<String>();
        let handler = move |message: Message<String>| {
            let result = fails_until(4, &message);
            let recorded = record(message);
            async move {
                recorded.await?;
                result
            }
        };
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .retry(RetryPolicy::exponential(5, MOMENT, Duration::from_secs(1)))
            .start(handler)
            .await
            .unwrap();
        bench
            .mq
            .send_to_queue(&bench.queue, "o-1")
            .id("id-1")
            .message_type("order.placed")
            .version(3)
            .correlation_id("corr-1")
            .causation_id("cause-1")
            .claim("urn:claim")
            .header("x-tenant", "acme")
            .header("small", 7_i8)
            .header("nested", vec![HeaderValue::from("a"), HeaderValue::Null])
            .await
            .unwrap();

        let first = next(&mut seen).await;
        for attempt in 2..=4 {
            let later = next(&mut seen).await;
            assert_eq!(later.attempt(), attempt);
            assert_eq!(later.body(), first.body());
            assert_eq!(later.content_type(), Some("application/json"));
            assert_eq!(later.headers(), first.headers());
            assert_eq!(later.header("small"), Some(&HeaderValue::I8(7)));
            let (was, is) = (first.envelope(), later.envelope());
            assert_eq!(is.id(), "id-1");
            assert_eq!(is.message_type(), "order.placed");
            assert_eq!(is.version(), 3);
            assert_eq!(is.correlation_id(), "corr-1");
            assert_eq!(is.causation_id(), Some("cause-1"));
            assert_eq!(is.claim(), Some("urn:claim"));
            assert_eq!((is.origin(), is.first_seen()), (was.origin(), was.first_seen()));
            assert_eq!(is.error(), None);
        }
        settled(&consumer, 1).await;
        assert_eq!(consumer.counters().retried, 3);
        bench.mq.close().await.unwrap();
    }

    // promise: RT-1
    async fn a_long_wait_is_spent_in_the_broker_and_outlives_the_consumer(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let rung = format!("{}.retry.400ms", bench.queue);
        broker.leaves(&*rung);
        let failed = Instant::now();
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .retry(in_broker(3))
            .start(|message: Message<String>| async move { fails_until(2, &message) })
            .await
            .unwrap();
        bench.mq.send_to_queue(&bench.queue, "o-1").id("id-1").await.unwrap();
        eventually("it waits", SOON, async || consumer.counters().retried == 1).await;
        consumer.close().await.unwrap();

        let message = bench.take(&bench.queue).await;
        assert!(failed.elapsed() >= RUNG, "it came too early");
        assert_eq!((message.id(), message.attempt()), ("id-1", 2));
        assert_eq!(bench.ready(&rung).await, 0);
        bench.mq.close().await.unwrap();
    }

    // promise: RT-1
    async fn a_waiting_queue_has_exactly_the_three_arguments_of_the_family(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let rung = format!("{}.retry.400ms", bench.queue);
        broker.leaves(&*rung);
        let builder = bench.mq.consumer::<String>(&*bench.queue).retry(in_broker(2));
        let _consumer = builder.start(recorder().0).await.unwrap();
        let familys = Queue::new(&*rung)
            .classic()
            .argument("x-message-ttl", 400)
            .argument("x-dead-letter-exchange", "acemq.retry")
            .argument("x-dead-letter-routing-key", &*bench.queue);
        bench.mq.declare_queue(&familys).await.unwrap();
        let with_another = familys.argument("x-max-length", 1_000_000);
        let error = bench.mq.declare_queue(&with_another).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Unsupported), "{error}");
        for name in [bench.dead_letters(), bench.parked()] {
            bench.mq.declare_queue(&Queue::new(name).classic()).await.unwrap();
        }
        bench.mq.close().await.unwrap();
    }

    // promise: RT-3
    async fn a_waiting_queue_that_was_deleted_is_made_again(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let rung = format!("{}.retry.400ms", bench.queue);
        broker.leaves(&*rung);
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .retry(in_broker(2))
            .start(|message: Message<String>| async move { fails_until(2, &message) })
            .await
            .unwrap();
        bench.mq.delete_queue(&rung).await.unwrap();
        bench.send("o-1").await;
        settled(&consumer, 1).await;
        assert_eq!((consumer.counters().retried, consumer.counters().returned), (1, 0));
        bench.mq.close().await.unwrap();
    }

    // promise: RT-3
    async fn a_message_with_nowhere_to_wait_goes_back_paced_and_counts_as_nothing(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let (record, mut seen) = recorder::<String>();
        let handler = move |message: Message<String>| {
            let recorded = record(message);
            async move {
                recorded.await?;
                Err::<(), _>(HandlerError::transient("not yet"))
            }
        };
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .declare(false)
            .retry(in_broker(2))
            .start(handler)
            .await
            .unwrap();
        bench.send("o-1").await;

        next(&mut seen).await;
        let begun = Instant::now();
        for _ in 0..2 {
            let again = next(&mut seen).await;
            assert!(again.redelivered());
            assert_eq!(again.attempt(), 1);
        }
        assert!(begun.elapsed() >= Duration::from_secs(3), "it went back unpaced");
        let counters = consumer.counters();
        assert_eq!((counters.retried, counters.dead_lettered), (0, 0));
        assert!(counters.copies_failed >= 2 && counters.returned >= 2);
        bench.mq.close().await.unwrap();
    }

    async fn a_retry_is_not_seen_by_the_other_queues_of_a_fanout(broker: Broker) {
        let mq = acemq::connect(&*broker.url).await.unwrap();
        let exchange = unique("events");
        let (failing, other) = (broker.name("failing"), broker.name("other"));
        mq.declare(
            &Topology::new()
                .exchange(Exchange::fanout(&*exchange))
                .queue(Queue::new(&*failing).dead_letters())
                .queue(Queue::new(&*other).dead_letters())
                .bind(&*failing, &*exchange, "")
                .bind(&*other, &*exchange, ""),
        )
        .await
        .unwrap();
        let fails = mq
            .consumer::<String>(&*failing)
            .retry(RetryPolicy::fixed(5, MOMENT))
            .start(|message: Message<String>| async move { fails_until(5, &message) })
            .await
            .unwrap();
        let works = mq.consumer::<String>(&*other).start(recorder().0).await.unwrap();

        mq.publisher::<String>(&*exchange, "order.placed").send(&"o-1".to_owned()).await.unwrap();

        settled(&fails, 1).await;
        settled(&works, 1).await;
        assert_eq!(fails.counters().retried, 4);
        fails.close().await.unwrap();
        works.close().await.unwrap();
        assert_eq!(works.counters().acknowledged, 1, "the other queue saw the retries");
        assert_eq!(mq.inspect_queue(&other).await.unwrap().unwrap().messages, 0);
        mq.delete_exchange(&exchange).await.unwrap();
        mq.close().await.unwrap();
    }
}
