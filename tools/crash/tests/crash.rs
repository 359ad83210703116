//! Runs each scenario for a few seconds, as a program, on real servers.

#![expect(clippy::expect_used, clippy::panic, reason = "what goes wrong here fails the test")]

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use serde_json::Value;
use testkit::PostgresDatabase;

/// The program's code for a run whose servers are not installed, which it has said then.
const LEFT_OUT: i32 = 3;

/// Runs a scenario. The program checks the books; what comes back is its numbers.
fn crash(scenario: &str, broker: &str, database: &str, more: &[&str]) -> Option<Numbers> {
    let output = Command::new(env!("CARGO_BIN_EXE_crash"))
        .args([scenario, "--json", "--broker", broker, "--database", database])
        .args(more)
        .stdin(Stdio::null())
        .env_remove("RUST_LOG")
        .output()
        .expect("run the program");
    if output.status.code() == Some(LEFT_OUT) {
        // Past the harness, which would keep the lines of a passing test to itself.
        std::io::stderr().write_all(&output.stderr).ok();
        return None;
    }
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{scenario} on {broker} and {database}: {}\n{said}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Some(Numbers(serde_json::from_str(&said).expect("JSON on stdout")))
}

struct Numbers(Value);

impl Numbers {
    fn of(&self, name: &str) -> u64 {
        let number = self.0["numbers"][name].as_u64();
        number.unwrap_or_else(|| panic!("{name} is no number in {}", self.0))
    }
}

/// Runs a test on the shared broker and an empty database, where there are such.
fn on_postgres(test: impl Fn(&str, &str)) {
    let runtime = tokio::runtime::Runtime::new().expect("start a runtime");
    let (Some(broker), Some(database)) =
        (testkit::amqp_url(), runtime.block_on(PostgresDatabase::create()))
    else {
        return;
    };
    test(&broker, database.url());
}

fn relays_are_killed(broker: &str, database: &str) {
    let Some(numbers) = crash("relays", broker, database, &["--seconds", "2"]) else { return };
    assert!(numbers.of("relays killed") >= 8);
    // A relay died after publishing and before marking: that its records went out again is what
    // keeps them from being lost where it died before.
    assert!(numbers.of("duplicates at the broker") > 0);
    assert!(
        numbers.of("duplicates at the broker") <= numbers.of("killed relays times their batch")
    );
    // And an idempotent consumer keeps every duplicate from having an effect.
    assert_eq!(numbers.of("effects doubled"), 0);
}

// promise: OB-4, OB-5, OB-8, ID-1
#[test]
fn relays_that_are_killed_lose_nothing_and_double_only_what_was_cut_off() {
    on_postgres(relays_are_killed);
}

// promise: OB-5, OB-8
#[test]
fn relays_that_are_killed_lose_nothing_and_double_only_what_was_cut_off_on_sqlite() {
    let Some(broker) = testkit::amqp_url() else { return };
    relays_are_killed(&broker, "sqlite");
}

fn consumers_are_killed(broker: &str, database: &str) {
    let Some(numbers) = crash("consumers", broker, database, &["--seconds", "2"]) else { return };
    assert!(numbers.of("consumers killed") >= 10);
    assert!(numbers.of("effects doubled") <= numbers.of("explained by handlers cut off"));
}

// promise: ID-18
#[test]
fn consumers_that_are_killed_in_their_handlers_lose_no_message() {
    on_postgres(consumers_are_killed);
}

// promise: ID-18
#[test]
fn consumers_that_are_killed_in_their_handlers_lose_no_message_on_sqlite() {
    let Some(broker) = testkit::amqp_url() else { return };
    consumers_are_killed(&broker, "sqlite");
}

fn transactional_consumers_are_killed(broker: &str, database: &str) {
    let more = ["--seconds", "2", "--transactional"];
    let Some(numbers) = crash("consumers", broker, database, &more) else { return };
    assert!(numbers.of("consumers killed") >= 10);
    assert_eq!(numbers.of("effects doubled"), 0);
}

// promise: BX-8, ID-19
#[test]
fn transactional_consumers_that_are_killed_anywhere_have_each_effect_once() {
    on_postgres(transactional_consumers_are_killed);
}

// promise: BX-8, ID-19
#[test]
fn transactional_consumers_that_are_killed_anywhere_have_each_effect_once_on_sqlite() {
    let Some(broker) = testkit::amqp_url() else { return };
    transactional_consumers_are_killed(&broker, "sqlite");
}

// promise: OB-1, OB-24
#[test]
fn writers_that_are_killed_leave_whole_transactions_and_three_relays_double_none_of_them() {
    on_postgres(|broker, database| {
        // Nobody who holds a lease is killed, and no lease is to run out on a busy machine.
        let more = ["--seconds", "2", "--lease", "30000"];
        let Some(numbers) = crash("writers", broker, database, &more) else { return };
        assert!(numbers.of("orders whose commit the table decided") > 0);
        assert_eq!(numbers.of("duplicates at the broker"), 0);
        assert_eq!(numbers.of("effects doubled"), 0);
    });
}

// promise: BX-1, OB-22
#[test]
fn a_broker_that_is_killed_in_a_batch_costs_no_record_and_no_attempt() {
    let runtime = tokio::runtime::Runtime::new().expect("start a runtime");
    let Some(database) = runtime.block_on(PostgresDatabase::create()) else { return };
    let Some(numbers) = crash("broker", "own", database.url(), &["--seconds", "1"]) else { return };
    assert!(numbers.of("broker interrupted") > 0);
}

#[test]
fn a_database_that_is_killed_in_a_batch_costs_no_record() {
    let Some(broker) = testkit::amqp_url() else { return };
    let Some(numbers) = crash("database", &broker, "own", &["--seconds", "2"]) else { return };
    assert!(numbers.of("database interrupted") > 0);
}

#[test]
fn what_cannot_be_run_is_said() {
    for (arguments, text) in [
        (&["broker", "--broker", "amqp://localhost"][..], "--broker own"),
        (&["database", "--database", "sqlite"], "--database own"),
        (&["relays", "--broker", "amqp://127.0.0.1:1", "--database", "oracle://x"], "must begin"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_crash"))
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("run the program");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {errors}");
        assert!(errors.contains(text), "{arguments:?} does not say {text:?}: {errors}");
    }
}
