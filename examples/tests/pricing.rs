//! Runs the example of requests as a user does.

#![expect(clippy::expect_used, reason = "what goes wrong here fails the test")]

mod support;

use std::process::Command;

use self::support::example;

fn pricing(arguments: &[&str]) -> Vec<String> {
    let output = Command::new(example("pricing")).args(arguments).output();
    let output = output.expect("run the example");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

fn check(lines: &[String]) {
    let said = ["book: 12.50", "lamp: 49.99", "dragon: there is no dragon in the catalogue"];
    assert_eq!(lines, said);
}

#[test]
fn prices_are_asked_for_and_answered_inside_the_process() {
    check(&pricing(&[]));
}

#[test]
fn prices_are_asked_for_and_answered_on_rabbitmq() {
    for (_, url) in testkit::brokers() {
        check(&pricing(&["--broker", &url]));
        assert_eq!(pricing(&["--broker", &url, "lamp"]), ["lamp: 49.99"]);
    }
}
