use std::{collections::HashMap, time::Duration};

use acemq::{ErrorKind, FailedRecord, OutboxRecord, OutboxStore, RecordClaim};

use super::database::{Database, FUTURE, Outbox, PAST, RAILS, RAILS_FUTURE, RAILS_PAST};
use crate::support::{claim, ids, record, record_with_body};

const LEASE: Duration = Duration::from_secs(60);

/// Adds records in a transaction of their own.
async fn add(database: &Database, outbox: &Outbox, records: &[OutboxRecord]) {
    let mut transaction = database.pool.begin().await.unwrap();
    outbox.add_all(&mut transaction, records).await.unwrap();
    transaction.commit().await.unwrap();
}

fn failure(claim: &RecordClaim, reason: &str, retry_after: Duration) -> FailedRecord {
    FailedRecord::new(claim.clone(), reason.to_owned(), retry_after)
}

// promise: OB-1
#[tokio::test]
async fn a_record_commits_or_rolls_back_with_the_callers_transaction() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    database.execute("CREATE TABLE orders (id VARCHAR(20) PRIMARY KEY)").await;

    let mut transaction = database.pool.begin().await.unwrap();
    sqlx::query("INSERT INTO orders VALUES ('kept')").execute(&mut *transaction).await.unwrap();
    outbox.add(&mut transaction, &record("kept")).await.unwrap();
    transaction.commit().await.unwrap();

    let mut transaction = database.pool.begin().await.unwrap();
    sqlx::query("INSERT INTO orders VALUES ('lost')").execute(&mut *transaction).await.unwrap();
    outbox.add(&mut transaction, &record("lost")).await.unwrap();
    transaction.rollback().await.unwrap();

    assert_eq!(database.count("orders").await, 1);
    assert_eq!(ids(&claim(&outbox, 10).await), ["kept"]);
}

// promise: OB-2, OB-3
#[tokio::test]
async fn adding_neither_commits_nor_closes_and_the_relays_side_is_on_other_connections() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let mut transaction = database.pool.begin().await.unwrap();
    outbox.add(&mut transaction, &record("a")).await.unwrap();
    assert_eq!(outbox.pending_count().await.unwrap(), 0, "not committed by adding");
    assert!(claim(&outbox, 10).await.is_empty());
    outbox.add(&mut transaction, &record("b")).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(outbox.pending_count().await.unwrap(), 2);
}

// promise: OB-2
#[tokio::test]
async fn a_connection_without_an_open_transaction_is_refused() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let mut connection = database.pool.acquire().await.unwrap();
    let refused = outbox.add_on_connection(&mut connection, &record("a")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert_eq!(outbox.pending_count().await.unwrap(), 0);

    // A transaction that sqlx knows nothing of, and that lives on after the question.
    for end in ["ROLLBACK", "COMMIT"] {
        sqlx::query("BEGIN").execute(&mut *connection).await.unwrap();
        outbox.add_on_connection(&mut connection, &record("a")).await.unwrap();
        assert_eq!(outbox.pending_count().await.unwrap(), 0, "still open");
        sqlx::query(end).execute(&mut *connection).await.unwrap();
    }
    assert_eq!(outbox.pending_count().await.unwrap(), 1);
}

// promise: OB-18
#[tokio::test]
async fn a_record_added_twice_is_one_and_leaves_the_transaction_usable() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    add(&database, &outbox, &[record("a")]).await;
    let mut transaction = database.pool.begin().await.unwrap();
    outbox.add(&mut transaction, &record("a")).await.unwrap();
    outbox.add_all(&mut transaction, &[record("b"), record("a"), record("b")]).await.unwrap();
    transaction.commit().await.unwrap();
    let mut claimed = claim(&outbox, 10).await;
    claimed.sort_by(|a, b| a.claim().id().cmp(b.claim().id()));
    assert_eq!(ids(&claimed), ["a", "b"]);
}

#[tokio::test]
async fn more_records_than_one_statement_holds_are_added_in_one_transaction() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let records: Vec<_> = (0..2_345).map(|n| record(&format!("r{n}"))).collect();
    add(&database, &outbox, &records).await;
    assert_eq!(outbox.pending_count().await.unwrap(), 2_345);
}

// promise: OB-9, OB-17
#[tokio::test]
async fn text_and_binary_bodies_come_back_byte_for_byte_and_text_is_readable_in_the_table() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let bodies: [&[u8]; 5] =
        ["{\"name\":\"Grüße\"}".as_bytes(), b"", b"a\0b", b"\xff\x00\xfe", b"\xc3"];
    let records: Vec<_> = bodies
        .iter()
        .enumerate()
        .map(|(n, body)| record_with_body(&format!("r{n}"), body))
        .collect();
    add(&database, &outbox, &records).await;
    let claimed = claim(&outbox, 10).await;
    for (claimed, added) in claimed.iter().zip(&records) {
        let content = claimed.content().unwrap();
        assert_eq!(content.body(), added.body());
        assert_eq!(content.headers_json(), added.headers_json());
        assert_eq!(content.created_at(), added.created_at());
        assert_eq!(
            (content.exchange(), content.routing_key(), content.content_type()),
            (added.exchange(), added.routing_key(), added.content_type())
        );
    }
    let stored = |column: &'static str, id: &'static str| {
        let rest = format!("FROM acemq_outbox WHERE id = '{id}'");
        let database = &database;
        async move { database.text(column, &rest).await.unwrap() }
    };
    assert_eq!(stored("body", "r0").await, "{\"name\":\"Grüße\"}");
    assert_eq!(stored("body_encoding", "r0").await, "utf-8");
    assert_eq!(stored("body", "r2").await, "YQBi");
    assert_eq!(stored("body_encoding", "r4").await, "base64");
}

// promise: OB-12
#[tokio::test]
async fn records_are_claimed_oldest_first_and_those_of_a_transaction_in_order() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let names = ["z", "m", "a", "q", "b", "y"];
    let records: Vec<_> = names.iter().map(|name| record(name)).collect();
    add(&database, &outbox, &records[3..]).await;
    add(&database, &outbox, &records[..3]).await;
    assert_eq!(ids(&claim(&outbox, 4).await), names[..4]);
    assert_eq!(ids(&claim(&outbox, 4).await), names[4..]);
}

// promise: OB-4
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn relays_that_race_never_hold_one_record_at_once() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let records: Vec<_> = (0..400).map(|n| record(&format!("r{n}"))).collect();
    add(&database, &outbox, &records).await;
    let other = Outbox::new(database.another_pool().await);
    let mut relays = tokio::task::JoinSet::new();
    for n in 0..8 {
        let store = if n % 2 == 0 { outbox.clone() } else { other.clone() };
        relays.spawn(async move {
            let mut taken = Vec::new();
            loop {
                let batch = claim(&store, 7).await;
                if batch.is_empty() {
                    return taken;
                }
                taken.extend(batch.iter().map(|record| record.claim().id().to_owned()));
            }
        });
    }
    let mut holders: HashMap<String, usize> = HashMap::new();
    while let Some(taken) = relays.join_next().await {
        for id in taken.unwrap() {
            *holders.entry(id).or_default() += 1;
        }
    }
    // A relay may find nothing while another's claim is in the making; the rest is free still.
    for record in claim(&outbox, 1_000).await {
        *holders.entry(record.claim().id().to_owned()).or_default() += 1;
    }
    assert_eq!(holders.len(), 400);
    assert!(holders.values().all(|times| *times == 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_writers_and_a_relay_at_once_lose_nothing_and_meet_no_busy_database() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let (outbox, pool) = (outbox.clone(), database.pool.clone());
        writers.spawn(async move {
            for n in 0..20 {
                let mut transaction = pool.begin().await.unwrap();
                let record = record(&format!("{writer}-{n}"));
                outbox.add(&mut transaction, &record).await.unwrap();
                transaction.commit().await.unwrap();
            }
        });
    }
    let relay = Outbox::new(database.another_pool().await);
    let mut published = 0;
    testkit::eventually("everything is published", Duration::from_secs(60), async || {
        let batch = claim(&relay, 50).await;
        let claims: Vec<_> = batch.iter().map(|record| record.claim().clone()).collect();
        relay.mark_published(&claims).await.unwrap();
        published += claims.len();
        published == 160
    })
    .await;
    while let Some(writer) = writers.join_next().await {
        writer.unwrap();
    }
    assert_eq!(outbox.pending_count().await.unwrap(), 0);
}

#[tokio::test]
async fn a_record_whose_transaction_commits_late_is_not_skipped() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let (early, late) = (record("early"), record("late"));
    if database.takes_two_writers() {
        let mut open = database.pool.begin().await.unwrap();
        outbox.add(&mut open, &early).await.unwrap();
        add(&database, &outbox, &[late]).await;
        assert_eq!(ids(&claim(&outbox, 10).await), ["late"]);
        open.commit().await.unwrap();
    } else {
        // One writer at a time: the earlier record can only be written later.
        add(&database, &outbox, &[late]).await;
        assert_eq!(ids(&claim(&outbox, 10).await), ["late"]);
        add(&database, &outbox, &[early]).await;
    }
    assert_eq!(ids(&claim(&outbox, 10).await), ["early"]);
}

// promise: OB-4
#[tokio::test]
async fn a_lease_that_ran_out_is_anothers_to_take() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    add(&database, &outbox, &[record("a")]).await;
    assert_eq!(claim(&outbox, 10).await.len(), 1);
    assert!(claim(&outbox, 10).await.is_empty());
    database.execute(&format!("UPDATE acemq_outbox SET locked_until = {PAST}")).await;
    assert_eq!(claim(&outbox, 10).await.len(), 1);
    assert!(claim(&outbox, 10).await.is_empty());
}

// promise: OB-7, OB-13, OB-26
#[tokio::test]
async fn a_failing_record_waits_is_tried_again_and_is_left_visible_at_the_maximum() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await.max_attempts(2);
    add(&database, &outbox, &[record("bad"), record("good")]).await;

    let first = claim(&outbox, 1).await;
    outbox.mark_failed(&[failure(first[0].claim(), "no queue", LEASE)]).await.unwrap();
    assert_eq!(database.text("locked_by", "FROM acemq_outbox WHERE id = 'bad'").await, None);
    assert_eq!(ids(&claim(&outbox, 10).await), ["good"], "the failed one waits");

    database.execute(&format!("UPDATE acemq_outbox SET locked_until = {PAST}")).await;
    let second = claim(&outbox, 1).await;
    assert_eq!((second[0].claim().id(), second[0].attempts()), ("bad", 1));
    let given_up = failure(second[0].claim(), "still no queue", Duration::ZERO);
    outbox.mark_failed(&[given_up]).await.unwrap();

    assert_eq!(ids(&claim(&outbox, 10).await), ["good"]);
    let stuck = outbox.stuck(10).await.unwrap();
    assert_eq!(stuck.len(), 1);
    assert_eq!((stuck[0].id.as_str(), stuck[0].attempts), ("bad", 2));
    assert_eq!(stuck[0].last_error.as_deref(), Some("still no queue"));
    assert!(stuck[0].created_at.is_some());
    assert_eq!(outbox.pending_count().await.unwrap(), 2);
}

// promise: OB-15
#[tokio::test]
async fn the_last_error_is_cut_at_a_thousand_characters_not_bytes() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await.max_attempts(1);
    add(&database, &outbox, &[record("a")]).await;
    let claimed = claim(&outbox, 1).await;
    let reason = format!("nul \0{}", "ü".repeat(2_000));
    outbox.mark_failed(&[failure(claimed[0].claim(), &reason, LEASE)]).await.unwrap();
    let stuck = outbox.stuck(1).await.unwrap();
    let expected = format!("nul \u{fffd}{}", "ü".repeat(995));
    assert_eq!(stuck[0].last_error.as_deref(), Some(expected.as_str()));
}

// promise: BX-3
#[tokio::test]
async fn a_lost_claim_changes_nothing_but_what_was_published_is_recorded_for_good() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    add(&database, &outbox, &[record("a")]).await;
    let lost = claim(&outbox, 1).await[0].claim().clone();
    database.execute(&format!("UPDATE acemq_outbox SET locked_until = {PAST}")).await;
    let held = claim(&outbox, 1).await[0].claim().clone();

    outbox.mark_failed(&[failure(&lost, "late", Duration::ZERO)]).await.unwrap();
    outbox.give_back(std::slice::from_ref(&lost)).await.unwrap();
    outbox.renew(std::slice::from_ref(&lost), Duration::ZERO).await.unwrap();
    assert!(claim(&outbox, 1).await.is_empty(), "the new holder still has it");
    assert_eq!(database.text("attempts", "FROM acemq_outbox").await.unwrap(), "0");

    outbox.mark_published(&[lost]).await.unwrap();
    let published_at = database.text("published_at", "FROM acemq_outbox").await;
    assert!(published_at.is_some());
    outbox.mark_failed(&[failure(&held, "too late", Duration::ZERO)]).await.unwrap();
    outbox.give_back(std::slice::from_ref(&held)).await.unwrap();
    outbox.mark_published(&[held]).await.unwrap();
    assert_eq!(database.text("published_at", "FROM acemq_outbox").await, published_at);
    assert_eq!(outbox.pending_count().await.unwrap(), 0);
    assert!(claim(&outbox, 1).await.is_empty());
}

#[tokio::test]
async fn a_record_given_back_is_free_at_once_without_an_attempt_and_a_renewed_one_stays() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    add(&database, &outbox, &[record("a"), record("b")]).await;
    let claims: Vec<_> =
        claim(&outbox, 10).await.iter().map(|record| record.claim().clone()).collect();
    database.execute(&format!("UPDATE acemq_outbox SET locked_until = {PAST}")).await;
    outbox.renew(&claims[1..], LEASE).await.unwrap();
    outbox.give_back(&claims[..1]).await.unwrap();
    let again = claim(&outbox, 10).await;
    assert_eq!(ids(&again), ["a"]);
    assert_eq!(again[0].attempts(), 0);
}

// promise: OB-14
#[tokio::test]
async fn a_purge_removes_old_published_records_and_nothing_else() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let records: Vec<_> = (0..1_100).map(|n| record(&format!("r{n}"))).collect();
    add(&database, &outbox, &records).await;
    add(&database, &outbox, &[record("young"), record("waiting"), record("held")]).await;
    database
        .execute(&format!("UPDATE acemq_outbox SET published_at = {PAST} WHERE id LIKE 'r%'"))
        .await;
    let claimed = claim(&outbox, 1).await;
    outbox.mark_published(&[claimed[0].claim().clone()]).await.unwrap();
    claim(&outbox, 1).await;
    assert_eq!(outbox.purge_published(Duration::MAX).await.unwrap(), 0);
    assert_eq!(outbox.purge_published(Duration::from_secs(600)).await.unwrap(), 1_100);
    assert_eq!(outbox.purge_published(Duration::ZERO).await.unwrap(), 1);
    assert_eq!(outbox.pending_count().await.unwrap(), 2);
    assert_eq!(database.count("acemq_outbox").await, 2);
}

#[tokio::test]
async fn another_relay_is_named_while_it_holds_a_claim() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let other = outbox.clone();
    add(&database, &outbox, &[record("a"), record("b")]).await;
    claim(&other, 1).await;
    let named = outbox.other_relays().await.unwrap();
    assert_eq!(named.len(), 1);
    assert!(format!("{other:?}").contains(&named[0]), "{named:?} is not {other:?}");
    assert!(other.other_relays().await.unwrap().is_empty());

    // Another library's token is a name of its own.
    database
        .execute(&format!(
            "UPDATE acemq_outbox SET locked_by = '0b9c', locked_until = {FUTURE} WHERE id = 'b'"
        ))
        .await;
    assert_eq!(outbox.other_relays().await.unwrap().len(), 2);
    database.execute(&format!("UPDATE acemq_outbox SET locked_until = {PAST}")).await;
    assert!(outbox.other_relays().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_row_that_cannot_be_read_fails_alone() {
    let Some(database) = Database::create().await else { return };
    // As a hand-made table might be: with columns that may be null.
    let statements = Outbox::new(database.pool.clone()).schema_statements();
    database.execute(&statements[0].replace("NOT NULL,", ",")).await;
    let outbox = Outbox::new(database.pool.clone());
    add(&database, &outbox, &["a", "b", "c", "d", "e", "f", "g"].map(record)).await;
    for change in [
        "headers = 'not json' WHERE id = 'a'",
        "headers = '[1]' WHERE id = 'b'",
        "body_encoding = 'rot13' WHERE id = 'c'",
        "body = '***', body_encoding = 'base64' WHERE id = 'd'",
        "body = NULL WHERE id = 'e'",
        "routing_key = NULL WHERE id = 'f'",
    ] {
        database.execute(&format!("UPDATE acemq_outbox SET {change}")).await;
    }
    let claimed = claim(&outbox, 10).await;
    assert_eq!(ids(&claimed), ["a", "b", "c", "d", "e", "f", "g"]);
    for bad in &claimed[..6] {
        let error = bad.content().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Decode);
        assert!(error.to_string().contains(bad.claim().id()), "{error}");
    }
    assert_eq!(claimed[6].content().unwrap().body().as_ref(), b"g");
    let failures: Vec<_> =
        claimed[..6].iter().map(|bad| failure(bad.claim(), "unreadable", LEASE)).collect();
    outbox.mark_failed(&failures).await.unwrap();
    assert_eq!(
        database.text("count(*)", "FROM acemq_outbox WHERE attempts = 1").await.unwrap(),
        "6"
    );
}

// promise: OB-16
#[tokio::test]
async fn rows_that_rails_wrote_are_claimed_and_a_rails_table_is_written_as_rails_would() {
    let Some(database) = Database::create().await else { return };
    database.execute(RAILS).await;
    let outbox = Outbox::new(database.pool.clone());
    let insert = |id: &str, body: &str, encoding: &str, created_at: &str| {
        format!(
            "INSERT INTO acemq_outbox (id, exchange_name, routing_key, body, body_encoding, \
             content_type, headers, created_at, attempts) VALUES ('{id}', 'shop-events', \
             'order.placed', '{body}', '{encoding}', 'application/json', \
             '{{\"x-acemq-id\":\"{id}\",\"x-acemq-version\":1,\"n\":7}}', '{created_at}', 0)"
        )
    };
    let at = "2026-09-26 00:00:00.000001";
    database.execute(&insert("text", "{\"total\":1}", "utf-8", at)).await;
    database.execute(&insert("binary", "/wD+", "base64", "2026-09-26 00:00:00.000000")).await;
    add(&database, &outbox, &[record("ours")]).await;

    let claimed = claim(&outbox, 10).await;
    assert_eq!(ids(&claimed), ["binary", "text", "ours"]);
    assert_eq!(claimed[0].content().unwrap().body().as_ref(), b"\xff\x00\xfe");
    let text = claimed[1].content().unwrap();
    assert_eq!(text.body().as_ref(), b"{\"total\":1}");
    let epoch = text.created_at().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(epoch.as_micros(), 1_790_380_800_000_001, "read as UTC");

    let ours = "FROM acemq_outbox WHERE id = 'ours'";
    let created_at = claimed[2].content().unwrap().created_at();
    let epoch = created_at.duration_since(std::time::UNIX_EPOCH).unwrap();
    let age = std::time::SystemTime::now().duration_since(created_at).unwrap();
    assert!(age < Duration::from_secs(600), "{age:?}");
    let stored = database.text("created_at", ours).await.unwrap();
    let fraction = format!("{:06}", epoch.subsec_micros());
    let stored_fraction = stored.split('.').nth(1).unwrap_or_default();
    assert_eq!(format!("{stored_fraction:0<6}"), fraction);

    // Leases count in UTC, on both sides.
    assert!(claim(&outbox, 10).await.is_empty());
    database
        .execute(&format!(
            "UPDATE acemq_outbox SET locked_until = {RAILS_PAST}, locked_by = 'rails'"
        ))
        .await;
    database
        .execute(&format!(
            "UPDATE acemq_outbox SET locked_until = {RAILS_FUTURE} WHERE id = 'text'"
        ))
        .await;
    let again = claim(&outbox, 10).await;
    assert_eq!(ids(&again), ["binary", "ours"]);
    let leased = format!(
        "FROM acemq_outbox WHERE id <> 'text' \
         AND locked_until > {RAILS_PAST} AND locked_until < {RAILS_FUTURE}"
    );
    assert_eq!(database.text("count(*)", &leased).await.unwrap(), "2");

    outbox.mark_failed(&[failure(again[1].claim(), "no queue", LEASE)]).await.unwrap();
    outbox.mark_published(&[again[0].claim().clone()]).await.unwrap();
    let published = format!(
        "FROM acemq_outbox WHERE published_at > {RAILS_PAST} AND published_at < {RAILS_FUTURE}"
    );
    assert_eq!(database.text("count(*)", &published).await.unwrap(), "1");
    assert_eq!(outbox.purge_published(Duration::from_secs(600)).await.unwrap(), 0);
    assert_eq!(outbox.purge_published(Duration::ZERO).await.unwrap(), 1);
}

// promise: OB-16
#[tokio::test]
async fn a_table_of_another_shape_is_refused_and_names_the_columns() {
    let Some(database) = Database::create().await else { return };
    let refusal = async |table: &str, columns: &str| {
        database.execute(&format!("CREATE TABLE {table} ({columns})")).await;
        let outbox = Outbox::new(database.pool.clone()).table(table).unwrap();
        let error = outbox.pending_count().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        error.to_string()
    };
    let java = refusal(
        "java",
        "id VARCHAR(64) PRIMARY KEY, exchange_name VARCHAR(255) NOT NULL, \
         routing_key VARCHAR(255) NOT NULL, message_type VARCHAR(255) NOT NULL, \
         payload TEXT NOT NULL, correlation_id VARCHAR(64), causation_id VARCHAR(64), \
         created_at TIMESTAMP NOT NULL, published_at TIMESTAMP, attempts INTEGER NOT NULL, \
         last_error VARCHAR(1000), locked_by VARCHAR(64), locked_until TIMESTAMP",
    )
    .await;
    assert!(java.contains("missing: body, body_encoding, content_type, headers"), "{java}");
    assert!(java.contains("message_type, payload"), "{java}");
    let go = refusal(
        "go",
        "id VARCHAR(64) PRIMARY KEY, exchange VARCHAR(255), routing_key VARCHAR(255), body TEXT, \
         content_type VARCHAR(255), headers TEXT, created_at TIMESTAMP, attempts INTEGER, \
         last_error TEXT",
    )
    .await;
    assert!(go.contains("exchange_name") && go.contains("locked_until"), "{go}");
    let ours = &Outbox::new(database.pool.clone()).schema_statements()[0];
    let columns = ours.split_once('(').unwrap().1.trim_end_matches(')');
    let types = refusal("types", &columns.replace("attempts INTEGER", "attempts VARCHAR(9)")).await;
    assert!(types.contains("attempts is of type"), "{types}");

    // More columns than ours are fine where nobody has to fill them.
    database.execute(&format!("CREATE TABLE more ({columns}, note TEXT)")).await;
    let more = Outbox::new(database.pool.clone()).table("more").unwrap();
    assert_eq!(more.pending_count().await.unwrap(), 0);
}

// promise: SU-1
#[tokio::test]
async fn a_missing_table_says_how_to_make_it_and_the_printed_statements_do() {
    let Some(database) = Database::create().await else { return };
    let outbox = Outbox::new(database.pool.clone()).table("shop_outbox").unwrap();
    let mut transaction = database.pool.begin().await.unwrap();
    let error = outbox.add(&mut transaction, &record("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let statements = outbox.schema_statements();
    assert!(statements.iter().all(|statement| error.to_string().contains(statement)), "{error}");
    // The refusal does no harm to the caller's transaction.
    sqlx::query("CREATE TABLE other (id INTEGER)").execute(&mut *transaction).await.unwrap();
    transaction.commit().await.unwrap();

    for statement in &statements {
        database.execute(statement).await;
    }
    add(&database, &outbox, &[record("a")]).await;
    outbox.create_table_if_absent().await.unwrap();
    assert_eq!(ids(&claim(&outbox, 1).await), ["a"]);
}

#[tokio::test]
async fn a_statement_for_another_client_inserts_the_same_row() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let record = record_with_body("a", b"\xff");
    let statement = outbox.statement(&record).await.unwrap();
    let mut query = sqlx::query(sqlx::AssertSqlSafe(statement.sql));
    for value in statement.values {
        query = query.bind(value);
    }
    let mut transaction = database.pool.begin().await.unwrap();
    query.execute(&mut *transaction).await.unwrap();
    transaction.commit().await.unwrap();
    let claimed = claim(&outbox, 1).await;
    assert_eq!(claimed[0].content().unwrap(), &record);
}

// promise: BX-11
#[tokio::test]
async fn ids_that_differ_in_case_accents_or_spaces_are_different_records() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let names = ["A1", "a1", "A1 ", "Á1", "A\u{301}1", "Ａ１"];
    add(&database, &outbox, &names.map(record)).await;
    let claimed = claim(&outbox, 10).await;
    assert_eq!(ids(&claimed), names);
    outbox.mark_published(&[claimed[1].claim().clone()]).await.unwrap();
    assert_eq!(outbox.pending_count().await.unwrap(), 5);
}

// promise: BX-2
#[tokio::test]
async fn a_lease_is_written_by_the_databases_clock() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    add(&database, &outbox, &[record("a")]).await;
    outbox.claim_batch(1, Duration::from_secs(7_200)).await.unwrap();
    let beyond = format!("FROM acemq_outbox WHERE locked_until > {FUTURE}");
    assert_eq!(database.text("count(*)", &beyond).await.unwrap(), "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn futures_dropped_on_the_way_leave_no_transaction_open_and_lose_nothing() {
    let Some(database) = Database::create().await else { return };
    let creator = database.outbox().await;
    let records: Vec<_> = (0..50).map(|n| record(&format!("r{n}"))).collect();
    add(&database, &creator, &records).await;
    let outbox = Outbox::new(database.pool_of_one().await);
    let claims: Vec<_> = (0..5).map(|n| RecordClaim::new(format!("r{n}"), "t")).collect();
    for step in 0..60 {
        let patience = Duration::from_micros(step * 50);
        let _ = tokio::time::timeout(patience, outbox.claim_batch(1, LEASE)).await;
        let _ = tokio::time::timeout(patience, outbox.give_back(&claims)).await;
        let _ = tokio::time::timeout(patience, outbox.mark_published(&claims)).await;
        let _ = tokio::time::timeout(patience, outbox.purge_published(LEASE)).await;
    }
    // What the one connection does next is committed, and seen by others.
    outbox.mark_published(&[RecordClaim::new("r49", "t")]).await.unwrap();
    let published = "FROM acemq_outbox WHERE id = 'r49' AND published_at IS NOT NULL";
    assert_eq!(database.text("count(*)", published).await.unwrap(), "1");
    database.execute(&format!("UPDATE acemq_outbox SET locked_until = {PAST}")).await;
    let pending = outbox.pending_count().await.unwrap();
    assert_eq!(claim(&creator, 100).await.len() as u64, pending);
    assert!(pending >= 44);
}

// promise: OB-1, OB-27
#[tokio::test]
async fn adding_arms_the_relay_which_publishes_after_the_commit_without_a_poll() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let mq = acemq::connect(format!("memory://{}", testkit::unique("sql"))).await.unwrap();
    mq.declare_queue(&acemq::Queue::new("orders.new")).await.unwrap();
    let hour = Duration::from_secs(3_600);
    let relay = acemq::OutboxRelay::builder(&mq, outbox.clone()).poll(hour).start();
    let placed = mq.publisher::<String>("", "orders.new");

    let kept = placed.record(&"kept".to_owned()).await.unwrap();
    let mut transaction = database.pool.begin().await.unwrap();
    outbox.add(&mut transaction, &kept).await.unwrap();
    transaction.commit().await.unwrap();
    let published = async || relay.published() == 1;
    testkit::eventually("the record is published", Duration::from_secs(30), published).await;

    let lost = placed.record(&"lost".to_owned()).await.unwrap();
    let mut transaction = database.pool.begin().await.unwrap();
    outbox.add(&mut transaction, &lost).await.unwrap();
    transaction.rollback().await.unwrap();
    outbox.wake();
    relay.close().await.unwrap();
    assert_eq!((relay.published(), relay.failed()), (1, 0));
    assert_eq!(outbox.pending_count().await.unwrap(), 0);
    mq.close().await.unwrap();
}
