//! Requests and their replies, one at a time.

use std::{sync::Arc, time::Instant};

use acemq::{Client, HandlerError, Message, RawBytes};
use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _, future::try_join};
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, Consumer,
    message::Delivery,
    options::{
        BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions,
        ConfirmSelectOptions, QueueDeclareOptions,
    },
    types::{AMQPValue, FieldTable},
};
use tokio::sync::oneshot;

use crate::{
    bench::{Bench, QueueKind, body, declare},
    pairs::{Pair, Reading, alternate, timed},
    raw::PERSISTENT,
};

pub(super) const ABOUT: &str = "the median time of a request, one after the other, to a responder \
    on connections of its own that sends the body back, against the same by hand on lapin: a reply \
    queue, a correlation id, the request mandatory and confirmed while its reply is waited for, the \
    reply mandatory and confirmed before the request is acknowledged; the time of a reading is its \
    median times the number of requests";

const PREFETCH: u16 = 20;

pub(super) async fn run(bench: &Bench, kind: QueueKind) -> Result<Vec<Pair>> {
    alternate(
        bench.rounds,
        async || {
            let queue = declare(&bench.mq, kind).await?;
            let reading = by_hand(bench, &queue).await?;
            bench.mq.delete_queue(&queue).await?;
            Ok(reading)
        },
        async || {
            let queue = declare(&bench.mq, kind).await?;
            let reading = with_acemq(bench, &queue).await?;
            bench.mq.delete_queue(&queue).await?;
            Ok(reading)
        },
    )
    .await
}

/// Runs work in a task, as an application would; it gives the time of each request.
async fn median(work: impl Future<Output = Result<Vec<f64>>> + Send + 'static) -> Result<Reading> {
    let (sender, times) = oneshot::channel();
    let reading = timed(async move {
        let times = work.await?;
        sender.send(times).ok().context("nobody wants the times")
    })
    .await?;
    let mut times = times.await?;
    times.sort_by(f64::total_cmp);
    let median = times.get(times.len() / 2).context("there was no request")?;
    Ok(Reading { seconds: median * times.len() as f64, ..reading })
}

async fn with_acemq(bench: &Bench, queue: &str) -> Result<Reading> {
    let other = acemq::connect(&bench.broker).client_name("responder").await?;
    let handler = |message: Message<Bytes>| async { Ok::<_, HandlerError>(message.into_payload()) };
    let builder = other.consumer::<Bytes>(queue).codec(RawBytes::default());
    let builder = builder.prefetch(PREFETCH).declare(false);
    let responder = builder.respond_in(RawBytes::default(), handler).await?;
    let reading = median(ask(bench.mq.clone(), queue.to_owned(), bench.messages)).await?;
    responder.close().await?;
    other.close().await?;
    Ok(reading)
}

async fn ask(mq: Client, queue: String, requests: usize) -> Result<Vec<f64>> {
    let requester = mq.requester().await?;
    let to = requester
        .to::<Bytes, Bytes>("", queue)
        .codec(RawBytes::default())
        .reply_codec(RawBytes::default());
    let (body, mut times) = (body(), Vec::with_capacity(requests));
    for _ in 0..requests {
        let started = Instant::now();
        let reply = to.request(&body).await?;
        times.push(started.elapsed().as_secs_f64());
        ensure!(reply.len() == body.len(), "a reply of {} bytes", reply.len());
    }
    requester.close().await?;
    Ok(times)
}

async fn by_hand(bench: &Bench, queue: &str) -> Result<Reading> {
    let connections =
        [ByHand::connect(&bench.broker).await?, ByHand::connect(&bench.broker).await?];
    let [asking, answering] = &connections;
    let mut requests = answering.consume(queue).await?;
    let publishing = Arc::clone(&answering.publishing);
    let responder = tokio::spawn(async move {
        while let Some(request) = requests.next().await {
            answer(&publishing, request?).await?;
        }
        anyhow::Ok(())
    });
    let reply_queue = format!("bench-reply-{}", uuid::Uuid::new_v4());
    let options = QueueDeclareOptions {
        exclusive: true,
        auto_delete: true,
        ..QueueDeclareOptions::default()
    };
    let channel = &asking.publishing;
    channel.queue_declare((&*reply_queue).into(), options, FieldTable::default()).await?;
    let replies = asking.consume(&reply_queue).await?;
    let (channel, queue, requests) = (Arc::clone(channel), queue.to_owned(), bench.messages);
    let reading = median(async move {
        let mut replies = replies;
        let mut times = Vec::with_capacity(requests);
        for _ in 0..requests {
            let started = Instant::now();
            ask_by_hand(&channel, &queue, &reply_queue, &mut replies).await?;
            times.push(started.elapsed().as_secs_f64());
        }
        Ok(times)
    })
    .await?;
    responder.abort();
    for ByHand { connection, .. } in connections {
        connection.close(200, "OK".into()).await?;
    }
    Ok(reading)
}

/// A connection by lapin, and its channel with confirms.
struct ByHand {
    connection: Connection,
    publishing: Arc<Channel>,
}

impl ByHand {
    async fn connect(broker: &str) -> Result<Self> {
        let connection = Connection::connect(broker, ConnectionProperties::default()).await?;
        let publishing = connection.create_channel().await?;
        publishing.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(Self { connection, publishing: Arc::new(publishing) })
    }

    async fn consume(&self, queue: &str) -> Result<Consumer> {
        let channel = self.connection.create_channel().await?;
        channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
        let options = BasicConsumeOptions::default();
        Ok(channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await?)
    }
}

async fn ask_by_hand(
    channel: &Channel,
    queue: &str,
    reply_queue: &str,
    replies: &mut Consumer,
) -> Result<()> {
    let id = uuid::Uuid::new_v4().to_string();
    let reply_to = ("acemq-reply-to", AMQPValue::LongString(reply_queue.as_bytes().into()));
    let properties = properties(&id, &id, queue, [reply_to]).with_reply_to(reply_queue.into());
    let body = body();
    let confirmed = publish(channel, queue, &body, properties);
    let answered = async {
        let reply = replies.next().await.context("the replies ended")??;
        ensure!(correlation(&reply)? == id, "another's reply");
        ensure!(reply.data.len() == body.len(), "a reply of {} bytes", reply.data.len());
        ack(&reply)
    };
    try_join(confirmed, answered).await.map(|_| ())
}

async fn answer(channel: &Channel, request: Delivery) -> Result<()> {
    let to = request.properties.reply_to().clone().context("nowhere to reply")?;
    let id = uuid::Uuid::new_v4().to_string();
    let cause = request.properties.message_id().clone().context("no id")?;
    let caused = ("x-acemq-causation", AMQPValue::LongString(cause.as_str().into()));
    let properties = properties(&id, &correlation(&request)?, "reply", [caused]);
    publish(channel, to.as_str(), &request.data, properties).await?;
    ack(&request)
}

/// No ack is waited for on its own.
fn ack(delivery: &Delivery) -> Result<()> {
    // The first poll queues the frame.
    if let Some(acked) = delivery.ack(BasicAckOptions::default()).now_or_never() {
        acked?;
    }
    Ok(())
}

fn correlation(delivery: &Delivery) -> Result<String> {
    let headers = delivery.properties.headers().as_ref().context("no headers")?;
    match headers.inner().get("x-acemq-correlation") {
        Some(AMQPValue::LongString(id)) => Ok(id.to_string()),
        other => anyhow::bail!("no correlation: {other:?}"),
    }
}

async fn publish(
    channel: &Channel,
    queue: &str,
    body: &[u8],
    properties: BasicProperties,
) -> Result<()> {
    let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
    let confirm =
        channel.basic_publish("".into(), queue.into(), options, body, properties).await?.await?;
    ensure!(confirm == Confirmation::Ack(None), "not confirmed: {confirm:?}");
    Ok(())
}

/// What acemq's messages carry.
fn properties<const N: usize>(
    id: &str,
    correlation_id: &str,
    message_type: &str,
    more: [(&str, AMQPValue); N],
) -> BasicProperties {
    let mut headers = FieldTable::default();
    let text = |text: &str| AMQPValue::LongString(text.as_bytes().into());
    let same = [
        ("x-acemq-attempt", AMQPValue::LongInt(1)),
        ("x-acemq-correlation", text(correlation_id)),
        ("x-acemq-first-seen", AMQPValue::LongLongInt(1_767_323_045_678)),
        ("x-acemq-id", text(id)),
        ("x-acemq-origin", text("bench@host")),
        ("x-acemq-type", text(message_type)),
        ("x-acemq-version", AMQPValue::LongInt(1)),
    ];
    for (name, value) in same.into_iter().chain(more) {
        headers.insert(name.into(), value);
    }
    BasicProperties::default()
        .with_content_type("application/octet-stream".into())
        .with_delivery_mode(PERSISTENT)
        .with_headers(headers)
        .with_message_id(id.into())
}
