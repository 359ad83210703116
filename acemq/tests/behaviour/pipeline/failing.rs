//! Steps that fail, and next steps that nobody serves.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use acemq::{HandlerError, Message, Queue, RetryPolicy, Topology};
use testkit::eventually;

use crate::{
    consumer::bench::SOON,
    on_every_broker,
    pipeline::bench::{Bench, Seen},
    support::Broker,
};

const MOMENT: Duration = Duration::from_millis(10);

on_every_broker! {
    // promise: PL-7
    async fn each_step_has_its_own_retries_and_counts_its_own_attempts(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b", "c", "d"]).await;
        let seen = Seen::default();
        let fails_until = |attempt: u32, step: &'static str| {
            let seen = seen.clone();
            move |message: Message<String>| {
                seen.note(format!("{step}{}", message.attempt()));
                async move {
                    if message.attempt() < attempt {
                        return Err(HandlerError::transient(format!("{step} fails")));
                    }
                    Ok(Some(message.into_payload()))
                }
            }
        };
        let line = bench
            .mq
            .pipeline::<String>(&*bench.name)
            .step("a", fails_until(3, "a"))
            .retry(RetryPolicy::fixed(3, MOMENT))
            .step("b", fails_until(2, "b"))
            .retry(RetryPolicy::fixed(2, MOMENT))
            .step("c", fails_until(2, "c"))
            .last("d", seen.last())
            .start()
            .await
            .unwrap();
        line.send(&"o-1".to_owned()).await.unwrap();
        assert_eq!(bench.reasons("c", 1).await.len(), 1);
        assert_eq!(seen.all(), ["a1", "a2", "a3", "b1", "b2", "c1"]);
        for (step, failed) in [("a", 2), ("b", 1), ("c", 1), ("d", 0)] {
            eventually("the step knows", SOON, async || {
                line.step(step).unwrap().stats().await.unwrap().failed == failed
            })
            .await;
        }
        line.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn a_next_step_that_nobody_serves_is_a_failure_that_names_it_and_the_input_is_kept(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b", "later", "end"]).await;
        let seen = Seen::default();
        let line = bench
            .mq
            .pipeline(&*bench.name)
            .step("a", seen.step("a"))
            .step("b", seen.step("b"))
            .retry(RetryPolicy::fixed(100, Duration::from_millis(50)))
            .last("end", seen.last())
            .start()
            .await
            .unwrap();
        // Without retries it is set aside.
        line.send(&"o-1".to_owned()).through(["a", "nobody"]).await.unwrap();
        let reasons = bench.reasons("a", 1).await;
        assert!(
            reasons[0].contains("exhausted 1 attempt: it was handled and did not arrive at the step")
                && reasons[0].contains("nobody"),
            "{reasons:?}"
        );
        assert_eq!(line.step("a").unwrap().stats().await.unwrap().completed, 0);

        // With retries it goes on as soon as somebody serves the step.
        line.send(&"o-2".to_owned()).through(["b", "later"]).await.unwrap();
        eventually("it was tried", SOON, async || seen.all().len() >= 3).await;
        let later = bench.queue("later");
        let serves =
            Topology::new().queue(Queue::new(&*later)).bind(&*later, &*bench.name, "later");
        bench.mq.declare(&serves).await.unwrap();
        eventually("it went on", SOON, async || bench.ready(&later).await == 1).await;
        line.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn a_step_that_panics_fails_its_own_message_and_nothing_else(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b"]).await;
        let seen = Seen::default();
        let fragile = |message: Message<String>| {
            // Before the future is there, and inside of it.
            assert!(message.payload() != "at once", "no future");
            async move {
                assert!(message.payload() != "later", "in the future");
                Ok(Some(message.into_payload()))
            }
        };
        let line = bench
            .mq
            .pipeline(&*bench.name)
            .step("a", fragile)
            .last("b", seen.last())
            .start()
            .await
            .unwrap();
        for order in ["at once", "later", "o-1"] {
            line.send(&order.to_owned()).await.unwrap();
        }
        seen.eventually(&["o-1."]).await;
        let reasons = bench.reasons("a", 2).await;
        assert!(reasons[0].contains("exhausted 1 attempt: the handler panicked: no future"), "{reasons:?}");
        assert!(reasons[1].contains("the handler panicked: in the future"), "{reasons:?}");
        line.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn what_cannot_be_written_or_is_too_large_is_tried_once(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b"]).await;
        let ran = Arc::new(AtomicU32::new(0));
        let count = {
            let ran = Arc::clone(&ran);
            move |message: Message<u32>| {
                ran.fetch_add(1, Ordering::SeqCst);
                let size = *message.payload() as usize;
                async move { Ok(Some(if size == 0 { vec![f64::NAN] } else { vec![0.5; size] })) }
            }
        };
        let mq = acemq::connect(&*broker.url).largest_body(1_000).await.unwrap();
        let line = mq
            .pipeline(&*bench.name)
            .step("a", count)
            .retry(RetryPolicy::fixed(5, MOMENT))
            .last("b", async |_: Message<Vec<f64>>| Ok(()))
            .start()
            .await
            .unwrap();
        for size in [0, 10_000, 1] {
            line.send(&size).await.unwrap();
        }
        let reasons = bench.reasons("a", 2).await;
        assert!(reasons[0].contains("NaN"), "{reasons:?}");
        assert!(reasons[1].contains("bytes, but the broker takes"), "{reasons:?}");
        eventually("the third went on", SOON, async || line.counters().completed == 1).await;
        assert_eq!(ran.load(Ordering::SeqCst), 3);
        line.close().await.unwrap();
        mq.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_broker_takes_nothing_the_input_goes_back_and_costs_no_attempt() {
    let broker = Broker::memory();
    let memory = broker.memory.clone().unwrap();
    let mq = acemq::connect(&*broker.url)
        .confirm_timeout(Duration::from_secs(1))
        .blocked_timeout(Duration::from_secs(2))
        .await
        .unwrap();
    let seen = Seen::default();
    let attempts = {
        let seen = seen.clone();
        move |message: Message<String>| {
            seen.note(format!("attempt {}", message.attempt()));
            async move { Ok(Some(message.into_payload())) }
        }
    };
    let start = || {
        mq.pipeline("line").step("a", attempts.clone()).last("b", seen.last()).start().into_future()
    };
    let line = start().await.unwrap();
    line.step("a").unwrap().close().await.unwrap();
    line.send(&"o-1".to_owned()).await.unwrap();
    line.close().await.unwrap();

    memory.block("low on memory");
    let line = start().await.unwrap();
    eventually("it was tried often", 100 * SOON, async || seen.all().len() >= 5).await;
    memory.unblock();
    eventually("it arrived", 100 * SOON, async || line.counters().completed == 1).await;
    let seen = seen.all();
    let (last, before) = seen.split_last().unwrap();
    assert_eq!(last, "o-1.");
    assert!(before.iter().all(|attempt| attempt == "attempt 1"), "{before:?}");
    // It went back each time, and later and later.
    let stats = line.step("a").unwrap().stats().await.unwrap();
    assert_eq!((stats.completed, stats.failed), (1, 0));
    assert_eq!(memory.queue("line.a.dlq").unwrap().len(), 0);
    line.close().await.unwrap();
    mq.close().await.unwrap();
}
