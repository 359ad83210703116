//! Where the examples are that the tests run.

use std::{path::PathBuf, process::Command};

/// A built example. Cargo builds examples together with the tests, except when it is told to run
/// one test alone. Of the whole workspace, since its packages alone would be built with other
/// features, and all they stand on once more.
pub(crate) fn example(name: &str) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo.args(["build", "--quiet", "--workspace", "--all-features", "--example", name]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    assert!(cargo.status().expect("run cargo").success(), "{name} does not build");
    let test = std::env::current_exe().expect("where this test is");
    test.ancestors().nth(2).expect("target/PROFILE/deps/TEST").join("examples").join(name)
}
