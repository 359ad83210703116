//! The table.

use acemq::{ErrorKind, StreamCheckpointStore};

use super::{Checkpoints, Database};

// promise: SU-1
#[tokio::test]
async fn a_missing_table_says_how_to_make_it_and_the_printed_statement_does() {
    let Some(database) = Database::create().await else { return };
    let store = Checkpoints::new(database.pool.clone()).table("shop_places").unwrap();
    let error = store.load("s", "r").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    for statement in store.schema_statements() {
        assert!(error.to_string().contains(&statement), "{error}");
        database.execute(&statement).await;
    }
    store.save("s", "r", 1).await.unwrap();
    store.create_table_if_absent().await.unwrap();
    assert_eq!(store.load("s", "r").await.unwrap(), Some(1));
}

// promise: SU-1
#[tokio::test]
async fn the_program_makes_the_very_table_that_the_printed_statement_makes() {
    let Some(database) = Database::create().await else { return };
    let [made, printed] = ["made_places", "printed_places"]
        .map(|table| Checkpoints::new(database.pool.clone()).table(table).unwrap());
    made.create_table_if_absent().await.unwrap();
    for statement in printed.schema_statements() {
        database.execute(&statement).await;
    }
    let made = database.describe("made_places").await;
    assert_eq!(made, database.describe("printed_places").await);
}

#[tokio::test]
async fn a_table_of_another_shape_is_refused_and_says_what_is_wrong() {
    let Some(database) = Database::create().await else { return };
    for (table, ours, other, fault) in [
        ("a", "last_offset BIGINT NOT NULL, ", "", "missing: last_offset"),
        (
            "b",
            "last_offset BIGINT NOT NULL",
            "last_offset VARCHAR(9) NOT NULL",
            "last_offset is of",
        ),
        ("c", "last_offset BIGINT NOT NULL", "last_offset BIGINT", "last_offset may be null"),
        ("d", "(stream_name, reader_name)", "(stream_name)", "stream_name does not make"),
        ("e", "(stream_name, reader_name)", "(reader_name, saved_at)", "stream_name does not make"),
        ("f", ", PRIMARY KEY (stream_name, reader_name)", "", "stream_name does not make"),
        ("g", "saved_at ", "place INTEGER NOT NULL, saved_at ", "nobody would fill: place"),
    ] {
        let store = Checkpoints::new(database.pool.clone()).table(table).unwrap();
        let create = store.schema_statements().swap_remove(0);
        assert!(create.contains(ours), "{create}");
        database.execute(&create.replacen(ours, other, 1)).await;
        let error = store.load("s", "r").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains(fault), "{error}");
    }
}

#[tokio::test]
async fn tables_in_one_database_and_in_another_schema_have_nothing_to_do_with_each_other() {
    let Some(database) = Database::create().await else { return };
    let first = database.checkpoints().await;
    let second = Checkpoints::new(database.pool.clone()).table(&"n".repeat(50)).unwrap();
    second.create_table_if_absent().await.unwrap();
    let (schema, pool) = database.another_schema().await;
    let third = Checkpoints::new(pool).schema(&schema).unwrap();
    assert_eq!(third.load("s", "r").await.unwrap_err().kind(), ErrorKind::NotFound);
    third.create_table_if_absent().await.unwrap();
    for (n, store) in (0..).zip([&first, &second, &third]) {
        store.save("s", "r", n).await.unwrap();
        assert_eq!(store.load("s", "r").await.unwrap(), Some(n));
    }
    let too_long = Checkpoints::new(database.pool.clone()).table(&"n".repeat(51)).unwrap_err();
    assert_eq!(too_long.kind(), ErrorKind::Config);
}
