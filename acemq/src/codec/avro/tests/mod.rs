mod hostile;
mod registered;
mod resolving;
mod shapes;
mod types;
mod vectors;
mod writing;

use std::sync::atomic::Ordering;

use apache_avro::types::Value;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value as Json;

use super::*;

const FIXED: Option<&str> = Some("avro/binary");
const REGISTERED: Option<&str> = Some("application/vnd.acemq.avro");

/// A record `shop.T` of fields.
fn record(fields: &str) -> String {
    format!(r#"{{"type": "record", "name": "T", "namespace": "shop", "fields": [{fields}]}}"#)
}

/// A record with one field.
fn one(of_type: &str) -> String {
    record(&format!(r#"{{"name": "f", "type": {of_type}}}"#))
}

/// Written by apache-avro if it can be, and with its places in every case: it comes to the same.
async fn write<T: Serialize + Sync>(schema: &str, payload: &T) -> Bytes {
    let avro = Avro::fixed(schema).unwrap();
    let body = avro.encode(payload).await.unwrap();
    avro.definition.widens.store(true, Ordering::Relaxed);
    assert_eq!(avro.encode(payload).await.unwrap(), body, "{schema}");
    body
}

async fn read<T: DeserializeOwned + Send>(schema: &str, body: impl Into<Bytes>) -> Result<T> {
    Avro::fixed(schema)?.decode(body.into(), FIXED).await
}

async fn resolve<T: DeserializeOwned + Send>(
    writer: &str,
    reader: &str,
    body: impl Into<Bytes>,
) -> Result<T> {
    Avro::fixed(writer)?.reader(reader)?.decode(body.into(), FIXED).await
}

/// The bytes of JSON.
async fn write_json(schema: &str, json: Json) -> Bytes {
    let avro = Avro::fixed(schema).unwrap();
    let value = Value::try_from(json).unwrap().resolve(&avro.definition.schema).unwrap();
    avro.values().encode(&value).await.unwrap()
}

async fn read_json(schema: &str, body: impl Into<Bytes>) -> Result<Json> {
    as_json(&Avro::fixed(schema)?.values(), body.into(), FIXED).await
}

async fn resolve_json(writer: &str, reader: &str, body: impl Into<Bytes>) -> Result<Json> {
    as_json(&Avro::fixed(writer)?.reader(reader)?.values(), body.into(), FIXED).await
}

async fn as_json(
    codec: &impl Decode<Value>,
    body: impl Into<Bytes>,
    content_type: Option<&str>,
) -> Result<Json> {
    Ok(codec.decode(body.into(), content_type).await?.try_into().unwrap())
}
