//! A look at a queue.

use std::{collections::HashMap, fmt, sync::Arc};

use super::{
    QueuedMessage,
    pull::{Pull, ready},
};
use crate::{connection::Client, error::Result};

/// How many messages are listed unless said otherwise.
const LISTED: u64 = 100;
/// How many different reasons are told apart.
const REASONS: usize = 1_000;

/// A look at a queue, from [`Client::peek`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> acemq::Result<()> {
/// use acemq::{BodyView, Queue};
///
/// let mq = acemq::connect("memory://peek-example").await?;
/// mq.declare_queue(&Queue::new("orders.new").dead_letters()).await?;
/// # mq.send_to_queue("orders.new.dlq", "o-1").await?;
///
/// for group in mq.peek("orders.new.dlq").reasons().await?.reasons {
///     println!("{:>6}  {}", group.count, group.reason.as_deref().unwrap_or("no reason"));
/// }
/// for message in mq.peek("orders.new.dlq").limit(10).messages().await? {
///     if let BodyView::Json(json) = message.view() {
///         println!("{} attempt {}: {json}", message.id(), message.envelope().attempt());
///     }
/// }
/// # assert_eq!(mq.inspect_queue("orders.new.dlq").await?.map(|queue| queue.messages), Some(1));
/// # mq.close().await
/// # }
/// ```
///
/// AMQP has no way of reading without taking. Messages are taken, held, and given back, each to its
/// place, when the look is over, also where its future is dropped on the way. What that leaves:
///
/// * they are marked as redelivered;
/// * on a quorum queue it is one delivery more of those that a message has (20 by default
///   from RabbitMQ 4.0); dead-letter and parking queues are classic queues, and do not count;
/// * while it lasts nobody else gets them: do not look at a queue with busy consumers for long.
#[must_use = "nothing is looked at until a question is asked"]
pub struct Peek {
    client: Client,
    queue: Arc<str>,
    limit: Option<u64>,
}

/// How many messages of a queue have which reason, from [`Peek::reasons`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReasonCounts {
    /// How many messages were ready in the queue.
    pub total: u64,
    /// How many of them were looked at.
    pub looked_at: u64,
    /// The reasons, the most frequent one first.
    pub reasons: Vec<ReasonCount>,
    /// How many messages have other reasons than these: 1,000 are told apart.
    pub others: u64,
}

/// How many messages have one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReasonCount {
    /// The reason, see [`QueuedMessage::reason`]; `None` where a message has none.
    pub reason: Option<String>,
    /// How many messages have it.
    pub count: u64,
}

impl Client {
    /// Looks at the messages of a queue, such as `orders.new.dlq`, and leaves them there.
    pub fn peek(&self, queue: impl Into<String>) -> Peek {
        Peek { client: self.clone(), queue: Arc::from(queue.into()), limit: None }
    }
}

impl Peek {
    /// How many messages are looked at, from the head of the queue. Default 100 for
    /// [`messages`](Self::messages); otherwise all that are there when it begins.
    pub fn limit(mut self, messages: u64) -> Self {
        self.limit = Some(messages);
        self
    }

    /// The first messages, with their bodies, in the order of the queue.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) for a queue that does not exist;
    /// [`ErrorKind::Refused`](crate::ErrorKind::Refused) for one in somebody's exclusive use, and
    /// what the connection meets.
    pub async fn messages(mut self) -> Result<Vec<QueuedMessage>> {
        self.limit.get_or_insert(LISTED);
        let mut messages = Vec::new();
        self.look(|message| {
            messages.push(message);
            true
        })
        .await?;
        Ok(messages)
    }

    /// How many messages have which reason. The bodies are not kept.
    ///
    /// # Errors
    /// As [`messages`](Self::messages).
    pub async fn reasons(self) -> Result<ReasonCounts> {
        let mut counts: HashMap<String, u64> = HashMap::new();
        let (mut looked_at, mut without, mut others) = (0, 0, 0);
        let total = self
            .look(|message| {
                looked_at += 1;
                match message.reason() {
                    None => without += 1,
                    Some(reason) => {
                        let is_full = counts.len() == REASONS;
                        match counts.get_mut(reason) {
                            Some(count) => *count += 1,
                            None if is_full => others += 1,
                            None => {
                                counts.insert(reason.to_owned(), 1);
                            }
                        }
                    }
                }
                true
            })
            .await?;
        let counts = counts.into_iter().map(|(reason, count)| (Some(reason), count));
        let mut reasons: Vec<_> = counts
            .chain((without > 0).then_some((None, without)))
            .map(|(reason, count)| ReasonCount { reason, count })
            .collect();
        reasons.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.reason.cmp(&b.reason)));
        Ok(ReasonCounts { total, looked_at, reasons, others })
    }

    /// The message of that id, if it is among those looked at.
    ///
    /// # Errors
    /// As [`messages`](Self::messages).
    pub async fn find(self, id: &str) -> Result<Option<QueuedMessage>> {
        let mut found = None;
        self.look(|message| {
            if message.id() == id {
                found = Some(message);
            }
            found.is_none()
        })
        .await?;
        Ok(found)
    }

    /// Shows the messages one after the other, for as long as `see` wants more; says how many there
    /// were.
    async fn look(&self, mut see: impl FnMut(QueuedMessage) -> bool) -> Result<u64> {
        let link = self.client.consuming_link().await?;
        let total = ready(&*link, &self.queue, "look at").await?;
        let bound = total.min(self.limit.unwrap_or(u64::MAX));
        if bound == 0 {
            return Ok(total);
        }
        let mut pull =
            Pull::open(&self.client, link, Arc::clone(&self.queue), bound, false).await?;
        let mut position = 0;
        let seen = loop {
            match pull.next().await {
                Ok(Some(delivery)) => {
                    pull.hold(delivery.tag);
                    position += 1;
                    let message = QueuedMessage::new(Arc::clone(&self.queue), position, delivery);
                    if !see(message) {
                        break Ok(());
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        pull.close(Vec::new()).await;
        seen.map(|()| total)
    }
}

impl fmt::Debug for Peek {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peek")
            .field("queue", &self.queue)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
