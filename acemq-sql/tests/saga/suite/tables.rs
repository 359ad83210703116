use acemq::ErrorKind;

use super::*;

// promise: SU-1
#[tokio::test]
async fn a_missing_table_says_how_to_make_it_and_the_printed_statements_do() {
    let Some(database) = Database::create().await else { return };
    let store = Sagas::new(database.pool.clone()).table("shop_sagas").unwrap();
    let error = store.find("s/1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    for statement in store.schema_statements() {
        assert!(error.to_string().contains(&statement), "{error}");
        database.execute(&statement).await;
    }
    insert(&store, "1", LEASE).await;
    store.create_table_if_absent().await.unwrap();
    let made = Sagas::new(database.pool.clone()).table("made_sagas").unwrap();
    made.create_table_if_absent().await.unwrap();
    assert_eq!(database.describe("made_sagas").await, database.describe("shop_sagas").await);
}

#[tokio::test]
async fn tables_in_one_database_and_in_another_schema_have_nothing_to_do_with_each_other() {
    let Some(database) = Database::create().await else { return };
    let first = database.sagas().await;
    let longest = "n".repeat(50);
    let second = Sagas::new(database.pool.clone()).table(&longest).unwrap();
    second.create_table_if_absent().await.unwrap();
    let (schema, pool) = database.another_schema().await;
    let third = Sagas::new(pool).schema(&schema).unwrap();
    assert_eq!(third.find("s/1").await.unwrap_err().kind(), ErrorKind::NotFound);
    third.create_table_if_absent().await.unwrap();
    for store in [&first, &second, &third] {
        insert(store, "1", Duration::ZERO).await;
        assert_eq!(store.claim_due("s", "x", 9, LEASE).await.unwrap().len(), 1);
    }
    let too_long = Sagas::new(database.pool.clone()).table(&"n".repeat(51)).unwrap_err();
    assert_eq!(too_long.kind(), ErrorKind::Config);
}

#[tokio::test]
async fn a_table_of_another_shape_is_refused_and_names_the_columns() {
    let Some(database) = Database::create().await else { return };
    database
        .execute("CREATE TABLE acemq_saga (instance VARCHAR(255) PRIMARY KEY, state INTEGER)")
        .await;
    let error = Sagas::new(database.pool.clone()).find("s/1").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("saga, steps, status"), "{error}");
    assert!(error.to_string().contains("state is of type"), "{error}");
}
