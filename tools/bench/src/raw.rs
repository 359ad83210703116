//! The raw client, used the best way we know.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties,
    options::{
        BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicPublishOptions,
        BasicQosOptions, ConfirmSelectOptions,
    },
    types::{AMQPValue, FieldTable},
};

use crate::bench::body;

/// AMQP's delivery mode for a message that survives a restart of the broker.
pub(crate) const PERSISTENT: u8 = 2;

/// A connection by lapin.
pub(crate) struct Raw {
    connection: Connection,
    /// With confirms.
    pub(crate) publishing: Arc<Channel>,
}

impl Raw {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let connection = Connection::connect(url, ConnectionProperties::default()).await?;
        let publishing = connection.create_channel().await?;
        publishing.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(Self { connection, publishing: Arc::new(publishing) })
    }

    pub(crate) async fn consuming(&self) -> Result<Channel> {
        Ok(self.connection.create_channel().await?)
    }

    pub(crate) async fn close(self) -> Result<()> {
        Ok(self.connection.close(200, "OK".into()).await?)
    }
}

/// What a raw message carries beside its body.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content {
    /// Nothing.
    Bare,
    /// What acemq's messages carry: the same headers, an id and a content type.
    SameAsAcemq,
}

impl Content {
    fn properties(self, queue: &str) -> BasicProperties {
        let properties = BasicProperties::default().with_delivery_mode(PERSISTENT);
        match self {
            Self::Bare => properties,
            Self::SameAsAcemq => {
                let id = uuid::Uuid::new_v4().to_string();
                let mut headers = FieldTable::default();
                let mut put = |name: &str, value| {
                    headers.insert(name.into(), value);
                };
                put("x-acemq-attempt", AMQPValue::LongInt(1));
                put("x-acemq-correlation", AMQPValue::LongString(id.as_bytes().into()));
                put("x-acemq-first-seen", AMQPValue::LongLongInt(1_767_323_045_678));
                put("x-acemq-id", AMQPValue::LongString(id.as_bytes().into()));
                put("x-acemq-origin", AMQPValue::LongString("bench@host".into()));
                put("x-acemq-type", AMQPValue::LongString(queue.as_bytes().into()));
                put("x-acemq-version", AMQPValue::LongInt(1));
                properties
                    .with_content_type("application/octet-stream".into())
                    .with_headers(headers)
                    .with_message_id(id.into())
            }
        }
    }
}

/// Publishes a message, persistent and mandatory, and checks its confirm.
pub(crate) async fn publish(channel: &Channel, queue: &str, content: Content) -> Result<()> {
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let properties = content.properties(queue);
    let confirm =
        channel.basic_publish("".into(), queue.into(), options, &body(), properties).await?.await?;
    ensure!(confirm == Confirmation::Ack(None), "not confirmed: {confirm:?}");
    Ok(())
}

/// Publishes with that many confirms in flight; no write is waited for on its own.
pub(crate) async fn publish_many(
    channel: Arc<Channel>,
    queue: String,
    content: Content,
    messages: usize,
    in_flight: usize,
) -> Result<()> {
    let confirmed = stream::iter(0..messages)
        .map(|_| publish(&channel, &queue, content))
        .buffer_unordered(in_flight)
        .try_fold(0, async |count, ()| Ok(count + 1))
        .await?;
    ensure!(confirmed == messages, "{confirmed} of {messages} messages were confirmed");
    Ok(())
}

/// Consumes and acknowledges every message by channel and tag, with no ack waited for on its own;
/// the broker has all of them when this returns.
pub(crate) async fn consume(
    channel: Channel,
    queue: String,
    messages: usize,
    prefetch: u16,
) -> Result<()> {
    channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
    let options = BasicConsumeOptions::default();
    let mut consumer =
        channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await?;
    for _ in 0..messages {
        let delivery = consumer.next().await.context("the consumer ended")??;
        ensure!(delivery.data.len() == body().len(), "a body of {} bytes", delivery.data.len());
        // The first poll queues the frame.
        if let Some(acked) =
            channel.basic_ack(delivery.delivery_tag, BasicAckOptions::default()).now_or_never()
        {
            acked?;
        }
    }
    channel.basic_cancel(consumer.tag(), BasicCancelOptions::default()).await?;
    channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
    Ok(channel.close(200, "OK".into()).await?)
}

/// Moves every message through these queues: each is acknowledged when the next queue has it, with
/// the confirms of one queue's messages side by side, and those at the last queue at once. The
/// broker has all acknowledgements when this returns.
pub(crate) async fn move_on(
    channels: Vec<Channel>,
    publishing: Arc<Channel>,
    queues: Vec<String>,
    messages: usize,
    prefetch: u16,
) -> Result<()> {
    let nexts = queues.iter().skip(1).cloned().map(Some).chain([None]);
    let loops = channels.into_iter().zip(queues.iter().cloned()).zip(nexts);
    let loops = loops.map(|((channel, queue), next)| {
        // A task each, as an application would have.
        let moving = move_to(channel, Arc::clone(&publishing), queue, next, messages, prefetch);
        async { tokio::spawn(moving).await? }
    });
    futures_util::future::try_join_all(loops).await?;
    Ok(())
}

async fn move_to(
    channel: Channel,
    publishing: Arc<Channel>,
    queue: String,
    next: Option<String>,
    messages: usize,
    prefetch: u16,
) -> Result<()> {
    channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
    let options = BasicConsumeOptions::default();
    let consumer =
        channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await?;
    let tag = consumer.tag();
    let moved = consumer
        .take(messages)
        .map(|delivery| async {
            let delivery = delivery?;
            let tag = delivery.delivery_tag;
            if let Some(next) = &next {
                publish_on(&publishing, next, delivery).await?;
            }
            // The first poll queues the frame.
            if let Some(acked) = channel.basic_ack(tag, BasicAckOptions::default()).now_or_never() {
                acked?;
            }
            anyhow::Ok(())
        })
        .buffer_unordered(prefetch.into())
        .try_fold(0, async |count, ()| Ok(count + 1))
        .await?;
    ensure!(moved == messages, "{moved} of {messages} messages were moved");
    channel.basic_cancel(tag, BasicCancelOptions::default()).await?;
    channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
    Ok(channel.close(200, "OK".into()).await?)
}

/// Publishes what was consumed once more, for the next step of its route.
async fn publish_on(
    channel: &Channel,
    queue: &str,
    delivery: lapin::message::Delivery,
) -> Result<()> {
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let mut headers = delivery.properties.headers().clone().unwrap_or_default();
    let position = headers.inner().get("x-acemq-route-position").and_then(AMQPValue::as_long_int);
    let position = position.context("no position on the route")? + 1;
    headers.insert("x-acemq-route-position".into(), AMQPValue::LongInt(position));
    let properties = delivery.properties.with_headers(headers);
    let confirm = channel
        .basic_publish("".into(), queue.into(), options, &delivery.data, properties)
        .await?
        .await?;
    ensure!(confirm == Confirmation::Ack(None), "not confirmed: {confirm:?}");
    Ok(())
}
