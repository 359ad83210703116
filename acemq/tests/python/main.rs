//! Bodies of ours in the hands of Python's own libraries, and theirs in ours.

#![expect(
    clippy::panic,
    clippy::unwrap_in_result,
    clippy::unwrap_used,
    reason = "what goes wrong here is a failure of the test"
)]

mod other_side;

use std::collections::BTreeMap;

use acemq::{
    Avro, AvroReader, Decode, Encode, Encrypted, Json, Keyring, MemorySchemaRegistry, Protobuf,
    SchemaRegistry, Toml, Xml, Yaml,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::other_side::OtherSide;

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
struct Order {
    order_id: String,
    customer: String,
    total_cents: i64,
    paid: bool,
    lines: Vec<String>,
}

fn order() -> Order {
    Order {
        order_id: "null".into(),
        customer: "Ana Söderström <ana@example.com> 🦀 & Co".into(),
        total_cents: i64::MAX,
        paid: true,
        lines: vec!["1e3".into(), "yes: no # maybe".into()],
    }
}

fn as_json() -> Value {
    serde_json::to_value(order()).unwrap()
}

/// Both ways through one format; `read` is what Python makes of our body.
async fn both_ways(format: &str, codec: impl Encode<Order> + Decode<Order>, read: Value) {
    let Some(mut python) = OtherSide::start() else { return };
    let ours = codec.encode(&order()).await.unwrap();
    assert_eq!(python.read(format, &ours, json!({})), read);
    let theirs = python.write(format, as_json(), json!({}));
    let content_type = Encode::<Order>::content_type(&codec);
    assert_eq!(codec.decode(theirs, Some(content_type)).await.unwrap(), order());
}

#[tokio::test]
async fn json_goes_both_ways() {
    both_ways("json", Json, as_json()).await;
}

#[tokio::test]
async fn yaml_goes_both_ways() {
    both_ways("yaml", Yaml, as_json()).await;
}

#[tokio::test]
async fn toml_goes_both_ways() {
    both_ways("toml", Toml, as_json()).await;
}

#[tokio::test]
async fn xml_goes_both_ways() {
    // All of its leaves are texts.
    let mut read = as_json();
    read["totalCents"] = json!(i64::MAX.to_string());
    read["paid"] = json!("true");
    both_ways("xml", Xml::new(), read).await;
}

const SCHEMA: &str = r#"{"type": "record", "name": "Order", "namespace": "shop", "fields": [
    {"name": "orderId", "type": "string"}, {"name": "customer", "type": "string"},
    {"name": "totalCents", "type": "long"}, {"name": "paid", "type": "boolean"},
    {"name": "lines", "type": {"type": "array", "items": "string"}}]}"#;

#[tokio::test]
async fn avro_goes_both_ways() {
    let Some(mut python) = OtherSide::start() else { return };
    let codec = Avro::fixed(SCHEMA).unwrap();
    let how = json!({ "schema": SCHEMA });
    let ours = codec.encode(&order()).await.unwrap();
    assert_eq!(python.read("avro", &ours, how.clone()), as_json());
    let theirs = python.write("avro", as_json(), how);
    let read: Order = codec.decode(theirs, Some("avro/binary")).await.unwrap();
    assert_eq!(read, order());
}

#[tokio::test]
async fn avro_with_a_registered_schema_goes_both_ways() {
    let Some(mut python) = OtherSide::start() else { return };
    let registry = MemorySchemaRegistry::new();
    let codec = Avro::registered(SCHEMA, registry.clone()).unwrap();
    let ours = codec.encode(&order()).await.unwrap();
    let id = registry.latest("shop.Order").await.unwrap().unwrap().id.get();
    let how = json!({ "schema": SCHEMA, "id": id });
    assert_eq!(python.read("avro", &ours, how.clone()), as_json());
    let theirs = python.write("avro", as_json(), how);
    let reader = AvroReader::new(registry);
    let read: Order = reader.decode(theirs, Some("application/vnd.acemq.avro")).await.unwrap();
    assert_eq!(read, order());
}

/// `google.protobuf.Struct`, the part of it that is needed here.
#[derive(Clone, PartialEq, prost::Message)]
struct Struct {
    #[prost(btree_map = "string, message", tag = "1")]
    fields: BTreeMap<String, Field>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Field {
    #[prost(oneof = "Kind", tags = "2, 3, 4")]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Kind {
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(bool, tag = "4")]
    Truth(bool),
}

#[tokio::test]
async fn protobuf_goes_both_ways() {
    let Some(mut python) = OtherSide::start() else { return };
    let field = |name: &str, kind| (name.to_owned(), Field { kind: Some(kind) });
    let message = Struct {
        fields: BTreeMap::from([
            field("orderId", Kind::Text("A-1 🦀".into())),
            field("totalCents", Kind::Number(4250.5)),
            field("paid", Kind::Truth(true)),
        ]),
    };
    let value = json!({ "orderId": "A-1 🦀", "totalCents": 4250.5, "paid": true });
    let ours = Protobuf.encode(&message).await.unwrap();
    assert_eq!(python.read("protobuf", &ours, json!({})), value);
    let theirs = python.write("protobuf", value, json!({}));
    let read: Struct = Protobuf.decode(theirs, Some("application/x-protobuf")).await.unwrap();
    assert_eq!(read, message);
    // All defaults are no bytes at all.
    let empty = Protobuf.encode(&Struct::default()).await.unwrap();
    assert!(empty.is_empty());
    assert_eq!(python.read("protobuf", &empty, json!({})), json!({}));
}

// promise: EN-1
#[tokio::test]
async fn encrypted_bodies_go_both_ways() {
    let Some(mut python) = OtherSide::start() else { return };
    let key = [9; 32];
    let keys = Keyring::new("2026-ä", key).unwrap();
    let codec = Encrypted::new(Json, keys);
    let how = json!({ "key_id": "2026-ä", "key": other_side::base64(&key) });
    let ours = codec.encode(&order()).await.unwrap();
    assert_eq!(python.read("encrypted", &ours, how.clone()), as_json());
    let theirs = python.write("encrypted", as_json(), how);
    let read: Order = codec.decode(theirs, None).await.unwrap();
    assert_eq!(read, order());
}
