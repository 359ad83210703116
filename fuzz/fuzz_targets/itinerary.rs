#![no_main]

use acemq::Itinerary;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let Ok(text) = std::str::from_utf8(body) else { return };
    let Ok(slip) = Itinerary::parse(text) else { return };
    assert_eq!(Itinerary::parse(&slip.to_header()).ok(), Some(slip));
});
