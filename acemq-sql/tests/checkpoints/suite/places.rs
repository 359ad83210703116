//! Saving and finding a reader's place.

use acemq::{ErrorKind, StreamCheckpointStore};

use super::{Database, database::PAST};

const STREAM: &str = "orders.log";

#[tokio::test]
async fn a_place_goes_forward_and_never_back() {
    let Some(database) = Database::create().await else { return };
    let store = database.checkpoints().await;
    assert_eq!(store.load(STREAM, "a").await.unwrap(), None);
    const FURTHEST: u64 = i64::MAX as u64 + 1;
    for (saved, found) in [(0, 0), (1, 1), (41, 41), (7, 41), (41, 41), (FURTHEST, FURTHEST)] {
        store.save(STREAM, "a", saved).await.unwrap();
        assert_eq!(store.load(STREAM, "a").await.unwrap(), Some(found));
    }
    let error = store.save(STREAM, "a", u64::MAX).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert_eq!(database.count("acemq_stream_checkpoint").await, 1);
}

// promise: BX-8
#[tokio::test]
async fn of_many_who_give_a_reader_its_place_the_first_is_right() {
    let Some(database) = Database::create().await else { return };
    let store = database.checkpoints().await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..20_u64 {
        let store = store.clone();
        tasks.spawn(async move { (n, store.load_or_insert(STREAM, "a", n).await) });
    }
    let mut answers = Vec::new();
    while let Some(answered) = tasks.join_next().await {
        answers.push(answered.unwrap().1.unwrap());
    }
    let place = store.load(STREAM, "a").await.unwrap().unwrap();
    assert_eq!(answers, [place; 20]);
    // Also where it has come further, and not where it was forgotten.
    store.save(STREAM, "a", 100).await.unwrap();
    assert_eq!(store.load_or_insert(STREAM, "a", 500).await.unwrap(), 100);
    assert!(store.forget(STREAM, "a").await.unwrap());
    assert_eq!(store.load_or_insert(STREAM, "a", 0).await.unwrap(), 0);
    assert_eq!(store.load(STREAM, "a").await.unwrap(), Some(0));
}

#[tokio::test]
async fn a_place_that_is_not_moved_keeps_its_time() {
    let Some(database) = Database::create().await else { return };
    let store = database.checkpoints().await;
    let time = async || database.text("saved_at", "FROM acemq_stream_checkpoint").await.unwrap();
    store.save(STREAM, "a", 5).await.unwrap();
    database.execute(&format!("UPDATE acemq_stream_checkpoint SET saved_at = {PAST}")).await;
    let first = time().await;
    store.save(STREAM, "a", 4).await.unwrap();
    assert_eq!(time().await, first);
    store.save(STREAM, "a", 6).await.unwrap();
    assert!(time().await > first);
}

#[tokio::test]
async fn a_reader_that_is_forgotten_begins_anew() {
    let Some(database) = Database::create().await else { return };
    let store = database.checkpoints().await;
    store.save(STREAM, "a", 41).await.unwrap();
    store.save(STREAM, "b", 5).await.unwrap();
    assert!(store.forget(STREAM, "a").await.unwrap());
    assert!(!store.forget(STREAM, "a").await.unwrap());
    assert_eq!(store.load(STREAM, "a").await.unwrap(), None);
    assert_eq!(store.load(STREAM, "b").await.unwrap(), Some(5));
    store.save(STREAM, "a", 0).await.unwrap();
    assert_eq!(store.load(STREAM, "a").await.unwrap(), Some(0));
}

#[tokio::test]
async fn many_who_save_at_once_leave_the_furthest_place() {
    let Some(database) = Database::create().await else { return };
    let store = database.checkpoints().await;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..40_u64 {
        let store = store.clone();
        tasks.spawn(async move { store.save(STREAM, "a", n * 7 % 40).await });
    }
    while let Some(saved) = tasks.join_next().await {
        saved.unwrap().unwrap();
    }
    assert_eq!(store.load(STREAM, "a").await.unwrap(), Some(39));
}

// promise: BX-11
#[tokio::test]
async fn names_that_differ_in_case_accents_or_spaces_are_different_readers() {
    let Some(database) = Database::create().await else { return };
    let store = database.checkpoints().await;
    let long = "n".repeat(255);
    let names = ["a", "A", "á", "a ", " a", "a'b", "a\\b", "ä\u{308}", "a/b", &*long];
    for (n, name) in (0..).zip(names) {
        store.save(name, "reader", n).await.unwrap();
        store.save("stream", name, 100 + n).await.unwrap();
    }
    for (n, name) in (0..).zip(names) {
        assert_eq!(store.load(name, "reader").await.unwrap(), Some(n), "{name:?}");
        assert_eq!(store.load("stream", name).await.unwrap(), Some(100 + n), "{name:?}");
    }
}

#[tokio::test]
async fn names_that_no_column_holds_are_refused() {
    let Some(database) = Database::create().await else { return };
    let store = database.checkpoints().await;
    let long = "n".repeat(256);
    for (name, kind) in
        [("", ErrorKind::Config), (&*long, ErrorKind::TooLarge), ("a\0b", ErrorKind::Encode)]
    {
        assert_eq!(store.load(name, "reader").await.unwrap_err().kind(), kind);
        assert_eq!(store.save("stream", name, 1).await.unwrap_err().kind(), kind);
        let made = store.load_or_insert("stream", name, 1).await;
        assert_eq!(made.unwrap_err().kind(), kind);
        assert_eq!(store.forget("stream", name).await.unwrap_err().kind(), kind);
    }
}

#[tokio::test]
async fn a_pool_without_prepared_statements_does_as_well() {
    let Some(database) = Database::create().await else { return };
    database.checkpoints().await;
    let pool = database.pool_without_prepared_statements().await;
    let store = super::Checkpoints::new(pool.clone());
    store.save(STREAM, "a", 3).await.unwrap();
    assert_eq!(store.load(STREAM, "a").await.unwrap(), Some(3));
    assert!(store.forget(STREAM, "a").await.unwrap());
    assert_eq!(super::database::prepared_statements(&pool).await, 0);
}
