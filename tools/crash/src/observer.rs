//! The broker as the raw client sees it: what is tested does not report on itself.

use anyhow::{Context as _, Result, ensure};
use futures_util::StreamExt as _;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties,
    options::{
        BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, ConfirmSelectOptions,
        ExchangeDeleteOptions, QueueDeclareOptions, QueueDeleteOptions,
    },
    types::FieldTable,
};
use tokio::time::{Duration, timeout};

use crate::{names::Names, role::Order};

/// How long the next message of a queue may take to come.
const NEXT: Duration = Duration::from_secs(20);
const ACK_EVERY: usize = 500;
/// Tells the end of the audit queue: all that was published before it comes before it.
const END: &str = "the end";

pub(crate) struct Observer {
    connection: Connection,
}

impl Observer {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let connection = Connection::connect(url, ConnectionProperties::default()).await;
        Ok(Self { connection: connection.context("connect to the broker to observe it")? })
    }

    /// How many messages of a queue wait to be delivered; none for one that does not exist.
    pub(crate) async fn waiting(&self, queue: &str) -> Result<u32> {
        // Its own channel, which the broker closes where there is no such queue.
        let channel = self.connection.create_channel().await?;
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let declared = channel.queue_declare(queue.into(), passive, FieldTable::default()).await;
        let Ok(declared) = declared else { return Ok(0) };
        channel.close(200, "OK".into()).await?;
        Ok(declared.message_count())
    }

    /// Takes everything out of the audit queue: the ids, in order.
    pub(crate) async fn copies(&self, names: &Names) -> Result<Vec<String>> {
        let channel = self.connection.create_channel().await?;
        mark_the_end(&channel, &names.audit).await?;
        let options = BasicConsumeOptions::default();
        let consuming = channel.basic_consume(
            (&*names.audit).into(),
            "".into(),
            options,
            FieldTable::default(),
        );
        let mut deliveries = consuming.await?;
        let mut ids = Vec::new();
        loop {
            let delivery = timeout(NEXT, deliveries.next()).await;
            let delivery = delivery.with_context(|| {
                format!("the audit queue goes silent after {} messages, before its end", ids.len())
            })?;
            let delivery = delivery.context("the audit queue's consumer ended")??;
            let id = delivery.properties.message_id().as_ref().context("a message has no id")?;
            if id.as_str() == END {
                break;
            }
            let order: Order = serde_json::from_slice(&delivery.data)?;
            ensure!(id.as_str() == order.order, "message {id} is about order {}", order.order);
            ids.push(order.order);
            // A quorum queue gives a consumer 2,000 at once and no more, whatever it asks for.
            if ids.len() % ACK_EVERY == 0 {
                delivery.ack(BasicAckOptions { multiple: true }).await?;
            }
        }
        channel.close(200, "OK".into()).await?;
        Ok(ids)
    }

    /// Removes what the run has on the broker.
    pub(crate) async fn remove(&self, names: &Names) -> Result<()> {
        let channel = self.connection.create_channel().await?;
        let set_aside = names.set_aside();
        for queue in [&names.work, &names.audit].into_iter().chain(&set_aside) {
            channel.queue_delete((&**queue).into(), QueueDeleteOptions::default()).await?;
        }
        let options = ExchangeDeleteOptions::default();
        channel.exchange_delete((&*names.exchange).into(), options).await?;
        Ok(self.connection.close(200, "OK".into()).await?)
    }
}

async fn mark_the_end(channel: &Channel, queue: &str) -> Result<()> {
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let properties = BasicProperties::default().with_message_id(END.into());
    let publishing = channel.basic_publish("".into(), queue.into(), options, b"", properties);
    let confirm = publishing.await?.await?;
    ensure!(confirm == Confirmation::Ack(None), "the audit queue is gone: {confirm:?}");
    Ok(())
}
