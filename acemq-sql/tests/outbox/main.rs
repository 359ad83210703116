//! The outbox on every database, one suite.

#[path = "../support/mod.rs"]
mod support;

#[path = "."]
mod postgres {
    use crate::support::postgres as database;

    #[expect(clippy::duplicate_mod, reason = "one suite, a database each")]
    #[path = "suite.rs"]
    mod suite;
}

#[path = "."]
mod sqlite {
    use crate::support::sqlite as database;

    #[expect(clippy::duplicate_mod, reason = "one suite, a database each")]
    #[path = "suite.rs"]
    mod suite;
}
