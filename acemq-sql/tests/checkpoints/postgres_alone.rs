//! What only PostgreSQL does.

use acemq::{ErrorKind, StreamCheckpointStore};

use super::database::{Checkpoints, Database};

#[tokio::test]
async fn a_column_that_a_primary_key_merely_includes_does_not_count_as_one_of_it() {
    let Some(database) = Database::create().await else { return };
    let store = Checkpoints::new(database.pool.clone());
    let create = store.schema_statements().swap_remove(0);
    let ours = "(stream_name, reader_name))";
    assert!(create.contains(ours), "{create}");
    let including = "(stream_name, saved_at) INCLUDE (reader_name))";
    database.execute(&create.replace(ours, including)).await;
    let error = store.load("log", "reader").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("reader_name does not make"), "{error}");
}
