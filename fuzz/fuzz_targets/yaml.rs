#![no_main]

use acemq::Yaml;
use acemq_fuzz::{any_value, round_trip};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    round_trip(&Yaml, body);
    any_value(&Yaml, body);
});
