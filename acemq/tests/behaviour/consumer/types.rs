//! Several types of message on one queue.

use acemq::{ByType, HandlerError, Json, Message, Text};
use serde::{Deserialize, Serialize};
use testkit::eventually;

use crate::{
    consumer::bench::{Bench, SOON, next, recorder},
    on_every_broker,
};

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Placed {
    order: String,
    cents: u64,
}

#[derive(Serialize, Deserialize)]
struct PlacedInEuros {
    order: String,
    euros: u64,
}

#[derive(Debug, PartialEq)]
enum Event {
    Placed(Placed),
    Cancelled(String),
    Other(String, u32, usize),
}

fn events() -> ByType<Event, Json> {
    ByType::new(Json)
        .read("order.placed", Event::Placed)
        .read_version("order.placed", 1, |old: PlacedInEuros| {
            Event::Placed(Placed { order: old.order, cents: old.euros * 100 })
        })
        .read("order.cancelled", Event::Cancelled)
}

impl Bench {
    async fn publish<T: Serialize + Sync>(&self, message_type: &str, version: u32, payload: &T) {
        let publisher = self.mq.publisher::<T>("", &*self.queue);
        publisher.message_type(message_type).version(version).send(payload).await.unwrap();
    }
}

on_every_broker! {
    // promise: TY-1
    async fn each_message_is_read_as_what_its_type_and_version_say(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let (record, mut seen) = recorder();
        let builder = bench.mq.consumer::<Event>(&*bench.queue).codec(events());
        let _consumer = builder.start(record).await.unwrap();
        let placed = |cents| Placed { order: "o-1".into(), cents };
        bench.publish("order.placed", 2, &placed(250)).await;
        assert_eq!(*next(&mut seen).await.payload(), Event::Placed(placed(250)));
        let old = PlacedInEuros { order: "o-1".into(), euros: 3 };
        bench.publish("order.placed", 1, &old).await;
        assert_eq!(*next(&mut seen).await.payload(), Event::Placed(placed(300)));
        // What is newer than this consumer has, most often, more fields and not other ones.
        bench.publish("order.placed", 7, &placed(1)).await;
        assert_eq!(*next(&mut seen).await.payload(), Event::Placed(placed(1)));
        bench.publish("order.cancelled", 1, &"o-1").await;
        assert_eq!(*next(&mut seen).await.payload(), Event::Cancelled("o-1".into()));
        bench.mq.close().await.unwrap();
    }

    #[cfg(feature = "encryption")]
    async fn types_are_told_apart_inside_of_other_codecs(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let keys = acemq::Keyring::new("k", [7; 32]).unwrap();
        let (record, mut seen) = recorder();
        let builder = bench.mq.consumer::<Event>(&*bench.queue).codec((
            ByType::new(Text),
            acemq::Encrypted::new(events(), keys.clone()),
        ));
        let _consumer = builder.start(record).await.unwrap();
        let cancelled = bench.mq.publisher::<String>("", &*bench.queue);
        let cancelled = cancelled.codec(acemq::Encrypted::new(Json, keys));
        cancelled.message_type("order.cancelled").send(&"o-1".to_owned()).await.unwrap();
        assert_eq!(*next(&mut seen).await.payload(), Event::Cancelled("o-1".into()));
        bench.mq.close().await.unwrap();
    }

    // promise: TY-1
    async fn a_type_that_is_not_known_is_parked_and_the_reason_names_those_that_are(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let (record, _seen) = recorder();
        let builder = bench.mq.consumer::<Event>(&*bench.queue).codec(events());
        let _consumer = builder.start(record).await.unwrap();
        bench.publish("order.shipped", 4, &"o-1").await;
        let parked = bench.take(&bench.parked()).await;
        let reason = parked.envelope().error().unwrap();
        assert!(reason.contains("'order.shipped' in version 4"), "{reason}");
        assert!(reason.contains("order.cancelled, order.placed"), "{reason}");

        // A known type in a format that the codec does not read.
        let text = bench.mq.publisher::<String>("", &*bench.queue).codec(Text);
        text.message_type("order.cancelled").send(&"o-1".to_owned()).await.unwrap();
        let parked = bench.take(&bench.parked()).await;
        let reason = parked.envelope().error().unwrap();
        let refusal = "no codec here reads 'text/plain': there is `Json`, and this takes `Text`;";
        assert!(reason.contains(refusal), "{reason}");
        bench.mq.close().await.unwrap();
    }

    async fn what_is_not_known_may_be_handled_all_the_same(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let events = ByType::new(Json)
            .read_version("order.placed", 2, Event::Placed)
            .otherwise(|envelope, body| {
                Event::Other(envelope.message_type().to_owned(), envelope.version(), body.len())
            });
        let ignore = |message: Message<Event>| async move {
            match message.payload() {
                Event::Other(..) => Ok(()),
                _ => Err(HandlerError::fatal("not expected")),
            }
        };
        let builder = bench.mq.consumer::<Event>(&*bench.queue).codec(events);
        let consumer = builder.start(ignore).await.unwrap();
        bench.publish("order.shipped", 1, &"o-1").await;
        bench.publish("order.placed", 3, &"o-1").await;
        let handled = async || consumer.counters().acknowledged == 2;
        eventually("both are handled", SOON, handled).await;
        bench.mq.close().await.unwrap();
    }
}
