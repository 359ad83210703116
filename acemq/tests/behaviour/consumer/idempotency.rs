//! What an idempotent consumer promises.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use acemq::{
    Claim, ErrorKind, Exchange, HandlerError, IdempotencyStore, MemoryIdempotencyStore, Message,
    Queue, RetryPolicy, Topology,
};
use testkit::{eventually, unique};
use tokio::sync::Notify;

use crate::{
    consumer::bench::{Bench, SOON, next, recorder, settled},
    consumer::spy::{Call, Spy},
    on_every_broker,
};

const MOMENT: Duration = Duration::from_millis(50);

on_every_broker! {
    // promise: ID-1
    async fn a_second_delivery_of_a_confirmed_message_does_not_run_the_handler(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let (record, mut seen) = recorder::<String>();
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .idempotent(MemoryIdempotencyStore::new())
            .start(record)
            .await
            .unwrap();

        for _ in 0..2 {
            bench.mq.send_to_queue(&bench.queue, "o-1").id("the-same-id").await.unwrap();
        }

        settled(&consumer, 2).await;
        next(&mut seen).await;
        assert!(seen.try_recv().is_err(), "the handler ran twice");
        assert_eq!(consumer.counters().duplicates, 1);
        bench.mq.close().await.unwrap();
        assert_eq!(Bench::new(&broker).await.ready(&bench.queue).await, 0);
    }

    // promise: ID-2
    // promise: ID-3
    async fn the_claim_on_the_message_id_is_taken_before_the_handler_and_settled_after_it(
        broker: Broker
    ) {
        let bench = Bench::new(&broker).await;
        let spy = Spy::on(MemoryIdempotencyStore::new());
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .idempotent(spy.clone())
            .retry(RetryPolicy::fixed(3, MOMENT))
            .start({
                let spy = spy.clone();
                move |message: Message<String>| {
                    spy.handled(message.id());
                    async move {
                        match message.attempt() {
                            1 => Err(HandlerError::transient("not yet")),
                            _ => Ok(()),
                        }
                    }
                }
            })
            .await
            .unwrap();

        bench.mq.send_to_queue(&bench.queue, "o-1").id("id-1").await.unwrap();

        settled(&consumer, 1).await;
        let first = [Call::Claim, Call::Handle, Call::Release];
        let second = [Call::Claim, Call::Handle, Call::Confirm];
        assert_eq!(spy.calls(), [first, second].concat());
        assert_eq!(spy.keys(), [format!("{}/id-1", bench.queue)]);
        bench.mq.close().await.unwrap();
    }

    // promise: ID-2
    async fn the_key_is_the_bare_id_where_the_family_shares_it(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let spy = Spy::on(MemoryIdempotencyStore::new());
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .idempotent(spy.clone())
            .key_shared_with_family()
            .start(recorder().0)
            .await
            .unwrap();
        bench.mq.send_to_queue(&bench.queue, "o-1").id("id-1").await.unwrap();
        settled(&consumer, 1).await;
        assert_eq!(spy.keys(), ["id-1"]);
        bench.mq.close().await.unwrap();
    }

    // promise: ID-5
    // promise: ID-6
    async fn a_message_that_somebody_else_handles_goes_round_unchanged_until_it_is_confirmed(
        broker: Broker
    ) {
        let bench = Bench::new(&broker).await;
        let store = MemoryIdempotencyStore::new();
        let key = format!("{}/id-1", bench.queue);
        let Claim::Owned(theirs) = store.try_claim(&key).await.unwrap() else {
            panic!("a new key")
        };
        let (record, mut seen) = recorder::<String>();
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .idempotent(store.clone())
            .in_progress_wait(MOMENT)
            .retry(RetryPolicy::none())
            .start(record)
            .await
            .unwrap();

        bench.mq.send_to_queue(&bench.queue, "o-1").id("id-1").await.unwrap();
        eventually("it goes round", SOON, async || consumer.counters().in_progress >= 25).await;
        store.confirm(&theirs).await.unwrap();
        eventually("it is a duplicate", SOON, async || consumer.counters().duplicates == 1).await;

        assert!(seen.try_recv().is_err(), "the handler ran");
        let counters = consumer.counters();
        assert_eq!(
            (counters.retried, counters.dead_lettered, counters.rejected, counters.returned),
            (0, 0, 0, 0)
        );
        assert_eq!(bench.ready(&bench.dead_letters()).await, 0);
        bench.mq.close().await.unwrap();
    }

    // promise: ID-5
    // promise: ID-6
    async fn a_message_whose_claim_runs_out_is_handled_as_its_first_attempt(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let store = MemoryIdempotencyStore::new().lease(Duration::from_millis(500));
        let key = format!("{}/id-1", bench.queue);
        store.try_claim(&key).await.unwrap();
        let (record, mut seen) = recorder::<String>();
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .idempotent(store)
            .in_progress_wait(MOMENT)
            .start(record)
            .await
            .unwrap();

        bench.mq.send_to_queue(&bench.queue, "o-1").id("id-1").await.unwrap();

        let message = next(&mut seen).await;
        assert!(consumer.counters().in_progress > 0);
        assert_eq!((message.id(), message.attempt()), ("id-1", 1));
        assert!(!message.redelivered(), "it was requeued instead of published again");
        bench.mq.close().await.unwrap();
    }

    // promise: ID-16
    async fn a_failed_handler_gives_up_its_own_claim_only(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let store = MemoryIdempotencyStore::new().lease(Duration::from_millis(100));
        let spy = Spy::on(store.clone());
        spy.fail(&[Call::Renew]);
        let (begun, taken_over) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .idempotent(spy.clone())
            .start({
                let (begun, taken_over) = (Arc::clone(&begun), Arc::clone(&taken_over));
                move |_: Message<String>| {
                    let (begun, taken_over) = (Arc::clone(&begun), Arc::clone(&taken_over));
                    async move {
                        begun.notify_one();
                        taken_over.notified().await;
                        Err::<(), _>(HandlerError::transient("too slow"))
                    }
                }
            })
            .await
            .unwrap();
        bench.mq.send_to_queue(&bench.queue, "o-1").id("id-1").await.unwrap();
        begun.notified().await;

        let key = format!("{}/id-1", bench.queue);
        let other = store.clone();
        eventually("another takes the claim over", SOON, async || {
            matches!(other.try_claim(&key).await.unwrap(), Claim::Owned(_))
        })
        .await;
        taken_over.notify_one();
        eventually("the first has failed", SOON, async || spy.count(Call::Release) == 1).await;
        eventually("it is settled", SOON, async || consumer.counters().dead_lettered == 1).await;

        assert_eq!(store.size().await.unwrap(), 1, "the other's claim is gone");
        bench.mq.close().await.unwrap();
    }

    // promise: ID-17
    async fn a_duplicate_after_the_retention_is_handled_again(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let store = MemoryIdempotencyStore::new().retention(MOMENT);
        let (record, mut seen) = recorder::<String>();
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .idempotent(store.clone())
            .start(record)
            .await
            .unwrap();
        bench.mq.send_to_queue(&bench.queue, "o-1").id("id-1").await.unwrap();
        next(&mut seen).await;
        settled(&consumer, 1).await;
        let key = format!("{}/id-1", bench.queue);
        eventually("it is forgotten", SOON, async || !store.is_confirmed(&key).await.unwrap())
            .await;

        bench.mq.send_to_queue(&bench.queue, "o-1").id("id-1").await.unwrap();

        assert_eq!(next(&mut seen).await.id(), "id-1");
        bench.mq.close().await.unwrap();
    }

    // promise: ID-18
    async fn a_consumer_killed_in_its_handler_costs_the_lease_and_not_the_message(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let store = MemoryIdempotencyStore::new().lease(Duration::from_millis(600));
        let begun = Arc::new(Notify::new());
        // A process of its own as far as it can be one: all of its tasks end at once, unasked.
        let doomed = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        doomed.spawn({
            let (url, queue) = (broker.url.clone(), bench.queue.clone());
            let (store, begun) = (store.clone(), Arc::clone(&begun));
            async move {
                let mq = acemq::connect(url).await.unwrap();
                let handler = move |_: Message<String>| {
                    begun.notify_one();
                    std::future::pending::<Result<(), HandlerError>>()
                };
                let consumer = mq.consumer(queue).idempotent(store).start(handler).await.unwrap();
                std::future::pending::<()>().await;
                drop(consumer);
            }
        });
        bench.mq.send_to_queue(&bench.queue, "o-1").id("id-1").await.unwrap();
        begun.notified().await;
        doomed.shutdown_background();

        let (record, mut seen) = recorder::<String>();
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .idempotent(store)
            .in_progress_wait(MOMENT)
            .start(record)
            .await
            .unwrap();

        let message = next(&mut seen).await;
        assert_eq!((message.id(), message.attempt()), ("id-1", 1));
        assert!(consumer.counters().in_progress > 0, "the claim did not outlive its holder");
        bench.mq.close().await.unwrap();
    }

    // promise: ID-20
    async fn consumers_of_different_queues_on_one_store_do_not_suppress_each_other(broker: Broker) {
        let mq = acemq::connect(&*broker.url).await.unwrap();
        let exchange = unique("events");
        let (billing, shipping) = (broker.name("billing"), broker.name("shipping"));
        mq.declare(
            &Topology::new()
                .exchange(Exchange::fanout(&*exchange))
                .queue(Queue::new(&*billing).dead_letters())
                .queue(Queue::new(&*shipping).dead_letters())
                .bind(&*billing, &*exchange, "")
                .bind(&*shipping, &*exchange, ""),
        )
        .await
        .unwrap();
        let store = MemoryIdempotencyStore::new();
        let (record, mut seen) = recorder::<String>();
        let mut consumers = Vec::new();
        for queue in [&billing, &shipping] {
            let builder = mq.consumer::<String>(&**queue).idempotent(store.clone());
            consumers.push(builder.start(record.clone()).await.unwrap());
        }

        mq.publisher::<String>(&*exchange, "order.placed").send(&"o-1".to_owned()).await.unwrap();

        let mut queues = [next(&mut seen).await, next(&mut seen).await].map(|m| m.queue().to_owned());
        queues.sort();
        assert_eq!(queues, [billing, shipping]);
        mq.delete_exchange(&exchange).await.unwrap();
        mq.close().await.unwrap();
    }

    // promise: BX-4
    async fn a_handler_slower_than_its_lease_is_not_run_twice(broker: Broker) {
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
        let consumer = builder
            .in_progress_wait(MOMENT)
            .idempotent(spy.clone())
            .start(handler)
            .await
            .unwrap();
        for _ in 0..2 {
            bench.mq.send_to_queue(&bench.queue, "o-1").id("id-1").await.unwrap();
        }

        // Several leases pass while the second delivery goes round.
        eventually("the claim is renewed", SOON, async || spy.count(Call::Renew) >= 10).await;
        assert!(consumer.counters().in_progress > 0);
        finish.notify_one();

        settled(&consumer, 2).await;
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        assert_eq!(consumer.counters().duplicates, 1);
        bench.mq.close().await.unwrap();
    }

    // promise: ID-2
    async fn a_key_made_of_the_payload_recognises_what_was_sent_under_two_ids(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let spy = Spy::on(MemoryIdempotencyStore::new());
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .idempotent(spy.clone())
            .idempotency_key(|message| message.payload().clone())
            .start(recorder().0)
            .await
            .unwrap();
        for id in ["id-1", "id-2"] {
            bench.mq.send_to_queue(&bench.queue, "o-1").id(id).await.unwrap();
        }
        settled(&consumer, 2).await;
        assert_eq!(consumer.counters().duplicates, 1);
        // Scoped by the queue, as an id is.
        assert_eq!(spy.keys(), [format!("{}/o-1", bench.queue)]);
        bench.mq.close().await.unwrap();
    }

    // promise: ID-22
    async fn a_message_without_a_key_is_set_aside_with_that_reason_and_never_handled(
        broker: Broker
    ) {
        let bench = Bench::new(&broker).await;
        let spy = Spy::on(MemoryIdempotencyStore::new());
        let (record, mut seen) = recorder::<String>();
        let consumer = bench
            .mq
            .consumer::<String>(&*bench.queue)
            .idempotent(spy.clone())
            .idempotency_key(|message| match message.payload().as_str() {
                "panics" => panic!("on purpose"),
                payload => payload.trim_matches('-').to_owned(),
            })
            .retry(RetryPolicy::fixed(3, MOMENT))
            .start(record)
            .await
            .unwrap();
        for (payload, reason) in [("--", "is empty"), ("panics", "panicked: on purpose")] {
            bench.mq.send_to_queue(&bench.queue, payload).id("id-1").await.unwrap();
            bench.eventually_ready(&bench.dead_letters(), 1).await;
            let message = bench.take(&bench.dead_letters()).await;
            let error = message.envelope().error().unwrap();
            assert!(error.contains(reason), "{error}");
            assert_eq!(message.attempt(), 1);
        }
        bench.send("o-1").await;
        settled(&consumer, 1).await;
        assert_eq!(next(&mut seen).await.payload(), "o-1");
        assert!(seen.try_recv().is_err());
        assert_eq!(spy.keys(), [format!("{}/o-1", bench.queue)], "the id was taken for the key");
        bench.mq.close().await.unwrap();
    }

    async fn handlers_that_finish_at_the_same_time_are_confirmed_together(broker: Broker) {
        const HANDLERS: usize = 16;
        let bench = Bench::new(&broker).await;
        let store = MemoryIdempotencyStore::new();
        let spy = Spy::on(store.clone()).confirm_takes(Duration::from_millis(200));
        let all = Arc::new(tokio::sync::Barrier::new(HANDLERS));
        let handler = {
            let all = Arc::clone(&all);
            move |_: Message<String>| {
                let all = Arc::clone(&all);
                async move {
                    all.wait().await;
                    Ok::<_, HandlerError>(())
                }
            }
        };
        let builder = bench.mq.consumer::<String>(&*bench.queue).concurrency(HANDLERS);
        let consumer = builder.idempotent(spy.clone()).start(handler).await.unwrap();
        for n in 0..HANDLERS {
            bench.mq.send_to_queue(&bench.queue, "o").id(format!("id-{n}")).await.unwrap();
        }
        settled(&consumer, HANDLERS as u64).await;
        let asked = spy.count(Call::Confirm) + spy.count(Call::ConfirmBatch);
        assert!(asked <= HANDLERS / 2, "the store was asked {asked} times");
        for n in 0..HANDLERS {
            assert!(store.is_confirmed(&format!("{}/id-{n}", bench.queue)).await.unwrap());
        }
        bench.mq.close().await.unwrap();
    }

    async fn a_start_without_a_store_that_could_ever_be_used_fails(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let consumer = || bench.mq.consumer::<String>(&*bench.queue);
        let keyed = consumer().idempotency_key(|message| message.id().to_owned());
        let error = keyed.start(recorder().0).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);

        let spy = Spy::on(MemoryIdempotencyStore::new());
        spy.refuse(&[Call::Check]);
        let refused = consumer().idempotent(spy.clone()).start(recorder().0).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::NotFound);
        bench.mq.close().await.unwrap();
    }
}
