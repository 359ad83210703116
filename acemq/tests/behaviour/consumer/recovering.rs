//! Lost connections, channels and queues.

use std::{sync::Arc, time::Duration};

use acemq::{
    ConsumerState, Exchange, HandlerError, MemoryIdempotencyStore, Message, Queue, RetryPolicy,
    Topology,
};
use testkit::{OwnBroker, Proxy, eventually, unique};
use tokio::{
    sync::{Notify, watch},
    time::timeout,
};

use crate::{
    consumer::bench::{Bench, SOON, next, recorder, settled},
    on_every_broker,
    support::Broker,
};

/// A broker whose connections can be cut.
pub(crate) enum Line {
    Memory(acemq::testing::MemoryBroker),
    Proxy(Proxy, String),
}

impl Line {
    pub(crate) async fn to(broker: &Broker) -> Self {
        match &broker.memory {
            Some(memory) => Self::Memory(memory.clone()),
            None => Self::Proxy(Proxy::in_front_of(&broker.url).await, broker.url.clone()),
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Memory(memory) => memory.url(),
            Self::Proxy(proxy, url) => proxy.url_for(url),
        }
    }

    /// Cuts it, waits until the consumer says that it has seen it, and mends it.
    pub(crate) async fn cut(&mut self, states: &mut watch::Receiver<ConsumerState>) {
        states.mark_unchanged();
        match self {
            Self::Memory(memory) => {
                memory.drop_connections();
                // It is back before anybody can look.
                timeout(SOON, states.changed()).await.unwrap().unwrap();
            }
            Self::Proxy(proxy, _) => {
                proxy.cut().await;
                until(states, |state| matches!(state, ConsumerState::Recovering { .. })).await;
                proxy.restore().await;
            }
        }
    }
}

async fn until(states: &mut watch::Receiver<ConsumerState>, is: fn(&ConsumerState) -> bool) {
    timeout(SOON, states.wait_for(is)).await.expect("waited in vain").unwrap();
}

/// A queue that the broker deletes with its last consumer or its connection comes back.
async fn comes_back(broker: Broker, kind: fn(Queue) -> Queue) {
    let mut line = Line::to(&broker).await;
    let mq = acemq::connect(line.url()).await.unwrap();
    let publishing = acemq::connect(&*broker.url).await.unwrap();
    let (exchange, queue) = (unique("events"), broker.name("passing"));
    mq.declare(
        &Topology::new()
            .exchange(Exchange::topic(&*exchange))
            .queue(kind(Queue::new(&*queue)))
            .bind(&*queue, &*exchange, "order.*"),
    )
    .await
    .unwrap();
    let (record, mut seen) = recorder::<String>();
    let consumer = mq.consumer::<String>(&*queue).start(record).await.unwrap();
    let mut states = consumer.states();
    let placed = publishing.publisher::<String>(&*exchange, "order.placed");
    placed.send(&"before".to_owned()).await.unwrap();
    assert_eq!(next(&mut seen).await.payload(), "before");

    line.cut(&mut states).await;
    until(&mut states, |state| *state == ConsumerState::Receiving).await;

    // On the memory broker the cut was everybody's.
    eventually("it is routed again", SOON, async || placed.send(&"after".to_owned()).await.is_ok())
        .await;
    assert_eq!(next(&mut seen).await.payload(), "after");
    mq.delete_exchange(&exchange).await.unwrap();
    mq.close().await.unwrap();
}

on_every_broker! {
    // promise: BX-9
    async fn after_a_lost_connection_a_late_settlement_is_dropped_and_the_message_comes_again(
        broker: Broker
    ) {
        let bench = Bench::new(&broker).await;
        let mut line = Line::to(&broker).await;
        let mq = acemq::connect(line.url()).await.unwrap();
        let (begun, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (record, mut seen) = recorder::<String>();
        let handler = {
            let (begun, finish) = (Arc::clone(&begun), Arc::clone(&finish));
            move |message: Message<String>| {
                let (begun, finish) = (Arc::clone(&begun), Arc::clone(&finish));
                let first = message.payload() == "o-1" && !message.redelivered();
                let recorded = record(message);
                async move {
                    recorded.await?;
                    if first {
                        begun.notify_one();
                        finish.notified().await;
                    }
                    Ok(())
                }
            }
        };
        let consumer = mq.consumer::<String>(&*bench.queue).concurrency(2).start(handler);
        let consumer = consumer.await.unwrap();
        let mut states = consumer.states();
        assert_eq!(*states.borrow_and_update(), ConsumerState::Receiving);
        bench.send("o-1").await;
        begun.notified().await;

        line.cut(&mut states).await;
        next(&mut seen).await;
        let again = next(&mut seen).await;
        assert!(again.redelivered());
        finish.notify_one();

        eventually("the first is lost", SOON, async || consumer.counters().returned == 1).await;
        settled(&consumer, 1).await;
        until(&mut states, |state| *state == ConsumerState::Receiving).await;
        bench.send("o-2").await;
        assert_eq!(next(&mut seen).await.payload(), "o-2");
        mq.close().await.unwrap();
        assert_eq!(bench.ready(&bench.queue).await, 0);
    }

    async fn a_failure_after_the_connection_was_lost_makes_no_copy(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let mut line = Line::to(&broker).await;
        let mq = acemq::connect(line.url()).await.unwrap();
        let (begun, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let handler = {
            let (begun, finish) = (Arc::clone(&begun), Arc::clone(&finish));
            move |message: Message<String>| {
                let (begun, finish) = (Arc::clone(&begun), Arc::clone(&finish));
                async move {
                    if message.redelivered() {
                        return Ok(());
                    }
                    begun.notify_one();
                    finish.notified().await;
                    Err(HandlerError::transient("the database went as well"))
                }
            }
        };
        let policy = RetryPolicy::fixed(3, Duration::from_millis(10));
        let builder = mq.consumer::<String>(&*bench.queue).concurrency(2).retry(policy);
        let consumer = builder.start(handler).await.unwrap();
        bench.send("o-1").await;
        begun.notified().await;
        line.cut(&mut consumer.states()).await;
        eventually("it comes again", SOON, async || consumer.counters().acknowledged == 1).await;
        finish.notify_one();
        eventually("the first is lost", SOON, async || consumer.counters().returned == 1).await;
        assert_eq!(consumer.counters().retried, 0);
        mq.close().await.unwrap();
        assert_eq!(bench.ready(&bench.queue).await, 0, "the message was doubled");
    }

    async fn a_handler_that_ran_before_the_connection_was_lost_is_not_run_again(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let mut line = Line::to(&broker).await;
        let mq = acemq::connect(line.url()).await.unwrap();
        let (begun, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let handler = {
            let (begun, finish) = (Arc::clone(&begun), Arc::clone(&finish));
            move |_: Message<String>| {
                let (begun, finish) = (Arc::clone(&begun), Arc::clone(&finish));
                async move {
                    begun.notify_one();
                    finish.notified().await;
                    Ok::<_, HandlerError>(())
                }
            }
        };
        let consumer = mq
            .consumer::<String>(&*bench.queue)
            .concurrency(2)
            .in_progress_wait(Duration::from_millis(50))
            .idempotent(MemoryIdempotencyStore::new())
            .start(handler)
            .await
            .unwrap();
        bench.send("o-1").await;
        begun.notified().await;
        line.cut(&mut consumer.states()).await;
        // The redelivery meets the claim of the handler that still runs.
        eventually("it goes round", SOON, async || consumer.counters().in_progress > 0).await;
        finish.notify_one();
        eventually("it is a duplicate", SOON, async || consumer.counters().duplicates == 1).await;
        mq.close().await.unwrap();
        assert_eq!(bench.ready(&bench.queue).await, 0);
    }

    // promise: BX-9
    async fn a_consumer_whose_queue_was_deleted_goes_on_when_it_is_there_again(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let (record, mut seen) = recorder::<String>();
        let builder = bench.mq.consumer::<String>(&*bench.queue);
        let consumer = builder.start(record).await.unwrap();
        let mut states = consumer.states();
        bench.mq.delete_queue(&bench.queue).await.unwrap();
        // More than one attempt fails.
        until(&mut states, |state| matches!(state, ConsumerState::Recovering { attempt: 3.., .. }))
            .await;

        bench.mq.declare_queue(&Queue::new(&*bench.queue).dead_letters()).await.unwrap();
        bench.send("o-1").await;
        assert_eq!(next(&mut seen).await.payload(), "o-1");
        assert_eq!(consumer.state(), ConsumerState::Receiving);
        bench.mq.close().await.unwrap();
    }

    // promise: BX-9
    async fn an_exclusive_queue_comes_back_with_its_bindings_and_its_consumer(broker: Broker) {
        comes_back(broker, Queue::exclusive).await;
    }

    // promise: BX-9
    async fn an_auto_delete_queue_comes_back_with_its_bindings_and_its_consumer(broker: Broker) {
        comes_back(broker, Queue::auto_delete).await;
    }
}

// In one thread, so that the handler goes on before the consumer sees that its channel is gone.
#[tokio::test]
async fn what_the_broker_has_taken_back_is_not_begun() {
    let broker = Broker::memory();
    let bench = Bench::new(&broker).await;
    bench.send("o-1").await;
    bench.send("o-2").await;
    let finish = Arc::new(Notify::new());
    let (record, mut seen) = recorder::<String>();
    let handler = {
        let finish = Arc::clone(&finish);
        move |message: Message<String>| {
            let waits = message.payload() == "o-1" && !message.redelivered();
            let (recorded, finish) = (record(message), Arc::clone(&finish));
            async move {
                if waits {
                    finish.notified().await;
                }
                recorded.await
            }
        }
    };
    let consumer = bench.mq.consumer::<String>(&*bench.queue).start(handler).await.unwrap();
    assert_eq!(next(&mut seen).await.payload(), "o-1");
    bench.eventually_ready(&bench.queue, 0).await;

    finish.notify_one();
    broker.memory.as_ref().unwrap().drop_connections();
    settled(&consumer, 2).await;
    assert_eq!(next(&mut seen).await.payload(), "o-1");
    assert_eq!(next(&mut seen).await.payload(), "o-2");
    assert!(seen.try_recv().is_err(), "begun, and handled again");
    bench.mq.close().await.unwrap();
}

// promise: RT-1
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_the_broker_neither_shortens_nor_loses_a_wait() {
    let Some(mut server) = OwnBroker::start().await else { return };
    let bench = Bench::new(&Broker::rabbitmq(Some(server.url())).unwrap()).await;
    let wait = Duration::from_secs(20);
    let (record, mut seen) = recorder::<String>();
    let handler = move |message: Message<String>| {
        let fails = message.attempt() == 1;
        let recorded = record(message);
        async move {
            recorded.await?;
            if fails { Err(HandlerError::transient("not yet")) } else { Ok(()) }
        }
    };
    let consumer = bench
        .mq
        .consumer::<String>(&*bench.queue)
        .retry(RetryPolicy::fixed(2, wait).wait_in_broker_from(wait))
        .start(handler)
        .await
        .unwrap();
    bench.send("o-1").await;
    next(&mut seen).await;
    eventually("it waits", SOON, async || consumer.counters().retried == 1).await;
    let failed = tokio::time::Instant::now();
    server.restart().await;
    let again = timeout(Duration::from_secs(90), seen.recv()).await.unwrap().unwrap();
    // The broker counts from the moment it took the copy, a moment before we saw its confirm.
    assert!(failed.elapsed() >= wait - Duration::from_secs(1), "after {:?}", failed.elapsed());
    assert_eq!(again.attempt(), 2);
    bench.mq.close().await.unwrap();
}
