use proptest::prelude::*;
use serde_json::json;

use super::{
    types::{Everything, everything},
    *,
};

/// A schema that a body is resolved onto, each of its types another way.
const PARTS: &str = r#"{"type": "record", "name": "Everything", "fields": [
    {"name": "double", "aliases": ["int"], "type": "double"},
    {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
        {"name": "amounts", "type": {"type": "map", "values": ["double", "null"]}}]}}},
    {"name": "next", "type": ["null", "Everything"]},
    {"name": "note", "type": ["string", "null"]}]}"#;

fn refused<T>(read: Result<T>) -> String {
    let error = read.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Decode);
    assert!(!error.is_transient());
    error.to_string()
}

#[tokio::test]
async fn a_body_that_ends_early_is_refused_wherever_that_is() {
    let (schema, value) = everything();
    let body = write(schema, &value).await;
    for end in 0..body.len() {
        refused(read::<Everything>(schema, body.slice(..end)).await);
        refused(resolve_json(schema, PARTS, body.slice(..end)).await);
    }
    // What apache-avro itself takes for nulls.
    for of_type in [r#""string""#, r#""boolean""#, r#"["null", "string"]"#] {
        refused(read_json(&one(of_type), Bytes::new()).await);
        let values = Avro::fixed(&one(of_type)).unwrap().values();
        refused(values.decode(Bytes::new(), FIXED).await);
    }
}

#[tokio::test]
async fn bytes_after_the_end_are_refused() {
    let (schema, value) = everything();
    let body = write(schema, &value).await;
    let more = [body.as_ref(), b"\0"].concat();
    assert!(refused(read::<Everything>(schema, more.clone()).await).contains("1 byte is left"));
    assert!(refused(resolve_json(schema, PARTS, more).await).contains("1 byte is left"));
    refused(read_json(&record(""), Bytes::from_static(b"\0")).await);
}

#[tokio::test]
async fn a_length_that_is_not_there_is_refused_and_never_allocated() {
    let types = [
        r#""string""#,
        r#""bytes""#,
        r#"{"type": "array", "items": "long"}"#,
        r#"{"type": "array", "items": "null"}"#,
        r#"{"type": "array", "items": {"type": "record", "name": "Empty", "fields": []}}"#,
        r#"{"type": "map", "values": "null"}"#,
    ];
    for of_type in types {
        let schema = one(of_type);
        for length in [5, 100_000, i64::from(u32::MAX), i64::MAX, -5, i64::MIN] {
            let mut body = Vec::new();
            data::put_long(&mut body, length);
            body.push(0);
            // Five nulls after each other are all there.
            if length.unsigned_abs() == 5 && of_type.contains("array") && !of_type.contains("long")
            {
                continue;
            }
            refused(read_json(&schema, body.clone()).await);
            let values = Avro::fixed(&schema).unwrap().values();
            refused(values.decode(body.into(), FIXED).await);
        }
    }
    let huge = one(r#"{"type": "fixed", "name": "Huge", "size": 9000000000000000}"#);
    refused(read_json(&huge, Bytes::from_static(b"\0")).await);
}

#[tokio::test]
async fn nulls_in_arrays_are_read_as_long_as_they_are_few() {
    let schema = one(r#"{"type": "array", "items": "null"}"#);
    let nulls = |count| {
        let mut body = Vec::new();
        data::put_long(&mut body, count);
        body.push(0);
        body
    };
    let read_nulls = read_json(&schema, nulls(1_000)).await.unwrap();
    assert_eq!(read_nulls["f"].as_array().unwrap().len(), 1_000);
    refused(read_json(&schema, nulls(10_000)).await);
}

/// How many records may be in each other, each in a union.
const LONGEST: usize = 64;

/// A chain of that many records.
fn chain(links: usize) -> (String, Vec<u8>) {
    let schema = record(r#"{"name": "next", "type": ["null", "T"]}"#);
    let mut body = vec![2; links - 1];
    body.push(0);
    (schema, body)
}

#[derive(Debug, serde::Deserialize)]
#[serde(rename = "T")]
struct Chain {
    next: Option<Box<Self>>,
}

/// Runs on a thread with as much stack as tokio's have.
fn on_a_usual_stack<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let thread = std::thread::Builder::new().stack_size(2 * 1024 * 1024);
    thread.spawn(move || runtime.block_on(test())).unwrap().join().unwrap();
}

#[test]
fn a_long_chain_is_read_into_a_type() {
    on_a_usual_stack(|| async {
        let (schema, body) = chain(LONGEST);
        let read: Chain = read(&schema, body).await.unwrap();
        let links = std::iter::successors(Some(&read), |it| it.next.as_deref()).count();
        assert_eq!(links, LONGEST);
    });
}

#[test]
fn a_long_chain_is_read_into_json() {
    on_a_usual_stack(|| async {
        let (schema, body) = chain(LONGEST);
        read_json(&schema, body).await.unwrap();
    });
}

#[test]
fn a_long_chain_is_read_into_a_value() {
    on_a_usual_stack(|| async {
        let (schema, body) = chain(LONGEST);
        let values = Avro::fixed(&schema).unwrap().values();
        values.decode(body.into(), FIXED).await.unwrap();
    });
}

#[test]
fn a_long_chain_is_resolved() {
    on_a_usual_stack(|| async {
        let (schema, body) = chain(LONGEST);
        let other = schema.replace("shop", "store");
        resolve::<Chain>(&schema, &other, body).await.unwrap();
    });
}

#[test]
fn nesting_ends_before_the_stack_does() {
    on_a_usual_stack(|| async {
        for links in [LONGEST + 1, 1_000_000] {
            let (schema, body) = chain(links);
            assert!(refused(read::<Chain>(&schema, body.clone()).await).contains("nested"));
            let other = schema.replace("shop", "store");
            refused(resolve_json(&schema, &other, body.clone()).await);
            let values = Avro::fixed(&schema).unwrap().values();
            refused(values.decode(body.into(), FIXED).await);
        }
        let arrays = one(r#"{"type": "array", "items": "T"}"#);
        refused(read_json(&arrays, vec![2; 1_000_000]).await);
        // A record that is in itself, always, and takes no bytes.
        let endless = record(r#"{"name": "f", "type": "T"}"#);
        refused(read_json(&endless, Bytes::new()).await);
        refused(resolve_json(&endless, &endless.replace("shop", "store"), Bytes::new()).await);
    });
}

#[tokio::test]
async fn numbers_that_are_none_are_refused() {
    let read_one = async |of_type: &str, body: &'static [u8]| {
        refused(read_json(&one(of_type), Bytes::from_static(body)).await)
    };
    read_one(r#""long""#, &[0xff; 11]).await;
    read_one(r#""long""#, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02").await;
    read_one(r#""int""#, b"\xff\xff\xff\xff\x7f").await;
    read_one(r#""boolean""#, b"\x02").await;
    read_one(r#""string""#, b"\x02\xff").await;
    read_one(r#"["null", "int"]"#, b"\x04").await;
    read_one(r#"["null", "int"]"#, b"\x01").await;
    read_one(r#"{"type": "enum", "name": "E", "symbols": ["A"]}"#, b"\x02").await;
    read_one(r#"{"type": "enum", "name": "E", "symbols": ["A"]}"#, b"\x01").await;
    read_one(r#"{"type": "string", "logicalType": "uuid"}"#, b"\x02\xff").await;
    let most = one(r#""long""#);
    let least = write_json(&most, json!({"f": i64::MIN})).await;
    let least = read_json(&most, least).await.unwrap();
    assert_eq!(least, json!({"f": i64::MIN}));
}

#[tokio::test]
async fn an_array_in_blocks_with_sizes_is_read() {
    let schema = one(r#"{"type": "array", "items": "long"}"#);
    // Two items in a block of two bytes, then one item.
    let body = [3, 4, 2, 4, 2, 6, 0];
    let value = json!({"f": [1, 2, 3]});
    assert_eq!(read_json(&schema, body.to_vec()).await.unwrap(), value);
    let other = schema.replace("shop", "store");
    assert_eq!(resolve_json(&schema, &other, body.to_vec()).await.unwrap(), value);
}

proptest! {
    #[test]
    fn any_bytes_are_a_value_or_an_error(body: Vec<u8>, at: usize, byte: u8) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (schema, value) = everything();
            let mut broken = write(schema, &value).await.to_vec();
            let at = at % broken.len();
            broken[at] = byte;
            let values = Avro::fixed(schema).unwrap().values();
            let resolved = Avro::fixed(schema).unwrap().reader(PARTS).unwrap().values();
            for body in [body, broken] {
                let _ = read::<Everything>(schema, body.clone()).await;
                let _ = read::<serde_json::Value>(schema, body.clone()).await;
                let _ = values.decode(body.clone().into(), FIXED).await;
                let _ = resolve::<serde_json::Value>(schema, PARTS, body.clone()).await;
                let _ = resolved.decode(body.into(), FIXED).await;
            }
        });
    }

    #[test]
    fn any_text_is_a_schema_or_an_error(text: String) {
        let _ = Avro::fixed(&text);
        let _ = Avro::fixed(&one(&text));
    }
}
