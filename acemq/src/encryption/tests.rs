use bytes::Bytes;
use proptest::prelude::*;

use super::{Encrypted, Keyring, frame};
use crate::{
    codec::{Decode, Encode, Json, RawBytes, Text},
    error::{Error, ErrorKind},
};

/// The key of all vectors.
fn vector_key() -> [u8; 32] {
    std::array::from_fn(|n| n as u8)
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

struct Vector {
    key_id: &'static str,
    nonce: &'static str,
    plain: &'static str,
    frame: &'static str,
}

/// The last one was sealed by the Java library.
const VECTORS: [Vector; 3] = [
    Vector {
        key_id: "2026-01",
        nonce: "000102030405060708090a0b",
        plain: "hello",
        frame: "ae0107323032362d3031000102030405060708090a0b\
                2f67ba77aa632797b83b1f88ef1394bb9ff6e85641",
    },
    Vector {
        key_id: "orders-2026-09",
        nonce: "a0a1a2a3a4a5a6a7a8a9aaab",
        plain: r#"{"order_id":"A-1"}"#,
        frame: "ae010e6f72646572732d323032362d3039a0a1a2a3a4a5a6a7a8a9aaab\
                9d3a135f21ae70e00b01a5e9253bedef52d1a7f3e61950b1d99f4bb3fb7c19e71b17",
    },
    Vector {
        key_id: "orders-2026-09",
        nonce: "19ea839e3a2b7c20d82fd4f6",
        plain: r#"{"order_id":"J-1"}"#,
        frame: "ae010e6f72646572732d323032362d303919ea839e3a2b7c20d82fd4f6\
                2a81bb255c818caeca7a5dbdd366fbf89a155e51df800dd29599b10dc15628d69c74",
    },
];

fn codec(keys: &Keyring) -> Encrypted<Text> {
    Encrypted::new(Text, keys.clone())
}

fn keys() -> Keyring {
    Keyring::new("2026-01", vector_key()).unwrap()
}

fn sealed(keys: &Keyring, nonce: [u8; 12], plain: &str) -> Bytes {
    let key = keys.writing();
    let mut frame = key.begin_with(nonce);
    frame.extend_from_slice(plain.as_bytes());
    key.seal(frame, nonce).unwrap()
}

async fn refusal(codec: &Encrypted<Text>, body: impl Into<Bytes>) -> Error {
    let error = Decode::<String>::decode(codec, body.into(), None).await.unwrap_err();
    assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Decode, false), "{error}");
    error
}

// promise: EN-1
#[tokio::test]
async fn the_familys_frames_are_read_and_written_byte_for_byte() {
    for Vector { key_id, nonce, plain, frame } in VECTORS {
        let keys = Keyring::new(key_id, vector_key()).unwrap();
        let frame = bytes(frame);
        let read: String = codec(&keys).decode(frame.clone().into(), None).await.unwrap();
        assert_eq!(read, plain);
        assert_eq!(Encrypted::key_id_of(&frame), Some(key_id));
        let nonce = bytes(nonce).try_into().unwrap();
        assert_eq!(sealed(&keys, nonce, plain), frame);
    }
}

#[tokio::test]
async fn a_codec_inside_that_loses_the_frame_is_an_error() {
    struct Forgetful;

    impl Encode<str> for Forgetful {
        fn content_type(&self) -> &str {
            "text/plain"
        }

        async fn encode(&self, payload: &str) -> crate::Result<Bytes> {
            Ok(payload.to_owned().into())
        }

        async fn encode_onto(&self, _buffer: Vec<u8>, payload: &str) -> crate::Result<Vec<u8>> {
            Ok(payload.into())
        }
    }

    for payload in ["o-1", "a payload that is longer than what was before it"] {
        let error = Encrypted::new(Forgetful, keys()).encode(payload).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Encode);
    }
}

#[tokio::test]
async fn a_body_is_sealed_anew_each_time_and_comes_back_with_every_size_of_key() {
    for length in [16, 24, 32] {
        let codec = codec(&Keyring::new("k", vec![9; length]).unwrap());
        let first = codec.encode("secret").await.unwrap();
        assert_ne!(first, codec.encode("secret").await.unwrap());
        assert!(!first.windows(6).any(|part| part == b"secret"));
        assert_eq!(Decode::<String>::decode(&codec, first, None).await.unwrap(), "secret");
        let empty = codec.encode("").await.unwrap();
        assert_eq!(Decode::<String>::decode(&codec, empty, None).await.unwrap(), "");
    }
}

// promise: EN-2
#[tokio::test]
async fn a_key_that_is_used_writes_and_those_before_it_still_read() {
    let keys = keys();
    let codec = codec(&keys);
    let old = codec.encode("old").await.unwrap();
    keys.add("2026-02", [2; 16]).unwrap();
    assert_eq!(keys.current(), "2026-01");
    keys.use_key("2026-02").unwrap();
    let new = codec.encode("new").await.unwrap();
    assert_eq!(
        (Encrypted::key_id_of(&old), Encrypted::key_id_of(&new)),
        (Some("2026-01"), Some("2026-02"))
    );
    assert_eq!(Decode::<String>::decode(&codec, old, None).await.unwrap(), "old");
    assert_eq!(Decode::<String>::decode(&codec, new, None).await.unwrap(), "new");
    for refused in [keys.add("2026-02", [3; 32]), keys.use_key("2026-03")] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Config);
    }
}

#[test]
fn keys_and_ids_that_no_frame_can_have_are_refused() {
    for length in [0, 8, 15, 17, 31, 33, 64] {
        let error = Keyring::new("k", vec![0xEE; length]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("16, 24 or 32"), "{error}");
    }
    for id in [String::new(), "a\0b".into(), "x".repeat(256), "ä".repeat(128)] {
        assert_eq!(Keyring::new(id, [0; 32]).unwrap_err().kind(), ErrorKind::Config);
    }
    Keyring::new("x".repeat(255), [0; 32]).unwrap();
}

#[tokio::test]
async fn each_fault_of_a_frame_has_a_message_of_its_own() {
    let codec = codec(&keys());
    let frame = codec.encode("hello").await.unwrap().to_vec();
    let with = |at: usize, byte: u8| {
        let mut frame = frame.clone();
        frame[at] = byte;
        frame
    };
    for (body, said) in [
        (Vec::new(), "too short"),
        (frame[..2].to_vec(), "too short"),
        (with(0, 0xAC), "does not begin as"),
        (with(1, 2), "version 2"),
        (with(2, 0), "key id is empty"),
        (frame[..8].to_vec(), "ends within its key id"),
        (with(3, 0xFF), "not valid UTF-8"),
        (frame[..frame.len() - 6].to_vec(), "ends before its tag"),
        (with(3, b'3'), "the key '3026-01', and the keyring holds '2026-01'"),
    ] {
        let error = refusal(&codec, body).await;
        assert!(error.to_string().contains(said), "{error}: {said}");
    }
}

// promise: EN-3
#[tokio::test]
async fn a_wrong_key_and_a_changed_body_are_told_apart_by_nobody() {
    let codec = codec(&keys());
    let frame = codec.encode("hello").await.unwrap().to_vec();
    let other = Encrypted::new(Text, Keyring::new("2026-01", [1; 32]).unwrap());
    let wrong_key = refusal(&other, frame.clone()).await.to_string();
    for at in 10..frame.len() {
        let mut changed = frame.clone();
        changed[at] ^= 1;
        assert_eq!(refusal(&codec, changed).await.to_string(), wrong_key);
    }
    // The key's id is authenticated as well: under another id the same key opens nothing.
    let keys = keys();
    keys.add("2026-02", vector_key()).unwrap();
    let mut renamed = frame;
    renamed[9] = b'2';
    let error = refusal(&Encrypted::new(Text, keys), renamed).await;
    assert_eq!(error.to_string(), wrong_key);
    assert!(std::error::Error::source(&error).is_none());
}

#[test]
fn only_its_own_content_type_is_read() {
    let accepts = |content_type| Decode::<String>::accepts(&codec(&keys()), content_type);
    assert!(accepts(Some("application/vnd.acemq.encrypted")));
    assert!(accepts(Some("Application/VND.acemq.Encrypted; v=1")));
    assert!(!accepts(None) && !accepts(Some("text/plain")) && !accepts(Some("application/json")));
    assert_eq!(Encode::<str>::content_type(&codec(&keys())), "application/vnd.acemq.encrypted");
}

#[tokio::test]
async fn within_another_one_a_frame_is_sealed_twice() {
    let twice = Encrypted::new(Encrypted::new(Json, keys()), Keyring::new("o", [4; 16]).unwrap());
    let body = twice.encode(&[1, 2]).await.unwrap();
    assert_eq!(Encrypted::key_id_of(&body), Some("o"));
    assert_eq!(Decode::<Vec<u8>>::decode(&twice, body, None).await.unwrap(), [1, 2]);
}

// promise: EN-3
#[test]
fn nothing_shows_a_key() {
    let keys = Keyring::new("2026-01", *b"0123456789abcdef").unwrap();
    let shown = format!("{keys:?} {:?}", codec(&keys));
    assert!(shown.contains("2026-01"), "{shown}");
    assert!(!shown.contains("0123456789abcdef") && !shown.contains("48, 49"), "{shown}");
    let wrong = Keyring::new("k", b"0123456789").unwrap_err();
    assert!(!format!("{wrong:?}").contains("0123456789"), "{wrong:?}");
}

// promise: EN-3
#[tokio::test]
async fn an_error_of_the_codec_inside_does_not_show_what_was_sealed() {
    let sealed = Encrypted::new(Json, keys()).encode(&"4111-1111").await.unwrap();
    let codec = Encrypted::new(Json, keys());
    let error = Decode::<u64>::decode(&codec, sealed, None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Decode);
    let shown = format!("{error} {error:?}");
    assert!(shown.contains("it was opened") && !shown.contains("4111"), "{shown}");
}

#[cfg(all(feature = "avro", feature = "yaml"))]
#[tokio::test]
async fn the_codec_inside_is_told_its_own_type() {
    // Its first byte is zero, as that of a body with the id of a schema is.
    let schema = r#"{"type": "record", "name": "R", "fields": [
        {"name": "a", "type": "boolean"}, {"name": "b", "type": "string"}]}"#;
    #[derive(serde::Serialize, serde::Deserialize, PartialEq, Debug)]
    struct R {
        a: bool,
        b: String,
    }
    let codec = Encrypted::new(crate::Avro::fixed(schema).unwrap(), keys());
    let value = R { a: false, b: "twelve".into() };
    let body = codec.encode(&value).await.unwrap();
    assert_eq!(Decode::<R>::decode(&codec, body, None).await.unwrap(), value);

    let several = Encrypted::new((crate::Yaml, Json), keys());
    let body = several.encode(&vec![1, 2]).await.unwrap();
    assert_eq!(Decode::<Vec<u8>>::decode(&several, body, None).await.unwrap(), [1, 2]);
}

/// A format that reads no message without its content type, and is found all the same.
#[cfg(all(feature = "avro", feature = "protobuf"))]
#[tokio::test]
async fn what_chooses_between_formats_inside_is_told_a_type_as_well() {
    use prost::Message;

    #[derive(Clone, PartialEq, Message, serde::Serialize, serde::Deserialize)]
    struct R {
        #[prost(string, tag = "1")]
        b: String,
    }
    let value = R { b: "twelve".into() };
    let envelope = crate::Envelope::new("r");
    async fn comes_back<C: Encode<R>, D: Decode<R>>(
        written: C,
        read: D,
        (value, envelope): (&R, &crate::Envelope),
    ) {
        let body = Encrypted::new(written, keys()).encode(value).await.unwrap();
        let codec = Encrypted::new(read, keys());
        let content_type = Some("application/vnd.acemq.encrypted");
        assert_eq!(codec.decode_message(body, content_type, envelope).await.unwrap(), *value);
    }
    let expected = (&value, &envelope);
    let registry = crate::MemorySchemaRegistry::new();
    let schema = r#"{"type": "record", "name": "R", "fields": [{"name": "b", "type": "string"}]}"#;
    let avro = crate::Avro::registered(schema, registry.clone()).unwrap();
    let reader = || crate::AvroReader::new(registry.clone());
    let one_of = crate::ByType::new(crate::Protobuf).read("r", |r: R| r);
    comes_back(crate::Protobuf, one_of, expected).await;
    comes_back(avro.clone(), crate::ByType::new(reader()).read("r", |r: R| r), expected).await;
    comes_back(avro, (reader(), crate::AnyFormat), expected).await;
    comes_back(crate::Protobuf, (crate::Protobuf, crate::Protobuf), expected).await;
}

#[test]
fn generated_keys_differ() {
    let [one, other] = [(); 2].map(|()| Keyring::generate_key().unwrap());
    assert_ne!(*one, *other);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(body: Vec<u8>) {
        let _ = frame::read(&body);
        let _ = Encrypted::key_id_of(&body);
        let codec = Encrypted::new(RawBytes::default(), keys());
        let _ = futures_util::FutureExt::now_or_never(Decode::<Bytes>::decode(&codec, body.into(), None));
    }

    #[test]
    fn what_begins_as_a_frame_and_was_made_up_is_refused(rest: Vec<u8>, length: u8) {
        let mut body = vec![0xAE, 1, length];
        body.extend(rest);
        prop_assert!(frame::read(&body).is_err() || body.len() >= 32);
        let codec = Encrypted::new(RawBytes::default(), keys());
        let read = futures_util::FutureExt::now_or_never(Decode::<Bytes>::decode(&codec, body.into(), None));
        prop_assert!(read.unwrap().is_err());
    }
}
