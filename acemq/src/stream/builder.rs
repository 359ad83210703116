//! How a consumer of a stream is set up and started.

use std::{
    fmt,
    future::IntoFuture,
    marker::PhantomData,
    sync::{Arc, Mutex, OnceLock, Weak, atomic::AtomicBool},
    time::Duration,
};

use tokio::sync::{Semaphore, watch};
use tokio_util::{
    sync::CancellationToken,
    task::{AbortOnDropHandle, TaskTracker},
};

use super::{
    StreamCheckpointStore, StreamConsumer, StreamOffset, TransactionalCheckpointStore,
    checkpoint::ErasedCheckpoints,
    counters::Counters,
    filter::Filter,
    handle::{Fenced, Handle, Transactional, Typed},
    require_streams,
    runtime::Core,
    saving::Checkpoints,
};
use crate::{
    codec::{AnyFormat, Decode},
    connection::{Client, Stop},
    consume::{ConsumerState, HandlerError, InTransaction, Message, OnFailure},
    error::{Error, ErrorKind, Result},
    telemetry::ConsumeMeter,
    transport::{BoxFuture, Streams},
};

const DEFAULT_PREFETCH: u16 = 100;
const DEFAULT_CHECKPOINT_EVERY: u64 = 100;
const DEFAULT_CHECKPOINT_WITHIN: Duration = Duration::from_secs(1);

/// A consumer of a stream about to be started, from [`Client::stream_consumer`].
///
/// ```
/// # async fn example(mq: &acemq::Client) -> acemq::Result<()> {
/// use acemq::{HandlerError, MemoryStreamCheckpoints, Message, StreamOffset};
///
/// async fn project(message: Message<String>) -> Result<(), HandlerError> {
///     println!("{:?}: {}", message.stream_offset(), message.payload());
///     Ok(())
/// }
///
/// let consumer = mq
///     .stream_consumer::<String>("orders.log")
///     .from(StreamOffset::First)
///     .reader("billing")
///     .checkpoint(MemoryStreamCheckpoints::new()) // acemq_sql::SqlStreamCheckpoints lasts
///     .start(project)
///     .await?;
/// // … until the service stops:
/// consumer.close().await?;
/// # Ok(()) }
/// ```
///
/// Messages are handled in the order of the stream, one after the other unless there is more
/// [`concurrency`](Self::concurrency). Each message that comes is at an offset
/// ([`Message::stream_offset`]). After a lost connection it goes on with the oldest message that is not
/// finished, and no handler that was begun is begun again; where nothing was handled yet, with the
/// place it began at, also where that was an end of the stream. After a restart it goes on behind the
/// reader's checkpoint, if it has one, and begins at [`from`](Self::from) otherwise.
#[must_use = "a stream consumer does nothing until it is started"]
pub struct StreamConsumerBuilder<T, C = AnyFormat> {
    settings: Settings,
    codec: C,
    payload: PhantomData<fn() -> T>,
}

/// All of the settings that do not concern the payload.
struct Settings {
    client: Client,
    stream: Arc<str>,
    from: StreamOffset,
    prefetch: u16,
    concurrency: usize,
    filter: Option<Filter>,
    on_failure: OnFailure,
    handler_timeout: Option<Duration>,
    reader: Option<Arc<str>>,
    store: Option<Arc<dyn ErasedCheckpoints>>,
    pace: (u64, Duration),
    in_transactions: bool,
}

impl Client {
    /// Sets up a consumer of a stream whose messages carry a `T`, in the format that each names, see
    /// [`AnyFormat`], unless another [`codec`](StreamConsumerBuilder::codec) is chosen. The stream has
    /// to exist, see [`Stream`](crate::Stream).
    pub fn stream_consumer<T>(&self, stream: impl Into<String>) -> StreamConsumerBuilder<T> {
        StreamConsumerBuilder {
            settings: Settings {
                client: self.clone(),
                stream: stream.into().into(),
                from: StreamOffset::Next,
                prefetch: DEFAULT_PREFETCH,
                concurrency: 1,
                filter: None,
                on_failure: OnFailure::stop(),
                handler_timeout: None,
                reader: None,
                store: None,
                pace: (DEFAULT_CHECKPOINT_EVERY, DEFAULT_CHECKPOINT_WITHIN),
                in_transactions: false,
            },
            codec: AnyFormat,
            payload: PhantomData,
        }
    }
}

impl<T, C> StreamConsumerBuilder<T, C> {
    /// Where a reader without a checkpoint begins. Default [`StreamOffset::Next`].
    ///
    /// [`Next`](StreamOffset::Next) is everything that is published after the start was awaited, also
    /// where the connection is lost before the first of it came. A few messages from just before may
    /// then come as well; and on a stream that answers so slowly that it looked empty at the start, all
    /// there are. With a checkpoint store its place, or that of [`Last`](StreamOffset::Last), is saved
    /// before the start is done.
    pub fn from(mut self, offset: StreamOffset) -> Self {
        self.settings.from = offset;
        self
    }

    /// How many messages the broker sends before the first of them is settled. Default 100, at least
    /// 1. RabbitMQ before 4.0 sends whole chunks, so that there may be as many more as the last one has.
    pub fn prefetch(mut self, count: u16) -> Self {
        self.settings.prefetch = count;
        self
    }

    /// How many handlers run at once. Default 1, in the order of the stream. With more they begin in
    /// that order and finish in any; what was finished beyond
    /// [`last_handled_offset`](StreamConsumer::last_handled_offset) comes again after a restart, and
    /// is remembered until then: a handler that never ends lets that grow with all that is finished
    /// behind it, so set a [`handler_timeout`](Self::handler_timeout).
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.settings.concurrency = handlers;
        self
    }

    /// Reads only the messages whose header [`STREAM_FILTER_VALUE`](super::STREAM_FILTER_VALUE) is
    /// this text; called again, or that one. RabbitMQ leaves out whole chunks without any, from 3.13
    /// on; what else is in a chunk is left out here.
    ///
    /// Since a filter leaves messages out, those that the stream has removed before they were read are
    /// noticed at a start and after a lost connection only, and the [`gap`](StreamConsumer::gap) may be
    /// one of messages that were not asked for.
    ///
    /// ```
    /// # async fn example(mq: &acemq::Client) -> acemq::Result<()> {
    /// use acemq::{HandlerError, Message, STREAM_FILTER_VALUE, StreamOffset};
    ///
    /// let log = mq.publisher::<String>("", "orders.log");
    /// log.send(&"o-1".to_owned()).header(STREAM_FILTER_VALUE, "eu").await?;
    /// let consumer = mq
    ///     .stream_consumer::<String>("orders.log")
    ///     .from(StreamOffset::First)
    ///     .filter("eu")
    ///     .filter("uk")
    ///     .start(async |_: Message<String>| Ok::<(), HandlerError>(()))
    ///     .await?;
    /// # drop(consumer);
    /// # Ok(()) }
    /// ```
    pub fn filter(mut self, value: impl Into<String>) -> Self {
        self.settings.filter.get_or_insert_default().values.push(value.into());
        self
    }

    /// Beside those that a [`filter`](Self::filter) is for, reads the messages without such a header.
    pub fn match_unfiltered(mut self) -> Self {
        self.settings.filter.get_or_insert_default().unfiltered = true;
        self
    }

    /// What becomes of a message that fails. Default [`OnFailure::stop`]: it is left as it is, and the
    /// consumer stops; [`StreamConsumer::stopped_by`] says why. With [`OnFailure::skip`] it is passed
    /// over, with a warning and a count: a stream has no dead-letter queue, and it stays in the stream.
    /// [`OnFailure::retry_in_place`] tries it again before the one or the other; never by publishing
    /// it, which would append a copy to the stream.
    ///
    /// A message that cannot be decoded, and one whose handler says [`HandlerError::fatal`], is not
    /// tried again. A handler that panics or runs too long has failed.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.settings.on_failure = on_failure;
        self
    }

    /// How long a handler may run. Past it the handler is dropped at its next await, and the message
    /// has failed. Default: no limit of ours; the broker's own (30 minutes by default) closes the
    /// channel.
    pub fn handler_timeout(mut self, limit: Duration) -> Self {
        self.settings.handler_timeout = Some(limit);
        self
    }

    /// Under which name its place in the stream is kept. Those of the same name share one place: they
    /// are one reader, of which one process should run at a time.
    pub fn reader(mut self, name: impl Into<String>) -> Self {
        self.settings.reader = Some(name.into().into());
        self
    }

    /// Where its place in the stream is kept, so that it goes on there after a restart. The place is
    /// what is finished, without gaps; it is saved every 100 messages and every second, see
    /// [`checkpoint_every`](Self::checkpoint_every), and at the close. What was handled since comes
    /// again after a crash, and to a second process under the same name: what may not happen twice is
    /// for [`start_in_transaction`](Self::start_in_transaction).
    ///
    /// While the store is away the stream is read on, and saving is tried again.
    pub fn checkpoint(mut self, store: impl StreamCheckpointStore) -> Self {
        self.settings.store = Some(Arc::new(store));
        self
    }

    /// After how many messages, and how long after one at the latest, the place is saved. Default 100
    /// and 1 second; at least 1 and 1 millisecond.
    pub fn checkpoint_every(mut self, messages: u64, within: Duration) -> Self {
        self.settings.pace = (messages.max(1), within.max(Duration::from_millis(1)));
        self
    }

    /// The same consumer with another codec, which then reads just what it accepts. Default
    /// [`AnyFormat`].
    pub fn codec<D>(self, codec: D) -> StreamConsumerBuilder<T, D> {
        StreamConsumerBuilder { settings: self.settings, codec, payload: PhantomData }
    }

    /// Starts to read. Awaiting it means that the broker has accepted the subscription; where it begins
    /// at an end of the stream, that end is looked up before, which takes half a second for an empty
    /// stream.
    ///
    /// The handler is an `async fn(Message<T>) -> Result<(), HandlerError>` or a closure. It runs in a
    /// tracing span `consume` with the offset.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for a stream that does not exist; [`ErrorKind::Unsupported`] for a broker
    /// without streams (the memory transport, RabbitMQ before 3.9), and for a filter where there is
    /// none (before 3.13); [`ErrorKind::Config`] for settings that cannot work, among them an offset
    /// beyond `i64::MAX`, and for a queue that is no stream; the error of a checkpoint store that cannot
    /// be read; [`ErrorKind::Refused`], and what the connection meets.
    ///
    /// # Cancellation
    /// Dropping the future before it is done starts nothing.
    pub fn start<F, Fut>(self, handler: F) -> StartStreamConsumer
    where
        T: Send + 'static,
        C: Decode<T>,
        F: Fn(Message<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let Self { settings, codec, payload } = self;
        let fault = settings.fault();
        let handle = Arc::new(Typed { codec, handler, payload });
        StartStreamConsumer { settings, handle, fault }
    }

    /// Starts to read with a handler whose writes and the reader's checkpoint are one transaction: each
    /// message that is not skipped takes effect exactly once in that database, through any crash, and whatever other
    /// processes read under the same name. The store is `acemq_sql::SqlStreamCheckpoints`, or a
    /// [`TransactionalCheckpointStore`] of your own.
    ///
    /// The handler is an `async fn(Message<T>, Transaction) -> Result<Transaction, HandlerError>`, as
    /// that of [`ConsumerBuilder::start_in_transaction`](crate::ConsumerBuilder::start_in_transaction):
    /// it gives the transaction back to have it committed. Before it runs, the transaction moves the
    /// checkpoint to the message's offset; where that is not beyond the one that is there, the message
    /// has had its effect, and the handler does not run. What the database undoes for the sake of
    /// another runs again, up to five times, before it counts as a failure. While the database is away
    /// the stream waits.
    ///
    /// One message is handled at a time. A message that is skipped moves the checkpoint as well, a
    /// moment later.
    ///
    /// # Errors
    /// Those of [`start`](Self::start), and [`ErrorKind::Config`] without a
    /// [`reader`](Self::reader), with more [`concurrency`](Self::concurrency) than 1, and beside
    /// [`checkpoint`](Self::checkpoint).
    ///
    /// # Cancellation
    /// Dropping the future before it is done starts nothing.
    pub fn start_in_transaction<S, F, Fut>(mut self, store: S, handler: F) -> StartStreamConsumer
    where
        T: Send + 'static,
        C: Decode<T>,
        S: TransactionalCheckpointStore,
        F: Fn(Message<T>, S::Transaction) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<S::Transaction, HandlerError>> + Send + 'static,
    {
        let twice = self.settings.store.is_some().then_some(
            "it has a checkpoint store beside the one in whose transactions it handles messages; leave \
             out `checkpoint`",
        );
        let store = Arc::new(store);
        self.settings.store = Some(Arc::clone(&store) as Arc<dyn ErasedCheckpoints>);
        self.settings.in_transactions = true;
        let Self { settings, codec, payload } = self;
        let fault = twice.or_else(|| settings.fault());
        let stream = Arc::clone(&settings.stream);
        let reader = settings.reader.clone().unwrap_or_default();
        let store = Fenced { store, stream, reader };
        let work = InTransaction { codec, store, handler };
        let handle = Arc::new(Transactional { work, payload });
        StartStreamConsumer { settings, handle, fault }
    }
}

impl Settings {
    /// What is wrong with how it was set up.
    fn fault(&self) -> Option<&'static str> {
        let named = self.reader.as_ref().is_some_and(|reader| !reader.is_empty());
        let faults = [
            (self.stream.is_empty(), "the stream has no name"),
            (
                self.prefetch == 0,
                "the prefetch is 0, which would be no bound at all; it is at least 1",
            ),
            (self.concurrency == 0, "the concurrency is 0; it is at least 1"),
            (
                self.in_transactions && self.concurrency > 1,
                "it has more than one handler at a time and one checkpoint, which each moves in a \
                 transaction of its own; leave the concurrency at 1",
            ),
            (
                self.on_failure.attempts == 0,
                "it has no attempt at handling a message; there is at least 1",
            ),
            (
                self.filter.as_ref().is_some_and(|filter| filter.values.is_empty()),
                "it matches what no filter is for and has no filter; leave `match_unfiltered` out",
            ),
            (
                self.store.is_some() && !named,
                "it has a checkpoint store and no name for its place there; give it one with `reader`",
            ),
            (
                self.reader.is_some() && self.store.is_none(),
                "it has a name for its place in the stream and no store for it; give it one with \
                 `checkpoint`",
            ),
        ];
        let fault = faults.into_iter().find_map(|(is, fault)| is.then_some(fault));
        fault.or_else(|| self.from.argument().err())
    }
}

/// A consumer of a stream that starts when it is awaited, from [`StreamConsumerBuilder::start`].
#[must_use = "a stream consumer starts by awaiting it"]
pub struct StartStreamConsumer {
    settings: Settings,
    handle: Arc<dyn Handle>,
    fault: Option<&'static str>,
}

impl StartStreamConsumer {
    async fn run(self) -> Result<StreamConsumer> {
        if let Some(fault) = self.fault {
            return Err(self.refuse(fault));
        }
        let Settings { client, stream, filter, .. } = &self.settings;
        let needed = if filter.is_some() { Streams::Filtered } else { Streams::Known };
        let link = client.consuming_link().await?;
        require_streams(client, &*link, needed, "read", stream)?;
        let core = Arc::new(self.core());
        let subscribed = core.subscribe_first().await?;
        let task = tokio::spawn(Arc::clone(&core).run(subscribed));
        let consumer = StreamConsumer::new(Arc::clone(&core), AbortOnDropHandle::new(task));
        let weak: Weak<dyn Stop> = Arc::downgrade(&core) as Weak<dyn Stop>;
        if !core.client.owns_consumer(weak) {
            let closed = format!("read stream \"{}\": the client is closed", core.stream);
            return Err(Error::new(ErrorKind::Closed, closed).with_queue(&*core.stream));
        }
        Ok(consumer)
    }

    fn refuse(&self, why: &str) -> Error {
        let stream = &self.settings.stream;
        Error::new(ErrorKind::Config, format!("start to read stream \"{stream}\": {why}"))
            .with_queue(&**stream)
    }

    fn core(self) -> Core {
        let Self { settings, handle, .. } = self;
        let checkpoints = settings.store.zip(settings.reader).map(|(store, reader)| {
            Checkpoints::new(store, reader, settings.pace, settings.in_transactions)
        });
        Core {
            meter: ConsumeMeter::new(&settings.stream, settings.client.transport_name()),
            client: settings.client,
            stream: settings.stream,
            from: settings.from,
            prefetch: settings.prefetch,
            filter: settings.filter,
            on_failure: settings.on_failure,
            handler_timeout: settings.handler_timeout,
            checkpoints,
            counters: Counters::default(),
            state: watch::Sender::new(ConsumerState::Receiving),
            closing: CancellationToken::new(),
            abort: CancellationToken::new(),
            deadline: OnceLock::new(),
            handlers: TaskTracker::new(),
            places: Arc::new(Semaphore::new(settings.concurrency.min(Semaphore::MAX_PERMITS))),
            stranded: watch::Sender::new(None),
            handle,
            progress: Mutex::default(),
            made_anew: AtomicBool::new(false),
            gap: Mutex::default(),
            stop: OnceLock::new(),
        }
    }
}

impl IntoFuture for StartStreamConsumer {
    type Output = Result<StreamConsumer>;
    type IntoFuture = BoxFuture<'static, Result<StreamConsumer>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl<T, C> fmt::Debug for StreamConsumerBuilder<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamConsumerBuilder")
            .field("stream", &self.settings.stream)
            .field("from", &self.settings.from)
            .field("prefetch", &self.settings.prefetch)
            .field("reader", &self.settings.reader)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for StartStreamConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartStreamConsumer")
            .field("stream", &self.settings.stream)
            .finish_non_exhaustive()
    }
}
