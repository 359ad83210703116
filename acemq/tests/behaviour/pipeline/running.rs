//! Runs through all steps, and what is counted of them.

use std::{sync::Arc, time::Duration};

use acemq::{HandlerError, Message, PipelineCounters, StepStats};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use testkit::eventually;
use tokio::sync::{Barrier, Semaphore};

use crate::{
    consumer::bench::SOON,
    on_every_broker,
    pipeline::bench::{Bench, Seen},
    support::Broker,
};

fn counts(counters: PipelineCounters) -> (u64, u64, u64, u64) {
    let PipelineCounters { entered, completed, ended_early, in_flight, .. } = counters;
    (entered, completed, ended_early, in_flight)
}

fn stats(stats: StepStats) -> (u64, u64, u64, u64, u64) {
    let StepStats { waiting, in_flight, completed, ended_early, failed, .. } = stats;
    (waiting, in_flight, completed, ended_early, failed)
}

on_every_broker! {
    // promise: PL-1
    async fn every_step_has_a_queue_and_consumers_of_its_own(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b", "c"]).await;
        let seen = Seen::default();
        let line = bench
            .mq
            .pipeline(&*bench.name)
            .step("a", seen.step("a"))
            .step("b", seen.step("b"))
            .last("c", seen.last())
            .start()
            .await
            .unwrap();
        for (step, name) in line.steps().iter().zip(["a", "b", "c"]) {
            assert_eq!((step.name(), step.queue()), (name, &*bench.queue(name)));
            let info = bench.mq.inspect_queue(step.queue()).await.unwrap().unwrap();
            assert_eq!(info.consumers, 1, "{name}");
        }
        line.send(&"o-1".to_owned()).await.unwrap();
        seen.eventually(&["o-1a", "o-1ab", "o-1ab."]).await;

        // One that stands still shows as a queue that is deep, and the others go on.
        line.step("b").unwrap().close().await.unwrap();
        for order in ["o-2", "o-3"] {
            line.send(&order.to_owned()).await.unwrap();
        }
        eventually("they wait for the second step", SOON, async || {
            line.step("b").unwrap().stats().await.unwrap().waiting == 2
        })
        .await;
        assert_eq!(seen.all()[3..], ["o-2a", "o-3a"]);
        line.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    // promise: PL-3
    async fn a_step_that_makes_nothing_ends_the_run_which_is_counted_apart(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b"]).await;
        let seen = Seen::default();
        let decide = |message: Message<String>| async move {
            match message.payload().as_str() {
                "fails" => Err(HandlerError::transient("no")),
                "ends" => Ok(None),
                _ => Ok(Some(message.into_payload())),
            }
        };
        let line = bench
            .mq
            .pipeline(&*bench.name)
            .step("a", decide)
            .last("b", seen.last())
            .start()
            .await
            .unwrap();
        for order in ["ends", "fails", "o-1", "ends"] {
            line.send(&order.to_owned()).await.unwrap();
        }
        bench.reasons("a", 1).await;
        eventually("all are done", SOON, async || counts(line.counters()) == (4, 1, 2, 0)).await;
        eventually("the first step knows", SOON, async || {
            stats(line.step("a").unwrap().stats().await.unwrap()) == (0, 0, 1, 2, 1)
        })
        .await;
        assert_eq!(stats(line.step("b").unwrap().stats().await.unwrap()), (0, 0, 1, 0, 0));
        assert_eq!(seen.all(), ["o-1."]);
        line.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    // promise: PL-4
    async fn nothing_made_at_the_end_of_a_route_completes_it(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b", "c"]).await;
        let seen = Seen::default();
        let line = bench
            .mq
            .pipeline::<String>(&*bench.name)
            .step("a", async |_| Ok(None::<String>))
            .filter("b", async |_| Ok(false))
            .last("c", seen.last())
            .start()
            .await
            .unwrap();
        for route in [vec!["a"], vec!["b"], vec!["c"]] {
            line.send(&"o-1".to_owned()).through(route).await.unwrap();
        }
        eventually("all are done", SOON, async || counts(line.counters()) == (3, 3, 0, 0)).await;
        line.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    // promise: PL-7
    async fn a_step_runs_as_many_handlers_at_once_as_it_was_told_to(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b"]).await;
        let (here, most) = (Arc::new(Barrier::new(8)), Arc::new(Semaphore::new(1)));
        let together = {
            let here = Arc::clone(&here);
            move |message: Message<String>| {
                let here = Arc::clone(&here);
                async move {
                    here.wait().await;
                    Ok(Some(message.into_payload()))
                }
            }
        };
        let alone = move |_: Message<String>| {
            let most = Arc::clone(&most);
            async move {
                let _alone = most.try_acquire().map_err(|_| HandlerError::fatal("not alone"))?;
                tokio::task::yield_now().await;
                Ok(())
            }
        };
        let line = bench
            .mq
            .pipeline(&*bench.name)
            .step("a", together)
            .concurrency(8)
            .last("b", alone)
            .start()
            .await
            .unwrap();
        for _ in 0..16 {
            line.send(&"o-1".to_owned()).await.unwrap();
        }
        eventually("all are done", SOON, async || counts(line.counters()) == (16, 16, 0, 0)).await;
        line.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    // promise: PL-7
    async fn one_step_is_scaled_while_it_runs_and_the_others_are_not_touched(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b"]).await;
        let here = Arc::new(Barrier::new(4));
        let together = {
            let here = Arc::clone(&here);
            move |message: Message<String>| {
                let here = Arc::clone(&here);
                async move {
                    here.wait().await;
                    Ok(Some(message.into_payload()))
                }
            }
        };
        let seen = Seen::default();
        let line = bench
            .mq
            .pipeline(&*bench.name)
            .step("a", together)
            .prefetch(1)
            .consumers(2)
            .last("b", seen.last())
            .start()
            .await
            .unwrap();
        let consumers = async |step: &str| {
            let info = bench.mq.inspect_queue(&bench.queue(step)).await.unwrap();
            info.unwrap().consumers
        };
        assert_eq!((consumers("a").await, consumers("b").await), (2, 1));
        let step = line.step("a").unwrap();
        for _ in 0..4 {
            line.send(&"o-1".to_owned()).await.unwrap();
        }
        eventually("two are in hand", SOON, async || step.stats().await.unwrap().in_flight == 2)
            .await;
        step.scale_to(4).await.unwrap();
        eventually("all are done", SOON, async || counts(line.counters()) == (4, 4, 0, 0)).await;
        assert_eq!((consumers("a").await, consumers("b").await), (4, 1));

        step.scale_to(1).await.unwrap();
        eventually("one is left", SOON, async || consumers("a").await == 1).await;
        assert_eq!((step.consumers().members(), consumers("b").await), (1, 1));
        // What those have done who have left still counts.
        assert_eq!(stats(step.stats().await.unwrap()), (0, 0, 4, 0, 0));
        line.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn one_handler_at_a_time_keeps_the_order_while_many_hops_are_on_their_way(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b", "c"]).await;
        let seen = Seen::default();
        let line = bench
            .mq
            .pipeline::<String>(&*bench.name)
            .step("a", async |order: Message<String>| Ok(Some(order.into_payload())))
            .filter("b", async |_| Ok(true))
            .last("c", seen.last())
            .start()
            .await
            .unwrap();
        let orders: Vec<String> = (0..300).map(|n| n.to_string()).collect();
        for order in &orders {
            line.send(order).await.unwrap();
        }
        let expected: Vec<String> = orders.iter().map(|order| format!("{order}.")).collect();
        eventually("all arrived in order", SOON, async || seen.all() == expected).await;
        line.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn closing_lets_what_is_in_hand_go_on(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b"]).await;
        let seen = Seen::default();
        let (begun, finish) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let slow = {
            let (begun, finish) = (Arc::clone(&begun), Arc::clone(&finish));
            move |message: Message<String>| {
                let (begun, finish) = (Arc::clone(&begun), Arc::clone(&finish));
                async move {
                    begun.add_permits(1);
                    finish.acquire().await?.forget();
                    Ok(Some(message.into_payload()))
                }
            }
        };
        let line = bench
            .mq
            .pipeline(&*bench.name)
            .step("a", slow)
            .last("b", seen.last())
            .start()
            .await
            .unwrap();
        for order in ["o-1", "o-2"] {
            line.send(&order.to_owned()).await.unwrap();
        }
        begun.acquire().await.unwrap().forget();
        let (closed, ()) = tokio::join!(line.close(), async { finish.add_permits(1) });
        closed.unwrap();
        // The first went on, and the second went back.
        let (first, second) = (bench.queue("a"), bench.queue("b"));
        eventually("one went back", SOON, async || bench.ready(&first).await == 1).await;
        eventually("one went on", SOON, async || {
            bench.ready(&second).await + seen.all().len() as u64 == 1
        })
        .await;
        bench.mq.close().await.unwrap();
    }

    async fn a_send_that_is_dropped_sends_one_message_or_none(broker: Broker) {
        use std::{pin::pin, task::{Context, Waker}};
        let bench = Bench::new(&broker, &["a"]).await;
        let seen = Seen::default();
        let line =
            bench.mq.pipeline(&*bench.name).last("a", seen.last()).start().await.unwrap();
        let order = "o-1".to_owned();
        for polls in 0..20 {
            let mut send = pin!(line.send(&order).id(format!("m-{polls}")).into_future());
            for _ in 0..polls {
                if send.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        let last = "last".to_owned();
        line.send(&last).await.unwrap();
        eventually("the last arrived", SOON, async || seen.all().contains(&"last.".into())).await;
        assert!(seen.all().len() <= 21, "{:?}", seen.all());
        line.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }
}

// One thread, so that a recorder of the test's own sees all and nothing else.
#[tokio::test]
async fn the_end_of_each_run_is_counted_by_pipeline_step_and_outcome() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let broker = Broker::memory();
    let bench = Bench::new(&broker, &[]).await;
    let seen = Seen::default();
    let line = bench
        .mq
        .pipeline::<String>(&*bench.name)
        .filter("a", async |order: Message<String>| Ok(order.payload() != "ends"))
        .last("b", seen.last())
        .start()
        .await
        .unwrap();
    for order in ["ends", "o-1", "o-2"] {
        line.send(&order.to_owned()).await.unwrap();
    }
    eventually("all are done", SOON, async || counts(line.counters()) == (3, 2, 1, 0)).await;
    line.close().await.unwrap();

    let mut runs: Vec<(String, String, String, usize)> = Vec::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let name = key.key().name();
        if !name.starts_with("acemq.pipeline") {
            continue;
        }
        let label = |wanted: &str| {
            let found = key.key().labels().find(|label| label.key() == wanted);
            found.map(|label| label.value().to_owned()).unwrap_or_default()
        };
        assert_eq!(label("pipeline"), bench.name);
        let count = match value {
            DebugValue::Counter(count) => count as usize,
            DebugValue::Gauge(_) => 0,
            DebugValue::Histogram(values) => values.len(),
        };
        runs.push((name.to_owned(), label("step"), label("outcome"), count));
    }
    runs.sort();
    let run = |name: &str, step: &str, outcome: &str, count| {
        (format!("acemq.pipeline.run.{name}"), step.to_owned(), outcome.to_owned(), count)
    };
    assert_eq!(
        runs,
        [
            run("duration", "a", "ended_early", 1),
            run("duration", "b", "completed", 2),
            run("total", "a", "ended_early", 1),
            run("total", "b", "completed", 2),
        ]
    );
    bench.mq.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_duration_of_a_run_is_that_of_all_its_steps() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let broker = Broker::memory();
    let bench = Bench::new(&broker, &[]).await;
    let slow = |message: Message<String>| async move {
        tokio::time::sleep(Duration::from_secs(40)).await;
        Ok(Some(message.into_payload()))
    };
    let seen = Seen::default();
    let line = bench
        .mq
        .pipeline(&*bench.name)
        .step("a", slow)
        .step("b", slow)
        .last("c", seen.last())
        .start()
        .await
        .unwrap();
    line.send(&"o-1".to_owned()).await.unwrap();
    eventually("it is done", 3 * SOON, async || line.counters().completed == 1).await;
    let durations = snapshotter.snapshot().into_vec().into_iter().find_map(|(key, _, _, value)| {
        let is_it = key.key().name() == "acemq.pipeline.run.duration";
        match value {
            DebugValue::Histogram(values) if is_it => Some(values),
            _ => None,
        }
    });
    let seconds = durations.unwrap()[0].into_inner();
    assert!((80.0..81.0).contains(&seconds), "{seconds}");
    line.close().await.unwrap();
    bench.mq.close().await.unwrap();
}
