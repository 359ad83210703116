//! Runs the example as a user does: as a program, on embedded parts and on real servers.

#![expect(clippy::expect_used, clippy::panic, reason = "what goes wrong here fails the test")]

mod support;

use std::{
    path::PathBuf,
    process::{Command, Output, Stdio},
    sync::LazyLock,
};

use serde_json::Value;
use testkit::{MariaDbDatabase, PostgresDatabase};

use self::support::example;

fn order_flow(arguments: &[&str]) -> Output {
    static EXAMPLE: LazyLock<PathBuf> = LazyLock::new(|| example("order_flow"));
    let mut command = Command::new(&*EXAMPLE);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .env_remove("RUST_LOG")
        .env_remove("RUST_BACKTRACE");
    command.output().expect("run the example")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The numbers of a run that has succeeded.
fn numbers(output: &Output) -> Value {
    assert!(output.status.success(), "{}: {}", output.status, errors(output));
    serde_json::from_slice(&output.stdout).expect("JSON on stdout")
}

fn number(numbers: &Value, name: &str) -> u64 {
    numbers[name].as_u64().unwrap_or_else(|| panic!("{name} is no number in {numbers}"))
}

/// What the shipped orders come to, when each is placed once.
const SHIPPED: [(&str, u64); 8] = [
    ("placed", 996),
    ("rolled_back", 4),
    ("published", 996),
    ("handled", 993),
    ("duplicates_suppressed", 5),
    ("retried", 12),
    ("dead_lettered", 2),
    ("parked", 1),
];

// promise: SU-2, OB-25
#[test]
fn the_main_job_runs_on_embedded_parts_without_any_argument() {
    let output = order_flow(&[]);
    assert!(output.status.success(), "{}: {}", output.status, errors(&output));
    let table = String::from_utf8(output.stdout).expect("text");
    for (name, value) in SHIPPED {
        let name = match name {
            "dead_lettered" => "dead-lettered".to_owned(),
            name => name.replace('_', " "),
        };
        let value = value.to_string();
        assert!(
            table
                .lines()
                .any(|line| { line.strip_prefix(&name).is_some_and(|rest| rest.trim() == value) }),
            "no line says {name} {value}:\n{table}"
        );
    }
}

#[test]
fn a_count_beyond_the_file_goes_through_it_again() {
    let numbers = numbers(&order_flow(&["--json", "--count", "1500"]));
    assert_eq!(number(&numbers, "placed") + number(&numbers, "rolled_back"), 1_500);
    assert_eq!(numbers["wrong"], Value::Array(Vec::new()));
}

#[test]
fn the_main_job_runs_on_real_servers() {
    on_real_servers(|broker, database| {
        let numbers = numbers(&order_flow(&["--json", "--broker", broker, "--database", database]));
        for (name, value) in SHIPPED {
            // A real broker may deliver again; the outcome is the same.
            let actual = number(&numbers, name);
            assert!(actual == value || (actual > value && name == "retried"), "{name}: {numbers}");
        }
    });
}

// promise: ID-18
#[test]
fn after_a_crash_the_next_run_finishes_with_no_order_lost_and_none_charged_twice() {
    on_real_servers(|broker, database| {
        let run = ["--json", "--count", "400", "--broker", broker, "--database", database];
        for crash_after in ["60", "120"] {
            let crashed = order_flow(&[&run[..], &["--crash-after", crash_after]].concat());
            assert!(!crashed.status.success());
            assert!(errors(&crashed).contains("crashing after"), "{}", errors(&crashed));
        }
        let numbers = numbers(&order_flow(&run));
        assert_eq!(number(&numbers, "placed") + number(&numbers, "rolled_back"), 400);
        assert_eq!(number(&numbers, "published"), number(&numbers, "placed"));
        assert_eq!(
            number(&numbers, "handled")
                + number(&numbers, "dead_lettered")
                + number(&numbers, "parked"),
            number(&numbers, "placed")
        );
        assert_eq!(numbers["wrong"], Value::Array(Vec::new()), "money included");
    });
}

#[test]
fn what_is_wrong_is_said_and_the_program_fails() {
    let folder = tempfile::tempdir().expect("a folder");
    let broken = folder.path().join("broken.jsonl");
    std::fs::write(&broken, "\n{\"id\": 7}\n").expect("write a file");
    let broken = broken.to_str().expect("a name in UTF-8");
    let cases: [(&[&str], &str); 10] = [
        (&["--orders", "/nowhere/orders.jsonl"], "open /nowhere/orders.jsonl"),
        (&["--orders", broken], "read line 2 of"),
        (&["--orders", "/dev/null", "--count", "3"], "/dev/null holds no order"),
        (&["--database", "db2://localhost/shop"], "postgres://, mysql:// or sqlite://"),
        (&["--database", "sqlite:///nowhere/shop.db"], "open the database"),
        (&["--database", "postgres://me:secret@127.0.0.1:1/shop"], "open the database 127.0.0.1:1"),
        (&["--database", "mysql://me:secret@127.0.0.1:1/shop"], "open the database 127.0.0.1:1"),
        (&["--broker", "ftp://localhost"], "amqp://"),
        (&["--broker", "amqp://me:secret@127.0.0.1:1"], "127.0.0.1:1"),
        (&["--crash-after", "5"], "--crash-after needs a real --broker"),
    ];
    for (arguments, text) in cases {
        let output = order_flow(arguments);
        let errors = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {errors}");
        assert!(errors.contains(text), "{arguments:?} does not say {text:?}: {errors}");
        assert!(!errors.contains("secret"), "{errors}");
    }
}

/// Runs a test on the shared broker and an empty database of each kind, where there are such.
fn on_real_servers(test: impl Fn(&str, &str)) {
    let runtime = tokio::runtime::Runtime::new().expect("start a runtime");
    let Some(broker) = testkit::amqp_url() else { return };
    if let Some(database) = runtime.block_on(PostgresDatabase::create()) {
        test(&broker, database.url());
    }
    if let Some(database) = runtime.block_on(MariaDbDatabase::create()) {
        test(&broker, database.url());
    }
}
