use std::time::Duration;

use acemq::{OutboxRecord, OutboxStore, StoredRecord};

use super::{LEASE, add, database::Database, failure};
use crate::support::{claim, ids, record, record_with_body};

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

// promise: OB-9
#[tokio::test]
async fn bodies_of_several_megabytes_go_in_and_come_out_unchanged() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let megabytes = |text: &str, n: usize| text.repeat((n << 20) / text.len() + 1).into_bytes();
    let mut binary = megabytes("0123456789abcdef", 3);
    binary[1_000_000] = 0xff;
    let bodies = [
        vec![b'x'; 70_000],
        megabytes("{\"total\": 1}, ", 6),
        // What the databases escape, one way or another.
        megabytes("it's \\ \"quoted\" \u{1F4E6} ", 3),
        binary,
    ];
    let mut records = Vec::new();
    for (n, body) in bodies.iter().enumerate() {
        records.push(record_with_body(&format!("r{n}"), body));
    }
    add(&database, &outbox, &records[..2]).await;
    let mut transaction = database.pool.begin().await.unwrap();
    for record in &records[2..] {
        outbox.add(&mut transaction, record).await.unwrap();
    }
    transaction.commit().await.unwrap();
    let claimed = claim(&outbox, 10).await;
    assert_eq!(ids(&claimed), ["r0", "r1", "r2", "r3"]);
    for (claimed, body) in claimed.iter().zip(&bodies) {
        let same = claimed.content().unwrap().body().as_ref() == body.as_slice();
        assert!(same, "{}", claimed.claim().id());
    }
}

#[tokio::test]
async fn many_large_bodies_are_added_at_once_though_no_statement_could_hold_them_all() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let body = vec![b'x'; 1 << 20];
    let records: Vec<_> = (0..20).map(|n| record_with_body(&format!("r{n:02}"), &body)).collect();
    add(&database, &outbox, &records).await;
    let claimed = claim(&outbox, 20).await;
    let added: Vec<_> = records.iter().map(OutboxRecord::id).collect();
    assert_eq!(ids(&claimed), added);
    assert!(claimed.iter().all(|record| record.content().unwrap().body().len() == body.len()));
}

// promise: OB-17
#[tokio::test]
async fn every_text_column_takes_any_text_as_it_is() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let texts = [
        "\u{1F4E6} посылка 包裹",
        "it's",
        "\\",
        "\\'; DROP TABLE acemq_outbox; -- ",
        "\"quoted\" `too`",
        "$1 ? :name %s",
        "line\r\n\tline\u{1a}",
        " spaces ",
        "",
    ];
    let mut records = Vec::new();
    for (n, text) in texts.iter().enumerate() {
        let made = record(text);
        let stored = StoredRecord {
            id: format!("{n} {text}"),
            exchange_name: (*text).to_owned(),
            routing_key: (*text).to_owned(),
            body: text.as_bytes().to_vec(),
            content_type: (*text).to_owned(),
            headers: serde_json::json!({ "x-note": text }).to_string(),
            created_at: made.created_at(),
        };
        records.push(OutboxRecord::from_stored(stored).unwrap());
    }
    add(&database, &outbox, &records).await;
    let claimed = claim(&outbox, 20).await;
    for (claimed, added) in claimed.iter().zip(&records) {
        assert_eq!(claimed.content().unwrap(), added);
    }
    // The ids and reasons of marks are text as well.
    let failures: Vec<_> = claimed
        .iter()
        .zip(texts)
        .map(|(record, text)| failure(record.claim(), text, Duration::ZERO))
        .collect();
    outbox.mark_failed(&failures).await.unwrap();
    let again = claim(&outbox, 20).await;
    assert_eq!(ids(&again), ids(&claimed));
    for (n, text) in texts.iter().enumerate() {
        let of_this = format!("FROM acemq_outbox WHERE SUBSTR(id, 1, 1) = '{n}'");
        assert_eq!(database.text("last_error", &of_this).await.as_deref(), Some(*text));
    }
    let claims: Vec<_> = again.iter().map(|record| record.claim().clone()).collect();
    outbox.renew(&claims, LEASE).await.unwrap();
    outbox.give_back(&claims[..1]).await.unwrap();
    outbox.mark_published(&claims).await.unwrap();
    assert_eq!(outbox.pending_count().await.unwrap(), 0);
    assert_eq!(outbox.purge_published(Duration::ZERO).await.unwrap(), texts.len() as u64);
}
