//! Types of serde's that are no plain structs.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::json;

use super::*;

/// What a type writes, by the schema that it derives, it reads.
async fn comes_back<T>(value: T)
where
    T: AvroSchema + Serialize + DeserializeOwned + PartialEq + fmt::Debug + Send + Sync,
{
    let avro = Avro::fixed_for::<T>().unwrap();
    let body = avro.encode(&value).await.unwrap();
    assert_eq!(Decode::<T>::decode(&avro, body, FIXED).await.unwrap(), value);
}

#[derive(Debug, PartialEq, Serialize, Deserialize, AvroSchema)]
struct Line {
    article: String,
    cents: i64,
}

fn line() -> Line {
    Line { article: "widget".to_owned(), cents: -1 }
}

#[tokio::test]
async fn what_apache_avro_derives_comes_back() {
    #[derive(Debug, PartialEq, Serialize, Deserialize, AvroSchema)]
    struct Numbers {
        tiny: i8,
        short: u16,
        wide: u64,
        wider: i128,
        widest: u128,
        letter: char,
    }
    comes_back(Numbers {
        tiny: i8::MIN,
        short: u16::MAX,
        wide: u64::MAX,
        wider: i128::MIN,
        widest: u128::MAX,
        letter: 'ü',
    })
    .await;

    #[derive(Debug, PartialEq, Serialize, Deserialize, AvroSchema)]
    struct Id(String);
    #[derive(Debug, PartialEq, Serialize, Deserialize, AvroSchema)]
    struct Pair(i32, String);
    #[derive(Debug, PartialEq, Serialize, Deserialize, AvroSchema)]
    struct Empty;
    #[derive(Debug, PartialEq, Serialize, Deserialize, AvroSchema)]
    struct Nested {
        id: Id,
        pair: Pair,
        empty: Empty,
        lines: HashMap<String, Vec<Line>>,
        perhaps: Option<Line>,
    }
    comes_back(Nested {
        id: Id("o-1".to_owned()),
        pair: Pair(1, "two".to_owned()),
        empty: Empty,
        lines: [("x".to_owned(), vec![line(), line()]), ("y".to_owned(), Vec::new())].into(),
        perhaps: Some(line()),
    })
    .await;
    comes_back((true, i64::MIN, Some(line()))).await;
    comes_back(("a".to_owned(),)).await;
}

#[tokio::test]
async fn a_variant_is_the_branch_at_its_place() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Paid {
        Not,
        Cents(i64),
        By(String),
        With { article: String, cents: i64 },
    }
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(rename = "T")]
    struct Order {
        f: Vec<Paid>,
    }
    let schema = one(r#"{"type": "array", "items": ["null", "long", "string",
        {"type": "record", "name": "With", "fields": [
            {"name": "article", "type": "string"}, {"name": "cents", "type": "long"}]}]}"#);
    let with = Paid::With { article: "widget".to_owned(), cents: 3 };
    let order = Order { f: vec![Paid::Cents(5), Paid::Not, Paid::By("card".to_owned()), with] };
    let body = write(&schema, &order).await;
    assert_eq!(read::<Order>(&schema, body.clone()).await.unwrap(), order);
    let other = schema.replace("shop", "store");
    assert_eq!(resolve::<Order>(&schema, &other, body).await.unwrap(), order);
}

#[tokio::test]
async fn flattened_untagged_and_tagged_types_are_read() {
    #[derive(Debug, PartialEq, Deserialize)]
    struct Flat {
        id: String,
        size: Size,
        #[serde(flatten)]
        line: Line,
        #[serde(flatten)]
        rest: BTreeMap<String, serde_json::Value>,
    }
    #[derive(Debug, PartialEq, Deserialize)]
    enum Size {
        S,
        M,
    }
    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(untagged)]
    enum Either {
        Text(String),
        Line(Line),
    }
    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(tag = "size")]
    enum Tagged {
        S { id: String },
        M { id: String, note: Option<String> },
    }
    let schema = record(
        r#"{"name": "id", "type": "string"},
        {"name": "size", "type": {"type": "enum", "name": "Size", "symbols": ["S", "M"]}},
        {"name": "article", "type": "string"}, {"name": "cents", "type": "long"},
        {"name": "note", "type": ["null", "string"]}"#,
    );
    let value = json!({"id": "o-1", "size": "M", "article": "widget", "cents": -1, "note": null});
    let body = write_json(&schema, value.clone()).await;
    let flat: Flat = read(&schema, body.clone()).await.unwrap();
    let rest = [("note".to_owned(), serde_json::Value::Null)].into();
    assert_eq!(flat, Flat { id: "o-1".to_owned(), size: Size::M, line: line(), rest });
    let tagged: Tagged = read(&schema, body.clone()).await.unwrap();
    assert_eq!(tagged, Tagged::M { id: "o-1".to_owned(), note: None });
    assert_eq!(read::<Either>(&schema, body.clone()).await.unwrap(), Either::Line(line()));
    assert_eq!(read::<serde_json::Value>(&schema, body).await.unwrap(), value);
    let text = r#"["int", "string"]"#;
    let body = Bytes::from_static(b"\x02\x02a");
    assert_eq!(read::<Either>(text, body).await.unwrap(), Either::Text("a".to_owned()));
    assert!(read::<Tagged>(&schema, b"\x02a\x00".to_vec()).await.is_err());
}

#[tokio::test]
async fn a_type_may_be_wider_than_the_schema_and_not_narrower_than_the_value() {
    #[derive(Debug, PartialEq, Deserialize)]
    struct T<V> {
        f: V,
    }
    let long = one(r#""long""#);
    let body = |number| {
        let mut body = Vec::new();
        data::put_long(&mut body, number);
        body
    };
    assert_eq!(read::<T<u64>>(&long, body(i64::MAX)).await.unwrap().f, i64::MAX as u64);
    assert_eq!(read::<T<i8>>(&long, body(-128)).await.unwrap().f, -128);
    assert_eq!(read::<T<i128>>(&one(r#""int""#), body(-1)).await.unwrap().f, -1);
    assert_eq!(read::<T<Option<i64>>>(&long, body(1)).await.unwrap().f, Some(1));
    let error = read::<T<u64>>(&long, body(-4111)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Decode);
    assert!(error.to_string().contains("expected u64"), "{error}");
    assert!(!error.to_string().contains("4111"), "the value is the payload's: {error}");
    assert!(read::<T<i8>>(&long, body(128)).await.is_err());
    let text = read::<T<i64>>(&one(r#""string""#), b"\x0csecret".to_vec()).await.unwrap_err();
    assert!(!text.to_string().contains("secret"), "{text}");
    // Each has a place for two, and there are three.
    let three = one(r#"{"type": "array", "items": "long"}"#);
    let numbers = [6, 2, 4, 6, 0].to_vec();
    assert!(read::<T<[i64; 2]>>(&three, numbers.clone()).await.is_err());
    assert!(read::<T<(i64, i64)>>(&three, numbers.clone()).await.is_err());
    assert_eq!(read::<T<[i64; 3]>>(&three, numbers).await.unwrap().f, [1, 2, 3]);
}
