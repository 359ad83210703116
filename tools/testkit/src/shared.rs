//! The servers that tests share, and the rule for one that is not there.

use std::io::Write as _;
use std::thread;

/// Comma-separated names of the servers whose absence fails a test.
const REQUIRE: &str = "ACEMQ_TEST_REQUIRE";

/// A server a test may ask for.
#[derive(Debug)]
pub(crate) struct Server {
    /// As listed in `ACEMQ_TEST_REQUIRE`.
    pub(crate) name: &'static str,
    /// As people write it.
    pub(crate) title: &'static str,
    /// What to do so that the test runs.
    pub(crate) remedy: &'static str,
}

const RABBITMQ: Server =
    Server { name: "rabbitmq", title: "RabbitMQ 3.x", remedy: "set ACEMQ_TEST_AMQP_URL" };
const RABBITMQ4: Server =
    Server { name: "rabbitmq4", title: "RabbitMQ 4.x", remedy: "set ACEMQ_TEST_AMQP4_URL" };
const POSTGRES: Server =
    Server { name: "postgres", title: "PostgreSQL", remedy: "set ACEMQ_TEST_POSTGRES_URL" };
const MARIADB: Server =
    Server { name: "mariadb", title: "MariaDB", remedy: "set ACEMQ_TEST_MARIADB_URL" };

const PYTHON: Server =
    Server { name: "python", title: "Python with its libraries", remedy: "set ACEMQ_TEST_PYTHON" };

/// The shared RabbitMQ 3.x, or `None` after saying that the test is left out.
///
/// # Panics
///
/// When `ACEMQ_TEST_AMQP_URL` is not set and `ACEMQ_TEST_REQUIRE` lists `rabbitmq`.
pub fn amqp_url() -> Option<String> {
    variable("ACEMQ_TEST_AMQP_URL").or_else(|| missing(&RABBITMQ))
}

/// The shared RabbitMQ 4.x, or `None` after saying that the test is left out.
///
/// # Panics
///
/// When `ACEMQ_TEST_AMQP4_URL` is not set and `ACEMQ_TEST_REQUIRE` lists `rabbitmq4`.
pub fn amqp4_url() -> Option<String> {
    variable("ACEMQ_TEST_AMQP4_URL").or_else(|| missing(&RABBITMQ4))
}

/// The shared brokers that are there, as `("rabbitmq3", url)` and `("rabbitmq4", url)`.
///
/// # Panics
///
/// When one is missing that `ACEMQ_TEST_REQUIRE` lists.
pub fn brokers() -> Vec<(&'static str, String)> {
    [("rabbitmq3", amqp_url()), ("rabbitmq4", amqp4_url())]
        .into_iter()
        .filter_map(|(name, url)| Some((name, url?)))
        .collect()
}

/// The shared PostgreSQL, or `None` after saying that the test is left out. Its user
/// may create databases.
///
/// # Panics
///
/// When `ACEMQ_TEST_POSTGRES_URL` is not set and `ACEMQ_TEST_REQUIRE` lists `postgres`.
pub fn postgres_url() -> Option<String> {
    variable("ACEMQ_TEST_POSTGRES_URL").or_else(|| missing(&POSTGRES))
}

/// The shared MariaDB, or `None` after saying that the test is left out. Its user may
/// create databases whose names start with `acemq_test`.
///
/// # Panics
///
/// When `ACEMQ_TEST_MARIADB_URL` is not set and `ACEMQ_TEST_REQUIRE` lists `mariadb`.
pub fn mariadb_url() -> Option<String> {
    variable("ACEMQ_TEST_MARIADB_URL").or_else(|| missing(&MARIADB))
}

/// Python with the libraries of `scripts/python.txt`, or `None` after saying that the test is
/// left out.
///
/// # Panics
///
/// When `ACEMQ_TEST_PYTHON` is not set and `ACEMQ_TEST_REQUIRE` lists `python`.
pub fn python() -> Option<String> {
    variable("ACEMQ_TEST_PYTHON").or_else(|| missing(&PYTHON))
}

/// An environment variable, where an empty one counts as not set.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Fails the test when `server` is required, else says that the test is left out.
pub(crate) fn missing<T>(server: &Server) -> Option<T> {
    let required = variable(REQUIRE).unwrap_or_default();
    let thread = thread::current();
    let test = thread.name().unwrap_or("a test");
    match absence(server, &required, test) {
        Absence::Fails(message) => panic!("{message}"),
        Absence::LeavesOut(line) => {
            // Past the harness, which would keep the line of a passing test to itself.
            writeln!(std::io::stderr(), "{line}").ok();
            None
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Absence {
    Fails(String),
    LeavesOut(String),
}

fn absence(server: &Server, required: &str, test: &str) -> Absence {
    let Server { name, title, remedy } = server;
    if required.split(',').any(|listed| listed.trim() == *name) {
        Absence::Fails(format!(
            "{REQUIRE} lists {name}, but {title} is not there: {remedy}, or run ./test"
        ))
    } else {
        Absence::LeavesOut(format!("LEFT OUT: {test} needs {title} ({remedy}, or run ./test)"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_server_leaves_the_test_out_in_plain_sight() {
        assert_eq!(
            absence(&RABBITMQ, "rabbitmq4, postgres", "a_test"),
            Absence::LeavesOut(
                "LEFT OUT: a_test needs RabbitMQ 3.x (set ACEMQ_TEST_AMQP_URL, or run ./test)"
                    .to_owned()
            )
        );
    }

    #[test]
    fn a_missing_server_that_is_required_fails_the_test() {
        assert_eq!(
            absence(&RABBITMQ4, "rabbitmq, rabbitmq4", "a_test"),
            Absence::Fails(
                "ACEMQ_TEST_REQUIRE lists rabbitmq4, but RabbitMQ 4.x is not there: \
                 set ACEMQ_TEST_AMQP4_URL, or run ./test"
                    .to_owned()
            )
        );
    }
}
