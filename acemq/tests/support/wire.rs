//! Messages as they stand on the wire, read without the library.

use std::collections::BTreeMap;

use lapin::{
    Connection, ConnectionProperties,
    options::{BasicAckOptions, BasicGetOptions},
};

use super::Broker;

/// A message with its types written out, to be compared with another of the same broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OnTheWire {
    pub(crate) exchange: String,
    pub(crate) routing_key: String,
    pub(crate) properties: BTreeMap<&'static str, String>,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

/// Takes what is ready in a queue; on the memory broker it stays there.
pub(crate) async fn take(broker: &Broker, queue: &str) -> Vec<OnTheWire> {
    match &broker.memory {
        Some(memory) => memory.queue(queue).unwrap().iter().map(in_memory).collect(),
        None => from_rabbitmq(&broker.url, queue).await,
    }
}

/// Takes the one message that is in a queue.
pub(crate) async fn take_one(broker: &Broker, queue: &str) -> OnTheWire {
    let mut messages = take(broker, queue).await;
    assert_eq!(messages.len(), 1, "{messages:#?}");
    messages.remove(0)
}

fn in_memory(message: &acemq::testing::MemoryMessage) -> OnTheWire {
    let mut properties = BTreeMap::new();
    let texts = [
        ("content-type", message.content_type()),
        ("message-id", message.message_id()),
        ("correlation-id", message.correlation_id()),
        ("type", message.message_type()),
        ("reply-to", message.reply_to()),
        ("expiration", message.expiration()),
    ];
    for (name, text) in texts {
        properties.extend(text.map(|text| (name, text.to_owned())));
    }
    let mode = if message.is_persistent() { "2" } else { "1" };
    properties.insert("delivery-mode", mode.to_owned());
    properties.extend(message.priority().map(|priority| ("priority", priority.to_string())));
    OnTheWire {
        exchange: message.exchange().to_owned(),
        routing_key: message.routing_key().to_owned(),
        properties,
        headers: message
            .headers()
            .iter()
            .map(|(name, value)| (name.clone(), format!("{value:?}")))
            .collect(),
        body: message.body().to_vec(),
    }
}

async fn from_rabbitmq(url: &str, queue: &str) -> Vec<OnTheWire> {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let mut messages = Vec::new();
    while let Some(got) = channel.basic_get(queue.into(), BasicGetOptions::default()).await.unwrap()
    {
        got.delivery.ack(BasicAckOptions::default()).await.unwrap();
        messages.push(read(&got.delivery));
    }
    connection.close(200, "OK".into()).await.unwrap();
    messages
}

fn read(delivery: &lapin::message::Delivery) -> OnTheWire {
    let given = &delivery.properties;
    let mut properties = BTreeMap::new();
    let texts = [
        ("content-type", given.content_type()),
        ("content-encoding", given.content_encoding()),
        ("message-id", given.message_id()),
        ("correlation-id", given.correlation_id()),
        ("type", given.kind()),
        ("reply-to", given.reply_to()),
        ("expiration", given.expiration()),
        ("user-id", given.user_id()),
        ("app-id", given.app_id()),
        ("cluster-id", given.cluster_id()),
    ];
    for (name, text) in texts {
        properties.extend(text.as_ref().map(|text| (name, text.as_str().to_owned())));
    }
    properties.extend(given.delivery_mode().map(|mode| ("delivery-mode", mode.to_string())));
    properties.extend(given.priority().map(|priority| ("priority", priority.to_string())));
    properties.extend(given.timestamp().map(|time| ("timestamp", time.to_string())));
    let headers = given.headers().as_ref().map(|headers| {
        headers
            .inner()
            .iter()
            .map(|(name, value)| (name.as_str().to_owned(), typed(value)))
            .collect()
    });
    OnTheWire {
        exchange: delivery.exchange.as_str().to_owned(),
        routing_key: delivery.routing_key.as_str().to_owned(),
        properties,
        headers: headers.unwrap_or_default(),
        body: delivery.data.to_vec(),
    }
}

/// A value with its type; text is shown as text.
fn typed(value: &lapin::types::AMQPValue) -> String {
    match value {
        lapin::types::AMQPValue::LongString(text) => format!("LongString({text})"),
        other => format!("{other:?}"),
    }
}
