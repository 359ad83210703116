//! Ways that differ by message.

use acemq::{ErrorKind, Itinerary, Message};
use testkit::eventually;

use crate::{
    consumer::bench::SOON,
    on_every_broker,
    pipeline::bench::{Bench, Seen},
};

on_every_broker! {
    // promise: PL-14
    async fn two_messages_take_different_ways_through_one_pipeline(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b", "c", "d"]).await;
        let seen = Seen::default();
        let line = bench
            .mq
            .pipeline(&*bench.name)
            .step("a", seen.step("a"))
            .step("b", seen.step("b"))
            .step("c", seen.step("c"))
            .last("d", seen.last())
            .start()
            .await
            .unwrap();
        let along = |steps: &[&str]| {
            let to = |slip: Itinerary, step: &&str| slip.then(&*bench.name, *step, *step);
            steps.iter().fold(Itinerary::empty(), to)
        };
        line.send(&"1".to_owned()).through(["a", "c", "d"]).await.unwrap();
        seen.eventually(&["1a", "1ac", "1ac."]).await;
        line.send(&"2".to_owned()).along(along(&["c", "b", "d"])).await.unwrap();
        seen.eventually(&["1a", "1ac", "1ac.", "2c", "2cb", "2cb."]).await;
        // Beyond the last declared step, and over a step again.
        line.send(&"3".to_owned()).along(along(&["b", "a", "b", "b"])).await.unwrap();
        eventually("it arrived", SOON, async || seen.all()[6..] == ["3b", "3ba", "3bab", "3babb"])
            .await;
        eventually("three runs are over", SOON, async || line.counters().completed == 3).await;
        line.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn a_step_runs_alone_where_others_run_the_rest(broker: Broker) {
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
        line.step("b").unwrap().close().await.unwrap();
        line.step("c").unwrap().close().await.unwrap();

        let other = broker.client().await;
        let joined = other.pipeline(&*bench.name).join("b", seen.step("B")).start().await.unwrap();
        let last = other.pipeline(&*bench.name).join_last("c", seen.last()).start().await.unwrap();
        let run = line.send(&"o-1".to_owned()).await.unwrap();
        seen.eventually(&["o-1a", "o-1aB", "o-1aB."]).await;
        assert_eq!(run.run_id.len(), 36);
        assert_eq!((joined.name(), joined.queue()), ("b", &*bench.queue("b")));
        eventually("both have completed", SOON, async || {
            joined.stats().await.unwrap().completed == 1 && last.stats().await.unwrap().completed == 1
        })
        .await;
        joined.close().await.unwrap();
        drop(last);
        other.close().await.unwrap();
        line.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn joining_a_step_that_nobody_declared_is_an_error(broker: Broker) {
        let bench = Bench::new(&broker, &["a"]).await;
        let start = bench.mq.pipeline(&*bench.name).join("a", Seen::default().step("a")).start();
        let error = start.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains(&bench.queue("a")), "{error}");
        bench.mq.close().await.unwrap();
    }

    async fn a_route_that_goes_on_after_the_last_step_ends_there_early(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b"]).await;
        let seen = Seen::default();
        let line = bench
            .mq
            .pipeline(&*bench.name)
            .step("a", seen.step("a"))
            .last("b", seen.last())
            .start()
            .await
            .unwrap();
        line.send(&"o-1".to_owned()).through(["b", "a"]).await.unwrap();
        eventually("it is over", SOON, async || line.counters().ended_early == 1).await;
        assert_eq!(seen.all(), ["o-1."]);
        line.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn a_way_that_cannot_be_gone_is_refused_when_it_is_sent(broker: Broker) {
        let bench = Bench::new(&broker, &["a"]).await;
        let seen = Seen::default();
        let line =
            bench.mq.pipeline(&*bench.name).last("a", seen.last()).start().await.unwrap();
        let order = "o-1".to_owned();
        let no_steps: [&str; 0] = [];
        for (send, kind) in [
            (line.send(&order).through(no_steps), ErrorKind::Config),
            (line.send(&order).through(["a", "b,c"]), ErrorKind::Config),
            (line.send(&order).through([""]), ErrorKind::Config),
            (line.send(&order).through(["nobody"]), ErrorKind::Unroutable),
            (line.send(&order).along(Itinerary::empty()), ErrorKind::Config),
            (line.send(&order).along(Itinerary::empty().then("", "nobody", "")), ErrorKind::Unroutable),
        ] {
            let error = send.id("m-1").await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(!error.may_have_been_published());
        }
        assert_eq!(line.counters().entered, 0);

        // Larger than a frame at once, or on the way.
        let mut slip = Itinerary::empty();
        for stop in 0..10_000 {
            slip = slip.then(&*bench.name, "a", format!("stop-{stop}"));
        }
        let error = line.send(&order).along(slip).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        let mut slip = Itinerary::empty();
        while slip.to_header().len() < 100_000 {
            for _ in 0..50 {
                slip = slip.then("", bench.queue("a"), "");
            }
        }
        let error = line.send(&order).along(slip).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        assert!(error.to_string().contains("stops made"), "{error}");
        let error = line.send(&order).through(vec!["a"; 100_000]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        // The connection is none the worse for it.
        line.send(&order).await.unwrap();
        seen.eventually(&["o-1."]).await;
        line.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn what_a_handler_sees_says_where_the_message_is(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b"]).await;
        let seen = Seen::default();
        let look = {
            let seen = seen.clone();
            move |message: Message<String>| {
                let route = message.envelope().route().unwrap();
                seen.note(format!("{} {} {}", route.steps.join(","), route.position, route.run_id));
                async { Ok(Some(message.into_payload())) }
            }
        };
        let last = {
            let seen = seen.clone();
            move |message: Message<String>| {
                let route = message.envelope().route().unwrap();
                seen.note(format!("{} {}", route.position, message.id()));
                async { Ok(()) }
            }
        };
        let line =
            bench.mq.pipeline(&*bench.name).step("a", look).last("b", last).start().await.unwrap();
        let run = line.send(&"o-1".to_owned()).correlation_id("checkout-7").await.unwrap();
        let (first, second) = (format!("a,b 0 {}", run.run_id), format!("1 {}", run.message_id));
        seen.eventually(&[&first, &second]).await;
        line.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }
}
