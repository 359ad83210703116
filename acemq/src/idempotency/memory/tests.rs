use futures_util::FutureExt as _;
use tokio::time::advance;

use super::*;
use crate::idempotency::SharedIdempotencyStore;

const MINUTE: Duration = Duration::from_secs(60);

async fn own(store: &impl IdempotencyStore, key: &str) -> Lease {
    match store.try_claim(key).await.unwrap() {
        Claim::Owned(lease) => lease,
        other => panic!("expected to own {key}, got {other:?}"),
    }
}

// promise: ID-4
#[tokio::test(start_paused = true)]
async fn a_claim_is_owned_then_in_progress_then_confirmed() {
    let store = MemoryIdempotencyStore::new();
    let lease = own(&store, "k").await;
    assert_eq!(store.try_claim("k").await.unwrap(), Claim::InProgress);
    assert!(!store.is_confirmed("k").await.unwrap());
    store.confirm(&lease).await.unwrap();
    assert_eq!(store.try_claim("k").await.unwrap(), Claim::AlreadyConfirmed);
    assert!(store.is_confirmed("k").await.unwrap());
    assert!(!store.claim("k").await.unwrap());
}

// promise: ID-8
#[tokio::test(start_paused = true)]
async fn a_claim_is_a_lease_of_five_minutes_and_never_longer_than_the_retention() {
    let store = MemoryIdempotencyStore::new();
    own(&store, "k").await;
    advance(5 * MINUTE - Duration::from_millis(1)).await;
    assert_eq!(store.try_claim("k").await.unwrap(), Claim::InProgress);
    advance(Duration::from_millis(1)).await;
    own(&store, "k").await;

    let short = MemoryIdempotencyStore::new().retention(MINUTE);
    assert_eq!(IdempotencyStore::lease(&short), Some(MINUTE));
    own(&short, "k").await;
    advance(MINUTE).await;
    own(&short, "k").await;
}

// promise: ID-15
#[tokio::test(start_paused = true)]
async fn taking_over_an_expired_claim_is_logged_as_a_warning() {
    let (log, _guard) = testkit::logs::of_this_thread();
    let warnings = || log.lines_with(&["WARN"]).len();
    let store = MemoryIdempotencyStore::new();
    own(&store, "k").await;
    assert_eq!(warnings(), 0);
    advance(5 * MINUTE).await;
    own(&store, "k").await;
    assert_eq!(warnings(), 1);
}

// promise: ID-16, BX-3
#[tokio::test(start_paused = true)]
async fn a_lost_lease_releases_and_renews_nothing_and_still_confirms() {
    let store = MemoryIdempotencyStore::new();
    let lost = own(&store, "k").await;
    advance(5 * MINUTE).await;
    let taken_over = own(&store, "k").await;

    store.release(&lost).await.unwrap();
    assert!(!store.renew(&lost).await.unwrap());
    assert_eq!(store.try_claim("k").await.unwrap(), Claim::InProgress);

    store.confirm(&lost).await.unwrap();
    store.release(&taken_over).await.unwrap();
    assert!(!store.renew(&taken_over).await.unwrap());
    assert_eq!(store.try_claim("k").await.unwrap(), Claim::AlreadyConfirmed);
}

#[tokio::test(start_paused = true)]
async fn a_release_lets_the_key_be_claimed_again_and_a_renewal_extends_it() {
    let store = MemoryIdempotencyStore::new();
    let lease = own(&store, "k").await;
    advance(4 * MINUTE).await;
    assert!(store.renew(&lease).await.unwrap());
    advance(4 * MINUTE).await;
    assert_eq!(store.try_claim("k").await.unwrap(), Claim::InProgress);
    store.release(&lease).await.unwrap();
    own(&store, "k").await;
}

// promise: ID-17
#[tokio::test(start_paused = true)]
async fn a_confirmation_is_forgotten_after_its_retention() {
    let store = MemoryIdempotencyStore::new();
    let lease = own(&store, "k").await;
    store.confirm(&lease).await.unwrap();
    advance(24 * 60 * MINUTE).await;
    own(&store, "k").await;
}

// promise: ID-12, ID-13
#[tokio::test(start_paused = true)]
async fn a_purge_removes_what_has_expired_and_size_counts_it_until_then() {
    let store = MemoryIdempotencyStore::new();
    let done = own(&store, "done").await;
    store.confirm(&done).await.unwrap();
    own(&store, "dead").await;
    advance(5 * MINUTE).await;
    own(&store, "alive").await;
    assert_eq!(store.size().await.unwrap(), 3);
    assert_eq!(store.purge_expired().await.unwrap(), 1);
    assert_eq!(store.size().await.unwrap(), 2);
    advance(24 * 60 * MINUTE).await;
    assert_eq!(store.purge_expired().await.unwrap(), 2);
    assert_eq!(store.size().await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_full_store_forgets_its_oldest_confirmations_and_counts_them() {
    let store = MemoryIdempotencyStore::new().capacity(3);
    let held = own(&store, "held").await;
    for key in ["a", "b", "c", "d"] {
        let lease = own(&store, key).await;
        advance(Duration::from_millis(1)).await;
        store.confirm(&lease).await.unwrap();
    }
    assert_eq!(store.size().await.unwrap(), 3);
    assert_eq!(store.evictions(), 2);
    assert!(!store.is_confirmed("a").await.unwrap());
    assert!(store.is_confirmed("d").await.unwrap());
    assert!(store.renew(&held).await.unwrap(), "a live claim stays while a confirmation can go");
}

#[tokio::test(start_paused = true)]
async fn expired_keys_make_room_before_live_ones_are_forgotten() {
    let store = MemoryIdempotencyStore::new().capacity(10);
    for n in 0..5 {
        own(&store, &n.to_string()).await;
    }
    advance(5 * MINUTE).await;
    own(&store, "new").await;
    assert_eq!(store.size().await.unwrap(), 1);
    assert_eq!(store.evictions(), 0);
}

// promise: BX-11
#[tokio::test(start_paused = true)]
async fn keys_that_differ_in_case_accents_or_spaces_are_different_keys() {
    let store = MemoryIdempotencyStore::new();
    for key in ["A1", "a1", "A1 ", "Á1", "A\u{301}1", "Ａ１"] {
        own(&store, key).await;
    }
    assert_eq!(store.size().await.unwrap(), 6);
}

#[tokio::test]
async fn an_empty_key_and_one_over_the_column_are_refused() {
    let store = MemoryIdempotencyStore::new();
    assert_eq!(store.try_claim("").await.unwrap_err().kind(), ErrorKind::Config);
    assert_eq!(store.try_claim(&"k".repeat(256)).await.unwrap_err().kind(), ErrorKind::TooLarge);
    own(&store, &"k".repeat(255)).await;
}

// promise: ID-11
#[tokio::test(start_paused = true)]
async fn of_many_who_race_for_new_keys_or_for_expired_claims_exactly_one_owns_each() {
    const KEYS: usize = 20_000;
    let store = MemoryIdempotencyStore::new();
    let clock = tokio::runtime::Handle::current();
    let wins = || {
        std::thread::scope(|threads| {
            let race = || {
                let _the_paused_clock = clock.enter();
                let claim = |key: &usize| store.claim(&key.to_string()).now_or_never();
                (0..KEYS).filter(|key| claim(key).unwrap().unwrap()).count()
            };
            let racers: Vec<_> = (0..4).map(|_| threads.spawn(race)).collect();
            racers.into_iter().map(|racer| racer.join().unwrap()).sum::<usize>()
        })
    };
    assert_eq!(wins(), KEYS);
    assert_eq!(wins(), 0);
    advance(5 * MINUTE).await;
    assert_eq!(wins(), KEYS);
}

/// What a user's store looks like that has only the four required methods.
struct Minimal(MemoryIdempotencyStore);

impl IdempotencyStore for Minimal {
    async fn claim(&self, key: &str) -> Result<bool> {
        self.0.claim(key).await
    }
    async fn is_confirmed(&self, key: &str) -> Result<bool> {
        self.0.is_confirmed(key).await
    }
    async fn confirm(&self, lease: &Lease) -> Result<()> {
        self.0.confirm(lease).await
    }
    async fn release(&self, lease: &Lease) -> Result<()> {
        self.0.release(lease).await
    }
}

// promise: ID-7
#[tokio::test(start_paused = true)]
async fn a_store_with_claim_and_is_confirmed_gets_try_claim_for_free() {
    let store = SharedIdempotencyStore::new(Minimal(MemoryIdempotencyStore::new()));
    let lease = own(&store, "k").await;
    assert_eq!(store.try_claim("k").await.unwrap(), Claim::InProgress);
    store.confirm(&lease).await.unwrap();
    assert_eq!(store.try_claim("k").await.unwrap(), Claim::AlreadyConfirmed);
    assert!(store.renew(&lease).await.unwrap());
    assert_eq!(store.purge_expired().await.unwrap_err().kind(), ErrorKind::Unsupported);
}

#[tokio::test(start_paused = true)]
async fn the_shared_wrapper_forwards_every_method() {
    let inner = MemoryIdempotencyStore::new().lease(MINUTE);
    let store = SharedIdempotencyStore::new(inner.clone());
    assert_eq!(store.lease(), Some(MINUTE));
    assert_eq!(store.retention(), Some(24 * 60 * MINUTE));
    assert!(store.claim("a").await.unwrap());
    let lease = own(&store, "b").await;
    assert!(!lease.token().is_empty(), "the store's own try_claim, not the default one");
    assert!(store.renew(&lease).await.unwrap());
    store.release(&lease).await.unwrap();
    assert_eq!(store.size().await.unwrap(), 1);
    advance(MINUTE).await;
    assert!(!store.is_confirmed("a").await.unwrap());
    assert_eq!(store.purge_expired().await.unwrap(), 1);
    assert_eq!(inner.size().await.unwrap(), 0);
}
