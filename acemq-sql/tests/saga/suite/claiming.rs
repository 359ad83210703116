use acemq::{SagaNext, SagaQuery, SagaWrite};

use super::*;

fn write(status: SagaStatus, state: &str, next: SagaNext) -> SagaWrite {
    SagaWrite::new(status, state, next)
}

// promise: SG-11
#[tokio::test]
async fn a_claim_is_one_holders_and_a_lost_one_writes_renews_and_changes_nothing() {
    let Some(database) = Database::create().await else { return };
    let store = database.sagas().await;
    let first = insert(&store, "1", LEASE).await;
    assert!(first.stored.is_held && first.stored.claims == 0 && first.stored.version == 1);
    assert!(store.insert(&new("1"), LEASE).await.unwrap().is_none());
    assert!(store.claim_due("s", "x", 9, LEASE).await.unwrap().is_empty());
    assert!(store.claim("s/1", "x", LEASE).await.unwrap().is_none());
    assert!(store.renew(&first.claim, LEASE).await.unwrap());

    make_due(&database).await;
    for (saga, steps) in [("t", "x"), ("s", "y")] {
        assert!(store.claim_due(saga, steps, 9, LEASE).await.unwrap().is_empty());
        assert!(store.claim("s/1", "y", LEASE).await.unwrap().is_none());
    }
    let second = store.claim_due("s", "x", 9, LEASE).await.unwrap().remove(0);
    assert_eq!((second.stored.claims, second.stored.is_held), (1, true));
    let late = write(SagaStatus::Completed, "late", SagaNext::Never);
    assert!(!store.write(&first.claim, &late).await.unwrap());
    assert!(!store.renew(&first.claim, LEASE).await.unwrap());
    assert!(!store.change(&second.stored, &late).await.unwrap(), "it is held");
    assert_eq!(store.find("s/1").await.unwrap().unwrap().state, "{}");

    make_due(&database).await;
    let third = store.claim("s/1", "x", LEASE).await.unwrap().unwrap();
    assert_eq!(third.stored.claims, 2, "since it was written");
    let kept = write(SagaStatus::Compensating, "kept", SagaNext::Keep(LEASE));
    assert!(store.write(&third.claim, &kept).await.unwrap());
    let found = store.find("s/1").await.unwrap().unwrap();
    assert!(found.is_held && found.claims == 0);
    assert_eq!((found.status, &*found.state), (SagaStatus::Compensating, "kept"));
    let waits = write(SagaStatus::Waiting, "waits", SagaNext::After(LEASE));
    assert!(store.write(&third.claim, &waits).await.unwrap());
    let found = store.find("s/1").await.unwrap().unwrap();
    let left = found.due_at.unwrap().duration_since(found.read_at).unwrap();
    assert!(!found.is_held && left > LEASE / 2 && left <= LEASE, "{left:?}");
    assert!(!store.write(&third.claim, &waits).await.unwrap(), "it was put down");

    // What waits may be changed by whoever has read it last.
    let over = write(SagaStatus::Completed, "over", SagaNext::Never);
    assert!(!store.change(&third.stored, &over).await.unwrap());
    assert!(store.change(&found, &over).await.unwrap());
    assert!(!store.change(&found, &over).await.unwrap());
    let found = store.find("s/1").await.unwrap().unwrap();
    assert_eq!((found.due_at, found.status), (None, SagaStatus::Completed));
    make_due(&database).await;
    assert!(store.claim_due("s", "x", 9, LEASE).await.unwrap().is_empty(), "it is over");
}

#[tokio::test]
async fn keys_are_compared_byte_for_byte() {
    let Some(database) = Database::create().await else { return };
    let store = database.sagas().await;
    let ids = ["A1", "a1", "A1 ", "\u{c1}1", "\u{ff21}1", "e\u{301}", "\u{e9}", "'\\", "a/b"];
    for id in ids {
        insert(&store, id, LEASE).await;
        assert!(store.insert(&new(id), LEASE).await.unwrap().is_none(), "{id}");
        assert_eq!(store.find(&format!("s/{id}")).await.unwrap().unwrap().key, format!("s/{id}"));
    }
    assert_eq!(database.count("acemq_saga").await, ids.len() as u64);
}

// promise: SG-11
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_at_once_never_share_an_instance_and_wait_for_nobody() {
    let Some(database) = Database::create().await else { return };
    let store = database.sagas().await;
    let other = Sagas::new(database.another_pool().await);
    for n in 0..120 {
        insert(&store, &n.to_string(), Duration::ZERO).await;
    }
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..6 {
        let store = if task % 2 == 0 { store.clone() } else { other.clone() };
        tasks.spawn(async move {
            let mut keys = Vec::new();
            loop {
                let claimed = store.claim_due("s", "x", 7, LEASE).await.unwrap();
                if claimed.is_empty()
                    && store.claim_due("s", "x", 1, LEASE).await.unwrap().is_empty()
                {
                    return keys;
                }
                keys.extend(claimed.into_iter().map(|claimed| claimed.stored.key));
            }
        });
    }
    let mut all = Vec::new();
    while let Some(keys) = tasks.join_next().await {
        all.extend(keys.unwrap());
    }
    all.sort();
    let claimed = all.len();
    all.dedup();
    assert_eq!(all.len(), claimed, "none was claimed twice");
    // A look for what is left may itself have taken one, and those that lost a race found none.
    assert!(claimed >= 100, "{claimed}");
}

#[tokio::test]
async fn instances_are_listed_and_purged_by_where_they_stand_and_how_long() {
    let Some(database) = Database::create().await else { return };
    let store = database.sagas().await;
    for (id, status, next) in [
        ("going", SagaStatus::Running, SagaNext::After(LEASE)),
        ("done", SagaStatus::Completed, SagaNext::Never),
        ("undone", SagaStatus::Compensated, SagaNext::Never),
        ("left", SagaStatus::Unresolved, SagaNext::Never),
        ("fresh", SagaStatus::Completed, SagaNext::Never),
    ] {
        let claimed = insert(&store, id, LEASE).await;
        assert!(store.write(&claimed.claim, &write(status, "{}", next)).await.unwrap());
    }
    let old = format!(
        "UPDATE acemq_saga SET updated_at = {} WHERE instance <> 's/fresh'",
        database::PAST
    );
    assert_eq!(database.execute(&old).await, 4);
    let list = async |status, unchanged_for: u64| {
        let mut query = SagaQuery::new("s", status);
        query.unchanged_for = Duration::from_secs(unchanged_for);
        let found = store.list(&query).await.unwrap();
        found.into_iter().map(|saga| saga.key).collect::<Vec<_>>()
    };
    assert_eq!(list(SagaStatus::Completed, 0).await, ["s/done", "s/fresh"]);
    assert_eq!(list(SagaStatus::Completed, 60).await, ["s/done"]);
    assert_eq!(list(SagaStatus::Running, 0).await, ["s/going"]);
    let others = async |steps| {
        let found = store.with_other_steps("s", steps, 20).await.unwrap();
        found.into_iter().map(|saga| saga.key).collect::<Vec<_>>()
    };
    assert_eq!(others("x").await, [""; 0]);
    assert_eq!(
        (others("a").await, others("y").await),
        (vec!["s/going".to_owned()], vec!["s/going".to_owned()])
    );
    assert_eq!(store.purge_finished(Duration::from_secs(2 * 3_600)).await.unwrap(), 0);
    assert_eq!(store.purge_finished(Duration::from_secs(60)).await.unwrap(), 2);
    assert_eq!(database.count("acemq_saga").await, 3);

    for n in 0..2_500 {
        if n % 100 == 0 {
            let rows: Vec<String> = (n..n + 100)
                .map(|n| {
                    format!(
                        "('s/{n}', 's', 'x', 'COMPLETED', '{{}}', 1, 0, {past}, {past})",
                        past = database::PAST
                    )
                })
                .collect();
            let columns =
                "instance, saga, steps, status, state, version, claims, created_at, updated_at";
            let insert = format!("INSERT INTO acemq_saga ({columns}) VALUES {}", rows.join(", "));
            database.execute(&insert).await;
        }
    }
    assert_eq!(store.purge_finished(Duration::from_secs(60)).await.unwrap(), 2_500);
    assert_eq!(database.count("acemq_saga").await, 3);
}
