//! Pausing, resuming, and another prefetch for a consumer that runs.

use std::time::Duration;

use acemq::{ConsumerState, ErrorKind, Queue};
use futures_util::FutureExt as _;
use testkit::eventually;

use crate::{
    consumer::{
        bench::{Bench, SOON, settled},
        gate::{Gate, payloads},
        recovering::Line,
    },
    on_every_broker,
    support::Broker,
};

async fn send(bench: &Bench, payloads: &[String]) {
    bench.mq.publisher::<String>("", &*bench.queue).send_all(payloads).await.unwrap();
}

on_every_broker! {
    async fn a_paused_consumer_takes_nothing_and_goes_on_once_it_is_resumed(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let gate = Gate::open();
        let consumer =
            bench.mq.consumer::<String>(&*bench.queue).start(gate.handler()).await.unwrap();
        bench.send("before").await;
        settled(&consumer, 1).await;

        consumer.pause().await.unwrap();
        assert_eq!(consumer.state(), ConsumerState::Paused);
        bench.eventually_consumers(0).await;
        bench.send("meanwhile").await;
        bench.eventually_ready(&bench.queue, 1).await;
        // Twice is once.
        consumer.pause().await.unwrap();

        consumer.resume().await.unwrap();
        assert_eq!(consumer.state(), ConsumerState::Receiving);
        settled(&consumer, 2).await;
        consumer.resume().await.unwrap();
        bench.send("after").await;
        settled(&consumer, 3).await;
        assert_eq!(gate.begun(), ["before", "meanwhile", "after"]);
        bench.eventually_consumers(1).await;
        bench.mq.close().await.unwrap();
    }

    async fn pausing_lets_handlers_finish_and_hands_back_what_none_has_begun(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let gate = Gate::closed();
        let builder = bench.mq.consumer::<String>(&*bench.queue).prefetch(10);
        let consumer = builder.start(gate.handler()).await.unwrap();
        send(&bench, &payloads(5)).await;
        bench.eventually_ready(&bench.queue, 0).await;
        eventually("one runs", SOON, async || gate.begun().len() == 1).await;

        consumer.pause().await.unwrap();
        bench.eventually_ready(&bench.queue, 4).await;
        gate.let_go(1);
        // On the channel that it came from, which is still there.
        settled(&consumer, 1).await;
        assert_eq!(consumer.state(), ConsumerState::Paused);

        gate.let_go(4);
        consumer.resume().await.unwrap();
        settled(&consumer, 5).await;
        assert_eq!(gate.begun(), payloads(5));
        assert_eq!(consumer.counters().returned, 0);
        bench.mq.close().await.unwrap();
    }

    async fn a_message_in_flight_over_a_pause_is_settled_once(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let gate = Gate::closed();
        let builder = bench.mq.consumer::<String>(&*bench.queue).prefetch(10);
        let consumer = builder.start(gate.handler()).await.unwrap();
        send(&bench, &payloads(1)).await;
        eventually("it runs", SOON, async || gate.begun().len() == 1).await;
        consumer.pause().await.unwrap();
        consumer.resume().await.unwrap();
        gate.let_go(1);
        settled(&consumer, 1).await;
        consumer.close().await.unwrap();
        assert_eq!(gate.begun(), payloads(1));
        assert_eq!(bench.ready(&bench.queue).await, 0);
        bench.mq.close().await.unwrap();
    }

    async fn another_prefetch_takes_effect_while_messages_are_in_flight(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let gate = Gate::closed();
        let builder = bench.mq.consumer::<String>(&*bench.queue).prefetch(1).concurrency(100);
        let consumer = builder.start(gate.handler()).await.unwrap();
        send(&bench, &payloads(60)).await;
        eventually("one runs", SOON, async || consumer.counters().in_flight == 1).await;
        bench.eventually_ready(&bench.queue, 59).await;

        let mut done = 0;
        for wanted in [8, 3] {
            consumer.set_prefetch(wanted).await.unwrap();
            // What was out already came on top.
            let out = consumer.counters().in_flight;
            done += out;
            gate.let_go(usize::try_from(out).unwrap());
            eventually("as many are out as wanted, and not one more", SOON, async || {
                let counters = consumer.counters();
                let out = (counters.acknowledged, counters.in_flight);
                let ready = bench.ready(&bench.queue).await;
                out == (done, wanted.into()) && ready == 60 - done - u64::from(wanted)
            })
            .await;
            bench.eventually_consumers(1).await;
        }

        gate.let_go(60);
        settled(&consumer, 60).await;
        assert_eq!(gate.begun_sorted(), payloads(60));
        bench.mq.close().await.unwrap();
    }

    async fn another_prefetch_costs_an_auto_delete_queue_nothing(broker: Broker) {
        let mq = acemq::connect(&*broker.url).await.unwrap();
        let queue = broker.name("passing");
        mq.declare_queue(&Queue::new(&*queue).auto_delete()).await.unwrap();
        let bench = Bench { mq, queue };
        let gate = Gate::closed();
        let builder = bench.mq.consumer::<String>(&*bench.queue).prefetch(1);
        let consumer = builder.start(gate.handler()).await.unwrap();
        send(&bench, &payloads(5)).await;
        eventually("one runs", SOON, async || gate.begun().len() == 1).await;
        consumer.set_prefetch(2).await.unwrap();
        gate.let_go(5);
        settled(&consumer, 5).await;
        assert_eq!(gate.begun(), payloads(5));
        bench.mq.close().await.unwrap();
    }

    async fn nothing_is_lost_or_doubled_however_often_a_consumer_is_changed(broker: Broker) {
        const MESSAGES: usize = 2_000;
        let bench = Bench::new(&broker).await;
        // Classic: on a quorum queue every return costs a delivery, and there are many here.
        bench.mq.delete_queue(&bench.queue).await.unwrap();
        bench.mq.declare_queue(&Queue::new(&*bench.queue).classic()).await.unwrap();
        let gate = Gate::open();
        let builder = bench.mq.consumer::<String>(&*bench.queue).prefetch(50).concurrency(4);
        let consumer = builder.start(gate.handler()).await.unwrap();
        let all = payloads(MESSAGES);
        let publishing = send(&bench, &all);
        let changing = async {
            let mut prefetch = 1;
            while consumer.counters().acknowledged < MESSAGES as u64 {
                consumer.set_prefetch(prefetch).await.unwrap();
                consumer.pause().await.unwrap();
                consumer.set_prefetch(50).await.unwrap();
                consumer.resume().await.unwrap();
                prefetch = prefetch % 60 + 7;
            }
        };
        tokio::join!(publishing, changing);
        settled(&consumer, MESSAGES as u64).await;
        assert_eq!(gate.begun_sorted(), all);
        assert_eq!(consumer.counters().returned, 0);
        consumer.close().await.unwrap();
        assert_eq!(bench.ready(&bench.queue).await, 0);
        bench.mq.close().await.unwrap();
    }

    async fn a_paused_consumer_stays_paused_over_a_lost_connection(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let mut line = Line::to(&broker).await;
        let mq = acemq::connect(line.url()).await.unwrap();
        let gate = Gate::open();
        let consumer = mq.consumer::<String>(&*bench.queue).start(gate.handler()).await.unwrap();
        // One that is not paused, to see the loss by.
        let other = broker.name("other");
        mq.declare_queue(&Queue::new(&*other)).await.unwrap();
        let witness = mq.consumer::<String>(&*other).start(Gate::open().handler()).await.unwrap();
        consumer.pause().await.unwrap();

        line.cut(&mut witness.states()).await;
        let mut states = witness.states();
        let back = states.wait_for(|state| *state == ConsumerState::Receiving);
        tokio::time::timeout(SOON, back).await.unwrap().unwrap();
        assert_eq!(consumer.state(), ConsumerState::Paused);
        eventually("it is sent", SOON, async || {
            bench.mq.send_to_queue(&bench.queue, "o-1").await.is_ok()
        })
        .await;
        bench.eventually_consumers(0).await;

        consumer.resume().await.unwrap();
        settled(&consumer, 1).await;
        mq.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn a_consumer_whose_queue_went_while_it_was_paused_says_so_and_goes_on_trying(
        broker: Broker
    ) {
        let bench = Bench::new(&broker).await;
        let gate = Gate::open();
        let consumer =
            bench.mq.consumer::<String>(&*bench.queue).start(gate.handler()).await.unwrap();
        consumer.pause().await.unwrap();
        bench.mq.delete_queue(&bench.queue).await.unwrap();

        let error = consumer.resume().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        assert!(error.to_string().contains("it goes on trying"), "{error}");
        assert!(matches!(consumer.state(), ConsumerState::Recovering { .. }));
        // While it tries it can be changed and paused as well.
        consumer.set_prefetch(3).await.unwrap();
        consumer.pause().await.unwrap();
        assert_eq!(consumer.state(), ConsumerState::Paused);

        bench.mq.declare_queue(&Queue::new(&*bench.queue).dead_letters()).await.unwrap();
        consumer.resume().await.unwrap();
        bench.send("o-1").await;
        settled(&consumer, 1).await;
        bench.mq.close().await.unwrap();
    }

    async fn an_exclusive_consumer_has_to_be_paused_for_another_prefetch(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let gate = Gate::open();
        let builder = bench.mq.consumer::<String>(&*bench.queue).exclusive();
        let consumer = builder.start(gate.handler()).await.unwrap();
        let error = consumer.set_prefetch(5).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");

        consumer.pause().await.unwrap();
        consumer.set_prefetch(5).await.unwrap();
        consumer.resume().await.unwrap();
        bench.send("o-1").await;
        settled(&consumer, 1).await;
        bench.mq.close().await.unwrap();
    }

    async fn a_change_whose_future_is_dropped_is_made_all_the_same(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let gate = Gate::open();
        let consumer =
            bench.mq.consumer::<String>(&*bench.queue).start(gate.handler()).await.unwrap();
        let mut states = consumer.states();
        // Where it has an answer already, it was not dropped.
        let _ = consumer.pause().now_or_never();
        let paused = states.wait_for(|state| *state == ConsumerState::Paused);
        tokio::time::timeout(SOON, paused).await.unwrap().unwrap();
        // Both at once, of which the later one counts.
        let _ = consumer.resume().now_or_never();
        let _ = consumer.pause().now_or_never();
        consumer.resume().await.unwrap();
        bench.send("o-1").await;
        settled(&consumer, 1).await;
        bench.mq.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_closed_consumer_can_not_be_changed_and_a_prefetch_of_0_is_refused() {
    let bench = Bench::new(&Broker::memory()).await;
    let gate = Gate::open();
    let consumer = bench.mq.consumer::<String>(&*bench.queue).start(gate.handler()).await.unwrap();
    assert_eq!(consumer.set_prefetch(0).await.unwrap_err().kind(), ErrorKind::Config);
    consumer.pause().await.unwrap();
    consumer.close().await.unwrap();
    assert_eq!(consumer.state(), ConsumerState::Closed);
    for refused in [consumer.pause().await, consumer.resume().await, consumer.set_prefetch(1).await]
    {
        let error = refused.unwrap_err();
        assert_eq!((error.kind(), error.queue()), (ErrorKind::Closed, Some(&*bench.queue)));
    }
    bench.mq.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn handlers_that_run_on_in_a_paused_consumer_are_waited_for_when_it_closes() {
    let bench = Bench::new(&Broker::memory()).await;
    let gate = Gate::closed();
    let consumer = bench.mq.consumer::<String>(&*bench.queue).start(gate.handler()).await.unwrap();
    bench.send("o-1").await;
    eventually("it runs", SOON, async || gate.begun().len() == 1).await;
    consumer.pause().await.unwrap();
    let finish = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        gate.let_go(1);
    };
    let (closed, ()) = tokio::join!(consumer.close(), finish);
    closed.unwrap();
    assert_eq!(consumer.counters().acknowledged, 1);
    assert_eq!(bench.ready(&bench.queue).await, 0);
    bench.mq.close().await.unwrap();
}
