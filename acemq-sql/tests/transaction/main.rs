//! Handlers in a transaction on every database, one suite.

#![expect(clippy::unwrap_used, reason = "what goes wrong here is a failure of the test")]

#[path = "../support/mod.rs"]
mod support;

#[path = "."]
mod mariadb {
    use crate::support::mariadb as database;

    /// Reads how long the session waits for locks, and what the tests' sessions have set.
    const LOCK_WAIT: Option<(&str, &str)> =
        Some(("SELECT CAST(@@innodb_lock_wait_timeout AS CHAR)", "10"));
    const SERIALIZABLE: &str = "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE";
    /// A statement that commits.
    const COMMITS: &str = "CREATE TABLE made_by_a_handler (n INT)";

    #[path = "server.rs"]
    mod server;
    #[path = "suite/mod.rs"]
    mod suite;
}

#[path = "."]
mod postgres {
    use crate::support::postgres as database;

    const LOCK_WAIT: Option<(&str, &str)> = Some(("SELECT current_setting('lock_timeout')", "10s"));
    const SERIALIZABLE: &str =
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE";
    const COMMITS: &str = "COMMIT";

    #[path = "postgres_alone.rs"]
    mod alone;
    #[expect(clippy::duplicate_mod, reason = "one suite, a database each")]
    #[path = "server.rs"]
    mod server;
    #[expect(clippy::duplicate_mod, reason = "one suite, a database each")]
    #[path = "suite/mod.rs"]
    mod suite;
}

#[path = "."]
mod sqlite {
    use crate::support::sqlite as database;

    const LOCK_WAIT: Option<(&str, &str)> = None;
    const SERIALIZABLE: &str = "SELECT 1";
    const COMMITS: &str = "COMMIT";

    #[expect(clippy::duplicate_mod, reason = "one suite, a database each")]
    #[path = "suite/mod.rs"]
    mod suite;
}
