#![no_main]

use acemq::Xml;
use acemq_fuzz::{any_value, round_trip};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    round_trip(&Xml::new(), body);
    any_value(&Xml::new(), body);
});
