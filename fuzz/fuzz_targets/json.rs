#![no_main]

use acemq::Json;
use acemq_fuzz::{any_value, round_trip};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    round_trip(&Json, body);
    any_value(&Json, body);
});
