//! A look at a queue leaves it as it was.

use acemq::{BodyView, ErrorKind, HandlerError, Message, RawBytes, ReasonCount};
use bytes::Bytes;

use super::{fill, number, numbers, with_dead_letters};
use crate::{
    consumer::bench::{Bench, SOON},
    on_every_broker,
};

on_every_broker! {
    async fn messages_are_listed_in_order_and_stay(broker: Broker) {
        let bench = with_dead_letters(&broker, 150).await;
        for looks_before in [false, true] {
            let listed = bench.mq.peek(bench.dead_letters()).messages().await.unwrap();
            assert_eq!(listed.len(), 100, "the default");
            for (at, message) in (0..).zip(&listed) {
                assert_eq!(number(message.body()), at);
                assert_eq!(message.position(), u64::from(at) + 1);
                assert_eq!(message.queue(), bench.dead_letters());
                assert_eq!(message.redelivered(), looks_before);
            }
            bench.eventually_ready(&bench.dead_letters(), 150).await;
        }
        let all = bench.mq.peek(bench.dead_letters()).limit(1_000).messages().await.unwrap();
        let redelivered = all.iter().filter(|message| message.redelivered()).count();
        assert_eq!((all.len(), redelivered), (150, 100), "more was touched than was looked at");
        bench.eventually_ready(&bench.dead_letters(), 150).await;
        assert_eq!(numbers(&broker, &bench.dead_letters()).await, Vec::from_iter(0..150));
        bench.mq.close().await.unwrap();
    }

    async fn a_message_is_shown_with_what_it_says_about_itself_and_its_body(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let failing = bench.mq.consumer::<String>(&*bench.queue);
        let fails = |_: Message<String>| async { Err::<(), _>(HandlerError::fatal("no such card")) };
        let failing = failing.start(fails).await.unwrap();
        bench.mq.send_to_queue(&bench.queue, "o-1").id("id-1").header("x-tenant", "acme").await.unwrap();
        let raw = bench.mq.publisher::<Bytes>("", bench.dead_letters());
        bench.eventually_ready(&bench.dead_letters(), 1).await;
        failing.close().await.unwrap();
        let bytes = Bytes::from_static(b"\x00\xff");
        raw.codec(RawBytes::of_type("image/png")).send(&bytes).id("id-2").await.unwrap();
        bench.eventually_ready(&bench.dead_letters(), 2).await;

        let found = bench.mq.peek(bench.dead_letters()).find("id-1").await.unwrap().unwrap();
        assert_eq!(found.reason(), Some("the handler rejected it: no such card"));
        assert_eq!(found.view(), BodyView::Json("\"o-1\""));
        assert_eq!(found.envelope().headers()["x-tenant"].as_str(), Some("acme"));
        assert_eq!(found.envelope().attempt(), 1);
        assert_eq!(found.content_type(), Some("application/json"));
        assert_eq!((found.exchange(), found.routing_key()), ("", &*bench.dead_letters()));
        bench.eventually_ready(&bench.dead_letters(), 2).await;
        let image = bench.mq.peek(bench.dead_letters()).find("id-2").await.unwrap().unwrap();
        assert_eq!((image.position(), image.reason()), (2, None));
        assert_eq!(image.view(), BodyView::Bytes(b"\x00\xff"));
        bench.eventually_ready(&bench.dead_letters(), 2).await;
        let nobody = bench.mq.peek(bench.dead_letters()).find("id-3").await.unwrap();
        assert!(nobody.is_none());
        bench.eventually_ready(&bench.dead_letters(), 2).await;
        bench.mq.close().await.unwrap();
    }

    async fn reasons_are_counted_over_the_whole_queue(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let fails = |message: Message<String>| async move {
            let number = number(message.body());
            let reason = if number.is_multiple_of(3) { "no such card" } else { "card declined" };
            Err::<(), _>(HandlerError::fatal(reason))
        };
        let failing = bench.mq.consumer::<String>(&*bench.queue).concurrency(4);
        let failing = failing.start(fails).await.unwrap();
        fill(&bench.mq, &bench.queue, 0..600).await;
        bench.eventually_ready(&bench.dead_letters(), 600).await;
        failing.close().await.unwrap();
        fill(&bench.mq, &bench.dead_letters(), 0..5).await;
        bench.eventually_ready(&bench.dead_letters(), 605).await;

        let counts = bench.mq.peek(bench.dead_letters()).reasons().await.unwrap();
        assert_eq!((counts.total, counts.looked_at, counts.others), (605, 605, 0));
        let reasons: Vec<(Option<&str>, u64)> = counts
            .reasons
            .iter()
            .map(|ReasonCount { reason, count, .. }| (reason.as_deref(), *count))
            .collect();
        let expected = [
            (Some("the handler rejected it: card declined"), 400),
            (Some("the handler rejected it: no such card"), 200),
            (None, 5),
        ];
        assert_eq!(reasons, expected);
        bench.eventually_ready(&bench.dead_letters(), 605).await;

        let some = bench.mq.peek(bench.dead_letters()).limit(6).reasons().await.unwrap();
        assert_eq!((some.total, some.looked_at), (605, 6));
        bench.mq.close().await.unwrap();
    }

    async fn an_empty_queue_and_a_missing_one_are_two_things(broker: Broker) {
        let bench = Bench::new(&broker).await;
        assert!(bench.mq.peek(bench.dead_letters()).messages().await.unwrap().is_empty());
        let missing = bench.mq.peek(broker.name("missing")).messages().await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        assert!(missing.to_string().contains("there is no such queue"), "{missing}");
        bench.mq.close().await.unwrap();
    }

    async fn a_look_that_is_dropped_on_the_way_leaves_everything(broker: Broker) {
        let bench = with_dead_letters(&broker, 400).await;
        for polls in [1, 2, 3, 5, 8, 13, 40, 200] {
            let mut look = Box::pin(bench.mq.peek(bench.dead_letters()).reasons());
            for _ in 0..polls {
                if futures_util::poll!(&mut look).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        bench.eventually_ready(&bench.dead_letters(), 400).await;
        assert_eq!(numbers(&broker, &bench.dead_letters()).await, Vec::from_iter(0..400));
        let idle = async || {
            let queue = bench.mq.inspect_queue(&bench.dead_letters()).await.unwrap().unwrap();
            queue.consumers == 0
        };
        testkit::eventually("no consumer is left behind", SOON, idle).await;
        bench.mq.close().await.unwrap();
    }
}
