#![no_main]

use acemq::{Avro, MemorySchemaRegistry};
use acemq_fuzz::{Tree, decode, round_trip};
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

fuzz_target!(|body: &[u8]| {
    let Ok(fixed) = Avro::fixed(SCHEMA) else { return };
    round_trip(&fixed, body);
    let Ok(resolved) = fixed.reader(READER) else { return };
    decode::<Tree, _>(&resolved, body);
    let Ok(registered) = Avro::registered(SCHEMA, MemorySchemaRegistry::new()) else { return };
    decode::<Tree, _>(&registered, body);
});
