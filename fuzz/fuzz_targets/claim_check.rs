#![no_main]

use acemq::{ClaimCheck, Json, MemoryClaimCheckStore};
use acemq_fuzz::{Tree, decode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    let _ = ClaimCheck::key_of(body);
    decode::<Tree, _>(&ClaimCheck::new(Json, MemoryClaimCheckStore::new()), body);
});
