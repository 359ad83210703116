//! What the codecs share.

#![expect(
    clippy::panic_in_result_fn,
    clippy::unwrap_in_result,
    reason = "a failure of a helper is one of its test"
)]

mod choosing;
mod family;
mod faults;
mod hostile;
mod shapes;
mod values;
#[cfg(feature = "xml")]
mod xml;

use ::bytes::Bytes;

use super::{AnyFormat, Decode, Encode, Format, Json, RawBytes, Text, no_codec_reads};
use crate::error::ErrorKind;

#[test]
fn each_codec_says_what_it_writes() {
    assert_eq!(Encode::<str>::content_type(&Json), "application/json");
    assert_eq!(Encode::<str>::content_type(&Text), "text/plain");
    assert_eq!(Encode::<[u8]>::content_type(&RawBytes::default()), "application/octet-stream");
}

#[tokio::test]
async fn a_codec_writes_behind_what_is_there() {
    async fn check(codec: impl Encode<str>) {
        let body = codec.encode("o-1").await.unwrap();
        let behind = codec.encode_onto(b"before".to_vec(), "o-1").await.unwrap();
        assert_eq!(behind, [b"before", &*body].concat());
    }
    check(Json).await;
    check(Text).await;
    check((Json, Text)).await;
    check((Text, Json)).await;
    assert!(Json.encode_onto(Vec::new(), &f64::NAN).await.is_err());
}

#[test]
fn json_reads_its_own_types_and_what_has_none() {
    let accepts = |content_type| Decode::<String>::accepts(&Json, content_type);
    assert!(accepts(None));
    for content_type in [
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON;charset=UTF-8",
        " application/json ",
        "text/json",
        "application/vnd.acme.order+json",
        "application/problem+JSON; v=1",
    ] {
        assert!(accepts(Some(content_type)), "{content_type}");
    }
    for content_type in
        ["text/plain", "application/xml", "application/jsonx", "json", "+jso", "text/html; a=+json"]
    {
        assert!(!accepts(Some(content_type)), "{content_type}");
    }
}

#[test]
fn text_and_bytes_read_their_own_type_only() {
    let text = |content_type| Decode::<String>::accepts(&Text, content_type);
    assert!(text(Some("text/plain; charset=utf-8")) && text(Some("TEXT/PLAIN")));
    assert!(!text(None) && !text(Some("text/html")));

    let bytes = |content_type| Decode::<Bytes>::accepts(&RawBytes::default(), content_type);
    assert!(bytes(Some("application/octet-stream")));
    assert!(!bytes(None) && !bytes(Some("application/json")));
    let pdf = RawBytes::of_type("application/pdf");
    assert!(pdf.accepts(Some("application/pdf; v=1")) && !pdf.accepts(None));
}

#[tokio::test]
async fn payloads_come_back_as_they_went() {
    let text = "Ana Söderström";
    let json = Json.encode(text).await.unwrap();
    assert_eq!(Decode::<String>::decode(&Json, json, None).await.unwrap(), text);
    let plain = Text.encode(text).await.unwrap();
    assert_eq!(plain, text);
    assert_eq!(Decode::<String>::decode(&Text, plain, None).await.unwrap(), text);
    let raw = RawBytes::default();
    let bytes = raw.encode(&b"\x00\xff"[..]).await.unwrap();
    assert_eq!(raw.decode(bytes, None).await.unwrap(), &b"\x00\xff"[..]);
}

#[tokio::test]
async fn what_cannot_be_read_is_an_error_that_will_not_get_better() {
    let broken = Bytes::from_static(b"\xff{");
    for result in [
        Decode::<String>::decode(&Json, broken.clone(), None).await,
        Decode::<String>::decode(&Text, broken, None).await,
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Decode);
        assert!(!error.is_transient());
    }
    // Nesting that would overflow the stack.
    let nested = Bytes::from("[".repeat(100_000));
    assert!(Decode::<serde_json::Value>::decode(&Json, nested, None).await.is_err());
}
