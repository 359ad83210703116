#![no_main]

use acemq::Toml;
use acemq_fuzz::{any_value, round_trip};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    round_trip(&Toml, body);
    any_value(&Toml, body);
});
