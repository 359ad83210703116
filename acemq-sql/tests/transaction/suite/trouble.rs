//! What a transactional consumer does while things go wrong around it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use acemq::{
    CommitError, ConsumerState, Error, ErrorKind, Message, Result, TransactionClaim,
    TransactionalStore,
};
use acemq_sql::TransactionHold;
use testkit::eventually;
use tokio::sync::{Barrier, Notify};

use super::{
    Db, Idempotency, KILL, MOMENT, SOON, Shop, Transaction, execute, handle, settled, take_effect,
};

// promise: BX-7
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_table_cannot_be_used_messages_wait_and_the_consumer_says_so() {
    let Some(shop) = Shop::open().await else { return };
    let consumer = shop.consumer().start_in_transaction(shop.store.clone(), handle).await.unwrap();
    shop.send("o-0").await;
    settled(&consumer, 1).await;
    shop.database.execute("ALTER TABLE acemq_idempotency RENAME TO away").await;
    for n in 1..=3 {
        shop.send(&format!("o-{n}")).await;
    }
    eventually("it waits", SOON, async || {
        matches!(consumer.state(), ConsumerState::Waiting { .. })
            && consumer.counters().waiting_for_store == 1
    })
    .await;
    shop.database.execute("ALTER TABLE away RENAME TO acemq_idempotency").await;
    settled(&consumer, 4).await;
    assert_eq!(consumer.state(), ConsumerState::Receiving);
    let counters = consumer.counters();
    assert_eq!((counters.waiting_for_store, counters.returned, counters.retried), (0, 0, 0));
    assert_eq!((shop.effects().await, shop.confirmed().await), (4, 4));
}

// promise: BX-8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_undoes_one_handler_which_runs_again_at_once_and_costs_no_attempt() {
    let Some(shop) = Shop::open().await else { return };
    if !shop.database.takes_two_writers() {
        return;
    }
    shop.database.execute("CREATE TABLE stock (id INT PRIMARY KEY, n INT NOT NULL)").await;
    shop.database.execute("INSERT INTO stock VALUES (1, 0), (2, 0)").await;
    let runs = Arc::new(AtomicU32::new(0));
    let (counted, both) = (Arc::clone(&runs), Arc::new(Barrier::new(2)));
    let handler = move |message: Message<String>, mut transaction: Transaction| {
        let (run, both) = (counted.fetch_add(1, Ordering::SeqCst), Arc::clone(&both));
        async move {
            let (first, second) = if message.payload() == "o-1" { (1, 2) } else { (2, 1) };
            let add = |id| format!("UPDATE stock SET n = n + 1 WHERE id = {id}");
            execute(&mut transaction, &add(first)).await?;
            if run < 2 {
                // Now each has what the other wants.
                both.wait().await;
            }
            execute(&mut transaction, &add(second)).await?;
            take_effect(&mut transaction, &message).await?;
            Ok(transaction)
        }
    };
    let builder = shop.consumer().concurrency(2);
    let consumer = builder.start_in_transaction(shop.store.clone(), handler).await.unwrap();
    shop.send("o-1").await;
    shop.send("o-2").await;
    settled(&consumer, 2).await;
    assert!(runs.load(Ordering::SeqCst) >= 3);
    assert_eq!((consumer.counters().retried, consumer.counters().returned), (0, 0));
    assert_eq!((shop.effects().await, shop.confirmed().await), (2, 2));
    assert_eq!(shop.database.text("sum(n)", "FROM stock").await.unwrap(), "4");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_is_undone_while_the_consumer_closes_still_comes_to_its_end() {
    let Some(shop) = Shop::open().await else { return };
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (began, goes, runs) = (Arc::clone(&begun), Arc::clone(&go), AtomicU32::new(0));
    let handler = move |message: Message<String>, transaction: Transaction| {
        let first = runs.fetch_add(1, Ordering::SeqCst) == 0;
        let (began, goes) = (Arc::clone(&began), Arc::clone(&goes));
        async move {
            if first {
                began.notify_one();
                goes.notified().await;
                return Err(sqlx::Error::Io(std::io::Error::other("the connection went")).into());
            }
            handle(message, transaction).await
        }
    };
    let consumer = shop.consumer().start_in_transaction(shop.store.clone(), handler).await.unwrap();
    shop.send("o-1").await;
    tokio::time::timeout(SOON, begun.notified()).await.unwrap();
    let (closed, ()) = tokio::join!(consumer.close(), async { go.notify_one() });
    closed.unwrap();
    assert_eq!((shop.effects().await, shop.confirmed().await), (1, 1));
    assert_eq!((shop.ready("").await, shop.ready(".dlq").await), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_without_end_takes_the_way_of_a_failure() {
    let Some(shop) = Shop::open().await else { return };
    let runs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&runs);
    let handler = move |message: Message<String>, mut transaction: Transaction| {
        let runs = Arc::clone(&counted);
        async move {
            runs.fetch_add(1, Ordering::SeqCst);
            take_effect(&mut transaction, &message).await?;
            Err(sqlx::Error::Io(std::io::Error::other("the connection went")).into())
        }
    };
    let consumer = shop.consumer().start_in_transaction(shop.store.clone(), handler).await.unwrap();
    shop.send("o-1").await;
    let reason = shop.reason_of_the_dead().await;
    assert!(reason.contains("the connection went"), "{reason}");
    assert_eq!(runs.load(Ordering::SeqCst), 5);
    assert_eq!(consumer.counters().dead_lettered, 1);
    assert_eq!((shop.effects().await, shop.confirmed().await), (0, 0));
    shop.nothing_is_left_open(&shop.database.pool).await;
}

// promise: BX-8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_killed_at_any_point_of_a_handler_costs_no_attempt_and_doubles_nothing() {
    let (Some(shop), Some(kill)) = (Shop::open().await, KILL) else { return };
    let runs = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&runs);
    let handler = move |message: Message<String>, mut transaction: Transaction| {
        let run = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            match (message.payload().as_str(), run) {
                // Between the claim and the first write.
                ("o-1", 0) => execute(&mut transaction, kill).await?,
                ("o-2", 2) => {
                    take_effect(&mut transaction, &message).await?;
                    execute(&mut transaction, kill).await?;
                }
                ("o-3", 4) => {
                    take_effect(&mut transaction, &message).await?;
                    // Between the last write and the commit: the handler does not notice.
                    let _ = execute(&mut transaction, kill).await;
                    return Ok(transaction);
                }
                _ => {}
            }
            take_effect(&mut transaction, &message).await?;
            Ok(transaction)
        }
    };
    let consumer = shop.consumer().start_in_transaction(shop.store.clone(), handler).await.unwrap();
    for n in 1..=3 {
        shop.send(&format!("o-{n}")).await;
        settled(&consumer, n).await;
    }
    assert_eq!(runs.load(Ordering::SeqCst), 6);
    let counters = consumer.counters();
    assert_eq!((counters.retried, counters.returned, counters.duplicates), (0, 0, 0));
    assert_eq!((shop.effects().await, shop.confirmed().await), (3, 3));
    shop.nothing_is_left_open(&shop.database.pool).await;
}

/// A store that loses the database's answer to the first commit, before or after it took place.
struct LosesAnswer {
    store: Idempotency,
    commits: bool,
    lost: AtomicBool,
}

impl TransactionalStore for LosesAnswer {
    type Transaction = Transaction;
    type Hold = TransactionHold<Db>;

    async fn begin(
        &self,
        key: &str,
        wait: Duration,
    ) -> Result<TransactionClaim<Transaction, TransactionHold<Db>>> {
        self.store.begin(key, wait).await
    }

    async fn commit(
        &self,
        hold: TransactionHold<Db>,
        transaction: Transaction,
    ) -> Result<(), CommitError> {
        if self.lost.swap(true, Ordering::SeqCst) {
            return self.store.commit(hold, transaction).await;
        }
        if self.commits {
            self.store.commit(hold, transaction).await?;
        }
        Err(CommitError::Unknown(Error::new(ErrorKind::Store, "commit: the answer was lost")))
    }

    async fn roll_back(&self, hold: TransactionHold<Db>) {
        self.store.roll_back(hold).await;
    }

    fn is_conflict(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        TransactionalStore::is_conflict(&self.store, error)
    }
}

// promise: BX-8
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_commit_of_unknown_outcome_the_message_comes_again_and_the_row_decides() {
    for commits in [true, false] {
        let Some(shop) = Shop::open().await else { return };
        let store =
            LosesAnswer { store: shop.store.clone(), commits, lost: AtomicBool::new(false) };
        let consumer = shop.consumer().start_in_transaction(store, handle).await.unwrap();
        shop.send("o-1").await;
        settled(&consumer, 1).await;
        let counters = consumer.counters();
        assert_eq!((counters.returned, counters.retried), (1, 0));
        assert_eq!(counters.duplicates, u64::from(commits));
        assert_eq!((shop.effects().await, shop.confirmed().await), (1, 1));
    }
}

/// Over a network slow enough that each drop meets another step of the way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_begin_or_commit_dropped_at_any_step_leaves_the_pools_one_connection_usable() {
    let Some(shop) = Shop::open().await else { return };
    let (proxy, pool) = shop.database.distant_pool().await;
    if let Some(proxy) = &proxy {
        proxy.delay(Duration::from_millis(8));
    }
    for step in 0..16 {
        let store = Idempotency::new(pool.clone());
        let key = shop.key(&format!("o-{step}"));
        let work = async {
            let begun = store.begin(&key, MOMENT).await;
            let Ok(TransactionClaim::Owned { mut transaction, hold }) = begun else { return };
            execute(&mut transaction, "INSERT INTO effects (id) VALUES ('x')").await.unwrap();
            store.commit(hold, transaction).await.unwrap();
        };
        let patience = Duration::from_millis(step * 8 + 4);
        let _ = tokio::time::timeout(patience, work).await;
        // What comes next commits by itself, and both parts of what was dropped, or neither.
        shop.nothing_is_left_open(&pool).await;
        assert_eq!(shop.effects().await, shop.confirmed().await, "step {step}");
    }
}
