//! Bodies of the family's other libraries are read, and they would read ours.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::FutureExt as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AnyFormat, Decode, Encode};
use crate::error::Result;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OrderPlaced {
    order_id: String,
    customer: String,
    total_cents: i64,
    currency: String,
    items: Vec<String>,
}

fn order() -> OrderPlaced {
    OrderPlaced {
        order_id: "o-1".to_owned(),
        customer: "Ana Söderström".to_owned(),
        total_cents: 4_250,
        currency: "EUR".to_owned(),
        items: vec!["widget".to_owned(), "gasket".to_owned()],
    }
}

/// The bodies in a format: who wrote it, its content type, its bytes, and what is in it as languages
/// see it that do not ask for a type.
fn samples(format: &str) -> Vec<(String, String, Vec<u8>, Value)> {
    let vectors: Value =
        serde_json::from_str(include_str!("../../../tests/vectors/codecs.json")).unwrap();
    let text = |sample: &Value, key: &str| sample[key].as_str().unwrap().to_owned();
    let samples = vectors["samples"].as_array().unwrap().iter();
    let samples = samples.filter(|sample| sample["format"] == format).map(|sample| {
        let body = STANDARD.decode(text(sample, "body_base64")).unwrap();
        let value = sample["value"].clone();
        (text(sample, "written_by"), text(sample, "content_type"), body, value)
    });
    samples.collect()
}

/// What they write is read, typed and untyped, and ours has the same in it and the same type.
fn check(format: &str, codec: &(impl Encode<OrderPlaced> + Decode<Value>)) {
    let samples = samples(format);
    assert!(!samples.is_empty());
    for (written_by, content_type, body, value) in samples {
        let body = ::bytes::Bytes::from(body);
        let read: Result<OrderPlaced> =
            AnyFormat.decode(body.clone(), Some(&content_type)).now_or_never().unwrap();
        assert_eq!(read.unwrap(), order(), "{format} of {written_by}");
        let read = codec.decode(body, Some(&content_type)).now_or_never().unwrap();
        assert_eq!(read.unwrap(), value, "{format} of {written_by}");

        assert_eq!(codec.content_type(), content_type);
        let ours = codec.encode(&order()).now_or_never().unwrap().unwrap();
        let read = codec.decode(ours, Some(&content_type)).now_or_never().unwrap();
        assert_eq!(read.unwrap(), value);
    }
}

#[cfg(feature = "yaml")]
#[test]
fn yaml_is_read_and_written_as_the_family_does() {
    check("yaml", &crate::Yaml);
    let ours = crate::Yaml.encode(&order()).now_or_never().unwrap().unwrap();
    let theirs = &samples("yaml")[0];
    assert_eq!((&*theirs.0, &theirs.2[..]), ("java", &ours[..]));
}

#[cfg(feature = "toml")]
#[test]
fn toml_is_read_and_written_as_the_family_does() {
    check("toml", &crate::Toml);
    let ours = crate::Toml.encode(&order()).now_or_never().unwrap().unwrap();
    let theirs = &samples("toml")[1];
    assert_eq!((&*theirs.0, &theirs.2[..]), ("go", &ours[..]));
}

#[cfg(feature = "xml")]
#[test]
fn xml_is_read_and_written_as_the_family_does() {
    check("xml", &crate::Xml::new());
    let ours = crate::Xml::new().encode(&order()).now_or_never().unwrap().unwrap();
    assert_eq!(samples("xml")[0].2, &ours[..]);
}
