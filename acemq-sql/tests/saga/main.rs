//! The store of durable sagas on every database, one suite.

#![expect(clippy::unwrap_used, reason = "what goes wrong here is a failure of the test")]

#[path = "../support/mod.rs"]
mod support;

#[path = "."]
mod mariadb {
    use crate::support::mariadb as database;

    #[path = "mariadb_alone.rs"]
    mod alone;
    #[path = "server.rs"]
    mod server;
    #[path = "suite/mod.rs"]
    mod suite;
}

#[path = "."]
mod postgres {
    use crate::support::postgres as database;

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

    #[expect(clippy::duplicate_mod, reason = "one suite, a database each")]
    #[path = "suite/mod.rs"]
    mod suite;
}
