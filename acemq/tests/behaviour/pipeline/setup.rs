//! Building and declaring.

use acemq::{ErrorKind, Exchange, HandlerError, Message, Queue, RetryPolicy};

use crate::{
    on_every_broker,
    pipeline::bench::{Bench, Seen},
    support::Broker,
};

async fn nothing(_: Message<String>) -> Result<(), HandlerError> {
    Ok(())
}

// promise: PL-5
#[tokio::test]
async fn a_name_that_is_no_steps_is_refused_before_anything_is_declared() {
    let broker = Broker::memory();
    let mq = broker.client().await;
    let names = [
        "", "a,b", "a b", " a", "a_b", "-a", ".a", "a/b", "a#", "a*", "ä", "a\n", "a\0", "a\"",
        "１",
    ];
    for name in names {
        let starts: [acemq::Result<()>; 4] = [
            mq.pipeline("line").last(name, nothing).start().await.map(drop),
            mq.pipeline("line")
                .step(name, Seen::default().step(""))
                .last("b", nothing)
                .start()
                .await
                .map(drop),
            mq.pipeline("line").join(name, Seen::default().step("")).start().await.map(drop),
            mq.pipeline("line").join_last(name, nothing).start().await.map(drop),
        ];
        for refused in starts {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{name:?}");
            let text =
                format!("build the pipeline \"line\": \"{}\" is no name", name.escape_debug());
            assert!(error.to_string().starts_with(&text), "{error}");
        }
    }
    assert!(!mq.exchange_exists("line").await.unwrap());
    for name in ["a", "9", "A-1.b", "a..b", "a-"] {
        mq.pipeline("line").last(name, nothing).start().await.unwrap().close().await.unwrap();
    }
    mq.close().await.unwrap();
}

#[tokio::test]
async fn what_cannot_work_is_refused_when_the_pipeline_is_built() {
    let broker = Broker::memory();
    let mq = broker.client().await;
    let twice = mq.pipeline("line").step("a", Seen::default().step("")).last("a", nothing).start();
    let error = twice.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("two of its steps are called \"a\""), "{error}");
    let error = mq.pipeline("").last("a", nothing).start().await.unwrap_err();
    assert!(error.to_string().contains("it has no name"), "{error}");

    for builder in [
        mq.pipeline("line").last("a", nothing).concurrency(0),
        mq.pipeline("line").last("a", nothing).prefetch(0),
        mq.pipeline("line")
            .last("a", nothing)
            .retry(RetryPolicy::fixed(2, std::time::Duration::MAX)),
    ] {
        assert_eq!(builder.start().await.unwrap_err().kind(), ErrorKind::Config);
    }
    mq.close().await.unwrap();
}

// promise: PL-6
#[tokio::test]
async fn descriptions_stand_in_the_log_and_change_nothing() {
    let (log, _guard) = testkit::logs::of_this_thread();
    let broker = Broker::memory();
    let mq = broker.client().await;
    let seen = Seen::default();
    let line = mq
        .pipeline("fulfilment")
        .step("validate", seen.step("v"))
        .step("reserve", seen.step("r"))
        .described_as("hold stock for 15 minutes so payment cannot oversell")
        .last("dispatch", seen.last())
        .start()
        .await
        .unwrap();
    let lines = log.lines_with(&["pipeline fulfilment declared with 3 steps"]);
    let [said] = &*lines else { panic!("{lines:?}") };
    assert!(
        said.ends_with(
            "pipeline fulfilment declared with 3 steps: validate | reserve (hold stock for 15 \
             minutes so payment cannot oversell) | dispatch"
        ),
        "{said}"
    );
    assert!(said.contains("INFO"), "{said}");

    let reserve = line.step("reserve").unwrap();
    assert_eq!(reserve.queue(), "fulfilment.reserve");
    assert_eq!(reserve.description(), Some("hold stock for 15 minutes so payment cannot oversell"));
    assert_eq!(line.step("dispatch").unwrap().description(), None);
    assert!(format!("{reserve:?}").contains("reserve (hold stock"), "{reserve:?}");
    line.send(&"o-1".to_owned()).await.unwrap();
    seen.eventually(&["o-1v", "o-1vr", "o-1vr."]).await;

    let error = line.step("nobody").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().ends_with("there are validate, reserve, dispatch"), "{error}");
    line.close().await.unwrap();
    mq.close().await.unwrap();
}

on_every_broker! {
    async fn queues_that_another_library_declared_are_used_as_they_are(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b"]).await;
        for step in ["a", "b"] {
            bench.mq.declare_queue(&Queue::new(bench.queue(step))).await.unwrap();
        }
        let seen = Seen::default();
        let line = bench
            .mq
            .pipeline(&*bench.name)
            .step("a", seen.step("a"))
            .last("b", seen.last())
            .start()
            .await
            .unwrap();
        line.send(&"o-1".to_owned()).await.unwrap();
        seen.eventually(&["o-1a", "o-1a."]).await;
        line.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn queues_shared_with_the_family_are_declared_as_the_family_does(broker: Broker) {
        let bench = Bench::new(&broker, &["a"]).await;
        let line = || bench.mq.pipeline::<String>(&*bench.name).queues_shared_with_family();
        let running = line().last("a", nothing).start().await.unwrap();
        // Java, say, declares the same.
        bench.mq.declare_queue(&Queue::new(bench.queue("a"))).await.unwrap();
        bench.mq.declare(&Exchange::direct(&*bench.name).into()).await.unwrap();
        running.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn a_queue_of_another_kind_is_a_conflict_and_nothing_is_left_running(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b"]).await;
        bench.mq.declare_queue(&Queue::new(bench.queue("b")).classic()).await.unwrap();
        let start = bench
            .mq
            .pipeline(&*bench.name)
            .step("a", Seen::default().step("a"))
            .last("b", nothing)
            .start();
        let error = start.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert_eq!(bench.mq.inspect_queue(&bench.queue("a")).await.unwrap().unwrap().consumers, 0);
        bench.mq.close().await.unwrap();
    }

    async fn a_step_that_does_not_start_stops_those_that_have(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b"]).await;
        let start = bench
            .mq
            .pipeline(&*bench.name)
            .step("a", Seen::default().step("a"))
            .last("b", nothing)
            .prefetch(0)
            .start();
        assert_eq!(start.await.unwrap_err().kind(), ErrorKind::Config);
        testkit::eventually("nobody consumes", crate::consumer::bench::SOON, async || {
            bench.mq.inspect_queue(&bench.queue("a")).await.unwrap().unwrap().consumers == 0
        })
        .await;
        bench.mq.close().await.unwrap();
    }

    async fn a_start_that_is_dropped_leaves_nobody_consuming(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b"]).await;
        let start = || {
            let line = bench.mq.pipeline(&*bench.name).step("a", Seen::default().step("a"));
            line.last("b", nothing).start()
        };
        // Long enough for all of it, and stopped somewhere on the way.
        let begun = std::time::Instant::now();
        drop(start().await.unwrap());
        let all = begun.elapsed();
        for part in 1..10 {
            let _ = tokio::time::timeout(all * part / 10, start()).await;
        }
        testkit::eventually("nobody consumes", crate::consumer::bench::SOON, async || {
            let mut consumers = 0;
            for step in ["a", "b"] {
                let queue = bench.mq.inspect_queue(&bench.queue(step)).await.unwrap();
                consumers += queue.unwrap().consumers;
            }
            consumers == 0
        })
        .await;
        bench.mq.close().await.unwrap();
    }

    async fn nothing_is_declared_where_that_is_not_allowed(broker: Broker) {
        let bench = Bench::new(&broker, &["a"]).await;
        let line = || bench.mq.pipeline::<String>(&*bench.name).declare(false).last("a", nothing);
        let error = line().start().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        bench.mq.declare_queue(&Queue::new(bench.queue("a"))).await.unwrap();
        let running = line().start().await.unwrap();
        assert!(!bench.mq.exchange_exists(&bench.name).await.unwrap());
        let dead_letters = format!("{}.dlq", bench.queue("a"));
        assert_eq!(bench.mq.inspect_queue(&dead_letters).await.unwrap(), None);
        running.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }
}
