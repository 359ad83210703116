use std::sync::{Arc, Mutex};

use acemq::{Avro, AvroReader, Message, Queue};
use serde::{Deserialize, Serialize};
use testkit::eventually;

use super::database::{Database, Schemas};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    order: String,
    cents: i64,
}

// promise: SR-3
#[tokio::test]
async fn a_message_of_one_process_is_read_by_another_that_has_only_the_registry() {
    let Some(database) = Database::create().await else { return };
    let registry = database.schemas().await;
    let elsewhere = Schemas::new(database.another_pool().await);
    let mq = acemq::connect(format!("memory://{}", testkit::unique("schemas"))).await.unwrap();
    mq.declare_queue(&Queue::new("orders").dead_letters()).await.unwrap();
    let read = Arc::new(Mutex::new(Vec::new()));
    let handler = {
        let read = Arc::clone(&read);
        move |message: Message<Order>| {
            read.lock().unwrap().push(message.payload().clone());
            std::future::ready(Ok(()))
        }
    };
    let reader = AvroReader::new(elsewhere);
    let consumer = mq.consumer::<Order>("orders").codec(reader).start(handler).await.unwrap();

    let schema = r#"{"type": "record", "name": "shop.Order", "fields": [
        {"name": "order", "type": "string"}, {"name": "cents", "type": "long"}]}"#;
    let avro = Avro::registered(schema, registry.clone()).unwrap();
    let placed = mq.publisher::<Order>("", "orders").codec(avro);
    let orders: Vec<_> = (0..3).map(|n| Order { order: format!("o-{n}"), cents: n }).collect();
    for order in &orders {
        placed.send(order).await.unwrap();
    }
    let soon = std::time::Duration::from_secs(20);
    eventually("all are read", soon, async || read.lock().unwrap().len() == 3).await;
    assert_eq!(*read.lock().unwrap(), orders);
    let rows = "FROM acemq_schema_registry WHERE id = 1";
    assert_eq!(database.text("subject", rows).await.unwrap(), "shop.Order");
    assert_eq!(database.text("definition", rows).await.unwrap(), schema);
    assert_eq!(database.text("format", rows).await.unwrap(), "avro");
    consumer.close().await.unwrap();
    mq.close().await.unwrap();
}
