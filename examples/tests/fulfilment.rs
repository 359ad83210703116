//! Runs the example as a user does: as a program, on the memory broker and on RabbitMQ.

#![expect(clippy::expect_used, reason = "what goes wrong here fails the test")]

mod support;

use std::process::Command;

use self::support::example;

fn runs_on(broker: &str) {
    let name = testkit::unique("fulfilment");
    let output = Command::new(example("fulfilment"))
        .args(["--broker", broker, "--name", &name])
        .output()
        .expect("run the example");
    let (said, log) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {log}", output.status);

    let count = |text: &str| said.lines().filter(|line| line.ends_with(text)).count();
    assert_eq!((count(": approved"), count(": turned down")), (3, 1), "{said}");
    assert_eq!(said.lines().filter(|line| line.contains("dispatched in")).count(), 8, "{said}");
    for line in [
        "validate: 9 completed, 1 ended here, 0 failed and were tried again",
        "approve: 3 completed, 1 ended here, 0 failed and were tried again",
        "reserve: 8 completed, 0 ended here, 3 failed and were tried again",
        "dispatch: 8 completed, 0 ended here, 0 failed and were tried again",
    ] {
        assert!(said.lines().any(|said| said == line), "no line says {line:?}:\n{said}");
    }
    let declared = format!(
        "pipeline {name} declared with 4 steps: validate | approve (somebody looks at large \
         orders) | reserve (hold stock for 15 minutes so payment cannot oversell) | dispatch"
    );
    assert!(log.contains(&declared), "{log}");
}

#[test]
fn large_orders_are_approved_and_small_ones_go_another_way() {
    runs_on("memory://fulfilment");
    for (_, broker) in testkit::brokers() {
        runs_on(&broker);
    }
}
