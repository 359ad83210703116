use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use serde_json::json;

use super::*;
use crate::schema::{MemorySchemaRegistry, RegisteredSchema};

#[derive(Serialize)]
struct T {
    f: i64,
}

/// The body of a value.
async fn write_f(avro: &Avro, f: i64) -> Result<Bytes> {
    avro.encode(&T { f }).await
}

async fn read_f(codec: &impl Decode<Value>, body: impl Into<Bytes>) -> Result<Json> {
    as_json(codec, body, REGISTERED).await
}

/// A registry that counts what it is asked, and can be away.
#[derive(Clone, Default)]
struct Counting(Arc<Counted>);

struct Counted {
    registry: MemorySchemaRegistry,
    away: AtomicBool,
    asked: AtomicU32,
    registered: Mutex<Vec<(String, String)>>,
}

impl Default for Counted {
    fn default() -> Self {
        Self {
            registry: MemorySchemaRegistry::new(),
            away: AtomicBool::new(false),
            asked: AtomicU32::new(0),
            registered: Mutex::default(),
        }
    }
}

impl Counting {
    fn ask(&self) -> Result<()> {
        self.0.asked.fetch_add(1, Ordering::Relaxed);
        match self.0.away.load(Ordering::Relaxed) {
            true => Err(Error::new(ErrorKind::Store, "the database is away")),
            false => Ok(()),
        }
    }

    fn asked(&self) -> u32 {
        self.0.asked.load(Ordering::Relaxed)
    }
}

impl SchemaRegistry for Counting {
    async fn register(
        &self,
        subject: &str,
        format: &SchemaFormat,
        definition: &str,
    ) -> Result<SchemaId> {
        self.ask()?;
        self.0.registered.lock().unwrap().push((subject.to_owned(), definition.to_owned()));
        self.0.registry.register(subject, format, definition).await
    }

    async fn by_id(&self, id: SchemaId) -> Result<Option<RegisteredSchema>> {
        self.ask()?;
        self.0.registry.by_id(id).await
    }

    async fn versions(&self, subject: &str) -> Result<Vec<RegisteredSchema>> {
        self.0.registry.versions(subject).await
    }
}

// promise: SR-3
#[tokio::test]
async fn a_body_carries_the_id_and_a_reader_that_has_only_the_registry_reads_it() {
    let registry = Counting::default();
    let schema = one(r#""long""#);
    let avro = Avro::registered(&schema, registry.clone()).unwrap();
    let reader = AvroReader::new(registry.clone()).values();
    for n in 0..3 {
        let body = write_f(&avro, n).await.unwrap();
        assert_eq!(body[..5], [0, 0, 0, 0, 1]);
        assert_eq!(body.len(), 6);
        let read = read_f(&reader, body).await.unwrap();
        assert_eq!(read, json!({"f": n}));
    }
    // Character for character as it was given, under the record's full name; and each once.
    let registered = [("shop.T".to_owned(), schema)];
    assert_eq!(*registry.0.registered.lock().unwrap(), registered);
    assert_eq!(registry.asked(), 2);
}

#[tokio::test]
async fn each_body_is_read_by_its_own_writers_schema() {
    let registry = MemorySchemaRegistry::new();
    let older = Avro::registered(&one(r#""int""#), registry.clone()).unwrap();
    let text =
        record(r#"{"name": "f", "type": "long"}, {"name": "g", "type": "string", "default": "-"}"#);
    let newer = Avro::registered(&text, registry.clone()).unwrap();
    #[derive(Serialize)]
    #[serde(rename = "T")]
    struct Old {
        f: i32,
    }
    #[derive(Serialize)]
    #[serde(rename = "T")]
    struct New {
        f: i64,
        g: &'static str,
    }
    let old = older.encode(&Old { f: 1 }).await.unwrap();
    let new = newer.encode(&New { f: 2, g: "x" }).await.unwrap();
    let read = async |codec: &Avro, body: &Bytes| {
        read_f(&codec.clone().values(), body.clone()).await.unwrap()
    };
    assert_eq!(read(&older, &new).await, json!({"f": 2, "g": "x"}), "as it was written");
    assert_eq!(read(&newer, &old).await, json!({"f": 1}), "as it was written");
    let newer = newer.reader(&text).unwrap();
    assert_eq!(read(&newer, &old).await, json!({"f": 1, "g": "-"}));
    assert_eq!(read(&newer, &new).await, json!({"f": 2, "g": "x"}));
}

// promise: SR-5
#[tokio::test]
async fn an_unknown_id_is_no_fault_that_passes_and_is_asked_for_again() {
    let registry = Counting::default();
    let reader = AvroReader::new(registry.clone()).values();
    let decode = async |body: &'static [u8]| read_f(&reader, body).await;
    for (body, id) in
        [(b"\0\0\0\0\x01\x02", "schema 1;"), (b"\0\xff\xff\xff\xff\x02", "schema 4294967295;")]
    {
        let error = decode(body).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Decode);
        assert!(!error.is_transient());
        let text = error.to_string();
        assert!(text.contains(id) && text.contains("in another registry"), "{text}");
    }
    let asked = registry.asked();
    assert_eq!(decode(b"\0\0\0\0\0\x02").await.unwrap_err().kind(), ErrorKind::Decode);
    assert_eq!(registry.asked(), asked, "no schema has id 0");

    let avro = Avro::registered(&one(r#""long""#), registry.clone()).unwrap();
    write_f(&avro, 1).await.unwrap();
    assert_eq!(decode(b"\0\0\0\0\x01\x02").await.unwrap(), json!({"f": 1}));
}

#[tokio::test]
async fn a_registry_that_is_away_is_a_fault_that_passes_both_ways() {
    let registry = Counting::default();
    let avro = Avro::registered(&one(r#""long""#), registry.clone()).unwrap();
    registry.0.away.store(true, Ordering::Relaxed);
    let written = write_f(&avro, 1).await.unwrap_err();
    assert!(written.is_transient(), "{written}");
    let values = avro.clone().values();
    let read = read_f(&values, &b"\0\0\0\0\x01\x02"[..]).await.unwrap_err();
    assert!(read.is_transient(), "{read}");
    assert!(read.to_string().contains("schema 1"), "{read}");
    registry.0.away.store(false, Ordering::Relaxed);
    let body = write_f(&avro, 1).await.unwrap();
    assert_eq!(read_f(&values, body).await.unwrap(), json!({"f": 1}));
}

/// Never answers.
struct Silent;

impl SchemaRegistry for Silent {
    async fn register(&self, _: &str, _: &SchemaFormat, _: &str) -> Result<SchemaId> {
        std::future::pending().await
    }

    async fn by_id(&self, _: SchemaId) -> Result<Option<RegisteredSchema>> {
        std::future::pending().await
    }

    async fn versions(&self, _: &str) -> Result<Vec<RegisteredSchema>> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_registry_that_falls_silent_holds_nobody_up_for_ever() {
    let avro = Avro::registered(&one(r#""long""#), Silent).unwrap();
    let values = avro.clone().values();
    let (written, read) =
        tokio::join!(write_f(&avro, 1), read_f(&values, &b"\0\0\0\0\x01\x02"[..]));
    for error in [written.unwrap_err(), read.unwrap_err()] {
        assert!(error.is_transient(), "{error}");
    }
}

const A_JSON_SCHEMA: &str = "read a registered Avro body: its schema, 1 (subject \"a\", version 1), is of \
    format json-schema; read it with a codec of that format";
const NO_JSON: &str = "read a registered Avro body: its schema, 2 (subject \"b\", version 1), cannot be \
    read; put its definition right in the registry, restart this consumer and replay the message";

#[tokio::test]
async fn a_schema_that_is_no_avro_or_cannot_be_read_is_no_fault_that_passes() {
    let registry = MemorySchemaRegistry::new();
    registry.register("a", &SchemaFormat::JsonSchema, r#""string""#).await.unwrap();
    registry.register("b", &SchemaFormat::Avro, "not JSON").await.unwrap();
    let reader = AvroReader::new(registry).values();
    for (body, fault) in [(b"\0\0\0\0\x01", A_JSON_SCHEMA), (b"\0\0\0\0\x02", NO_JSON)] {
        let error = read_f(&reader, &body[..]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Decode);
        assert_eq!(error.to_string(), fault);
    }
    let error = read_f(&reader, &b"\0\0\0\0\x02"[..]).await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.starts_with("read an Avro schema: it is not JSON: expected "), "{cause}");
    assert!(cause.contains("at line 1 column 2"), "{cause}");
}

#[tokio::test]
async fn a_body_without_a_frame_is_refused() {
    let reader = AvroReader::new(MemorySchemaRegistry::new()).values();
    for body in [&b""[..], b"\0\0\0\x01", b"\x01\0\0\0\x01\x02", b"{\"f\": 1}"] {
        assert_eq!(read_f(&reader, body).await.unwrap_err().kind(), ErrorKind::Decode, "{body:?}");
    }
}

#[test]
fn a_schema_without_a_name_cannot_be_registered() {
    let error = Avro::registered(r#""string""#, MemorySchemaRegistry::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
}
