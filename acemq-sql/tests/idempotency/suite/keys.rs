use acemq::{ErrorKind, IdempotencyStore, Lease};

use super::{database::Database, own};

// promise: BX-11
#[tokio::test]
async fn keys_that_differ_in_case_accents_or_spaces_are_different_keys() {
    let Some(database) = Database::create().await else { return };
    let store = database.idempotency().await;
    for key in ["A1", "a1", "A1 ", "Á1", "A\u{301}1", "Ａ１"] {
        own(&store, key).await;
    }
    assert_eq!(store.size().await.unwrap(), 6);
}

#[tokio::test]
async fn a_key_that_the_column_cannot_hold_is_refused_and_never_cut() {
    let Some(database) = Database::create().await else { return };
    let store = database.idempotency().await;
    own(&store, &"k".repeat(255)).await;
    for (key, kind) in [
        (String::new(), ErrorKind::Config),
        ("k".repeat(256), ErrorKind::TooLarge),
        ("é".repeat(128), ErrorKind::TooLarge),
        ("a\0".to_owned(), ErrorKind::Encode),
    ] {
        assert_eq!(store.try_claim(&key).await.unwrap_err().kind(), kind);
        assert_eq!(store.is_confirmed(&key).await.unwrap_err().kind(), kind);
        assert_eq!(store.confirm(&Lease::new(key, "t")).await.unwrap_err().kind(), kind);
    }
    assert_eq!(store.size().await.unwrap(), 1);
}

#[tokio::test]
async fn a_key_may_be_any_text() {
    let Some(database) = Database::create().await else { return };
    let store = database.idempotency().await;
    let keys = ["it's", "\\", "\"quoted\" `too`", "$1 ? :name %s", "a\r\nb\t", "\u{1F4E6} посылка"];
    for key in keys {
        let lease = own(&store, key).await;
        assert!(store.renew(&lease).await.unwrap(), "{key}");
        store.release(&lease).await.unwrap();
        let lease = own(&store, key).await;
        store.confirm(&lease).await.unwrap();
        assert!(store.is_confirmed(key).await.unwrap(), "{key}");
    }
    assert_eq!(store.size().await.unwrap(), keys.len() as u64);
}
