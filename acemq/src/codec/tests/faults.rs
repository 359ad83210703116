//! What is said of a body or payload that a codec cannot do with.

use std::error::Error as _;

use ::bytes::Bytes;
use futures_util::FutureExt as _;
use serde::{Serialize, Serializer, ser::Error as _};

use super::{Decode, Encode, Format, Json, Text};
use crate::error::{Error, ErrorKind};

fn formats() -> Vec<Format> {
    let names = ["bytes", "json", "text", "toml", "xml", "yaml"];
    names.iter().filter_map(|name| name.parse().ok()).collect()
}

fn read<T: Send>(codec: &impl Decode<T>, body: &'static [u8]) -> Result<T, Error> {
    codec.decode(Bytes::from_static(body), None).now_or_never().unwrap()
}

const CHECKED: &str = "it begins with the frame of a claim check: read it with `ClaimCheck` around this \
    codec, and with the store that its publisher has";
const SEALED: &str = "it begins with the frame of an encrypted body: read it with `Encrypted` around \
    this codec, and with the keys that its publisher has";
/// The frames, with what is said of each. The last has room for an id of one byte, a nonce and a tag.
const FRAMES: [(&[u8], &str); 3] = [
    (b"\xac\x01\x00{\"f\": 1}", CHECKED),
    (b"\xac\x01\x018f14e45f-ceea-467f-9a1e-3f7a1c9a0b52", CHECKED),
    (b"\xae\x01\x01k............................", SEALED),
];

#[test]
fn a_frame_that_nobody_has_taken_off_is_named() {
    for (body, hint) in FRAMES {
        for format in formats() {
            let name = match format {
                Format::Bytes | Format::Text => format.to_string(),
                _ => format.to_string().to_uppercase(),
            };
            let error = read::<u64>(&format, body).unwrap_err();
            assert_eq!(error.to_string(), format!("read the body as {name}: {hint}"));
        }
        let error = read::<String>(&Text, body).unwrap_err();
        assert_eq!(error.to_string(), format!("read the body as text: {hint}"));
        #[cfg(feature = "protobuf")]
        {
            let error = read::<()>(&crate::Protobuf, body).unwrap_err();
            assert_eq!(error.to_string(), format!("read the body as Protobuf: {hint}"));
        }
        #[cfg(feature = "avro")]
        {
            // Its own fault stays: data may begin like that by chance.
            let avro = crate::Avro::fixed(r#"["null", "string"]"#).unwrap();
            let error = read::<String>(&avro, body).unwrap_err().to_string();
            let start = "read the body with schema union: it chooses number ";
            assert!(error.starts_with(start) && error.ends_with(hint), "{error}");
            let reader = crate::AvroReader::new(crate::MemorySchemaRegistry::new());
            let error = read::<String>(&reader, body).unwrap_err().to_string();
            assert_eq!(error, format!("read a registered Avro body: {hint}"));
        }
    }
}

#[cfg(feature = "avro")]
#[test]
fn data_that_begins_like_a_frame_by_chance_is_read() {
    let avro = crate::Avro::fixed(
        r#"{"type": "record", "name": "R", "fields": [
        {"name": "a", "type": "long"}, {"name": "b", "type": "boolean"}]}"#,
    );
    let read: serde_json::Value = read(&avro.unwrap(), b"\xac\x01\x01").unwrap();
    assert_eq!(read, serde_json::json!({"a": 86, "b": true}));
}

#[test]
fn what_only_resembles_a_frame_is_no_such_body() {
    let bodies: [&[u8]; 5] =
        [b"\xac", b"\xac\x01", b"\xac\x01\x02{}", b"\xae\x01\x00", b"\xae\x01\x05kkkkk"];
    for body in bodies {
        let error = read::<u64>(&Json, body).unwrap_err().to_string();
        assert!(!error.contains("frame"), "{error}");
    }
}

#[cfg(feature = "encryption")]
#[test]
fn a_frame_around_or_inside_of_an_encrypted_body_is_named() {
    let keys = crate::Keyring::new("k", [7; 32]).unwrap();
    let codec = crate::Encrypted::new(Json, keys.clone());
    let error = read::<u64>(&codec, FRAMES[0].0).unwrap_err().to_string();
    assert_eq!(error, format!("decrypt the body: {CHECKED}"));

    let store = crate::MemoryClaimCheckStore::new();
    let inside = crate::Encrypted::new(crate::ClaimCheck::new(Json, store), keys);
    let body = inside.encode(&1).now_or_never().unwrap().unwrap();
    let error = Decode::<u64>::decode(&codec, body.clone(), None).now_or_never().unwrap();
    assert!(error.unwrap_err().to_string().ends_with(CHECKED));
    // Where it is taken off, what is under it is concealed as ever.
    let error = Decode::<String>::decode(&inside, body, None).now_or_never().unwrap().unwrap_err();
    assert!(!error.to_string().contains("frame"), "{error}");
}

#[test]
fn text_that_is_none_says_where_and_its_error_does_not_hold_it() {
    let body = b"secret\xff";
    let errors = [
        read::<String>(&Text, body).unwrap_err(),
        read::<String>(&Format::Text, body).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.to_string(), "read the body as text: it is not valid UTF-8 after 6 bytes");
        // 115 is the `s`: a cause of the standard library's would show the bytes.
        assert!(error.source().is_none() && !format!("{error:?}").contains("115"), "{error:?}");
    }
    let error = read::<String>(&Text, b"a\xff").unwrap_err();
    assert!(error.to_string().ends_with("after 1 byte"), "{error}");
}

#[test]
fn what_went_wrong_is_said_once() {
    struct Unwilling;
    impl Serialize for Unwilling {
        fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(S::Error::custom("not for sale"))
        }
    }
    let once = |error: Error| {
        assert!(error.source().is_none(), "{error:?}");
    };
    for format in formats() {
        let error = format.encode(&Unwilling).now_or_never().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Encode);
        once(error);
        once(read::<u64>(&format, b"\xff").unwrap_err());
    }
    #[cfg(feature = "avro")]
    {
        let avro = crate::Avro::fixed(r#""long""#).unwrap();
        once(avro.encode(&Unwilling).now_or_never().unwrap().unwrap_err());
        once(read::<u64>(&avro, b"").unwrap_err());
    }
    #[cfg(feature = "protobuf")]
    once(read::<()>(&crate::Protobuf, b"\xff").unwrap_err());
}

#[cfg(feature = "yaml")]
#[test]
fn a_limit_of_yaml_is_said_in_words_of_ours() {
    let read = |body: String| {
        let body = Bytes::from(body);
        let read = Decode::<serde_json::Value>::decode(&crate::Yaml, body, None).now_or_never();
        let error = read.unwrap().unwrap_err().to_string();
        error.strip_prefix("read the body as YAML: ").unwrap().to_owned()
    };
    let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (name, last) in ('b'..='i').zip('a'..) {
        bomb += &format!("{name}: &{name} [{}]\n", vec![format!("*{last}"); 9].join(", "));
    }
    let block: String = (0..50).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
    for (body, fault) in [
        ("[".repeat(100), "it is nested more than 48 levels deep at line 1 column 49"),
        (block, "it is nested more than 48 levels deep at line 49"),
        (bomb, "its aliases stand for more than 100000 lists, maps and values at line "),
        ("a: &a [*a]".to_owned(), "an anchor in it has an alias of its own inside at line 1"),
        ("a: 1\n---\na: 2\n".to_owned(), "it is more than one document"),
        (format!("- &a x\n{}", "- *a\n".repeat(50_001)), "it has more than 50000 aliases at line "),
    ] {
        let said = read(body);
        assert!(said.starts_with(fault), "{said}");
    }
}
