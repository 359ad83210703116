#![no_main]

use acemq::{Encrypted, Json, Keyring};
use acemq_fuzz::{Tree, decode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let Ok(keys) = Keyring::new("2026-01", [7; 32]) else { return };
    let _ = Encrypted::key_id_of(body);
    // Nobody makes up a tag.
    assert!(decode::<Tree, _>(&Encrypted::new(Json, keys), body).is_none());
});
