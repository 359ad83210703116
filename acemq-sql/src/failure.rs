//! What a database's failure is to the library.

use acemq::{Error, ErrorKind};
use sqlx::error::DatabaseError;

/// An error that says what was being done, and what the database said.
pub(crate) fn failed(doing: impl FnOnce() -> String) -> impl FnOnce(sqlx::Error) -> Error {
    move |cause| {
        let kind = match &cause {
            sqlx::Error::Database(refusal) => kind(&**refusal),
            _ => ErrorKind::Store,
        };
        let doing = doing();
        if matches!(cause, sqlx::Error::PoolTimedOut) {
            let what = "no connection of the pool came free in time; is the database there, and the \
                        pool large enough?";
            return Error::new(kind, format!("{doing}: {what}")).with_source(cause);
        }
        Error::new(kind, format!("{doing}: {cause}")).with_quoted_source(cause)
    }
}

/// What somebody has to change before the same call can succeed is told from what passes.
fn kind(error: &dyn DatabaseError) -> ErrorKind {
    #[cfg(feature = "mysql")]
    if let Some(error) = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        // https://mariadb.com/docs/server/reference/error-codes/mariadb-error-code-reference
        return match error.number() {
            // ER_ACCESS_DENIED_ERROR, ER_ACCESS_DENIED_NO_PASSWORD_ERROR
            1045 | 1698 => ErrorKind::Authentication,
            // ER_DBACCESS_DENIED_ERROR, ER_TABLEACCESS_DENIED_ERROR, ER_COLUMNACCESS_DENIED_ERROR
            1044 | 1142 | 1143 => ErrorKind::Refused,
            // ER_BAD_DB_ERROR, ER_NO_SUCH_TABLE
            1049 | 1146 => ErrorKind::NotFound,
            _ => ErrorKind::Store,
        };
    }
    #[cfg(feature = "postgres")]
    if error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().is_some() {
        // https://www.postgresql.org/docs/current/errcodes-appendix.html
        return match error.code().as_deref() {
            // invalid_authorization_specification, invalid_password
            Some("28000" | "28P01") => ErrorKind::Authentication,
            // insufficient_privilege
            Some("42501") => ErrorKind::Refused,
            // invalid_catalog_name, invalid_schema_name, undefined_table
            Some("3D000" | "3F000" | "42P01") => ErrorKind::NotFound,
            _ => ErrorKind::Store,
        };
    }
    // SQLite has no code of its own for it.
    if error.message().starts_with("no such table") {
        ErrorKind::NotFound
    } else {
        ErrorKind::Store
    }
}
