//! What every row works with.

use std::time::Duration;

use acemq::{Client, Publisher, Queue, RawBytes};
use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use tokio::time::{Instant, sleep};

use crate::{
    Options,
    pairs::{Reading, timed},
    raw::Raw,
};

/// How long a broker may take to show what it has confirmed.
const SETTLED: Duration = Duration::from_secs(10);

/// Connections to the broker, and what was asked for.
pub(crate) struct Bench {
    pub(crate) mq: Client,
    pub(crate) raw: Raw,
    pub(crate) rounds: usize,
    pub(crate) messages: usize,
    pub(crate) broker: String,
    pub(crate) mariadb: String,
    pub(crate) postgres: String,
}

/// The two kinds of queue that applications use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum QueueKind {
    Classic,
    Quorum,
}

impl Bench {
    pub(crate) async fn prepare(options: &Options, rounds: u16, messages: usize) -> Result<Self> {
        Ok(Self {
            mq: acemq::connect(&options.broker).client_name("bench").await?,
            raw: Raw::connect(&options.broker).await?,
            rounds: rounds.into(),
            messages,
            broker: options.broker.clone(),
            mariadb: options.mariadb.clone(),
            postgres: options.postgres.clone(),
        })
    }

    pub(crate) async fn close(self) -> Result<()> {
        self.raw.close().await?;
        Ok(self.mq.close().await?)
    }

    /// Times the publishing of all messages to a queue of their own, which has to hold them then.
    pub(crate) async fn time_publishing<W>(
        &self,
        mq: &Client,
        kind: QueueKind,
        publish: impl FnOnce(String) -> W,
    ) -> Result<Reading>
    where
        W: Future<Output = Result<()>> + Send + 'static,
    {
        let queue = declare(mq, kind).await?;
        let took = timed(publish(queue.clone())).await?;
        holds(mq, &queue, self.messages).await?;
        mq.delete_queue(&queue).await?;
        Ok(took)
    }

    /// Times the consuming of all messages from a queue of their own, of which none may be left.
    pub(crate) async fn time_consuming<W>(
        &self,
        mq: &Client,
        kind: QueueKind,
        consume: impl FnOnce(String) -> W,
    ) -> Result<Reading>
    where
        W: Future<Output = Result<()>> + Send + 'static,
    {
        let queue = declare(mq, kind).await?;
        send_all(mq.clone(), queue.clone(), self.messages).await?;
        let took = timed(consume(queue.clone())).await?;
        holds(mq, &queue, 0).await?;
        mq.delete_queue(&queue).await?;
        Ok(took)
    }
}

/// Makes a queue for one reading: an older one would have a past.
pub(crate) async fn declare(mq: &Client, kind: QueueKind) -> Result<String> {
    let name = format!("acemq-bench-{}", uuid::Uuid::new_v4());
    let queue = Queue::new(&name);
    mq.declare_queue(&match kind {
        QueueKind::Classic => queue.classic(),
        QueueKind::Quorum => queue,
    })
    .await?;
    Ok(name)
}

/// Sends that many messages with many confirms in flight.
pub(crate) async fn send_all(mq: Client, queue: String, messages: usize) -> Result<()> {
    let bodies = vec![body(); messages];
    let receipts = publisher(&mq, queue).send_all(&bodies).await?;
    let confirmed = receipts.iter().filter(|receipt| receipt.confirmed).count();
    ensure!(confirmed == messages, "{confirmed} of {messages} messages were confirmed");
    Ok(())
}

/// Sends bytes as they are to a queue.
pub(crate) fn publisher(mq: &Client, queue: String) -> Publisher<Bytes, RawBytes> {
    mq.publisher::<Bytes>("", queue).codec(RawBytes::default())
}

/// Checks that a queue holds exactly that many messages, which a quorum queue says a little after
/// it has confirmed them.
pub(crate) async fn holds(mq: &Client, queue: &str, messages: usize) -> Result<()> {
    let deadline = Instant::now() + SETTLED;
    loop {
        let found = mq.inspect_queue(queue).await?.context("the queue is gone")?.messages;
        if found == messages as u64 {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "queue {queue} holds {found} messages, not {messages}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// The body of every message: 256 bytes.
pub(crate) fn body() -> Bytes {
    Bytes::from_static(&[b'.'; 256])
}
