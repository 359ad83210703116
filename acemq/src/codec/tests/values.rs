//! Whatever a format writes, it reads back as what it was.

use std::{collections::BTreeMap, fmt::Debug};

use futures_util::FutureExt as _;
use proptest::{collection::vec, option, prelude::*, sample::select, test_runner::TestCaseError};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{Decode, Encode, Json};
use crate::error::ErrorKind;

/// A value of any shape.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Value {
    Nothing,
    Unit(()),
    Flag(bool),
    Small(i8),
    Signed(i64),
    Unsigned(u64),
    Wide(i128),
    Double(f64),
    Single(f32),
    Letter(char),
    Text(String),
    Wrapped(Wrapped),
    Optional(Option<Box<Self>>),
    List(Vec<Self>),
    Gaps(Vec<Option<String>>),
    Lists(Vec<Vec<i64>>),
    Pair(Box<Self>, String),
    Tuple((i64, String)),
    Map(BTreeMap<String, Self>),
    Numbered(BTreeMap<i32, Self>),
    Flags(BTreeMap<bool, String>),
    Letters(BTreeMap<char, Option<String>>),
    Fields { text: String, note: Option<String>, list: Vec<String> },
    Record(Box<Record>),
    Inside(Box<Self>),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Wrapped(String);

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Marker;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    text: String,
    note: Option<String>,
    count: Option<u32>,
    words: Vec<String>,
    perhaps: Option<Vec<String>>,
    value: Value,
    values: Vec<Value>,
    marker: Marker,
    pair: (String, f64),
    labels: BTreeMap<String, String>,
    #[serde(flatten)]
    flat: Flat,
    next: Option<Box<Self>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Flat {
    region: String,
    zone: Option<String>,
}

fn text() -> impl Strategy<Value = String> {
    let character = prop_oneof![
        any::<char>(),
        select(
            " \t\n\r\0\u{1b}\u{7f}\u{85}\u{2028}\u{feff}\u{fffe}<&>\"'\\/:#-?|~%@`{}[],!*"
                .chars()
                .collect::<Vec<_>>()
        ),
        select("aeé̂ıİ😀01.+_=]".chars().collect::<Vec<_>>()),
    ];
    let word = select(vec![
        "",
        " ",
        "\n",
        "\r",
        "a\n",
        "a\n\n",
        "\na",
        "  a",
        "a  ",
        "\ta",
        "a\r\nb",
        "a\n  b\n c",
        "yes",
        "no",
        "on",
        "off",
        "y",
        "n",
        "null",
        "~",
        "true",
        "False",
        "1e3",
        "0x1F",
        "0o7",
        "010",
        "1_000",
        "+1",
        "-0",
        ".5",
        ".nan",
        ".inf",
        "-.inf",
        "NaN",
        "inf",
        "2024-01-01",
        "12:30:00",
        "---",
        "...",
        "- a",
        "? a",
        "a: b",
        "a #c",
        "# c",
        "!tag",
        "&anchor",
        "*alias",
        "<<",
        "=",
        "]]>",
        "&amp;",
        "<![CDATA[x]]>",
        "<a/>",
        "'''",
        "\"\"\"",
        "\\n",
        "$text",
        "@a",
        "a b",
        "a.b",
        "Ana Söderström",
        "ı",
    ]);
    prop_oneof![
        3 => "[a-z]{1,6}",
        2 => word.prop_map(str::to_owned),
        2 => vec(character, 0..12).prop_map(String::from_iter),
        1 => "[a-z \n]{60,140}",
    ]
}

fn float() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        select(vec![
            0.0,
            -0.0,
            1.0,
            1e16,
            1e300,
            5e-324,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY
        ]),
    ]
}

fn integer() -> impl Strategy<Value = i64> {
    prop_oneof![any::<i64>(), select(vec![0, -1, i64::MAX, i64::MIN, (1 << 53) + 1])]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Nothing),
        Just(Value::Unit(())),
        any::<bool>().prop_map(Value::Flag),
        any::<i8>().prop_map(Value::Small),
        integer().prop_map(Value::Signed),
        prop_oneof![any::<u64>(), Just(u64::MAX)].prop_map(Value::Unsigned),
        prop_oneof![any::<i128>(), select(vec![i128::MIN, i128::MAX])].prop_map(Value::Wide),
        float().prop_map(Value::Double),
        any::<f32>().prop_map(Value::Single),
        any::<char>().prop_map(Value::Letter),
        text().prop_map(Value::Text),
        text().prop_map(|text| Value::Wrapped(Wrapped(text))),
        vec(option::of(text()), 0..3).prop_map(Value::Gaps),
        vec(vec(integer(), 0..3), 0..3).prop_map(Value::Lists),
        (integer(), text()).prop_map(Value::Tuple),
        vec((any::<bool>(), text()), 0..3)
            .prop_map(|flags| Value::Flags(flags.into_iter().collect())),
        vec((any::<char>(), option::of(text())), 0..3)
            .prop_map(|letters| Value::Letters(letters.into_iter().collect())),
        (text(), option::of(text()), vec(text(), 0..3))
            .prop_map(|(text, note, list)| Value::Fields { text, note, list }),
    ];
    leaf.prop_recursive(4, 16, 3, |value| {
        prop_oneof![
            option::of(value.clone().prop_map(Box::new)).prop_map(Value::Optional),
            vec(value.clone(), 0..3).prop_map(Value::List),
            (value.clone(), text()).prop_map(|(value, text)| Value::Pair(Box::new(value), text)),
            vec((text(), value.clone()), 0..3)
                .prop_map(|map| Value::Map(map.into_iter().collect())),
            vec((any::<i32>(), value.clone()), 0..3)
                .prop_map(|map| Value::Numbered(map.into_iter().collect())),
            record(value.clone()).prop_map(|record| Value::Record(Box::new(record))),
            value.prop_map(|value| Value::Inside(Box::new(value))),
        ]
    })
}

fn record(value: impl Strategy<Value = Value> + Clone + 'static) -> impl Strategy<Value = Record> {
    let plain = (text(), option::of(text()), option::of(any::<u32>()), vec(text(), 0..3));
    let perhaps = prop_oneof![3 => Just(None), 1 => vec(text(), 0..3).prop_map(Some)];
    let flat = (text(), option::of(text()));
    let record = (
        plain,
        perhaps,
        value.clone(),
        vec(value, 0..3),
        (text(), float()),
        vec(("[a-z]{1,3}", text()), 0..3),
        flat,
    );
    let record = record.prop_map(|(plain, perhaps, value, values, pair, labels, flat)| Record {
        text: plain.0,
        note: plain.1,
        count: plain.2,
        words: plain.3,
        perhaps,
        value,
        values,
        marker: Marker,
        pair,
        labels: labels.into_iter().collect(),
        flat: Flat { region: flat.0, zone: flat.1 },
        next: None,
    });
    vec(record, 1..3).prop_map(|records| {
        let chain = |next, mut record: Record| {
            record.next = Option::map(next, Box::new);
            Some(record)
        };
        records.into_iter().fold(None, chain).unwrap()
    })
}

/// What is written is read as what it was, and else is an error when it is written. Values are
/// compared as `Debug` shows them, for which NaN is NaN and `-0.0` is not `0.0`.
fn check<T, C>(codec: &C, value: &T) -> Result<(), TestCaseError>
where
    T: Debug + DeserializeOwned + Serialize + Send + Sync,
    C: Encode<T> + Decode<T>,
{
    let written = match codec.encode(value).now_or_never().unwrap() {
        Ok(written) => written,
        Err(error) => {
            prop_assert_eq!(error.kind(), ErrorKind::Encode);
            return Ok(());
        }
    };
    let shown = String::from_utf8_lossy(&written).into_owned();
    let read = codec.decode(written, Some(codec.content_type())).now_or_never().unwrap();
    let read = read.map_err(|error| TestCaseError::fail(format!("{error}: {shown}")))?;
    prop_assert_eq!(format!("{read:?}"), format!("{value:?}"), "{}", shown);
    Ok(())
}

macro_rules! each_format {
    ($($(#[$attribute:meta])* $module:ident: $codec:expr;)*) => {$(
        $(#[$attribute])*
        mod $module {
            use super::*;

            proptest! {
                #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

                #[test]
                fn reads_whatever_values_it_writes(value in value()) {
                    check(&$codec, &value)?;
                }

                #[test]
                fn reads_whatever_records_it_writes(record in record(value().boxed())) {
                    check(&$codec, &record)?;
                }
            }
        }
    )*};
}

each_format! {
    json: Json;
    #[cfg(feature = "toml")]
    toml: crate::Toml;
    #[cfg(feature = "xml")]
    xml: crate::Xml::new();
    #[cfg(feature = "yaml")]
    yaml: crate::Yaml;
}
