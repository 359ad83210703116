use acemq::{Claim, ErrorKind, IdempotencyStore};

use super::{
    database::{self, Database, Idempotency, KEY, LENGTHS_COUNT},
    own,
};

// promise: SU-1
#[tokio::test]
async fn a_missing_table_says_how_to_make_it_and_the_printed_statements_do() {
    let Some(database) = Database::create().await else { return };
    let store = Idempotency::new(database.pool.clone()).table("shop_handled").unwrap();
    let error = store.try_claim("k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    for statement in store.schema_statements() {
        assert!(error.to_string().contains(&statement), "{error}");
        database.execute(&statement).await;
    }
    own(&store, "k").await;
    store.create_table_if_absent().await.unwrap();
    assert_eq!(store.size().await.unwrap(), 1);
}

#[tokio::test]
async fn another_librarys_table_is_refused_and_names_the_columns() {
    let Some(database) = Database::create().await else { return };
    database
        .execute(
            "CREATE TABLE acemq_idempotency (message_id VARCHAR(255) PRIMARY KEY, \
             state VARCHAR(16) NOT NULL, claimed_by VARCHAR(64), recorded_at BIGINT NOT NULL, \
             expires_at BIGINT NOT NULL)",
        )
        .await;
    let python = Idempotency::new(database.pool.clone()).try_claim("k").await.unwrap_err();
    assert_eq!(python.kind(), ErrorKind::Config);
    assert!(python.to_string().contains("recorded_at is of type"), "{python}");
    database
        .execute(&format!(
            "CREATE TABLE go_table ({KEY} VARCHAR(255) PRIMARY KEY, \
             handled_at TIMESTAMP, confirmed BOOLEAN DEFAULT FALSE)"
        ))
        .await;
    let go = Idempotency::new(database.pool.clone()).table("go_table").unwrap();
    let go = go.try_claim("k").await.unwrap_err().to_string();
    assert!(go.contains("message_id, state, claimed_by"), "{go}");
}

#[tokio::test]
async fn a_table_that_could_not_hold_every_key_is_refused_and_says_why() {
    let Some(database) = Database::create().await else { return };
    for (table, ours, other, fault) in [
        ("a", " PRIMARY KEY", "", "message_id is not its primary key"),
        ("b", "expires_at ", "note VARCHAR(9) NOT NULL, expires_at ", "nobody would fill: note"),
        ("c", "message_id VARCHAR(255)", "message_id VARCHAR(64)", "255 characters have to fit"),
    ] {
        let store = Idempotency::new(database::nowhere()).table(table).unwrap();
        let create = store.schema_statements().swap_remove(0);
        assert!(create.contains(ours), "{create}");
        database.execute(&create.replacen(ours, other, 1)).await;
        let store = Idempotency::new(database.pool.clone()).table(table).unwrap();
        let claimed = store.try_claim("k").await;
        if table == "c" && !LENGTHS_COUNT {
            assert!(matches!(claimed.unwrap(), Claim::Owned(_)));
            continue;
        }
        let error = claimed.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains(fault), "{error}");
    }
}

#[tokio::test]
async fn tables_in_one_database_and_in_another_schema_have_nothing_to_do_with_each_other() {
    let Some(database) = Database::create().await else { return };
    let first = database.idempotency().await;
    let longest = "n".repeat(50);
    let second = Idempotency::new(database.pool.clone()).table(&longest).unwrap();
    second.create_table_if_absent().await.unwrap();
    let (schema, pool) = database.another_schema().await;
    let third = Idempotency::new(pool).schema(&schema).unwrap();
    assert_eq!(third.try_claim("k").await.unwrap_err().kind(), ErrorKind::NotFound);
    third.create_table_if_absent().await.unwrap();
    for store in [&first, &second, &third] {
        let lease = own(store, "k").await;
        store.confirm(&lease).await.unwrap();
        assert_eq!(store.size().await.unwrap(), 1);
        assert_eq!(store.purge_expired().await.unwrap(), 0);
    }
    let too_long = Idempotency::new(database.pool.clone()).table(&"n".repeat(51)).unwrap_err();
    assert_eq!(too_long.kind(), ErrorKind::Config);
}

// promise: SU-1
#[tokio::test]
async fn the_program_makes_the_very_table_that_the_printed_statements_make() {
    let Some(database) = Database::create().await else { return };
    let [made, printed] = ["made_handled", "printed_handled"]
        .map(|table| Idempotency::new(database.pool.clone()).table(table).unwrap());
    made.create_table_if_absent().await.unwrap();
    for statement in printed.schema_statements() {
        database.execute(&statement).await;
    }
    let made = database.describe("made_handled").await;
    assert_eq!(made, database.describe("printed_handled").await);
    assert!(made.contains("expires_at") && made.contains("TABLE_expiry"), "{made}");
}
