//! A store that is down.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use acemq::{ConsumerState, HandlerError, MemoryIdempotencyStore, Message, RetryPolicy};
use testkit::eventually;
use tokio::sync::Notify;

use crate::{
    consumer::bench::{Bench, SOON, next, recorder, settled},
    consumer::spy::{Call, Spy},
    on_every_broker,
};

on_every_broker! {
    // promise: BX-7
    async fn while_the_store_is_down_a_message_is_held_and_goes_on_when_it_is_back(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let spy = Spy::on(MemoryIdempotencyStore::new());
        // Down from the start on: the consumer starts all the same.
        spy.fail(&[Call::Check, Call::Claim]);
        let (record, mut seen) = recorder::<String>();
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .prefetch(2)
            .idempotent(spy.clone())
            .start(record)
            .await
            .unwrap();
        for _ in 0..3 {
            bench.send("o-1").await;
        }

        eventually("it asks again", SOON, async || spy.count(Call::Claim) >= 4).await;
        assert!(seen.try_recv().is_err(), "handled without a claim");
        let counters = consumer.counters();
        assert_eq!((counters.returned, counters.retried, counters.dead_lettered), (0, 0, 0));
        assert_eq!(bench.ready(&bench.queue).await, 1, "it takes more than its prefetch");
        assert_eq!(counters.waiting_for_store, 1);
        let ConsumerState::Waiting { reason } = consumer.state() else { panic!("it does not say so") };
        assert!(reason.contains("it is down"), "{reason}");

        spy.fail(&[]);
        for _ in 0..3 {
            let message = next(&mut seen).await;
            assert_eq!((message.attempt(), message.redelivered()), (1, false));
        }
        settled(&consumer, 3).await;
        assert_eq!(consumer.state(), ConsumerState::Receiving);
        assert_eq!(consumer.counters().waiting_for_store, 0);
        bench.mq.close().await.unwrap();
    }

    async fn closing_while_the_store_is_down_gives_the_messages_back(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let spy = Spy::on(MemoryIdempotencyStore::new());
        spy.fail(&[Call::Claim]);
        let builder = bench.mq.consumer::<String>(&*bench.queue).idempotent(spy.clone());
        let consumer = builder.start(recorder().0).await.unwrap();
        for _ in 0..2 {
            bench.send("o-1").await;
        }
        eventually("it asks", SOON, async || spy.count(Call::Claim) >= 1).await;
        consumer.close().await.unwrap();
        bench.eventually_ready(&bench.queue, 2).await;
        bench.mq.close().await.unwrap();
    }

    // promise: BX-7
    async fn a_handler_that_ends_while_a_duplicate_waits_for_the_store_is_not_run_for_it(
        broker: Broker
    ) {
        let bench = Bench::new(&broker).await;
        let spy = Spy::on(MemoryIdempotencyStore::new().lease(Duration::from_millis(300)));
        let runs = Arc::new(AtomicU32::new(0));
        let finish = Arc::new(Notify::new());
        let handler = {
            let (runs, finish) = (Arc::clone(&runs), Arc::clone(&finish));
            move |_: Message<String>| {
                runs.fetch_add(1, Ordering::SeqCst);
                let finish = Arc::clone(&finish);
                async move {
                    finish.notified().await;
                    Ok::<_, HandlerError>(())
                }
            }
        };
        let builder = bench.mq.consumer::<String>(&*bench.queue).concurrency(2);
        let builder = builder.in_progress_wait(Duration::from_millis(50)).idempotent(spy.clone());
        let consumer = builder.start(handler).await.unwrap();
        let send = || bench.mq.send_to_queue(&bench.queue, "o-1").id("id-1");
        send().await.unwrap();
        eventually("it runs", SOON, async || runs.load(Ordering::SeqCst) == 1).await;

        spy.fail(&[Call::Claim, Call::Confirm, Call::Renew]);
        send().await.unwrap();
        eventually("the duplicate waits", SOON, async || spy.count(Call::Claim) >= 2).await;
        finish.notify_one();
        eventually("it cannot be confirmed", SOON, async || spy.count(Call::Confirm) >= 1).await;
        // Growing pauses between these: by the last one the lease has run out.
        eventually("time passes", SOON, async || spy.count(Call::Confirm) >= 4).await;

        // For a store that answers again the key is anybody's now.
        spy.fail(&[Call::Confirm]);
        eventually("the duplicate goes round", SOON, async || consumer.counters().in_progress > 0)
            .await;
        spy.fail(&[]);
        settled(&consumer, 2).await;
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        assert_eq!(consumer.counters().duplicates, 1);
        bench.mq.close().await.unwrap();
    }

    // promise: BX-7
    async fn a_handler_is_not_run_again_because_its_confirmation_could_not_be_written(
        broker: Broker
    ) {
        for breaks in [Spy::fail, Spy::panic] {
            let bench = Bench::new(&broker).await;
            // A lease that runs out meanwhile: the store alone would let the handler run again.
            let spy = Spy::on(MemoryIdempotencyStore::new().lease(Duration::from_millis(100)));
            breaks(&spy, &[Call::Confirm]);
            let runs = Arc::new(AtomicU32::new(0));
            let handler = {
                let runs = Arc::clone(&runs);
                move |_: Message<String>| {
                    runs.fetch_add(1, Ordering::SeqCst);
                    std::future::ready(Ok::<_, HandlerError>(()))
                }
            };
            let consumer = bench
                .mq
                .consumer::<String>(&*bench.queue)
                .concurrency(2)
                .in_progress_wait(Duration::from_millis(50))
                .idempotent(spy.clone())
                .start(handler)
                .await
                .unwrap();
            for _ in 0..2 {
                bench.mq.send_to_queue(&bench.queue, "o-1").id("id-1").await.unwrap();
            }
            eventually("it tries again", SOON, async || spy.count(Call::Confirm) >= 4).await;
            assert_eq!(consumer.counters().acknowledged, 0, "acknowledged without a confirmation");
            assert!(consumer.counters().in_progress > 0, "the other delivery does not go round");

            breaks(&spy, &[]);
            settled(&consumer, 2).await;
            assert_eq!(runs.load(Ordering::SeqCst), 1);
            bench.mq.close().await.unwrap();
        }
    }

    // promise: BX-7
    async fn a_handler_is_not_run_again_because_its_confirmation_outlasts_its_lease(
        broker: Broker
    ) {
        let bench = Bench::new(&broker).await;
        let spy = Spy::on(MemoryIdempotencyStore::new().lease(Duration::from_millis(50)))
            .confirm_takes(Duration::from_millis(400));
        let runs = Arc::new(AtomicU32::new(0));
        let handler = {
            let runs = Arc::clone(&runs);
            move |_: Message<String>| {
                runs.fetch_add(1, Ordering::SeqCst);
                std::future::ready(Ok::<_, HandlerError>(()))
            }
        };
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .concurrency(2)
            .in_progress_wait(Duration::from_millis(100))
            .idempotent(spy)
            .start(handler)
            .await
            .unwrap();

        for _ in 0..2 {
            bench.mq.send_to_queue(&bench.queue, "o-1").id("id-1").await.unwrap();
        }

        settled(&consumer, 2).await;
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        assert!(consumer.counters().in_progress > 1, "it did not come back while this was written");
        bench.mq.close().await.unwrap();
    }

    async fn a_claim_that_could_not_be_given_up_delays_the_retry_and_loses_nothing(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let spy = Spy::on(MemoryIdempotencyStore::new().lease(Duration::from_millis(300)));
        spy.fail(&[Call::Release]);
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .in_progress_wait(Duration::from_millis(50))
            .idempotent(spy)
            .retry(RetryPolicy::fixed(2, Duration::from_millis(10)))
            .start(|message: Message<String>| async move {
                match message.attempt() {
                    1 => Err(HandlerError::transient("not yet")),
                    _ => Ok(()),
                }
            })
            .await
            .unwrap();
        bench.send("o-1").await;
        settled(&consumer, 1).await;
        let counters = consumer.counters();
        assert!(counters.in_progress > 0);
        assert_eq!((counters.retried, counters.duplicates), (1, 0));
        bench.mq.close().await.unwrap();
    }
}
