use acemq::ErrorKind;

use super::{
    avro,
    database::{Database, Schemas},
    known, versions,
};

// promise: SU-1
#[tokio::test]
async fn a_missing_table_says_how_to_make_it_and_the_printed_statements_do() {
    let Some(database) = Database::create().await else { return };
    let registry = Schemas::new(database.pool.clone()).table("shop_schemas").unwrap();
    for statement in registry.schema_statements() {
        let error = avro(&registry, "s", "d").await.unwrap_err();
        // All but the row that counts, which is made when it is missing.
        if statement.starts_with("CREATE TABLE") {
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            assert!(error.to_string().contains(&statement), "{error}");
        }
        database.execute(&statement).await;
        if statement.starts_with("CREATE TABLE") && statement.contains("only_row") {
            break;
        }
    }
    assert_eq!(avro(&registry, "s", "d").await.unwrap(), 1);
    registry.create_table_if_absent().await.unwrap();
    assert_eq!(avro(&registry, "s", "e").await.unwrap(), 2);
}

// promise: SU-1
#[tokio::test]
async fn the_program_makes_the_very_tables_that_the_printed_statements_make() {
    let Some(database) = Database::create().await else { return };
    let [made, printed] = ["made_schemas", "printed_schemas"]
        .map(|table| Schemas::new(database.pool.clone()).table(table).unwrap());
    made.create_table_if_absent().await.unwrap();
    for statement in printed.schema_statements() {
        database.execute(&statement).await;
    }
    for suffix in ["", "_seq"] {
        let made = database.describe(&format!("made_schemas{suffix}")).await;
        assert_eq!(made, database.describe(&format!("printed_schemas{suffix}")).await);
    }
    assert!(database.describe("made_schemas").await.contains("TABLE_fingerprint"));
    assert_eq!(database.text("last_id", "FROM made_schemas_seq").await.unwrap(), "0");
}

#[tokio::test]
async fn a_table_that_java_filled_is_read_and_gone_on_with() {
    let Some(database) = Database::create().await else { return };
    let registry = database.schemas().await;
    database
        .execute(
            "INSERT INTO acemq_schema_registry \
             (id, fingerprint, format, subject, definition, registered_at) VALUES (41, \
             'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad', 'avro', \
             'org.acemq.Order', 'abc', '2026-09-26 00:00:00')",
        )
        .await;
    database.execute("UPDATE acemq_schema_registry_seq SET last_id = 41").await;
    assert_eq!(avro(&registry, "another.Subject", "abc").await.unwrap(), 41);
    assert_eq!(avro(&registry, "org.acemq.Order", "abcd").await.unwrap(), 42);
    assert_eq!(versions(&registry, "org.acemq.Order").await, [(41, 1), (42, 2)]);
}

#[tokio::test]
async fn the_row_that_counts_is_made_where_it_is_missing_and_goes_on_behind_what_is_there() {
    let Some(database) = Database::create().await else { return };
    let registry = database.schemas().await;
    database.execute("DELETE FROM acemq_schema_registry_seq").await;
    assert_eq!(avro(&registry, "s", "1").await.unwrap(), 1);
    assert_eq!(avro(&registry, "s", "2").await.unwrap(), 2);
    database.execute("DELETE FROM acemq_schema_registry_seq").await;
    assert_eq!(avro(&registry, "s", "3").await.unwrap(), 3);
    assert_eq!(database.text("last_id", "FROM acemq_schema_registry_seq").await.unwrap(), "3");
}

#[tokio::test]
async fn a_count_that_is_behind_is_an_error_that_names_it() {
    let Some(database) = Database::create().await else { return };
    let registry = database.schemas().await;
    avro(&registry, "s", "1").await.unwrap();
    database.execute("UPDATE acemq_schema_registry_seq SET last_id = 0").await;
    let error = avro(&registry, "s", "2").await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert!(error.to_string().contains("acemq_schema_registry_seq"), "{error}");
    assert_eq!(database.count("acemq_schema_registry").await, 1);
}

#[tokio::test]
async fn another_librarys_table_is_refused_and_names_the_columns() {
    let Some(database) = Database::create().await else { return };
    let registry = database.schemas().await;
    drop(registry);
    for (table, ours, other, fault) in [
        ("python", ", registered_at ", ", version INTEGER NOT NULL, registered_at ", ": version"),
        (
            "ruby",
            ", registered_at ",
            ", schema_version INTEGER NOT NULL, registered_at ",
            ": schema_",
        ),
        ("a", "fingerprint VARCHAR(64) NOT NULL, ", "", "missing: fingerprint"),
        ("b", " PRIMARY KEY", "", "id is not its primary key"),
        ("c", "id INTEGER", "id VARCHAR(9)", "id is of type"),
    ] {
        let registry = Schemas::new(database.pool.clone()).table(table).unwrap();
        for statement in registry.schema_statements() {
            let table_of_schemas =
                statement.starts_with("CREATE TABLE") && !statement.contains("only_row");
            if table_of_schemas {
                assert!(statement.contains(ours), "{statement}");
                let statement = statement.replacen(ours, other, 1);
                // An index cannot be on what is not there.
                let index = statement
                    .find(", UNIQUE INDEX")
                    .map(|at| at..statement.find(") ENGINE").unwrap());
                let statement = match index {
                    Some(index) => statement.replace(&statement[index], ""),
                    None => statement,
                };
                database.execute(&statement).await;
            } else if statement.starts_with("CREATE TABLE") {
                database.execute(&statement).await;
            }
        }
        let error = avro(&registry, "s", "d").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains(fault), "{error}");
    }
    let go = "CREATE TABLE acemq_schemas (id INTEGER PRIMARY KEY, subject VARCHAR(255) NOT NULL, \
              version INTEGER NOT NULL, format VARCHAR(64) NOT NULL, fingerprint VARCHAR(64) NOT \
              NULL, definition TEXT NOT NULL)";
    database.execute(go).await;
    let go = Schemas::new(database.pool.clone()).table("acemq_schemas").unwrap();
    let go = avro(&go, "s", "d").await.unwrap_err().to_string();
    assert!(go.contains("missing: registered_at") && go.contains("fill: version"), "{go}");
}

#[tokio::test]
async fn a_table_that_counts_in_another_shape_is_refused() {
    let Some(database) = Database::create().await else { return };
    database.schemas().await;
    database.execute("DROP TABLE acemq_schema_registry_seq").await;
    database.execute("CREATE TABLE acemq_schema_registry_seq (next INTEGER PRIMARY KEY)").await;
    let registry = Schemas::new(database.pool.clone());
    let error = avro(&registry, "s", "d").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("missing: only_row, last_id"), "{error}");
}

#[tokio::test]
async fn tables_in_one_database_and_in_another_schema_have_nothing_to_do_with_each_other() {
    let Some(database) = Database::create().await else { return };
    let first = database.schemas().await;
    let second = Schemas::new(database.pool.clone()).table(&"n".repeat(50)).unwrap();
    second.create_table_if_absent().await.unwrap();
    let (schema, pool) = database.another_schema().await;
    let third = Schemas::new(pool).schema(&schema).unwrap();
    assert_eq!(avro(&third, "s", "d").await.unwrap_err().kind(), ErrorKind::NotFound);
    third.create_table_if_absent().await.unwrap();
    for (n, registry) in (0..).zip([&first, &second, &third]) {
        let definition = format!("d{n}");
        assert_eq!(avro(registry, "s", &definition).await.unwrap(), 1);
        assert_eq!(known(registry, 1).await.unwrap().definition, definition);
        assert_eq!(versions(registry, "s").await, [(1, 1)]);
    }
    let too_long = Schemas::new(database.pool.clone()).table(&"n".repeat(51)).unwrap_err();
    assert_eq!(too_long.kind(), ErrorKind::Config);
}
