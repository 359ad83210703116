//! What programs put into messages has a form in each format, or is refused when it is sent.

use std::{collections::BTreeMap, fmt::Debug};

use futures_util::FutureExt as _;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{Decode, Encode, Format};
use crate::error::{Error, ErrorKind};

/// The only field of a payload, since some formats want one around every value.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Payload<T> {
    value: T,
}

fn formats() -> Vec<Format> {
    ["json", "toml", "xml", "yaml"].iter().filter_map(|name| name.parse().ok()).collect()
}

fn write<T: Serialize + Sync>(format: Format, value: T) -> Result<String, Error> {
    let written = format.encode(&Payload { value }).now_or_never().unwrap()?;
    Ok(String::from_utf8(written.into()).unwrap())
}

fn read<T: DeserializeOwned + Send>(format: Format, body: impl Into<Vec<u8>>) -> Result<T, Error> {
    let read = format.decode(body.into().into(), None).now_or_never().unwrap();
    read.map(|Payload { value }| value)
}

/// Which formats have a form for a value, and read it as what it was; the others refuse to
/// write it.
fn say<T>(value: T) -> Vec<String>
where
    T: Clone + Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync,
{
    let mut say = Vec::new();
    for format in formats() {
        match write(format, value.clone()) {
            Ok(written) => {
                let read: T = read(format, written.clone())
                    .unwrap_or_else(|error| panic!("{format}: {error}: {written}"));
                assert_eq!(read, value, "{format}: {written}");
                say.push(format.to_string());
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Encode, "{format}: {error}");
                assert!(error.to_string().starts_with("write the payload as "), "{error}");
            }
        }
    }
    say
}

fn all() -> Vec<String> {
    formats().iter().map(ToString::to_string).collect()
}

fn all_but(names: &[&str]) -> Vec<String> {
    all().into_iter().filter(|format| !names.contains(&&**format)).collect()
}

#[test]
fn integers_beyond_what_a_float_holds_come_back_exactly() {
    assert_eq!(say((1_i64 << 53) + 1), all());
    assert_eq!(say(i64::MIN), all());
    assert_eq!(say(i64::MAX), all());
    assert_eq!(say(u64::MAX), all_but(&["toml"]));
    assert_eq!(say(i128::MIN), all_but(&["toml"]));
    assert_eq!(say(u128::MAX), all_but(&["toml"]));
    assert_eq!(say(vec![Some(u64::MAX)]), all_but(&["toml"]));
}

#[test]
fn floats_come_back_to_the_last_bit() {
    for number in [0.1, 1e300, 5e-324, f64::MAX, 6.328361729053246e-97, -0.0] {
        assert_eq!(say(number), all());
    }
    assert_eq!(say(f32::MIN_POSITIVE), all());
    assert_eq!(say(0.1_f32), all());
}

#[test]
fn numbers_that_are_none_are_said_where_a_format_has_words_for_them() {
    assert_eq!(say(f64::INFINITY), all_but(&["json"]));
    assert_eq!(say(vec![f32::NEG_INFINITY]), all_but(&["json"]));
    for format in formats().into_iter().filter(|format| *format != Format::Json) {
        let written = write(format, f64::NAN).unwrap();
        assert!(read::<f64>(format, written).unwrap().is_nan(), "{format}");
    }
    let error = write(Format::Json, f64::NAN).unwrap_err();
    assert_eq!(
        error.to_string(),
        "write the payload as JSON: a number in it is NaN or infinite, for which the format has no form"
    );
}

#[test]
fn text_that_looks_like_something_else_stays_text() {
    for text in [
        "",
        " ",
        "yes",
        "no",
        "on",
        "off",
        "y",
        "n",
        "null",
        "~",
        "true",
        "1e3",
        "0x1F",
        "1_000",
        ".nan",
        "12345678901234567890.123456789",
        "2026-11-30T12:00:00Z",
        "2026-11-30",
        "12:30:00",
        "- a",
        "a: b",
        "#",
        "!x",
        "&x",
        "*x",
        "<<",
        "---",
        "  indented\n   more\n",
        "a\n\n",
        "\n",
        "a\r\nb",
        "\ttab\t",
        "<a>&amp;</a>",
        "]]>",
        "'''",
        "\"\"\"",
        "😀",
        "Iğdır, İzmir, ıssız",
        "مرحبا",
        "日本語",
        "e\u{301}",
    ] {
        assert_eq!(say(text.to_owned()), all(), "{text:?}");
        assert_eq!(say(vec![text.to_owned(), text.to_owned()]), all(), "{text:?}");
        assert_eq!(say(Some(text.to_owned())), all(), "{text:?}");
    }
}

#[test]
fn control_characters_are_refused_only_where_they_have_no_form() {
    for text in ["\0", "\u{1b}[1m", "\u{7}", "\u{fffe}"] {
        assert_eq!(say(text.to_owned()), all_but(&["xml"]), "{text:?}");
    }
    assert_eq!(say("\u{7f}\u{85}\u{2028}\u{feff}".to_owned()), all());
}

#[test]
fn what_is_not_there_and_what_is_empty_are_two_things() {
    assert_eq!(say(None::<String>), all());
    assert_eq!(say(None::<i64>), all());
    assert_eq!(say(Some(String::new())), all());
    assert_eq!(say(Vec::<String>::new()), all());
    assert_eq!(say(vec![String::new()]), all());
    assert_eq!(say(BTreeMap::<String, String>::new()), all());
    assert_eq!(say(vec![None, Some(String::new()), Some("a".to_owned())]), all_but(&["toml"]));
    // Those that are not sent would have come out as something else.
    assert_eq!(say(Some(Vec::<String>::new())), all_but(&["xml"]));
    assert_eq!(say(vec![Vec::<i64>::new(), vec![1], vec![2, 3]]), all_but(&["xml"]));
    assert_eq!(say(BTreeMap::from([("a".to_owned(), Vec::<String>::new())])), all_but(&["xml"]));
    assert_eq!(say(BTreeMap::from([("a".to_owned(), None::<i64>)])), all_but(&["toml"]));
}

#[test]
fn keys_that_are_not_text_are_said_where_they_can_be_read() {
    assert_eq!(say(BTreeMap::from([(1, 2), (-3, 4)])), all_but(&["xml"]));
    assert_eq!(say(BTreeMap::from([(true, 1)])), all());
    assert_eq!(say(BTreeMap::from([('x', 1)])), all());
    assert_eq!(say(BTreeMap::from([(Colour::Red, 1)])), all());
    assert_eq!(say(BTreeMap::from([("a key: with <marks>".to_owned(), 1)])), all_but(&["xml"]));
    assert_eq!(say(BTreeMap::from([("ns:key".to_owned(), 1)])), all_but(&["xml"]));
    assert_eq!(say(BTreeMap::from([("ığ-1.x_é".to_owned(), 1)])), all());
    let lists = say(BTreeMap::from([(vec![1], 2)]));
    assert!(!lists.iter().any(|format| format != "yaml"), "{lists:?}");
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Colour {
    Red,
    Named(String),
    Mixed(u8, u8),
    Full { red: u8, note: Option<String>, others: Vec<u8> },
    Several(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind")]
enum Tagged {
    Empty,
    Text { text: String, note: Option<String> },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "data")]
enum Adjacent {
    Empty,
    Number(i64),
    Text(String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Untagged {
    Record { text: String },
    Text(String),
}

#[test]
fn enums_come_back_as_the_variant_that_they_were() {
    for colour in [
        Colour::Red,
        Colour::Named("red".to_owned()),
        Colour::Named(String::new()),
        Colour::Mixed(1, 2),
        Colour::Full { red: 255, note: None, others: vec![] },
        Colour::Full { red: 255, note: Some(String::new()), others: vec![1, 2] },
        Colour::Several(vec!["a".to_owned()]),
    ] {
        assert_eq!(say(colour.clone()), all());
        assert_eq!(say(vec![colour.clone(), colour]), all());
    }
    assert_eq!(say(Colour::Several(vec![])), all_but(&["xml"]));
    assert_eq!(say(Tagged::Empty), all());
    assert_eq!(say(Tagged::Text { text: "1".to_owned(), note: None }), all());
    assert_eq!(say(Tagged::Text { text: String::new(), note: Some("~".to_owned()) }), all());
    assert_eq!(say(Adjacent::Empty), all());
    assert_eq!(say(Adjacent::Number(-1)), all());
    assert_eq!(say(Adjacent::Text("yes".to_owned())), all());
    assert_eq!(say(Untagged::Text("null".to_owned())), all());
    assert_eq!(say(Untagged::Record { text: "1e3".to_owned() }), all());
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Outer {
    id: u64,
    lines: Vec<String>,
    #[serde(flatten)]
    address: Address,
    #[serde(flatten)]
    more: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Address {
    city: String,
    zip: Option<String>,
}

#[test]
fn flattened_fields_come_back() {
    let more = BTreeMap::from([("note".to_owned(), "010".to_owned())]);
    let address = |zip| Address { city: "İzmir".to_owned(), zip };
    for zip in [None, Some("35000".to_owned()), Some(String::new())] {
        let outer =
            |lines| Outer { id: 7, lines, address: address(zip.clone()), more: more.clone() };
        assert_eq!(say(outer(vec![])), all());
        assert_eq!(say(outer(vec!["a".to_owned()])), all());
    }
}

#[derive(Debug, Deserialize, Serialize)]
struct FlatNumber {
    #[serde(flatten)]
    number: Number,
}

#[derive(Debug, Deserialize, Serialize)]
struct Number {
    number: u64,
}

#[cfg(feature = "xml")]
#[test]
fn a_flattened_number_in_xml_is_an_error_for_who_reads_it() {
    let flat = FlatNumber { number: Number { number: 7 } };
    let written = write(Format::Xml, flat).unwrap();
    assert_eq!(written, "<Payload><value><number>7</number></value></Payload>");
    let error = read::<FlatNumber>(Format::Xml, written.clone()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Decode);
    assert_eq!(read::<Number>(Format::Xml, written).unwrap().number, 7);
}

/// As `serde_bytes` has it.
#[derive(Clone, Debug, PartialEq)]
struct ByteString(Vec<u8>);

impl Serialize for ByteString {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for ByteString {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = ByteString;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<ByteString, E> {
                Ok(ByteString(bytes.to_vec()))
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(
                self,
                mut list: A,
            ) -> Result<ByteString, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = list.next_element()? {
                    bytes.push(byte);
                }
                Ok(ByteString(bytes))
            }
        }

        deserializer.deserialize_byte_buf(Visitor)
    }
}

#[test]
fn bytes_come_back() {
    for bytes in [&b""[..], b"\0\xff", b"text"] {
        assert_eq!(say(bytes.to_vec()), all());
        assert_eq!(say(ByteString(bytes.to_vec())), all_but(&["xml"]));
    }
}

#[test]
fn times_come_back() {
    use std::time::{Duration, SystemTime};

    assert_eq!(say(SystemTime::UNIX_EPOCH + Duration::new(1_796_000_000, 999_999_999)), all());
    assert_eq!(say(Duration::from_nanos(1_500_000_001)), all());
}

#[test]
fn a_long_list_comes_back() {
    assert_eq!(say((0..260_000).collect::<Vec<u32>>()), all());
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Nested(Vec<Self>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Linked {
    next: Option<Box<Self>>,
}

#[test]
fn as_much_nesting_is_written_as_can_be_read() {
    let lists = |levels| (1..levels).fold(Nested(vec![]), |inner, _| Nested(vec![inner]));
    let structs = |levels| {
        (1..levels).fold(Linked { next: None }, |inner, _| Linked { next: Some(Box::new(inner)) })
    };
    // The payload itself is a level.
    assert_eq!(say(lists(39)), all_but(&["xml"]));
    assert_eq!(say(structs(39)), all());
    assert_eq!(say(lists(47)), all_but(&["toml", "xml"]));
    assert_eq!(say(structs(47)), all_but(&["toml"]));
    assert_eq!(say(lists(126)), all_but(&["toml", "xml", "yaml"]));
    assert_eq!(say(structs(126)), all_but(&["toml", "yaml"]));
    for levels in [128, 129, 500] {
        assert_eq!(say(lists(levels)), Vec::<String>::new());
        assert_eq!(say(structs(levels)), Vec::<String>::new());
    }
}

#[test]
fn an_option_in_an_option_is_refused_where_it_would_be_read_as_none() {
    assert!(say(vec![Some(None::<i64>)]).is_empty());
    assert_eq!(say(Some(Some(1_i64))), say(1_i64));
}
