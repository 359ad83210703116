use serde::Deserialize;
use serde_json::json;

use super::*;

const EVERYTHING: &str = r#"{"type": "record", "name": "Everything", "namespace": "shop", "fields": [
    {"name": "truth", "type": "boolean"},
    {"name": "int", "type": "int"},
    {"name": "long", "type": "long"},
    {"name": "float", "type": "float"},
    {"name": "double", "type": "double"},
    {"name": "text", "type": "string"},
    {"name": "bytes", "type": "bytes"},
    {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
    {"name": "size", "type": {"type": "enum", "name": "Size", "symbols": ["S", "M", "L"]}},
    {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
        {"name": "article", "type": "string"}, {"name": "amounts", "type": {"type": "map", "values": "long"}}]}}},
    {"name": "note", "type": ["null", "string"]},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "millis", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "micros", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
    {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
    {"name": "next", "type": ["null", "Everything"]}]}"#;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Everything {
    truth: bool,
    int: i32,
    long: i64,
    float: f32,
    double: f64,
    text: String,
    #[serde(with = "apache_avro::serde::bytes")]
    bytes: Vec<u8>,
    #[serde(with = "apache_avro::serde::fixed")]
    hash: [u8; 4],
    size: Size,
    lines: Vec<Line>,
    note: Option<String>,
    day: i32,
    millis: i64,
    micros: i64,
    #[serde(with = "apache_avro::serde::bytes")]
    price: Vec<u8>,
    uuid: String,
    next: Option<Box<Self>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Size {
    S,
    M,
    L,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Line {
    article: String,
    amounts: std::collections::BTreeMap<String, i64>,
}

pub(super) fn everything() -> (&'static str, Everything) {
    let line = |article: &str| Line {
        article: article.to_owned(),
        amounts: [("a".to_owned(), 1), ("ü".to_owned(), i64::MIN)].into(),
    };
    let inner = Everything {
        truth: true,
        int: i32::MIN,
        long: i64::MAX,
        float: f32::MIN_POSITIVE,
        double: 1e308,
        text: "Ana Söderström".to_owned(),
        bytes: vec![0, 255],
        hash: [1, 2, 3, 4],
        size: Size::M,
        lines: vec![line("widget"), line("gasket")],
        note: None,
        day: 20_000,
        millis: 1_790_380_800_000,
        micros: -1,
        price: vec![0x01, 0x00],
        uuid: "8a6e0804-2bd0-4672-b79d-d97027f9071a".to_owned(),
        next: None,
    };
    let outer = Everything {
        note: Some(String::new()),
        size: Size::L,
        lines: Vec::new(),
        next: Some(Box::new(Everything { size: Size::S, ..inner.clone() })),
        ..inner
    };
    (EVERYTHING, outer)
}

#[tokio::test]
async fn every_type_comes_back_as_it_went() {
    let (schema, value) = everything();
    let body = write(schema, &value).await;
    assert_eq!(read::<Everything>(schema, body.clone()).await.unwrap(), value);
    // By a schema that says the same in other words, through resolution.
    let other = schema.replace("\"namespace\": \"shop\"", "\"namespace\": \"store\"");
    assert_eq!(resolve::<Everything>(schema, &other, body).await.unwrap(), value);
}

#[tokio::test]
async fn values_of_unknown_types_are_read_and_written() {
    let (schema, value) = everything();
    let body = write(schema, &value).await;
    let values = Avro::fixed(schema).unwrap().values();
    let read = values.decode(body.clone(), FIXED).await.unwrap();
    let Value::Record(fields) = &read else { panic!("{read:?}") };
    assert_eq!(fields[11], ("day".to_owned(), Value::Date(20_000)));
    assert_eq!(fields[12], ("millis".to_owned(), Value::TimestampMillis(1_790_380_800_000)));
    assert!(matches!(&fields[15].1, Value::Uuid(uuid) if uuid.to_string().starts_with("8a6e")));
    // A map is in no order, but has as many bytes.
    assert_eq!(values.encode(&read).await.unwrap().len(), body.len());

    let wrong = values.encode(&Value::Int(1)).await.unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Encode);
    assert!(wrong.to_string().contains("shop.Everything"), "{wrong}");
}

#[tokio::test]
async fn a_type_brings_its_own_schema() {
    #[derive(Debug, PartialEq, Serialize, Deserialize, AvroSchema)]
    #[avro(namespace = "shop")]
    struct Order {
        id: String,
        cents: i64,
        note: Option<String>,
    }
    let order = Order { id: "o-1".to_owned(), cents: 4_250, note: None };
    let avro = Avro::fixed_for::<Order>().unwrap();
    let body = avro.encode(&order).await.unwrap();
    assert_eq!(body, b"\x06o-1\xb4\x42\x00"[..]);
    assert_eq!(Decode::<Order>::decode(&avro, body, FIXED).await.unwrap(), order);

    // Written by a program that knew no note.
    let older = r#"{"type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "id", "type": "string"}, {"name": "cents", "type": "int"}]}"#;
    let body = write_json(older, json!({"id": "o-1", "cents": 4_250})).await;
    let onto = Avro::fixed(older).unwrap().reader_for::<Order>().unwrap();
    assert_eq!(Decode::<Order>::decode(&onto, body, FIXED).await.unwrap(), order);
}

#[tokio::test]
async fn what_the_schema_cannot_say_is_an_error_that_names_it() {
    #[derive(Serialize)]
    struct T<V> {
        f: V,
    }
    let avro = |of_type| Avro::fixed(&one(of_type)).unwrap();
    for error in [
        avro(r#""int""#).encode(&T { f: "text" }).await.unwrap_err(),
        avro(r#""int""#).encode(&T { f: i64::MAX }).await.unwrap_err(),
        avro(r#""long""#).encode(&T { f: u64::MAX }).await.unwrap_err(),
        avro(r#"{"type": "fixed", "name": "F", "size": 2}"#)
            .encode(&T { f: [1_u8] })
            .await
            .unwrap_err(),
        avro(r#"{"type": "enum", "name": "E", "symbols": ["A"]}"#)
            .encode(&T { f: Size::S })
            .await
            .unwrap_err(),
        avro(r#""string""#).encode(&T::<Option<&str>> { f: None }).await.unwrap_err(),
        Avro::fixed(&record("")).unwrap().encode(&7).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Encode);
        assert!(error.to_string().contains("with schema shop.T"), "{error}");
    }
    for broken in ["", "{}", r#"{"type": "record", "name": "R"}"#, &one(r#""Nowhere""#)] {
        assert_eq!(Avro::fixed(broken).unwrap_err().kind(), ErrorKind::Config, "{broken}");
    }
}

#[test]
fn a_codec_reads_its_own_kind_of_bodies_only() {
    let fixed = Avro::fixed(r#""string""#).unwrap();
    let registry = crate::MemorySchemaRegistry::new();
    let registered = Avro::registered(&record(""), registry.clone()).unwrap();
    let reader = AvroReader::new(registry);
    let accepts = |content_type: Option<&str>| {
        let registered = Decode::<String>::accepts(&registered, content_type);
        assert_eq!(Decode::<String>::accepts(&reader, content_type), registered);
        (Decode::<String>::accepts(&fixed, content_type), registered)
    };
    for content_type in [
        "avro/binary",
        "AVRO/Binary; charset=binary",
        "avro/anything",
        "application/avro",
        "application/vnd.acme.order+avro",
    ] {
        assert_eq!(accepts(Some(content_type)), (true, false), "{content_type}");
    }
    for content_type in ["application/vnd.acemq.avro", "Application/vnd.AceMQ.avro; v=1"] {
        assert_eq!(accepts(Some(content_type)), (false, true), "{content_type}");
    }
    for content_type in [None, Some("application/json"), Some("avro"), Some("ävro/x"), Some("")] {
        assert_eq!(accepts(content_type), (false, false), "{content_type:?}");
    }
    assert_eq!(Encode::<str>::content_type(&fixed), "avro/binary");
    assert_eq!(Encode::<str>::content_type(&registered), "application/vnd.acemq.avro");
}

#[tokio::test]
async fn a_fixed_body_may_begin_with_any_byte_and_one_that_names_a_schema_is_refused() {
    let schema = one(r#""long""#);
    let zeros = record(
        r#"{"name": "a", "type": "long"}, {"name": "b", "type": "long"},
        {"name": "c", "type": "long"}, {"name": "d", "type": "long"}, {"name": "e", "type": "long"}"#,
    );
    let avro = Avro::fixed(&zeros).unwrap().values();
    let decode =
        async |content_type| as_json(&avro, Bytes::from_static(&[0; 5]), content_type).await;
    decode(FIXED).await.unwrap();
    decode(Some("application/x+avro")).await.unwrap();
    for framed in [REGISTERED, None, Some("text/plain")] {
        let error = decode(framed).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Decode);
        assert!(error.to_string().contains("registry"), "{error}");
    }
    let short = Avro::fixed(&schema).unwrap().values();
    for content_type in [None, Some("text/plain")] {
        let read = as_json(&short, Bytes::from_static(&[0]), content_type).await.unwrap();
        assert_eq!(read, json!({"f": 0}));
    }
    let says = as_json(&short, Bytes::from_static(&[0]), REGISTERED).await;
    assert!(says.is_err());
}
