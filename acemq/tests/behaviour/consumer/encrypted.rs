//! Bodies that only the holders of a key can read.

use acemq::{Encrypted, Json, Keyring, RawBytes};
use bytes::Bytes;

use crate::{
    consumer::bench::{Bench, next, recorder},
    on_every_broker,
};

on_every_broker! {
    // promise: EN-2
    async fn the_broker_sees_a_frame_and_the_consumer_the_payload_also_after_a_rotation(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let keys = Keyring::new("2026-01", Keyring::generate_key().unwrap()).unwrap();
        let codec = Encrypted::new(Json, keys.clone());
        let orders = bench.mq.publisher::<String>("", &*bench.queue).codec(codec.clone());
        orders.send(&"confidential".to_owned()).await.unwrap();
        keys.add("2026-02", Keyring::generate_key().unwrap()).unwrap();
        keys.use_key("2026-02").unwrap();
        orders.send(&"confidential".to_owned()).await.unwrap();

        let (record, mut seen) = recorder::<String>();
        let builder = bench.mq.consumer::<String>(&*bench.queue).codec(codec);
        let _consumer = builder.start(record).await.unwrap();
        for id in ["2026-01", "2026-02"] {
            let message = next(&mut seen).await;
            assert_eq!(message.payload(), "confidential");
            assert_eq!(message.content_type(), Some("application/vnd.acemq.encrypted"));
            assert_eq!(Encrypted::key_id_of(message.body()), Some(id));
            assert!(!message.body().windows(6).any(|part| part == b"confid"));
        }
        bench.mq.close().await.unwrap();
    }

    async fn a_consumer_without_keys_is_told_that_it_takes_them(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let keys = Keyring::new("ours", [1; 32]).unwrap();
        let (record, _seen) = recorder::<String>();
        let builder = bench.mq.consumer::<String>(&*bench.queue).codec(Json);
        let _consumer = builder.start(record).await.unwrap();
        let orders = bench.mq.publisher::<String>("", &*bench.queue);
        orders.codec(Encrypted::new(Json, keys)).send(&"o-1".to_owned()).await.unwrap();
        let parked = bench.take(&bench.parked()).await;
        assert_eq!(
            parked.envelope().error().unwrap(),
            "could not be decoded: no codec here reads 'application/vnd.acemq.encrypted': there is \
             `Json`, and this takes `Encrypted` with its keys (feature `encryption`); set it with \
             `.codec(…)`, or several as a tuple"
        );
        // Somebody handed it on as what it is not.
        let body = parked.body().clone();
        let raw = RawBytes::of_type("application/json");
        let raw = bench.mq.publisher::<Bytes>("", &*bench.queue).codec(raw);
        raw.send(&body).await.unwrap();
        let parked = bench.take(&bench.parked()).await;
        let reason = parked.envelope().error().unwrap();
        assert!(reason.contains("read it with `Encrypted` around this codec"), "{reason}");
        bench.mq.close().await.unwrap();
    }

    async fn what_no_key_here_opens_is_parked_as_it_came(broker: Broker) {
        let bench = Bench::new(&broker).await;
        let theirs = Keyring::new("theirs", [1; 32]).unwrap();
        let orders = bench.mq.publisher::<String>("", &*bench.queue);
        orders.codec(Encrypted::new(Json, theirs)).send(&"o-1".to_owned()).await.unwrap();
        let ours = Keyring::new("ours", [2; 32]).unwrap();
        let (record, _seen) = recorder::<String>();
        let builder = bench.mq.consumer::<String>(&*bench.queue).codec(Encrypted::new(Json, ours));
        let _consumer = builder.start(record).await.unwrap();
        let parked = bench.take(&bench.parked()).await;
        let reason = parked.envelope().error().unwrap();
        assert!(reason.contains("the key 'theirs', and the keyring holds 'ours'"), "{reason}");
        assert_eq!(Encrypted::key_id_of(parked.body()), Some("theirs"));
        bench.mq.close().await.unwrap();
    }
}
