//! The partitions of a stream of messages: their exchange, their queues, and how many there are.

use std::{
    fmt,
    future::{IntoFuture, ready},
};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::{PartitionedConsumerBuilder, PartitionedPublisher, hash};
use crate::{
    connection::Client,
    error::{Error, ErrorKind, Result},
    topology::{Exchange, Queue, Topology},
    transport::BoxFuture,
};

/// A consumer of all partitions has a channel for each, and a connection has 2,047 by default.
const MOST: u32 = 1_024;

/// How many queues are declared at once.
const AT_ONCE: usize = 16;

/// Partitions about to be declared, from [`Client::partitions`]. Awaiting it declares them.
#[must_use = "partitions are declared by awaiting it"]
pub struct DeclarePartitions {
    client: Client,
    name: String,
    count: u32,
    rust_only: bool,
    shared: bool,
    declares: bool,
}

/// Messages that are kept in order by their keys, over as many processes as there are: from
/// [`Client::partitions`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> acemq::Result<()> {
/// use acemq::Message;
///
/// let mq = acemq::connect("memory://partitions-example").await?;
/// let orders = mq.partitions("orders", 8).await?;
///
/// let publisher = orders.publisher::<String>();
/// publisher.send("customer-42", &"placed".to_owned()).await?;
/// publisher.send("customer-42", &"paid".to_owned()).await?; // is handled after the other
///
/// let consumer = orders
///     .consumer::<String>()
///     .start(async |message: Message<String>| {
///         println!("{}", message.payload());
///         Ok(())
///     })
///     .await?;
/// # while consumer.counters().acknowledged < 2 { tokio::task::yield_now().await; }
/// consumer.close().await?;
/// # mq.close().await
/// # }
/// ```
///
/// A key's messages are all in one partition, `{name}.p{i}`, and each partition is handled one message
/// after the other, by one consumer at a time: of all that ask for it the broker has one active, and the
/// next takes over when that one goes (single active consumer).
///
/// **The number of partitions is for good.** With another one a key's messages would go to another
/// queue while earlier ones are still in the first, and the order would be lost without anybody
/// noticing; so asking for another number than there are is refused. To change it, stop the
/// publishers, let the consumers empty the queues, delete the queues, `{name}.partitions` among them,
/// which says the number, and begin with the new one; or begin under a new name.
#[derive(Clone)]
pub struct Partitions {
    pub(super) client: Client,
    pub(super) name: String,
    pub(super) count: u32,
    /// Whether every queue is known to have one active consumer at a time.
    pub(super) single_active: bool,
}

impl Client {
    /// Declares that many partitions of that name, unless they are there: a direct exchange `{name}`,
    /// and quorum queues `{name}.p0`, `{name}.p1` and so on, each bound by `p0`, `p1` and so on, with
    /// their dead-letter wiring. Before those comes a queue `{name}.partitions`, in which there is never
    /// anything: the broker takes it with one number only. More partitions are more that can be handled
    /// at the same time.
    ///
    /// Names and hash are those of the family's other libraries, so that any of them can stand at
    /// either end, as long as the number is a power of two.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a number that is not from 1 to 1,024, or no power of two, unless
    /// [`rust_only`](DeclarePartitions::rust_only), and for an empty name; [`ErrorKind::Conflict`]
    /// where there is another number of them, and for an exchange or queue that exists in another form;
    /// [`ErrorKind::NotFound`] where they are not to be declared and are not there;
    /// [`ErrorKind::Refused`] without the permission.
    ///
    /// # Cancellation
    /// Dropping the future leaves what was declared so far; declaring again completes it.
    pub fn partitions(&self, name: impl Into<String>, count: u32) -> DeclarePartitions {
        DeclarePartitions {
            client: self.clone(),
            name: name.into(),
            count,
            rust_only: false,
            shared: false,
            declares: true,
        }
    }
}

impl DeclarePartitions {
    /// Accepts a number that is no power of two. Other languages find other partitions for the same
    /// keys then, so none of them may publish.
    pub fn rust_only(mut self) -> Self {
        self.rust_only = true;
        self
    }

    /// Declares the queues just as Java does, plain quorum queues, so that either may come first. They
    /// then have no single active consumer: no more than one process may consume. And what the broker
    /// itself gives up on, after too many deliveries, is dropped.
    pub fn shared_with_family(mut self) -> Self {
        self.shared = true;
        self
    }

    /// Whether what is missing is declared. Default `true`; `false` for a service without the
    /// permission, which then finds out only whether the number is right.
    pub fn declare(mut self, declare: bool) -> Self {
        self.declares = declare;
        self
    }

    async fn run(self) -> Result<Partitions> {
        self.check()?;
        let mut partitions = Partitions {
            client: self.client.clone(),
            name: self.name.clone(),
            count: self.count,
            single_active: false,
        };
        if self.declares {
            partitions.agree_on_the_number().await?;
            partitions.single_active = self.declare_all(&partitions).await?;
            partitions.find_no_more().await?;
            if !partitions.single_active && !self.shared {
                tracing::warn!(
                    partitions = partitions.name,
                    "the queues were made by somebody else, without a single active consumer; no \
                     more than one process may consume them"
                );
            }
        } else if !partitions.find().await? {
            return Err(self.error(ErrorKind::NotFound, "they are not there, and are not declared"));
        }
        Ok(partitions)
    }

    fn check(&self) -> Result<()> {
        let count = self.count;
        let fault = if self.name.is_empty() {
            "they have no name".to_owned()
        } else if count == 0 || count > MOST {
            format!("there are from 1 to {MOST} of them")
        } else if !count.is_power_of_two() && !self.rust_only {
            let power = count.next_power_of_two();
            format!(
                "{count} is no power of two, and the family's other libraries would find other \
                 partitions for the same keys; take {power}, or say `rust_only()` where none of \
                 them publishes"
            )
        } else {
            return Ok(());
        };
        Err(self.error(ErrorKind::Config, &fault))
    }

    /// The first partition comes last: where it is there, all of them are. Says whether each has one
    /// active consumer at a time.
    async fn declare_all(&self, partitions: &Partitions) -> Result<bool> {
        self.client.declare(&Exchange::direct(&*self.name).into()).await?;
        let others = stream::iter(1..self.count)
            .map(|partition| self.declare_one(partitions, partition))
            .buffer_unordered(AT_ONCE)
            .try_fold(true, |all, one| ready(Ok(all && one)))
            .await?;
        Ok(self.declare_one(partitions, 0).await? && others)
    }

    async fn declare_one(&self, partitions: &Partitions, partition: u32) -> Result<bool> {
        let name = partitions.queue(partition);
        let queue = Queue::new(&*name);
        let queue = if self.shared {
            queue
        } else {
            queue.dead_letters().argument("x-single-active-consumer", true)
        };
        let single_active = match self.client.declare(&queue.into()).await {
            Ok(()) => !self.shared,
            // One that is there may be somebody else's, with other arguments.
            Err(error) if error.kind() == ErrorKind::Conflict => false,
            Err(error) => return Err(error),
        };
        let bound = Topology::new().bind(name, &*self.name, routing_key(partition));
        self.client.declare(&bound).await?;
        Ok(single_active)
    }

    fn error(&self, kind: ErrorKind, why: &str) -> Error {
        Error::new(kind, format!("declare partitions of {:?}: {why}", self.name))
    }
}

impl Partitions {
    /// What they are called together.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The queue of a partition.
    #[must_use]
    pub fn queue(&self, partition: u32) -> String {
        format!("{}.p{partition}", self.name)
    }

    /// The partition of a key. An empty key is a key as any other.
    #[must_use]
    pub fn of(&self, key: &str) -> u32 {
        hash::partition_of(key, self.count)
    }

    /// A publisher of `T` in JSON, each message under its key.
    pub fn publisher<T>(&self) -> PartitionedPublisher<T> {
        PartitionedPublisher::new(self)
    }

    /// Sets up a consumer of all partitions.
    pub fn consumer<T>(&self) -> PartitionedConsumerBuilder<T> {
        PartitionedConsumerBuilder::new(self)
    }
}

pub(super) fn routing_key(partition: u32) -> String {
    format!("p{partition}")
}

impl IntoFuture for DeclarePartitions {
    type Output = Result<Partitions>;
    type IntoFuture = BoxFuture<'static, Result<Partitions>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl fmt::Debug for DeclarePartitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeclarePartitions")
            .field("name", &self.name)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Partitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partitions")
            .field("name", &self.name)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}
