//! What only MariaDB does, or only there has to be looked after.

use acemq::{ErrorKind, StreamCheckpointStore};

use super::database::{Checkpoints, Database};

// promise: BX-11
#[tokio::test]
async fn a_table_whose_collation_takes_different_names_for_the_same_is_refused() {
    let Some(database) = Database::create().await else { return };
    for (table, collation) in [("a", "utf8mb4_general_ci"), ("b", "utf8mb4_bin")] {
        let store = Checkpoints::new(database.pool.clone()).table(table).unwrap();
        let create = store.schema_statements().swap_remove(0);
        let ours = "COLLATE=utf8mb4_nopad_bin";
        assert!(create.contains(ours), "{create}");
        database.execute(&create.replace(ours, &format!("COLLATE={collation}"))).await;
        let error = store.load("log", "reader").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains(collation), "{error}");
    }
}
