//! What only MariaDB does, or only there has to be looked after.

use acemq::{ErrorKind, SchemaFormat, SchemaRegistry};

use super::database::{Database, Schemas};

#[tokio::test]
async fn a_table_whose_collation_takes_different_subjects_for_the_same_keeps_them_apart() {
    let Some(database) = Database::create().await else { return };
    let registry = Schemas::new(database.pool.clone());
    for statement in registry.schema_statements() {
        let ours = "COLLATE=utf8mb4_nopad_bin";
        database.execute(&statement.replace(ours, "COLLATE=utf8mb4_general_ci")).await;
    }
    let subjects = ["a", "A", "a ", "á"];
    for subject in subjects {
        registry.register(subject, &SchemaFormat::Avro, subject).await.unwrap();
    }
    for (n, subject) in (1..).zip(subjects) {
        let latest = registry.latest(subject).await.unwrap().unwrap();
        assert_eq!((latest.id.get(), latest.version), (n, 1), "{subject}");
        assert_eq!(registry.by_id(latest.id).await.unwrap().unwrap(), latest);
    }
}

#[tokio::test]
async fn a_definition_that_the_column_would_cut_is_refused() {
    let Some(database) = Database::create().await else { return };
    let registry = Schemas::new(database.pool.clone());
    for statement in registry.schema_statements() {
        database.execute(&statement.replace("LONGTEXT", "TEXT")).await;
    }
    let lenient = database.pool_after("SET SESSION sql_mode = ''").await;
    let registry = Schemas::new(lenient);
    let avro = SchemaFormat::Avro;
    let error = registry.register("s", &avro, &"ü".repeat(33_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.to_string().contains("65535"), "{error}");
    registry.register("s", &avro, &"x".repeat(65_535)).await.unwrap();
}
