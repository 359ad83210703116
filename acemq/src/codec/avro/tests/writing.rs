//! What a payload may be for its schema, and what is said of one that does not fit.

use std::{collections::BTreeMap, error::Error as _};

use serde::{Deserialize, Serializer, ser::Error as _};

use super::*;

/// What a record holds in its only field.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct T<V> {
    f: V,
}

/// What is said of a payload that does not fit, behind the schema's name.
async fn refused<P: Serialize + Sync>(schema: &str, payload: P) -> String {
    let error = Avro::fixed(schema).unwrap().encode(&payload).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Encode);
    assert!(error.source().is_none(), "it would be the schema once more: {error:?}");
    let text = error.to_string();
    assert!(text.len() < 600, "{text}");
    let (doing, fault) = text.split_once(": ").unwrap();
    assert!(doing.starts_with("write the payload with schema "), "{text}");
    fault.to_owned()
}

async fn comes_back<W, R>(of_type: &str, written: W, read_back: R)
where
    W: Serialize + Sync,
    R: DeserializeOwned + PartialEq + fmt::Debug + Send,
{
    let schema = one(of_type);
    let body = write(&schema, &T { f: written }).await;
    assert_eq!(read::<T<R>>(&schema, body).await.unwrap().f, read_back, "{of_type}");
}

#[tokio::test]
async fn a_number_is_written_as_a_wider_one_where_nothing_of_it_is_lost() {
    let long = r#""long""#;
    comes_back(long, i8::MIN, i64::from(i8::MIN)).await;
    comes_back(long, i16::MIN, i64::from(i16::MIN)).await;
    comes_back(long, i32::MIN, i64::from(i32::MIN)).await;
    comes_back(long, u8::MAX, i64::from(u8::MAX)).await;
    comes_back(long, u16::MAX, i64::from(u16::MAX)).await;
    comes_back(long, u32::MAX, i64::from(u32::MAX)).await;
    comes_back(long, i64::MAX as u64, i64::MAX).await;
    let double = r#""double""#;
    comes_back(double, i32::MIN, f64::from(i32::MIN)).await;
    comes_back(double, u32::MAX, f64::from(u32::MAX)).await;
    comes_back(double, 0.1_f32, f64::from(0.1_f32)).await;
    // Wherever it is.
    comes_back(r#"["null", "long"]"#, Some(7_i32), Some(7_i64)).await;
    comes_back(r#"["string", "long"]"#, 7_u64, 7_i64).await;
    comes_back(r#"["long", "int"]"#, 7_i32, 7_i64).await;
    comes_back(r#"{"type": "array", "items": "long"}"#, vec![1_i32, 2], vec![1_i64, 2]).await;
    let written = BTreeMap::from([("k".to_owned(), 1_i32)]);
    let read_back = BTreeMap::from([("k".to_owned(), 1.0)]);
    comes_back(r#"{"type": "map", "values": "double"}"#, written, read_back).await;
    comes_back(r#"{"type": "long", "logicalType": "timestamp-millis"}"#, 7_u64, 7_i64).await;
    // The type of its own width comes first.
    let both = one(r#"["long", "int"]"#);
    assert_eq!(write(&both, &T { f: 7_i32 }).await, b"\x02\x0e"[..]);
}

#[tokio::test]
async fn a_struct_around_one_value_is_written_as_it_is_read() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Cents(i32);
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Order(T<String>);
    comes_back(r#""long""#, Cents(7), Cents(7)).await;
    comes_back(r#"["null", "long"]"#, Some(Cents(7)), Some(Cents(7))).await;
    comes_back(r#"["string", "long"]"#, Cents(7), Cents(7)).await;
    let schema = one(r#""string""#);
    let order = Order(T { f: "a".to_owned() });
    let body = write(&schema, &order).await;
    assert_eq!(read::<Order>(&schema, body).await.unwrap(), order);
}

#[tokio::test]
async fn fields_are_found_by_their_names_whatever_the_struct_is_called_and_in_any_order() {
    #[derive(Serialize)]
    struct Another {
        b: i32,
        a: &'static str,
    }
    let schema = record(r#"{"name": "a", "type": "string"}, {"name": "b", "type": "long"}"#);
    assert_eq!(write(&schema, &Another { b: 7, a: "x" }).await, b"\x02x\x0e"[..]);
}

#[tokio::test]
async fn what_does_not_fit_is_named_with_what_the_schema_wants_and_what_is_there() {
    #[derive(Serialize)]
    enum Size {
        XL,
        Of(i64),
    }
    #[derive(Serialize)]
    struct Line {
        cents: Option<&'static str>,
    }
    struct Raw(&'static [u8]);
    impl Serialize for Raw {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(self.0)
        }
    }
    let line = |cents| BTreeMap::from([("secret", Line { cents })]);
    let hash = one(r#"{"type": "fixed", "name": "Hash", "size": 4}"#);
    let sizes = one(r#"{"type": "enum", "name": "Size", "symbols": ["S", "M"]}"#);
    let list = one(r#"{"type": "array", "items": "long"}"#);
    let lines = one(r#"{"type": "array", "items": {"type": "map", "values":
        {"type": "record", "name": "Line", "fields": [{"name": "cents", "type": ["null", "long"]}]}}}"#);
    let (int, long, string) = (one(r#""int""#), one(r#""long""#), one(r#""string""#));
    for (said, expected) in [
        (refused(&int, T { f: "4111" }).await, "`f` is an int in the schema, and text here"),
        (refused(&int, T { f: 1_i64 }).await, "`f` is an int in the schema, and an i64 here"),
        (
            refused(&long, T { f: u64::MAX }).await,
            "`f` is a long in the schema, and a u64 beyond the largest long here",
        ),
        (
            refused(&hash, T { f: Raw(b"4") }).await,
            "`f` is fixed shop.Hash of 4 bytes in the schema, and 1 byte here",
        ),
        (
            refused(&string, T { f: None::<&str> }).await,
            "`f` is a string in the schema, and `None` (a union of null and one other) here",
        ),
        (
            refused(&string, T { f: Some("4111") }).await,
            "`f` is a string in the schema, and an `Option` (a union of null and one other) here",
        ),
        (
            refused(&sizes, T { f: Size::XL }).await,
            "`f` is enum shop.Size of S, M in the schema, and variant `XL` of `Size`, at place 0 \
             counted from 0, here",
        ),
        (
            refused(&one(r#"["null"]"#), T { f: Size::Of(4111) }).await,
            "`f` is a union of null in the schema, and variant `Of` of `Size`, at place 1 counted \
             from 0, here",
        ),
        (
            refused(&list, T { f: [1, 2] }).await,
            "`f` is an array in the schema, and a tuple (a record; an array is a `Vec`) here",
        ),
        (
            refused(&one(r#""bytes""#), T { f: vec![4_u8] }).await,
            "`f` is bytes in the schema, and a list (bytes are `#[serde(with = \
             \"apache_avro::serde::bytes\")]`) here",
        ),
        (
            refused(&hash, T { f: [4_u8; 4] }).await,
            "`f` is fixed shop.Hash of 4 bytes in the schema, and a list (bytes are `#[serde(with \
             = \"apache_avro::serde::bytes\")]`) here",
        ),
        (
            refused(&lines, T { f: vec![line(None), line(Some("4111"))] }).await,
            "`f[1][…].cents` is a long in the schema, and text here",
        ),
        (refused(&long, 7).await, "the payload is record shop.T in the schema, and an i32 here"),
        (
            refused(r#"["null", {"type": "record", "name": "a.R", "fields": []}]"#, T { f: 1 })
                .await,
            "the payload is a union of null, a.R in the schema, and the struct `T` here",
        ),
    ] {
        assert_eq!(said, expected);
    }
}

#[tokio::test]
async fn a_field_that_only_one_side_has_is_named() {
    #[derive(Serialize)]
    struct Order {
        id: &'static str,
        lines: Vec<Line>,
    }
    #[derive(Serialize)]
    struct Line {
        article: &'static str,
        cent: i64,
    }
    #[derive(Serialize)]
    struct Flat {
        id: &'static str,
        #[serde(flatten)]
        rest: BTreeMap<&'static str, i64>,
    }
    let schema = |line: &str| {
        record(&format!(
            r#"{{"name": "id", "type": "string"}}, {{"name": "lines", "type": {{"type": "array",
            "items": {{"type": "record", "name": "Line", "fields": [{line}]}}}}}}"#
        ))
    };
    let order = || Order { id: "4111", lines: vec![Line { article: "widget", cent: 1 }] };
    let renamed =
        schema(r#"{"name": "article", "type": "string"}, {"name": "cents", "type": "long"}"#);
    assert_eq!(
        refused(&renamed, order()).await,
        "`lines[0].cent` is no field of record shop.Line in the schema, which has article, cents; \
         rename one of the two, or leave it out with `#[serde(skip)]`"
    );
    let more = schema(
        r#"{"name": "article", "type": "string"}, {"name": "note", "type": "string", "default": ""},
        {"name": "cents", "type": "long"}, {"name": "cent", "type": "long"}"#,
    );
    assert_eq!(
        refused(&more, order()).await,
        "`lines[0].cents` is a long of record shop.Line in the schema, without a default, and is \
         not here; give the type a field of that name, or the schema a default"
    );
    // A field that is left out is missing as well.
    #[derive(Serialize)]
    struct Sparse {
        id: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        note: Option<&'static str>,
    }
    let sparse = || Sparse { id: "4111", note: None };
    let id_and = |note: &str| record(&format!(r#"{{"name": "id", "type": "string"}}, {note}"#));
    let defaulted = id_and(r#"{"name": "note", "type": ["null", "string"], "default": null}"#);
    assert_eq!(write(&defaulted, &sparse()).await, b"\x084111\x00"[..]);
    let without = id_and(r#"{"name": "note", "type": "string"}"#);
    assert!(refused(&without, sparse()).await.starts_with("`note` is a string of record shop.T"));
    let other = id_and(r#"{"name": "notes", "type": "string", "default": ""}"#);
    assert!(refused(&other, sparse()).await.starts_with("`note` is no field of record shop.T"));
    // Keys of a map are the payload's, and are not shown.
    let flat = Flat { id: "o-1", rest: BTreeMap::from([("secret", 1)]) };
    let only_id = record(r#"{"name": "id", "type": "string"}"#);
    assert_eq!(
        refused(&only_id, flat).await,
        "a key of the payload is no field of record shop.T in the schema, which has id; rename one \
         of the two, or leave it out with `#[serde(skip)]`"
    );
    let missing = record(r#"{"name": "id", "type": "string"}, {"name": "no", "type": "long"}"#);
    let flat = Flat { id: "o-1", rest: BTreeMap::new() };
    assert!(refused(&missing, flat).await.starts_with("`no` is a long of record shop.T"));
}

#[tokio::test]
async fn neither_a_large_schema_nor_the_payload_is_shown_when_something_does_not_fit() {
    #[derive(Serialize)]
    struct Wide {
        somewhere: BTreeMap<&'static str, &'static str>,
        unknown: &'static str,
    }
    let fields: Vec<_> = (0..500)
        .map(|n| format!(r#"{{"name": "field_{n}", "type": "long", "doc": "a word about it"}}"#))
        .collect();
    let schema = record(&fields.join(", "));
    let secret = || BTreeMap::from([("4111", "4111")]);
    for said in [
        refused(&schema, Wide { somewhere: secret(), unknown: "4111" }).await,
        refused(&schema, secret()).await,
        refused(&schema, "4111").await,
    ] {
        assert!(!said.contains("4111") && !said.contains("a word"), "{said}");
    }
    // A way that is long is cut at its start.
    let deep = format!(
        "{}{}{}",
        r#"{"type": "array", "items": "#.repeat(100),
        r#""long""#,
        "}".repeat(100)
    );
    let mut value = serde_json::json!("4111");
    for _ in 0..100 {
        value = serde_json::json!([value]);
    }
    let said = refused(&one(&deep), serde_json::json!({ "f": value })).await;
    assert!(
        said.starts_with("`…") && said.ends_with("[0]` is a long in the schema, and text here")
    );
}

#[tokio::test]
async fn what_a_type_says_of_itself_is_said() {
    struct Unwilling;
    impl Serialize for Unwilling {
        fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(S::Error::custom(format!("it is not for sale{}", "!".repeat(10_000))))
        }
    }
    let schema = one(r#""long""#);
    for said in [refused(&schema, Unwilling).await, refused(&schema, T { f: Unwilling }).await] {
        assert!(said.contains("it is not for sale!") && said.ends_with('…'), "{said}");
    }
}

#[tokio::test]
async fn a_value_of_any_shape_that_does_not_fit_is_named_too() {
    let schema = record(
        r#"{"name": "id", "type": "string"},
        {"name": "sizes", "type": {"type": "array", "items": ["null", "long"]}}"#,
    );
    let avro = Avro::fixed(&schema).unwrap().values();
    let record = |fields: Vec<(&str, Value)>| {
        Value::Record(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    };
    let text = || Value::String("4111".to_owned());
    let none = || Value::Array(Vec::new());
    for (value, fault) in [
        (Value::Int(4111), "the payload is record shop.T in the schema, and a `Value::Int` here"),
        (
            record(vec![("id", Value::Int(4111)), ("sizes", none())]),
            "`id` is a string in the schema, and a `Value::Int` here",
        ),
        (
            record(vec![("id", text()), ("sizes", Value::Array(vec![Value::Null, text()]))]),
            "`sizes[1]` is a union of null, long in the schema, and a `Value::String` here",
        ),
        (
            record(vec![("id", text())]),
            "`sizes` is an array of record shop.T in the schema, without a default, and is not here",
        ),
        (
            record(vec![("id", text()), ("size", none())]),
            "`size` is no field of record shop.T in the schema, which has id, sizes",
        ),
    ] {
        let error = avro.encode(&value).await.unwrap_err();
        assert!(error.source().is_none() && !error.to_string().contains("4111"), "{error:?}");
        let start = format!("write the payload with schema shop.T: {fault}");
        assert!(error.to_string().starts_with(&start), "{error}");
    }
}

#[test]
fn a_text_that_is_no_schema_says_where_and_what_to_do() {
    let twice = record(r#"{"name": "a", "type": "int"}, {"name": "a", "type": "int"}"#);
    let no_type = record(r#"{"name": "a"}"#);
    let long = one(&format!("\"{}\"", "x".repeat(10_000)));
    for (text, parts) in [
        ("", ["it is not JSON", "at line 1 column 0"]),
        ("string", ["it is not JSON", "at line 1 column 1; give the schema's own text"]),
        ("{\n \"type\": \"record\",\n}", ["it is not JSON", "at line 3 column 1"]),
        ("{}", ["it is JSON and not a schema", "as Avro's specification says"]),
        (&no_type, ["No `type` in record field", "as Avro's specification says"]),
        (&twice, ["uplicate", "as Avro's specification says"]),
        (&long, ["it is JSON and not a schema", "as Avro's specification says"]),
    ] {
        let error = Avro::fixed(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.source().is_none() && error.to_string().len() < 500, "{error}");
        let said = error.to_string();
        assert!(
            said.starts_with("read an Avro schema: ")
                && parts.iter().all(|part| said.contains(part)),
            "{said}"
        );
    }
}
