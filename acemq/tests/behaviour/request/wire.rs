//! Requests and replies as they stand on the wire.

use acemq::{HandlerError, Message, Queue};
use testkit::eventually;

use crate::{consumer::bench::SOON, on_every_broker, request::bench::Bench, support::wire};

on_every_broker! {
    async fn a_request_names_its_reply_queue_as_header_and_as_property(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let requester = bench.requester().await;
        let requests = bench.requests(&requester);
        let payload = "r-1".to_owned();
        let asking = requests.request(&payload).header("x-tenant", "acme").into_future();
        let looking = async {
            eventually("it is there", SOON, async || bench.ready(&bench.queue).await == 1).await;
            let request = wire::take_one(&broker, &bench.queue).await;
            requester.close().await.unwrap();
            request
        };
        let (asked, request) = tokio::join!(asking, looking);
        asked.unwrap_err();

        let address = requester.reply_queue();
        assert!(address.starts_with("acemq-reply-"), "{address}");
        assert_eq!(request.properties["reply-to"], address);
        assert!(request.headers["acemq-reply-to"].contains(&address), "{request:#?}");
        assert_eq!(request.headers["x-acemq-id"], request.headers["x-acemq-correlation"]);
        assert!(request.headers["x-acemq-id"].contains(&request.properties["message-id"]));
        assert!(request.headers["x-tenant"].contains("acme"));
        assert!(!request.properties.contains_key("correlation-id"));
        assert_eq!(request.properties["delivery-mode"], "2");
        bench.mq.close().await.unwrap();
    }

    async fn a_reply_goes_through_the_default_exchange_with_the_request_s_correlation(
        broker: Broker
    ) {
        let bench = Bench::new(&broker).await;
        let handler = |message: Message<String>| async move {
            match &**message.payload() {
                "fails" => Err(HandlerError::fatal("no such article")),
                _ => Ok(1_250),
            }
        };
        let builder = bench.mq.consumer::<String>(&*bench.queue);
        let _responder = builder.respond(handler).await.unwrap();
        let replies = broker.name("replies");
        bench.mq.declare_queue(&Queue::new(&*replies)).await.unwrap();
        let publisher = bench.mq.publisher::<String>("", &*bench.queue);
        let mut taken = Vec::new();
        for payload in ["works", "fails"] {
            let payload = payload.to_owned();
            let request = publisher.send(&payload).id("the-request").correlation_id("the-business");
            request.reply_to(&*replies).await.unwrap();
            eventually("it is answered", SOON, async || bench.ready(&replies).await >= 1).await;
            let mut reply = wire::take(&broker, &replies).await;
            if broker.memory.is_some() {
                bench.mq.purge_queue(&replies).await.unwrap();
            }
            assert_eq!(reply.len(), 1);
            taken.push(reply.remove(0));
        }
        let (works, fails) = (&taken[0], &taken[1]);
        for reply in [works, fails] {
            assert_eq!((&*reply.exchange, &*reply.routing_key), ("", &*replies));
            assert!(reply.headers["x-acemq-correlation"].contains("the-business"));
            assert!(reply.headers["x-acemq-causation"].contains("the-request"));
            assert!(reply.headers["x-acemq-type"].contains("reply"));
            assert!(!reply.headers["x-acemq-id"].contains("the-request"));
            assert_eq!(reply.properties["content-type"], "application/json");
            assert!(!reply.properties.contains_key("reply-to"));
            assert!(!reply.headers.contains_key("acemq-reply-to"));
        }
        assert_eq!(works.body, b"1250");
        assert!(!works.headers.contains_key("acemq-error"));
        assert_eq!(fails.body, b"null");
        assert!(fails.headers["acemq-error"].contains("(no such article)")
            || fails.headers["acemq-error"].contains("\"no such article\""));
        bench.mq.close().await.unwrap();
    }
}
