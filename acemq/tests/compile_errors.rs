//! What the compiler says about common mistakes.

#[test]
fn a_payload_that_cannot_be_written_is_named_together_with_the_derive_it_lacks() {
    trybuild::TestCases::new().compile_fail("tests/ui/payload_without_serialize.rs");
}
