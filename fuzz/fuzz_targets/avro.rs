#![no_main]

use std::sync::LazyLock;

use acemq::{Avro, MemorySchemaRegistry};
use acemq_fuzz::{Tree, decode, encode, round_trip};
use libfuzzer_sys::fuzz_target;

/// Recursive, and with something of every kind that has a length.
const SCHEMA: &str = r#"{"type": "record", "name": "Tree", "fields": [
    {"name": "name", "type": "string"}, {"name": "value", "type": ["null", "double"]},
    {"name": "sizes", "type": {"type": "map", "values": "long"}},
    {"name": "children", "type": {"type": "array", "items": "Tree"}}]}"#;
/// Another shape, onto which a body is resolved.
const READER: &str = r#"{"type": "record", "name": "Tree", "fields": [
    {"name": "children", "type": {"type": "array", "items": "Tree"}},
    {"name": "sizes", "type": {"type": "map", "values": "double"}},
    {"name": "note", "type": "string", "default": "none"}]}"#;

/// Made once: reading a schema takes longer than most bodies.
static CODECS: LazyLock<[Avro; 3]> = LazyLock::new(|| {
    let fixed = Avro::fixed(SCHEMA).expect("a schema");
    let resolved = fixed.clone().reader(READER).expect("schemas that can be resolved");
    let registered = Avro::registered(SCHEMA, MemorySchemaRegistry::new()).expect("a name");
    // From now on there is a schema 1.
    encode(&registered, &Tree::default()).expect("a registry in memory");
    [fixed, resolved, registered]
});

fuzz_target!(|body: &[u8]| {
    let [fixed, resolved, registered] = &*CODECS;
    round_trip(fixed, body);
    decode::<Tree, _>(resolved, body);
    round_trip(registered, body);
});
