use tokio::time::advance;

use super::*;
use crate::{envelope::Envelope, outbox::SharedOutboxStore};

const LEASE: Duration = Duration::from_secs(60);

fn record(id: &str) -> OutboxRecord {
    let envelope = Envelope { id: id.to_owned(), ..Envelope::new("order.placed") };
    OutboxRecord::new("orders", "order.placed", "text/plain", id.to_owned(), &envelope).unwrap()
}

fn filled(ids: &[&str]) -> MemoryOutboxStore {
    let store = MemoryOutboxStore::new();
    for id in ids {
        store.add(&record(id));
    }
    store
}

async fn claim(store: &impl OutboxStore, size: usize) -> Vec<RecordClaim> {
    let batch = store.claim_batch(size, LEASE).await.unwrap();
    batch.iter().map(|record| record.claim().clone()).collect()
}

fn ids(claims: &[RecordClaim]) -> Vec<&str> {
    claims.iter().map(RecordClaim::id).collect()
}

async fn fail(store: &impl OutboxStore, claim: &RecordClaim, retry_after: Duration) {
    let failure = FailedRecord::new(claim.clone(), "no queue is bound".to_owned(), retry_after);
    store.mark_failed(&[failure]).await.unwrap();
}

// promise: OB-4, OB-12
#[tokio::test(start_paused = true)]
async fn records_are_claimed_oldest_first_and_by_one_relay_at_a_time() {
    let store = filled(&["c", "a", "b"]);
    let other = store.clone();
    assert_eq!(ids(&claim(&store, 2).await), ["c", "a"]);
    assert_eq!(ids(&claim(&other, 2).await), ["b"]);
    assert!(claim(&store, 2).await.is_empty());
    advance(LEASE).await;
    assert_eq!(ids(&claim(&other, 9).await), ["c", "a", "b"]);
}

// promise: OB-18
#[tokio::test(start_paused = true)]
async fn adding_a_record_twice_is_one_record() {
    let store = filled(&["a"]);
    store.add(&record("a"));
    assert_eq!(store.pending_count().await.unwrap(), 1);
    assert_eq!(claim(&store, 9).await.len(), 1);
}

// promise: OB-7, OB-13, OB-15, OB-26
#[tokio::test(start_paused = true)]
async fn a_failing_record_waits_is_tried_again_and_is_left_at_the_maximum() {
    let store = MemoryOutboxStore::new().max_attempts(2);
    store.add(&record("bad"));
    store.add(&record("good"));
    let first = claim(&store, 1).await;
    fail(&store, &first[0], Duration::from_secs(5)).await;
    assert_eq!(ids(&claim(&store, 9).await), ["good"], "the failed one waits");

    advance(Duration::from_secs(5)).await;
    let second = store.claim_batch(9, LEASE).await.unwrap();
    assert_eq!((second[0].claim().id(), second[0].attempts()), ("bad", 1));
    let reason = "é".repeat(1_500);
    let failure = FailedRecord::new(second[0].claim().clone(), reason, Duration::ZERO);
    store.mark_failed(&[failure]).await.unwrap();

    advance(Duration::from_secs(3_600)).await;
    assert_eq!(ids(&claim(&store, 9).await), ["good"]);
    let stuck = store.stuck(9).await.unwrap();
    assert_eq!((stuck[0].id.as_str(), stuck[0].attempts), ("bad", 2));
    assert_eq!(stuck[0].last_error.as_deref(), Some("é".repeat(1_000).as_str()));
    assert_eq!(store.pending_count().await.unwrap(), 2);
}

// promise: BX-3
#[tokio::test(start_paused = true)]
async fn a_lost_claim_changes_nothing_but_what_was_published_is_recorded() {
    let store = filled(&["a"]);
    let lost = claim(&store, 1).await;
    advance(LEASE).await;
    let held = claim(&store, 1).await;

    fail(&store, &lost[0], Duration::ZERO).await;
    store.give_back(&lost).await.unwrap();
    advance(LEASE / 2).await;
    store.renew(&lost, LEASE).await.unwrap();
    assert!(claim(&store, 1).await.is_empty(), "the new holder still has it");

    store.mark_published(&lost).await.unwrap();
    fail(&store, &held[0], Duration::ZERO).await;
    store.give_back(&held).await.unwrap();
    assert_eq!(store.pending_count().await.unwrap(), 0);
    assert!(claim(&store, 1).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_record_given_back_is_free_at_once_and_a_renewed_one_stays_held() {
    let store = filled(&["a", "b"]);
    let claims = claim(&store, 2).await;
    store.give_back(&claims[..1]).await.unwrap();
    advance(LEASE / 2).await;
    store.renew(&claims, LEASE).await.unwrap();
    advance(LEASE / 2).await;
    let again = store.claim_batch(9, LEASE).await.unwrap();
    assert_eq!((again.len(), again[0].claim().id(), again[0].attempts()), (1, "a", 0));
}

// promise: OB-14
#[tokio::test(start_paused = true)]
async fn a_purge_removes_old_published_records_and_nothing_else() {
    let store = filled(&["old", "young", "waiting"]);
    let claims = claim(&store, 2).await;
    store.mark_published(&claims[..1]).await.unwrap();
    advance(LEASE).await;
    store.mark_published(&claims[1..]).await.unwrap();
    assert_eq!(store.purge_published(LEASE).await.unwrap(), 1);
    assert_eq!(store.purge_published(Duration::ZERO).await.unwrap(), 1);
    assert_eq!(store.pending_count().await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn another_relay_is_named_while_it_holds_a_claim() {
    let store = filled(&["a"]);
    let other = store.clone();
    claim(&other, 1).await;
    assert_eq!(store.other_relays().await.unwrap(), std::slice::from_ref(&other.name));
    assert!(other.other_relays().await.unwrap().is_empty());
    advance(LEASE).await;
    assert!(store.other_relays().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn adding_wakes_whoever_waits_for_the_signal() {
    let store = MemoryOutboxStore::new();
    let signal = store.signal().unwrap();
    store.add(&record("a"));
    tokio::time::timeout(LEASE, signal.changed()).await.unwrap();
}

/// What a user's store looks like that has only the three required methods.
struct Minimal(MemoryOutboxStore);

impl OutboxStore for Minimal {
    async fn claim_batch(&self, size: usize, lease: Duration) -> Result<Vec<ClaimedRecord>> {
        self.0.claim_batch(size, lease).await
    }
    async fn mark_published(&self, claims: &[RecordClaim]) -> Result<()> {
        self.0.mark_published(claims).await
    }
    async fn mark_failed(&self, failures: &[FailedRecord]) -> Result<()> {
        self.0.mark_failed(failures).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_with_three_methods_has_harmless_defaults_for_the_rest() {
    let store = SharedOutboxStore::new(Minimal(filled(&["a"])));
    let claims = claim(&store, 9).await;
    store.give_back(&claims).await.unwrap();
    store.renew(&claims, LEASE).await.unwrap();
    assert!(store.other_relays().await.unwrap().is_empty());
    assert!(store.signal().is_none());
    assert!(store.pending_count().await.is_err() && store.stuck(1).await.is_err());
    store.mark_published(&claims).await.unwrap();
    assert!(claim(&store, 9).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_shared_wrapper_forwards_every_method() {
    let inner = filled(&["a", "b", "c"]).max_attempts(1);
    let store = SharedOutboxStore::new(inner.clone());
    let claims = claim(&store, 3).await;
    fail(&store, &claims[0], Duration::ZERO).await;
    store.mark_published(&claims[1..2]).await.unwrap();
    assert_eq!(store.pending_count().await.unwrap(), 2);
    assert_eq!(store.stuck(9).await.unwrap().len(), 1);
    assert_eq!(store.purge_published(Duration::ZERO).await.unwrap(), 1);
    advance(LEASE / 2).await;
    store.renew(&claims, LEASE).await.unwrap();
    advance(LEASE / 2).await;
    assert!(claim(&inner, 9).await.is_empty());
    store.give_back(&claims).await.unwrap();
    assert_eq!(ids(&claim(&inner, 9).await), ["c"]);
    assert_eq!(store.other_relays().await.unwrap(), std::slice::from_ref(&inner.name));
    assert!(store.signal().is_some());
}

/// What a store of another kind answers is a default of the trait's; a wrapper must not fall back
/// to it.
// promise: OB-13
#[tokio::test(start_paused = true)]
async fn records_are_counted_retried_and_discarded_also_through_the_shared_store() {
    let inner = filled(&["a", "b", "c", "d"]).max_attempts(1);
    let store = SharedOutboxStore::new(inner.clone());
    let claims = claim(&store, 3).await;
    fail(&store, &claims[0], Duration::from_secs(5)).await;
    store.give_back(&claims[1..2]).await.unwrap();
    advance(Duration::from_secs(10)).await;
    let counts = store.counts().await.unwrap();
    assert_eq!((counts.waiting, counts.claimed, counts.exhausted), (2, 1, 1));
    assert!(counts.oldest.unwrap() > Duration::from_secs(9));

    assert_eq!(store.discard("c").await.unwrap(), Discard::Claimed);
    assert_eq!(store.discard("e").await.unwrap(), Discard::NotFound);
    assert_eq!(store.discard("d").await.unwrap(), Discard::Removed);
    assert!(!store.retry("b").await.unwrap());
    assert!(store.retry("a").await.unwrap());
    assert_eq!(store.retry_all().await.unwrap(), 0);
    let request = ClaimRequest::new(10, LEASE).bytes(1).order(crate::RelayOrder::PerKey);
    let claimed = store.claim(request).await.unwrap();
    assert_eq!(claimed.len(), 1);
    assert_eq!((claimed[0].claim().id(), claimed[0].attempts()), ("a", 0));

    let lock = store.lead(Duration::ZERO).await.unwrap().unwrap();
    assert!(inner.lead(Duration::ZERO).await.unwrap().is_none());
    lock.release().await;
    assert!(inner.lead(Duration::ZERO).await.unwrap().is_some());
    store.listen().await;
}
