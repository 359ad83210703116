#![no_main]

use acemq::Protobuf;
use acemq_fuzz::decode;
use libfuzzer_sys::fuzz_target;

#[derive(Clone, PartialEq, prost::Message)]
struct Node {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(bytes = "vec", tag = "2")]
    bytes: Vec<u8>,
    #[prost(sint64, repeated, tag = "3")]
    sizes: Vec<i64>,
    #[prost(message, repeated, tag = "4")]
    children: Vec<Node>,
}

fuzz_target!(|body: &[u8]| {
    decode::<Node, _>(&Protobuf, body);
});
