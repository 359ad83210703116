//! Projections: what a handler writes and its reader's place commit together.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use acemq::{
    Client, ConsumerState, ErrorKind, HandlerError, MemoryStreamCheckpoints, Message, OnFailure,
    Stream, StreamCheckpointStore, StreamConsumer, StreamConsumerBuilder, StreamOffset, StreamStop,
    TransactionClaim, TransactionalCheckpointStore,
};
use acemq_sql::HandlerTransaction;
use sqlx::AssertSqlSafe;
use testkit::{Proxy, eventually, unique};

use super::{Checkpoints, Database, Db};

const SOON: Duration = Duration::from_secs(60);
const MOMENT: Duration = Duration::from_millis(20);
const READER: &str = "turnover";

type Transaction = HandlerTransaction<Db>;
type Handled = Result<Transaction, HandlerError>;

/// A database with a table that handlers write to, and a stream of numbers.
struct Books {
    database: Database,
    store: Checkpoints,
    mq: Client,
    url: String,
    stream: String,
}

impl Books {
    async fn open() -> Option<Self> {
        Self::open_at(testkit::amqp_url()?).await
    }

    async fn open_at(url: String) -> Option<Self> {
        let database = Database::create().await?;
        database.execute("CREATE TABLE effects (number BIGINT NOT NULL)").await;
        let store = database.checkpoints().await;
        let (mq, stream) = (acemq::connect(&*url).await.unwrap(), unique("books"));
        let declared = Stream::new(&*stream).max_length_bytes(100_000_000);
        mq.declare_stream(&declared).await.unwrap();
        Some(Self { database, store, mq, url, stream })
    }

    async fn write(&self, numbers: std::ops::Range<u64>) {
        let numbers: Vec<u64> = numbers.collect();
        self.mq.publisher::<u64>("", &*self.stream).send_all(&numbers).await.unwrap();
    }

    fn reader_at(&self, mq: &Client) -> StreamConsumerBuilder<u64> {
        mq.stream_consumer::<u64>(&*self.stream).from(StreamOffset::First).reader(READER)
    }

    fn reader(&self) -> StreamConsumerBuilder<u64> {
        self.reader_at(&self.mq)
    }

    /// How many effects there are, and how many different ones.
    async fn effects(&self) -> (u64, u64) {
        let all = self.database.count("effects").await;
        let different = self.database.text("count(DISTINCT number)", "FROM effects").await;
        (all, different.unwrap().parse().unwrap())
    }

    async fn place(&self) -> Option<u64> {
        self.store.load(&self.stream, READER).await.unwrap()
    }

    async fn end(self) {
        self.mq.delete_queue(&self.stream).await.unwrap();
        self.mq.close().await.unwrap();
    }
}

async fn take_effect(transaction: &mut Transaction, number: u64) -> sqlx::Result<()> {
    let insert = AssertSqlSafe(format!("INSERT INTO effects (number) VALUES ({number})"));
    sqlx::query(insert).execute(&mut **transaction).await.map(drop)
}

async fn project(message: Message<u64>, mut transaction: Transaction) -> Handled {
    take_effect(&mut transaction, *message.payload()).await?;
    Ok(transaction)
}

async fn handled_up_to(consumer: &StreamConsumer, offset: u64) {
    eventually(&format!("everything up to {offset} is handled"), SOON, async || {
        consumer.last_handled_offset() == Some(offset)
    })
    .await;
}

// promise: BX-8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_handler_writes_and_its_place_commit_together() {
    for url in [testkit::amqp_url(), testkit::amqp4_url()] {
        let Some(url) = url else { continue };
        let Some(books) = Books::open_at(url).await else { return };
        books.write(0..20).await;
        let consumer = books.reader().start_in_transaction(books.store.clone(), project);
        let consumer = consumer.await.unwrap();
        handled_up_to(&consumer, 19).await;
        assert_eq!((books.effects().await, books.place().await), ((20, 20), Some(20)));
        consumer.close().await.unwrap();

        // It goes on behind its place, and nothing takes effect twice.
        books.write(20..25).await;
        let consumer = books.reader().start_in_transaction(books.store.clone(), project);
        let consumer = consumer.await.unwrap();
        assert_eq!(consumer.last_handled_offset(), Some(19));
        handled_up_to(&consumer, 24).await;
        let counters = consumer.counters();
        assert_eq!((counters.handled, counters.duplicates), (5, 0));
        assert_eq!((books.effects().await, books.place().await), ((25, 25), Some(25)));
        books.end().await;
    }
}

// promise: BX-8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_that_are_one_reader_double_nothing() {
    let Some(books) = Books::open().await else { return };
    books.write(0..60).await;
    let other = Checkpoints::new(books.database.another_pool().await);
    let first = books.reader().start_in_transaction(books.store.clone(), project).await.unwrap();
    let second = books.reader().start_in_transaction(other, project).await.unwrap();
    for consumer in [&first, &second] {
        handled_up_to(consumer, 59).await;
    }
    let (one, two) = (first.counters(), second.counters());
    assert_eq!(one.handled + two.handled, 60, "{one:?} {two:?}");
    assert_eq!((books.effects().await, books.place().await), ((60, 60), Some(60)));
    books.end().await;
}

// promise: BX-8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_process_that_begins_later_takes_nothing_from_a_first_that_waits() {
    let Some(books) = Books::open().await else { return };
    books.write(0..10).await;
    let next = || books.reader().from(StreamOffset::Next);
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let (begun, waits) = (Arc::new(tokio::sync::Notify::new()), Arc::clone(&gate));
    let tells = Arc::clone(&begun);
    // It has the first message in hand, and nothing is committed.
    let slowly = move |message: Message<u64>, mut transaction: Transaction| {
        let (tells, waits) = (Arc::clone(&tells), Arc::clone(&waits));
        async move {
            tells.notify_one();
            let _permit = waits.acquire().await?;
            take_effect(&mut transaction, *message.payload()).await?;
            Ok(transaction)
        }
    };
    let first = next().start_in_transaction(books.store.clone(), slowly).await.unwrap();
    assert_eq!(books.place().await, Some(10));
    books.write(10..30).await;
    begun.notified().await;
    let other = Checkpoints::new(books.database.another_pool().await);
    let second = next().start_in_transaction(other, project).await.unwrap();
    assert_eq!(books.place().await, Some(10));
    gate.add_permits(1);
    for consumer in [&first, &second] {
        handled_up_to(consumer, 29).await;
    }
    assert_eq!((books.effects().await, books.place().await), ((20, 20), Some(30)));
    books.end().await;
}

// promise: BX-8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_projection_that_is_killed_and_cut_off_again_and_again_is_exactly_once() {
    let Some(books) = Books::open().await else { return };
    books.write(0..300).await;
    let mut proxy = Proxy::in_front_of(&books.url).await;
    let slowly = async |message: Message<u64>, mut transaction: Transaction| {
        take_effect(&mut transaction, *message.payload()).await?;
        tokio::time::sleep(Duration::from_millis(2)).await;
        Ok::<_, HandlerError>(transaction)
    };
    for round in 1..=4_u64 {
        let mq = acemq::connect(proxy.url_for(&books.url)).await.unwrap();
        let consumer = books.reader_at(&mq).start_in_transaction(books.store.clone(), slowly);
        let consumer = consumer.await.unwrap();
        let so_far = |at_least| {
            let consumer = &consumer;
            move || {
                let far = consumer.last_handled_offset().is_some_and(|it| it >= at_least);
                std::future::ready(far)
            }
        };
        eventually("some are handled", SOON, so_far(round * 50)).await;
        proxy.cut().await;
        proxy.restore().await;
        eventually("some more are", SOON, so_far(round * 50 + 20)).await;
        // In the middle of whatever it does.
        drop(consumer);
        drop(mq);
    }
    let consumer = books.reader().start_in_transaction(books.store.clone(), project).await.unwrap();
    handled_up_to(&consumer, 299).await;
    assert_eq!((books.effects().await, books.place().await), ((300, 300), Some(300)));
    books.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_fails_has_done_nothing_and_stops_the_consumer_at_its_message() {
    let Some(books) = Books::open().await else { return };
    books.write(0..5).await;
    let failing = async |message: Message<u64>, mut transaction: Transaction| {
        take_effect(&mut transaction, *message.payload()).await?;
        if *message.payload() == 3 {
            return Err(HandlerError::transient("not now"));
        }
        Ok(transaction)
    };
    let consumer = books.reader().start_in_transaction(books.store.clone(), failing).await.unwrap();
    eventually("it stops", SOON, async || consumer.stopped_by().is_some()).await;
    let stop = consumer.stopped_by().unwrap();
    assert!(matches!(stop, StreamStop::Failed { offset: 3, .. }), "{stop:?}");
    assert_eq!((books.effects().await, books.place().await), ((3, 3), Some(3)));
    consumer.close().await.unwrap();

    // Skipped, it leaves no effect, and its place moves on behind it.
    let reader = books.reader().checkpoint_every(1, MOMENT);
    let reader = reader.on_failure(OnFailure::retry_in_place(2, MOMENT).then_skip());
    let consumer = reader.start_in_transaction(books.store.clone(), failing).await.unwrap();
    handled_up_to(&consumer, 4).await;
    let counters = consumer.counters();
    assert_eq!((counters.handled, counters.retried, counters.skipped), (1, 1, 1));
    assert_eq!((books.effects().await, books.place().await), ((4, 4), Some(5)));
    consumer.close().await.unwrap();

    books.write(3..4).await;
    let reader = books.reader().on_failure(OnFailure::skip()).checkpoint_every(1, MOMENT);
    let consumer = reader.start_in_transaction(books.store.clone(), failing).await.unwrap();
    handled_up_to(&consumer, 5).await;
    eventually("the last is skipped for good", SOON, async || books.place().await == Some(6)).await;
    books.end().await;
}

// promise: BX-8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_database_cannot_be_used_the_stream_waits_and_the_consumer_says_so() {
    let Some(books) = Books::open().await else { return };
    let consumer = books.reader().start_in_transaction(books.store.clone(), project).await.unwrap();
    books.write(0..1).await;
    handled_up_to(&consumer, 0).await;
    books.database.execute("ALTER TABLE acemq_stream_checkpoint RENAME TO away").await;
    books.write(1..4).await;
    eventually("it waits", SOON, async || {
        matches!(consumer.state(), ConsumerState::Waiting { .. })
    })
    .await;
    books.database.execute("ALTER TABLE away RENAME TO acemq_stream_checkpoint").await;
    handled_up_to(&consumer, 3).await;
    assert_eq!(consumer.state(), ConsumerState::Receiving);
    assert_eq!((books.effects().await, books.place().await), ((4, 4), Some(4)));
    books.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_on_an_offset_that_is_not_beyond_the_place_is_a_duplicate() {
    let Some(database) = Database::create().await else { return };
    let store = database.checkpoints().await;
    let begin = async |offset| store.begin("s", READER, offset, MOMENT).await.unwrap();
    let TransactionClaim::Owned { transaction, hold } = begin(5).await else { panic!("the first") };
    store.commit(hold, transaction).await.unwrap();
    for (offset, owned) in [(4, false), (5, false), (6, true), (i64::MAX as u64, true)] {
        match begin(offset).await {
            TransactionClaim::Owned { transaction, hold } => {
                assert!(owned, "{offset}");
                // Undone: it can be had again.
                drop(transaction);
                store.roll_back(hold).await;
            }
            TransactionClaim::AlreadyConfirmed => assert!(!owned, "{offset}"),
            TransactionClaim::InProgress => panic!("{offset} is in progress"),
        }
    }
    assert_eq!(store.load("s", READER).await.unwrap(), Some(6));

    // A reader whose first transaction was undone has handled nothing.
    let TransactionClaim::Owned { transaction, hold } =
        store.begin("s", "other", 0, MOMENT).await.unwrap()
    else {
        panic!("the first")
    };
    drop(transaction);
    store.roll_back(hold).await;
    assert_eq!(store.load("s", "other").await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_that_another_transaction_has_is_waited_for_and_no_longer_than_asked() {
    let Some(database) = Database::create().await else { return };
    if !database.takes_two_writers() {
        return;
    }
    let store = database.checkpoints().await;
    store.save("s", READER, 5).await.unwrap();
    let begin = async |offset, wait| store.begin("s", READER, offset, wait).await.unwrap();
    let TransactionClaim::Owned { transaction, hold } = begin(5, MOMENT).await else {
        panic!("it is free")
    };
    let other = begin(5, MOMENT).await;
    assert!(matches!(other, TransactionClaim::InProgress), "{other:?}");
    let (other, committed) =
        tokio::join!(begin(5, Duration::from_secs(10)), store.commit(hold, transaction));
    committed.unwrap();
    assert!(matches!(other, TransactionClaim::AlreadyConfirmed), "{other:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_database_undoes_runs_again_and_costs_no_attempt() {
    let Some(books) = Books::open().await else { return };
    let Some(kill) = super::database::KILL else { return books.end().await };
    books.write(0..2).await;
    let runs = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&runs);
    let handler = move |message: Message<u64>, mut transaction: Transaction| {
        let first = counted.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            take_effect(&mut transaction, *message.payload()).await?;
            if first {
                sqlx::raw_sql(kill).execute(&mut *transaction).await?;
            }
            Ok(transaction)
        }
    };
    let consumer = books.reader().start_in_transaction(books.store.clone(), handler).await.unwrap();
    handled_up_to(&consumer, 1).await;
    assert_eq!((runs.load(Ordering::SeqCst), consumer.counters().retried), (3, 0));
    assert_eq!((books.effects().await, books.place().await), ((2, 2), Some(2)));
    books.end().await;
}

#[tokio::test]
async fn settings_that_cannot_work_in_a_transaction_are_refused() {
    let Some(database) = Database::create().await else { return };
    let store = database.checkpoints().await;
    let mq = acemq::connect(format!("memory://{}", unique("books"))).await.unwrap();
    let reader = || mq.stream_consumer::<u64>("books");
    for (reader, fault) in [
        (reader(), "no name"),
        (reader().reader(""), "no name"),
        (reader().reader(READER).concurrency(2), "concurrency at 1"),
        (reader().reader(READER).checkpoint(MemoryStreamCheckpoints::new()), "leave out"),
    ] {
        let error = reader.start_in_transaction(store.clone(), project).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains(fault), "{error}");
    }
}
