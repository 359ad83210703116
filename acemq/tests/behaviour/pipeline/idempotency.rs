//! Hops that go out twice.

use std::time::Duration;

use acemq::{MemoryIdempotencyStore, Message, RetryPolicy};
use testkit::eventually;
use tokio::sync::mpsc::unbounded_channel;

use crate::{
    consumer::{
        bench::SOON,
        spy::{Call, Spy},
    },
    on_every_broker,
    pipeline::bench::{Bench, Seen},
};

on_every_broker! {
    async fn a_hop_that_a_crash_has_doubled_is_dropped_by_an_idempotent_next_step(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b"]).await;
        let seen = Seen::default();
        // What the first step hands on has arrived, and the note of that is never written.
        let hangs = Spy::on(MemoryIdempotencyStore::new()).confirm_takes(100 * SOON);
        let handled = Spy::on(MemoryIdempotencyStore::new());
        let line = bench
            .mq
            .pipeline(&*bench.name)
            .step("a", seen.step("a"))
            .idempotent(hangs.clone())
            .last("b", seen.last())
            .idempotent(handled.clone())
            .start()
            .await
            .unwrap();
        let sent = line.send(&"o-1".to_owned()).await.unwrap();
        seen.eventually(&["o-1a", "o-1a."]).await;
        eventually("the second step is done", SOON, async || handled.count(Call::Confirm) == 1).await;
        drop(line); // the process is killed

        let line = bench
            .mq
            .pipeline(&*bench.name)
            .step("a", seen.step("a"))
            .last("b", seen.last())
            .idempotent(handled.clone())
            .start()
            .await
            .unwrap();
        // The work of the first step is done again, that of the second is not. What the second had
        // done with when it was killed may not have been settled, and is then a duplicate as well.
        seen.eventually(&["o-1a", "o-1a.", "o-1a"]).await;
        eventually("it came again", SOON, async || handled.count(Call::Claim) >= 2).await;
        eventually("all of it was settled", SOON, async || {
            let waiting = bench.ready(&bench.queue("b")).await;
            waiting == 0 && line.counters().in_flight == 0
        })
        .await;
        line.close().await.unwrap();
        assert_eq!(seen.all(), ["o-1a", "o-1a.", "o-1a"]);
        assert_eq!(handled.keys(), [format!("{}/{}", bench.queue("b"), sent.message_id)]);
        bench.mq.close().await.unwrap();
    }

    async fn a_route_that_leads_to_a_step_twice_is_no_duplicate_there(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b", "c"]).await;
        let (seen, store) = (Seen::default(), Spy::on(MemoryIdempotencyStore::new()));
        let line = bench
            .mq
            .pipeline(&*bench.name)
            .step("a", seen.step("a"))
            .idempotent(store.clone())
            .step("b", seen.step("b"))
            .idempotent(store.clone())
            .last("c", seen.last())
            .start()
            .await
            .unwrap();
        line.send(&"1".to_owned()).id("m-1").through(["a", "b", "a", "a", "c"]).await.unwrap();
        seen.eventually(&["1a", "1ab", "1aba", "1abaa", "1abaa."]).await;
        let slip = ["a", "b", "a", "c"]
            .iter()
            .fold(acemq::Itinerary::empty(), |slip, step| slip.then(&*bench.name, *step, ""));
        line.send(&"2".to_owned()).id("m-2").along(slip).await.unwrap();
        eventually("it arrived", SOON, async || seen.all().last().unwrap() == "2aba.").await;
        let key = |step: &str, id: &str| format!("{}/{id}", bench.queue(step));
        assert_eq!(
            store.keys(),
            [
                key("a", "m-1"),
                key("b", "m-1"),
                key("a", "m-1#2"),
                key("a", "m-1#3"),
                key("a", "m-2"),
                key("b", "m-2"),
                key("a", "m-2#2"),
            ]
        );
        line.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn the_claim_is_confirmed_after_the_hop_and_given_up_when_it_fails(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "end"]).await;
        let (seen, store) = (Seen::default(), Spy::on(MemoryIdempotencyStore::new()));
        let line = bench
            .mq
            .pipeline(&*bench.name)
            .step("a", seen.step("a"))
            .idempotent(store.clone())
            .retry(RetryPolicy::fixed(2, Duration::from_millis(10)))
            .last("end", seen.last())
            .start()
            .await
            .unwrap();
        line.send(&"o-1".to_owned()).through(["a", "nobody"]).await.unwrap();
        bench.reasons("a", 1).await;
        assert_eq!(
            store.calls(),
            [Call::Claim, Call::Release, Call::Claim, Call::Release]
        );
        line.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }

    async fn a_pipeline_that_is_dropped_in_the_middle_of_a_step_loses_nothing(broker: Broker) {
        let bench = Bench::new(&broker, &["a", "b"]).await;
        let (begun, mut running) = unbounded_channel();
        let hangs = move |_: Message<String>| {
            begun.send(()).unwrap();
            std::future::pending()
        };
        let seen = Seen::default();
        let line = bench
            .mq
            .pipeline::<String>(&*bench.name)
            .step::<String, _, _>("a", hangs)
            .last("b", seen.last())
            .start()
            .await
            .unwrap();
        line.send(&"o-1".to_owned()).await.unwrap();
        running.recv().await.unwrap();
        drop(line);
        eventually("it is back", SOON, async || bench.ready(&bench.queue("a")).await == 1).await;
        let line = bench
            .mq
            .pipeline(&*bench.name)
            .step("a", seen.step("a"))
            .last("b", seen.last())
            .start()
            .await
            .unwrap();
        seen.eventually(&["o-1a", "o-1a."]).await;
        line.close().await.unwrap();
        bench.mq.close().await.unwrap();
    }
}
