//! What a beginner's mistake looks like: it does not compile, and the message says why.

// promise: OB-2
#[cfg(feature = "sqlite")]
#[test]
fn a_pool_or_a_bare_connection_does_not_compile_in_a_transactions_place() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/compile_fail/*.rs");
}
