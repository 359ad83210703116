use std::time::Duration;

use acemq::{ErrorKind, OutboxStore};

use super::{
    LEASE, add,
    database::{self, Database, LENGTHS_COUNT, Outbox, RAILS, RAILS_FUTURE, RAILS_PAST},
    failure,
};
use crate::support::{claim, ids, record};

// promise: OB-16
#[tokio::test]
async fn rows_that_rails_wrote_are_claimed_and_a_rails_table_is_written_as_rails_would() {
    let Some(database) = Database::create().await else { return };
    for statement in RAILS {
        database.execute(statement).await;
    }
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
async fn another_librarys_table_is_refused_and_names_the_columns() {
    let Some(database) = Database::create().await else { return };
    let java = refusal(
        &database,
        "java",
        "CREATE TABLE java (id VARCHAR(64) PRIMARY KEY, exchange_name VARCHAR(255) NOT NULL, \
         routing_key VARCHAR(255) NOT NULL, message_type VARCHAR(255) NOT NULL, \
         payload TEXT NOT NULL, correlation_id VARCHAR(64), causation_id VARCHAR(64), \
         created_at TIMESTAMP NOT NULL, published_at TIMESTAMP NULL, attempts INTEGER NOT NULL, \
         last_error VARCHAR(1000), locked_by VARCHAR(64), locked_until TIMESTAMP NULL)",
    )
    .await;
    assert!(java.contains("missing: body, body_encoding, content_type, headers"), "{java}");
    assert!(java.contains("message_type, payload"), "{java}");
    let go = refusal(
        &database,
        "go",
        "CREATE TABLE go (id VARCHAR(64) PRIMARY KEY, exchange VARCHAR(255), \
         routing_key VARCHAR(255), body TEXT, content_type VARCHAR(255), headers TEXT, \
         created_at TIMESTAMP, attempts INTEGER NOT NULL, last_error TEXT)",
    )
    .await;
    assert!(go.contains("exchange_name") && go.contains("locked_until"), "{go}");
}

// promise: OB-16
#[tokio::test]
async fn a_table_that_could_not_hold_every_record_is_refused_and_says_why() {
    let Some(database) = Database::create().await else { return };
    for (table, ours, other, fault) in [
        ("a", "attempts INTEGER NOT NULL", "attempts VARCHAR(9) NOT NULL", "attempts is of type"),
        ("b", "attempts INTEGER NOT NULL", "attempts INTEGER", "attempts may be null"),
        ("c", " PRIMARY KEY", "", "id is not its primary key"),
        ("d", "created_at ", "note VARCHAR(9) NOT NULL, created_at ", "nobody would fill: note"),
    ] {
        let error = refusal(&database, table, &changed(table, ours, other)).await;
        assert!(error.contains(fault), "{error}");
    }
    // SQLite does not keep to the lengths of its columns.
    let short = changed("short", "routing_key VARCHAR(255)", "routing_key VARCHAR(100)");
    if LENGTHS_COUNT {
        let error = refusal(&database, "short", &short).await;
        assert!(error.contains("routing_key") && error.contains("255 characters"), "{error}");
    } else {
        database.execute(&short).await;
        let short = Outbox::new(database.pool.clone()).table("short").unwrap();
        assert_eq!(short.pending_count().await.unwrap(), 0);
    }
}

#[tokio::test]
async fn more_columns_than_ours_do_no_harm_where_nobody_has_to_fill_them() {
    let Some(database) = Database::create().await else { return };
    let more = "note VARCHAR(9), colour VARCHAR(9) NOT NULL DEFAULT 'red', created_at ";
    database.execute(&changed("more", "created_at ", more)).await;
    let outbox = Outbox::new(database.pool.clone()).table("more").unwrap();
    add(&database, &outbox, &[record("a")]).await;
    assert_eq!(ids(&claim(&outbox, 10).await), ["a"]);
    assert_eq!(database.text("colour", "FROM more").await.unwrap(), "red");
}

/// What is said of a table that a statement makes.
async fn refusal(database: &Database, table: &str, create: &str) -> String {
    database.execute(create).await;
    let outbox = Outbox::new(database.pool.clone()).table(table).unwrap();
    let error = outbox.pending_count().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    let made = outbox.create_table_if_absent().await.unwrap_err();
    assert_eq!(made.to_string(), error.to_string());
    error.to_string()
}

/// The statement that makes our table under another name, with one thing changed.
fn changed(table: &str, ours: &str, other: &str) -> String {
    let outbox = Outbox::new(database::nowhere()).table(table).unwrap();
    let create = outbox.schema_statements().swap_remove(0);
    assert!(create.contains(ours), "{create}");
    create.replacen(ours, other, 1)
}

#[tokio::test]
async fn two_tables_in_one_database_have_nothing_to_do_with_each_other() {
    let Some(database) = Database::create().await else { return };
    let orders = database.outbox().await;
    // The longest name, whose indexes have longer ones.
    let longest = "n".repeat(50);
    let invoices = Outbox::new(database.pool.clone()).table(&longest).unwrap();
    invoices.create_table_if_absent().await.unwrap();
    add(&database, &orders, &[record("a"), record("b")]).await;
    add(&database, &invoices, &[record("a")]).await;
    let claimed = claim(&orders, 10).await;
    assert_eq!(ids(&claimed), ["a", "b"]);
    orders.mark_published(&[claimed[0].claim().clone()]).await.unwrap();
    assert_eq!(invoices.pending_count().await.unwrap(), 1);
    assert_eq!(ids(&claim(&invoices, 10).await), ["a"]);

    let too_long = Outbox::new(database.pool.clone()).table(&"n".repeat(51)).unwrap_err();
    assert_eq!(too_long.kind(), ErrorKind::Config);
}

#[tokio::test]
async fn a_table_in_another_schema_is_used_there() {
    let Some(database) = Database::create().await else { return };
    let (schema, pool) = database.another_schema().await;
    let outbox = Outbox::new(pool.clone()).schema(&schema).unwrap();
    assert_eq!(outbox.pending_count().await.unwrap_err().kind(), ErrorKind::NotFound);
    // A table of that name where the connection is would be another one.
    database.outbox().await;
    assert_eq!(outbox.pending_count().await.unwrap_err().kind(), ErrorKind::NotFound);

    outbox.create_table_if_absent().await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    outbox.add_all(&mut transaction, &[record("a"), record("b")]).await.unwrap();
    transaction.commit().await.unwrap();
    let claimed = claim(&outbox, 1).await;
    outbox.mark_published(&[claimed[0].claim().clone()]).await.unwrap();
    let claimed = claim(&outbox, 1).await;
    outbox.mark_failed(&[failure(claimed[0].claim(), "no queue", LEASE)]).await.unwrap();
    assert_eq!(outbox.pending_count().await.unwrap(), 1);
    assert_eq!(outbox.purge_published(Duration::ZERO).await.unwrap(), 1);
    assert_eq!(database.count("acemq_outbox").await, 0);
}

// promise: SU-1
#[tokio::test]
async fn a_missing_table_says_how_to_make_it_and_the_printed_statements_do() {
    let Some(database) = Database::create().await else { return };
    database.execute("CREATE TABLE orders (id INTEGER)").await;
    let outbox = Outbox::new(database.pool.clone()).table("shop_outbox").unwrap();
    let mut transaction = database.pool.begin().await.unwrap();
    let error = outbox.add(&mut transaction, &record("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    testkit::said_once(&error);
    let statements = outbox.schema_statements();
    assert!(statements.iter().all(|statement| error.to_string().contains(statement)), "{error}");
    // The refusal does no harm to the caller's transaction.
    sqlx::query("INSERT INTO orders VALUES (1)").execute(&mut *transaction).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(database.count("orders").await, 1);

    for statement in &statements {
        database.execute(statement).await;
    }
    add(&database, &outbox, &[record("a")]).await;
    outbox.create_table_if_absent().await.unwrap();
    assert_eq!(ids(&claim(&outbox, 1).await), ["a"]);
}

#[tokio::test]
async fn an_index_that_is_asked_for_later_is_made_in_the_table_that_is_there() {
    let Some(database) = Database::create().await else { return };
    database.outbox().await;
    let by_key = Outbox::new(database.pool.clone()).indexed_by_key();
    by_key.create_table_if_absent().await.unwrap();
    let there = database.describe("acemq_outbox").await;
    assert!(there.contains("TABLE_key"), "{there}");
}

// promise: SU-1
#[tokio::test]
async fn the_program_makes_the_very_table_that_the_printed_statements_make() {
    let Some(database) = Database::create().await else { return };
    let [made, printed] = ["made_outbox", "printed_outbox"]
        .map(|table| Outbox::new(database.pool.clone()).table(table).unwrap().max_attempts(7));
    made.create_table_if_absent().await.unwrap();
    for statement in printed.schema_statements() {
        database.execute(&statement).await;
    }
    let made = database.describe("made_outbox").await;
    assert_eq!(made, database.describe("printed_outbox").await);
    assert!(made.contains("locked_until") && made.contains("TABLE_due"), "{made}");
}
