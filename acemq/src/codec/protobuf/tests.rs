use base64::{Engine, prelude::BASE64_STANDARD};
use proptest::prelude::*;
use prost::encoding::{WireType, encode_key, encode_varint};

use super::*;

#[derive(Clone, PartialEq, Message)]
struct OrderPlaced {
    #[prost(string, tag = "1")]
    order_id: String,
    #[prost(int64, tag = "2")]
    total_cents: i64,
    #[prost(string, tag = "3")]
    tenant: String,
}

/// What an older consumer knows of it.
#[derive(Clone, PartialEq, Message)]
struct OrderId {
    #[prost(string, tag = "1")]
    order_id: String,
}

#[derive(Clone, PartialEq, Message)]
struct Nested {
    #[prost(message, optional, boxed, tag = "1")]
    inner: Option<Box<Self>>,
    #[prost(bytes = "bytes", tag = "2")]
    bytes: Bytes,
    #[prost(int64, repeated, tag = "3")]
    numbers: Vec<i64>,
}

async fn decode<T: Message + Default>(body: impl Into<Bytes>) -> Result<T> {
    Protobuf.decode(body.into(), Some("application/x-protobuf")).await
}

#[tokio::test]
async fn the_familys_bytes_are_read_and_written() {
    let go = BASE64_STANDARD.decode("CgNvLTEQmiEaBGFjbWU=").unwrap();
    let order =
        OrderPlaced { order_id: "o-1".to_owned(), total_cents: 4_250, tenant: "acme".to_owned() };
    assert_eq!(Protobuf.encode(&order).await.unwrap(), go);
    let behind = Protobuf.encode_onto(b"before".to_vec(), &order).await.unwrap();
    assert_eq!(behind, [b"before", &*go].concat());
    assert_eq!(decode::<OrderPlaced>(go).await.unwrap(), order);
}

#[test]
fn it_reads_every_type_of_the_familys_and_no_other() {
    let accepts = |content_type| Decode::<OrderId>::accepts(&Protobuf, content_type);
    for content_type in [
        "application/x-protobuf",
        "Application/X-Protobuf; messageType=Order",
        "application/protobuf",
        "application/vnd.google.protobuf",
        "application/vnd.acme.order+protobuf",
    ] {
        assert!(accepts(Some(content_type)), "{content_type}");
    }
    for content_type in [None, Some("application/json"), Some("application/octet-stream")] {
        assert!(!accepts(content_type), "{content_type:?}");
    }
    assert_eq!(Encode::<OrderId>::content_type(&Protobuf), "application/x-protobuf");
}

#[tokio::test]
async fn a_message_of_defaults_is_an_empty_body_and_comes_back() {
    let body = Protobuf.encode(&OrderPlaced::default()).await.unwrap();
    assert!(body.is_empty());
    assert_eq!(decode::<OrderPlaced>(body).await.unwrap(), OrderPlaced::default());
}

#[tokio::test]
async fn bytes_of_a_long_body_share_it() {
    for length in [0, 100, SHARED_FROM, 1_000_000] {
        let message = Nested { bytes: vec![7; length].into(), ..Nested::default() };
        let body = Protobuf.encode(&message).await.unwrap();
        let read: Nested = decode(body.clone()).await.unwrap();
        assert_eq!(read, message);
        let shares = body.as_ptr_range().contains(&read.bytes.as_ptr());
        assert_eq!(shares, length >= SHARED_FROM, "{length} bytes");
    }
}

#[tokio::test]
async fn unknown_fields_are_dropped() {
    let order = OrderPlaced { order_id: "o-1".to_owned(), ..OrderPlaced::default() };
    let more = OrderPlaced { total_cents: 7, tenant: "t".to_owned(), ..order.clone() };
    let body = Protobuf.encode(&more).await.unwrap();
    let known: OrderId = decode(body).await.unwrap();
    let sent_on = Protobuf.encode(&known).await.unwrap();
    assert_eq!(decode::<OrderPlaced>(sent_on).await.unwrap(), order);
}

#[tokio::test]
async fn what_is_no_message_is_an_error_that_will_not_get_better() {
    let order = OrderPlaced { order_id: "o-1".to_owned(), ..OrderPlaced::default() };
    let body = Protobuf.encode(&order).await.unwrap();
    for broken in [body.slice(..body.len() - 1), Bytes::from_static(b"\xff"), Bytes::from("{}")] {
        let error = decode::<OrderPlaced>(broken).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Decode);
        assert!(!error.is_transient());
    }
}

#[tokio::test]
async fn nesting_without_end_is_refused_before_the_stack_is_used_up() {
    let mut body = Vec::new();
    for _ in 0..10_000 {
        let mut outer = Vec::new();
        encode_key(1, WireType::LengthDelimited, &mut outer);
        encode_varint(body.len() as u64, &mut outer);
        outer.extend_from_slice(&body);
        body = outer;
    }
    assert_eq!(decode::<Nested>(body).await.unwrap_err().kind(), ErrorKind::Decode);
    // Groups that nobody knows are skipped by recursion, too.
    let mut groups = Vec::new();
    for _ in 0..100_000 {
        encode_key(9, WireType::StartGroup, &mut groups);
    }
    assert_eq!(decode::<Nested>(groups).await.unwrap_err().kind(), ErrorKind::Decode);
}

#[tokio::test]
async fn a_length_that_is_not_there_is_refused_and_never_allocated() {
    for tag in [1, 2, 3] {
        for length in [5, u64::from(u32::MAX), u64::MAX >> 1, u64::MAX] {
            let mut body = Vec::new();
            encode_key(tag, WireType::LengthDelimited, &mut body);
            encode_varint(length, &mut body);
            assert!(decode::<Nested>(body).await.is_err(), "{length} bytes of field {tag}");
        }
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_an_error(body: Vec<u8>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _ = runtime.block_on(decode::<Nested>(body.clone()));
        let _ = runtime.block_on(decode::<OrderPlaced>(body));
    }
}
