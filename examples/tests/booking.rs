//! Runs the example as a user does, kills it at every step in turn and anywhere else, and runs it
//! again.

#![expect(clippy::expect_used, reason = "what goes wrong here fails the test")]

mod support;

use std::{
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::LazyLock,
    time::Duration,
};

use self::support::example;

/// Every point before and after what a step or a compensation does.
const POINTS: [&str; 10] = [
    "flight",
    "flight is booked",
    "hotel",
    "hotel is booked",
    "payment",
    "payment is made",
    "cancel hotel",
    "hotel is cancelled",
    "cancel flight",
    "flight is cancelled",
];

fn booking(folder: &tempfile::TempDir, arguments: &[&str]) -> Command {
    static EXAMPLE: LazyLock<PathBuf> = LazyLock::new(|| example("booking"));
    let database = format!("sqlite://{}", folder.path().join("booking.sqlite").display());
    let mut command = Command::new(&*EXAMPLE);
    command.args(["--database", &database]).args(arguments).env_remove("RUST_BACKTRACE");
    command
}

/// What a run says that is let to its end.
fn finish(folder: &tempfile::TempDir, arguments: &[&str]) -> String {
    let output = booking(folder, arguments).output().expect("run the example");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {log}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

fn kill(mut child: Child) {
    child.kill().expect("kill it");
    child.wait().expect("wait for it");
}

// promise: SG-17
#[test]
fn killed_at_every_step_in_turn_it_ends_with_nothing_unresolved() {
    for point in POINTS {
        let folder = tempfile::tempdir().expect("a folder");
        let mut child = booking(&folder, &["--linger", point])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("run the example");
        // Kept until it is killed: it would stop by itself where nobody reads any more.
        let mut said = BufReader::new(child.stdout.take().expect("its output")).lines();
        let arrived = said.by_ref().map_while(Result::ok).any(|line| line == format!("at {point}"));
        assert!(arrived, "it never came to {point:?}");
        kill(child);
        drop(said);
        let said = finish(&folder, &[]);
        assert_eq!(said, "4 booked, 2 undone, 0 unresolved\n", "killed at {point:?}");
    }
}

// promise: SG-17
#[test]
fn killed_anywhere_again_and_again_it_ends_with_nothing_unresolved() {
    let folder = tempfile::tempdir().expect("a folder");
    for life in 0..12 {
        let mut child = booking(&folder, &["--trips", "90"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("run the example");
        // There is nothing to wait for: it is to be killed at whatever it does then.
        std::thread::sleep(Duration::from_millis(40 + 60 * (life * 7 % 12)));
        if child.try_wait().expect("look at it").is_some() {
            break;
        }
        kill(child);
    }
    assert_eq!(finish(&folder, &["--trips", "90"]), "60 booked, 30 undone, 0 unresolved\n");
}

#[test]
fn a_hotel_that_cancels_nothing_leaves_trips_that_need_attention() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = finish(&folder, &["--stubborn-hotel"]);
    assert!(said.contains("trip 3 needs attention: hotel: the hotel cancels nothing\n"), "{said}");
    assert!(said.ends_with("4 booked, 0 undone, 2 unresolved\n"), "{said}");
}
