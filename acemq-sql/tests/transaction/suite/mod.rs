//! What a handler in a transaction does on every database: the same.

mod claiming;
mod failing;
mod handling;
mod killing;
mod trouble;

use std::time::Duration;

use acemq::{Client, Consumer, ConsumerBuilder, HandlerError, Message, Queue};
use acemq_sql::HandlerTransaction;
use sqlx::AssertSqlSafe;
use testkit::{eventually, unique};

use super::{
    COMMITS, LOCK_WAIT, SERIALIZABLE,
    database::{self, Database, Db, Idempotency, KILL, Outbox, Pool},
};

pub(super) const SOON: Duration = Duration::from_secs(30);
pub(super) const MOMENT: Duration = Duration::from_millis(20);

pub(super) type Transaction = HandlerTransaction<Db>;
pub(super) type Handled = Result<Transaction, HandlerError>;

/// A database with a table that handlers write to, and a queue of orders.
pub(super) struct Shop {
    pub(super) database: Database,
    pub(super) store: Idempotency,
    pub(super) outbox: Outbox,
    pub(super) mq: Client,
    pub(super) queue: String,
}

impl Shop {
    pub(super) async fn open() -> Option<Self> {
        Self::open_at(&format!("memory://{}", unique("shop"))).await
    }

    pub(super) async fn open_at(broker: &str) -> Option<Self> {
        let database = Database::create().await?;
        database.execute("CREATE TABLE effects (id VARCHAR(64) NOT NULL)").await;
        let (store, outbox) = (database.idempotency().await, database.outbox().await);
        let (mq, queue) = (acemq::connect(broker).await.unwrap(), unique("orders"));
        mq.declare_queue(&Queue::new(&*queue).dead_letters()).await.unwrap();
        Some(Self { database, store, outbox, mq, queue })
    }

    pub(super) fn consumer(&self) -> ConsumerBuilder<String> {
        self.mq.consumer::<String>(&*self.queue).in_progress_wait(MOMENT)
    }

    /// Sends an order under an id that is its payload as well.
    pub(super) async fn send(&self, id: &str) {
        self.mq.send_to_queue(&self.queue, id).id(id).await.unwrap();
    }

    /// The key of an order.
    pub(super) fn key(&self, id: &str) -> String {
        format!("{}/{id}", self.queue)
    }

    /// A row of an order in the idempotency table.
    pub(super) async fn write_row(&self, id: &str, state: &str, expires_at: &str) {
        let sql = format!(
            "INSERT INTO acemq_idempotency (message_id, state, claimed_by, recorded_at, \
             expires_at) VALUES ('{}', '{state}', NULL, {past}, {expires_at})",
            self.key(id),
            past = database::PAST,
        );
        assert_eq!(self.database.execute(&sql).await, 1);
    }

    pub(super) async fn effects(&self) -> u64 {
        self.database.count("effects").await
    }

    /// How many orders are written down as handled, and for how long: more than an hour.
    pub(super) async fn confirmed(&self) -> u64 {
        let future = database::FUTURE;
        let rest = format!(
            "acemq_idempotency WHERE state = 'CONFIRMED' AND claimed_by IS NULL \
             AND expires_at > {future}"
        );
        self.database.count(&rest).await
    }

    pub(super) async fn ready(&self, suffix: &str) -> u64 {
        let queue = format!("{}{suffix}", self.queue);
        self.mq.inspect_queue(&queue).await.unwrap().unwrap().messages
    }

    /// The reason on the one message that was set aside.
    pub(super) async fn reason_of_the_dead(&self) -> String {
        let (sender, mut reasons) = tokio::sync::mpsc::unbounded_channel();
        let look = move |message: Message<String>| {
            let reason = message.envelope().error().unwrap_or_default().to_owned();
            sender.send(reason).unwrap();
            std::future::ready(Ok::<_, HandlerError>(()))
        };
        let queue = format!("{}.dlq", self.queue);
        let consumer = self.mq.consumer::<String>(queue).declare(false).start(look).await.unwrap();
        let reason = tokio::time::timeout(SOON, reasons.recv()).await.unwrap().unwrap();
        consumer.close().await.unwrap();
        reason
    }

    /// For a broker that outlives the test.
    pub(super) async fn remove_queues(&self) {
        for suffix in ["", ".dlq", ".parked"] {
            self.mq.delete_queue(&format!("{}{suffix}", self.queue)).await.unwrap();
        }
    }

    /// Every connection of the pool is usable, and none is in a transaction: what it does next
    /// commits by itself.
    pub(super) async fn nothing_is_left_open(&self, pool: &Pool) {
        let mut all = Vec::new();
        for _ in 0..pool.options().get_max_connections() {
            let mut connection = tokio::time::timeout(SOON, pool.acquire()).await.unwrap().unwrap();
            let insert = sqlx::raw_sql("INSERT INTO effects (id) VALUES ('probe')");
            tokio::time::timeout(SOON, insert.execute(&mut *connection)).await.unwrap().unwrap();
            all.push(connection);
        }
        let probes = all.len() as u64;
        drop(all);
        assert_eq!(self.database.execute("DELETE FROM effects WHERE id = 'probe'").await, probes);
    }
}

/// The effect of an order.
pub(super) async fn take_effect(
    transaction: &mut Transaction,
    message: &Message<String>,
) -> sqlx::Result<()> {
    execute(transaction, &format!("INSERT INTO effects (id) VALUES ('{}')", message.payload()))
        .await
}

pub(super) async fn execute(transaction: &mut Transaction, sql: &str) -> sqlx::Result<()> {
    sqlx::query(AssertSqlSafe(sql.to_owned())).execute(&mut **transaction).await.map(drop)
}

/// A handler that does what it should.
pub(super) async fn handle(message: Message<String>, mut transaction: Transaction) -> Handled {
    take_effect(&mut transaction, &message).await?;
    Ok(transaction)
}

/// Waits until that many messages are acknowledged and none is in flight.
pub(super) async fn settled(consumer: &Consumer, acknowledged: u64) {
    let what = format!("{acknowledged} messages are acknowledged and none is in flight");
    eventually(&what, SOON, async || {
        let counters = consumer.counters();
        (counters.acknowledged, counters.in_flight) == (acknowledged, 0)
    })
    .await;
}
